"""The settings of `pipedec report` and `pipedec bench`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from pipedec_cli.compare.peers import PEERS
from pipedec_cli.data.records import SPLITS, SplitName
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.settings import (
    Count,
    Device,
    Dtype,
    Settings,
    Size,
    Sizes,
    StoredDtype,
    Threads,
    WorkflowSettings,
    argument,
    key,
    listed,
    option,
    rising,
)

#: Timed passes of each decoder; medians count.
REPEATS: Final = 3

_input = partial(option, panel="Input")
_speed = partial(option, panel="Speed")


def in_order(value: Any) -> list[str]:
    """The names of splits that are typed with commas, in the order train, dev, test; names of no split stay behind them."""
    names = listed(value)
    splits = [split for split in SPLITS if split in names]
    return splits + [name for name in names if name not in SPLITS]


@dataclass(frozen=True, kw_only=True)
class ReportSettings(WorkflowSettings):
    """The settings of one report; None leaves a setting to the checkpoint or the workspace."""

    data: str | None = argument(
        "Generate from these data and score against them [default: the test set]."
    )
    compare: str = option(
        "sequential",
        "Decoders to compare with, commas between: sequential (always), exact (exact-pipelined, exact-source, exact-jacobi), "
        f"{', '.join(PEERS)}.",
        metavar="NAMES",
    )
    delays: Annotated[tuple[Size | Literal["wait"], ...], Meta(min_length=1)] | None = (
        option(
            None,
            "Δt to try, commas between, or 'wait' [default: as trained; 2 for a model that serves any].",
            read=rising,
            metavar="N,N",
        )
    )
    model: str | None = _input(None, "The pipelined model [default: the workspace's].")
    baseline: str | None = _input(
        None,
        "The sequential model [default: the model's teacher, else the workspace's].",
    )
    split: Annotated[tuple[SplitName, ...], Meta(min_length=1)] | None = _input(
        None,
        "The split; of several, such as dev,test, the last is timed [default: test].",
        read=in_order,
        metavar="NAMES",
    )
    limit: Count | None = _input(None, "Compare on the first N examples only.")
    max_tokens: Size | None = _input(
        None, "The most tokens [default: 512 for wait and sequential]."
    )
    timing_examples: Size | Literal["all"] = key(
        32, "How many examples to time, drawn evenly, or 'all'."
    )
    batch_sizes: Sizes = _speed(
        (1,), "Batch sizes to time, commas between.", read=rising, metavar="N,N"
    )
    memory: bool = key(
        True, "Measure the peak memory of each decoder in a process of its own."
    )
    batch_size: int | Literal["auto"] = "auto"  # of generating, which is not timed
    dtype: Dtype = _speed("float32", "The dtype of the weights, also of the peers'.")
    device: Device = common.device_option(panel="Speed")
    threads: Threads | None = common.threads_key()
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
    subsequences: Annotated[int, Meta(ge=1, le=1000)] | None = _lengths(
        None, "Or: the number of subsequences."
    )
    tokens: Annotated[int, Meta(ge=1, le=65_536)] | None = _lengths(
        None, "The tokens of each of these."
    )
    source: Annotated[int, Meta(ge=2, le=common.LARGEST)] | None = _lengths(
        None, "Tokens of the source [default: 512; 300 for fields]."
    )
    model: str = option(
        "scratch-base",
        "Fresh weights (scratch-tiny, -small, -base, -large, -qwen3-0.6b), a folder, hub name or GGUF file.",
    )
    compare: str = option(
        "sequential,transformers",
        f"Decoders to compare with, commas between: sequential (always), {', '.join(PEERS)}.",
        metavar="NAMES",
    )
    delays: Sizes = option(
        (1,), "Δt to try, commas between.", read=rising, metavar="N,N"
    )
    dtypes: Annotated[tuple[StoredDtype, ...], Meta(min_length=1)] = _speed(
        ("float32",),
        "The dtypes of our weights, commas between; of a GGUF file also stored. The peers take the first.",
        read=listed,
        metavar="NAMES",
    )
    batch_sizes: Sizes = _speed(
        (1,), "Batch sizes to time, commas between.", read=rising, metavar="N,N"
    )
    memory: bool = key(
        False, "Measure the peak memory of each decoder in a process of its own."
    )
    device: Device = common.device_option(panel="Speed")
    threads: Threads | None = common.threads_key()
    peer_gguf: Path | None = common.peer_gguf_key()
    seed: int = 0  # of fresh weights and random sources
