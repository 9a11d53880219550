"""The settings of `pipedec bench`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from pipedec_cli.data.records import Family
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.settings import Dtype, Settings, key, names_of, option

Shape = Literal["wikihowqa", "cnn_dailymail", "pubmed", "msqa", "kp20k", "kptimes", "fields"]
_lengths = partial(option, panel="Lengths")
_speed = partial(option, panel="Speed")


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Settings):
    """The settings of one bench."""

    shape: Shape | None = _lengths(
        None, "Lengths of a data set of the paper, or of an object with 12 keys [default: wikihowqa]."
    )
    subsequences: int | None = _lengths(None, "Or: the number of subsequences.", min=1)
    tokens: int | None = _lengths(None, "The tokens of each of these.", min=1)
    source: int | None = _lengths(None, "Tokens of the source [default: 512; 300 for fields].", min=2)
    model: str = option(
        "scratch-base",
        "Fresh weights (scratch-tiny, -small, -base, -large, -qwen3-0.6b), a folder, hub name or GGUF file.",
    )
    family: Family | None = common.family_key()
    compare: str = option(
        "sequential,transformers",
        "Decoders to compare with, commas between: sequential (always), transformers, transformers:bfloat16, "
        "transformers:keys, ctranslate2, ctranslate2:int8, ctranslate2:bfloat16, "
        "llama.cpp, llama.cpp:q4_0, llama.cpp:bf16, openvino.",
        metavar="NAMES",
    )
    delays: tuple[int, ...] = option((1,), "Δt to try, commas between.")
    dtypes: tuple[str, ...] = _speed(
        ("float32",),
        "The dtypes of our weights, commas between; the peers take the first.",
        parser=partial(names_of, known=get_args(Dtype)),
        metavar="NAMES",
    )
    fidelity: Path | None = option(
        None, "Texts (target, source): what --dtypes change on them, in place of speed.", metavar="FILE"
    )
    fidelity_tokens: int = key(4000, "Tokens of these texts that are read.", min=1)
    batch_sizes: tuple[int, ...] = _speed((1,), "Batch sizes to time, commas between.")
    rows: tuple[int, ...] = key((1, 4, 8, 16), "Rows of the single decoder steps to time, commas between.")
    repeats: int = key(3, "Timed passes; medians count.", min=1)
    memory: bool = key(False, "Measure the peak memory of each decoder in a process of its own.")
    device: str = common.device_option(panel="Speed")
    threads: int | None = common.threads_key()
    peer_python: tuple[str, ...] = common.peer_python_key()
    seed: int = key(0, "The seed of fresh weights and random sources.")
    out: Path | None = key(None, "Save the measurements in this JSON file.")
    config: Path | None = common.config_option()
    set_keys: tuple[str, ...] = common.set_option()
    quiet: bool = common.quiet_option()
    as_json: bool = common.json_option()
