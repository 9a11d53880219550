"""The settings of `pipedec report` and `pipedec bench`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from pipedec_cli.data.records import MOST, SPLITS, Delay, SplitName
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.settings import (
    Dtype,
    Settings,
    WorkflowSettings,
    argument,
    key,
    names_of,
    option,
)
from pipedec_cli.metrics import ProtocolName
from pipedec_cli.pipeline.grid import EmptyRows

_input = partial(option, panel="Input")
_speed = partial(option, panel="Speed")


def parse_delays(value: Any) -> tuple[Delay, ...]:
    """Delays with commas between them, rising; ``wait`` comes last."""
    parts = common.listed(value)
    given = [part for part in parts if part != "wait"]
    numbers = common.numbers(given, "wait") if given else ()
    return numbers if given == parts else (*numbers, "wait")


def parse_splits(value: Any) -> tuple[SplitName, ...]:
    """Names of splits with commas between them, in the order train, dev, test."""
    names = names_of(value, SPLITS)
    return tuple(split for split in SPLITS if split in names)


@dataclass(frozen=True, kw_only=True)
class ReportSettings(WorkflowSettings):
    """The settings of one report; None leaves a setting to the checkpoint or the workspace."""

    data: str | None = argument(
        "Generate from these data and score against them [default: the test set]."
    )
    compare: str = option(
        "sequential",
        "Decoders to compare with, commas between: sequential (always), exact (exact-pipelined, exact-source, exact-jacobi), "
        "transformers, transformers:bfloat16, ctranslate2, ctranslate2:int8, ctranslate2:bfloat16, llama.cpp.",
        metavar="NAMES",
    )
    delays: tuple[Delay, ...] | None = option(
        None,
        "Δt to try, commas between, or 'wait' [default: as trained; 2 for a model that serves any].",
        parser=parse_delays,
        metavar="N,N",
    )
    empty_rows: tuple[EmptyRows, ...] | None = key(
        None,
        "Rules for empty rows to try, commas between: retry, stop [default: as trained].",
        parser=partial(names_of, known=get_args(EmptyRows)),
        metavar="RULES",
    )
    stop_on_repeat: bool | None = key(
        None, "End a text when it repeats itself [default: as trained]."
    )
    model: str | None = _input(None, "The pipelined model [default: the workspace's].")
    baseline: str | None = _input(
        None,
        "The sequential model [default: the model's teacher, else the workspace's].",
    )
    split: tuple[SplitName, ...] | None = _input(
        None,
        "The split; of several, such as dev,test, the last is timed [default: test].",
        parser=parse_splits,
        metavar="NAMES",
    )
    limit: int | None = _input(None, "Compare on the first N examples only.", min=1)
    max_tokens: int | None = _input(
        None, "The most tokens [default: 512 for wait and sequential].", min=1, max=MOST
    )
    protocol: ProtocolName | None = key(
        None,
        "The scoring protocol [default: the first of the task that the data suggest].",
    )
    timing_examples: int | Literal["all"] = key(
        32, "How many examples to time, drawn evenly, or 'all'."
    )
    repeats: int = key(3, "Timed passes; medians count.", min=1)
    batch_sizes: tuple[int, ...] = _speed((1,), "Batch sizes to time, commas between.")
    memory: bool = key(
        True, "Measure the peak memory of each decoder in a process of its own."
    )
    batch_size: int | Literal["auto"] = "auto"  # of generating, which is not timed
    dtype: Dtype = _speed("float32", "The dtype of the weights, also of the peers'.")
    device: str = common.device_option(panel="Speed")
    threads: int | None = common.threads_key()
    peer_gguf: Path | None = common.peer_gguf_key()
    out: Path | None = common.general(
        None,
        "The folder of report.json, .md and .html [default: report/ in the workspace].",
    )


Shape = Literal[
    "wikihowqa", "cnn_dailymail", "pubmed", "msqa", "kp20k", "kptimes", "fields"
]
_lengths = partial(option, panel="Lengths")


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Settings):
    """The settings of one bench."""

    shape: Shape | None = _lengths(
        None,
        "Lengths of a data set of the paper, or of an object with 12 keys [default: wikihowqa].",
    )
    subsequences: int | None = _lengths(
        None, "Or: the number of subsequences.", min=1, max=1000
    )
    tokens: int | None = _lengths(
        None, "The tokens of each of these.", min=1, max=65_536
    )
    source: int | None = _lengths(
        None, "Tokens of the source [default: 512; 300 for fields].", min=2
    )
    model: str = option(
        "scratch-base",
        "Fresh weights (scratch-tiny, -small, -base, -large, -qwen3-0.6b), a folder, hub name or GGUF file.",
    )
    compare: str = option(
        "sequential,transformers",
        "Decoders to compare with, commas between: sequential (always), transformers, transformers:bfloat16, "
        "ctranslate2, ctranslate2:int8, ctranslate2:bfloat16, llama.cpp.",
        metavar="NAMES",
    )
    delays: tuple[int, ...] = option((1,), "Δt to try, commas between.")
    dtypes: tuple[str, ...] = _speed(
        ("float32",),
        "The dtypes of our weights, commas between; the peers take the first.",
        parser=partial(names_of, known=get_args(Dtype)),
        metavar="NAMES",
    )
    batch_sizes: tuple[int, ...] = _speed((1,), "Batch sizes to time, commas between.")
    repeats: int = key(3, "Timed passes; medians count.", min=1)
    memory: bool = key(
        False, "Measure the peak memory of each decoder in a process of its own."
    )
    device: str = common.device_option(panel="Speed")
    threads: int | None = common.threads_key()
    peer_gguf: Path | None = common.peer_gguf_key()
    seed: int = 0  # of fresh weights and random sources
    set_keys: tuple[str, ...] = common.set_option()
    quiet: bool = common.quiet_option()
    as_json: bool = common.json_option()
