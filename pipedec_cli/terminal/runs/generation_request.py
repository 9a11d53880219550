"""What `pipedec generate` is asked for, and what a file of predictions is called."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pipedec_cli.data.records import DecoderKind, Delay, FieldNames, SplitName
from pipedec_cli.data.rows import STDIN
from pipedec_cli.pipeline.decode import Method
from pipedec_cli.pipeline.grid import Explore, Limits
from pipedec_cli.pipeline.schedule import Whole

DEFAULT_SPLIT: Final[SplitName] = "test"
DEFAULT_DTYPE: Final = "float32"


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """The settings of one run; None leaves a setting to the checkpoint or the machine.

    Attributes:
        data: where the sources are; None for the workspace's.
        texts: sources that are given themselves; then there are no data.
        model: folder or hub name; None for the workspace's.
        decoder: which of the two; None for what the model is.
        delay: Δt, or ``sequential`` for the sequential schedule.
        untrained_delay: allow a delay that the checkpoint was not trained for.
        explore: the exploration rule.
        time_max: the last time-step.
        sub_max: the most subsequences.
        max_tokens: the most tokens.
        max_source_tokens: longer sources are cut to this many.
        batch_size: examples in flight at once.
        dtype: of the weights.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        split: which one of the workspace, of a folder or of a hub data set; None for test.
        limit: the first records only.
        names: what the data call their fields.
        trace: write the grid and the source's ids, too.
    """

    data: str | None = None
    texts: tuple[str, ...] = ()
    model: str | None = None
    decoder: DecoderKind | None = None
    delay: Delay | None = None
    untrained_delay: bool = False
    explore: Explore = "retry"
    time_max: int | None = None
    sub_max: int | None = None
    max_tokens: int | None = None
    max_source_tokens: int | None = None
    batch_size: int | Literal["auto"] = "auto"
    dtype: str = DEFAULT_DTYPE
    device: str = "auto"
    split: SplitName | None = None
    limit: int | None = None
    names: FieldNames = field(default_factory=FieldNames)
    trace: bool = False


def generation_name(request: GenerateRequest, method: Method, usual: Limits) -> str:
    """What a file of predictions is called: decoder and delay, such as ``pipelined-delay2``, and all that is unusual.

    Args:
        request: what was asked for.
        method: how it is decoded.
        usual: what bounds the decoding where nothing is asked for.
    """
    whole = isinstance(method.schedule, Whole)
    parts = ["sequential" if whole else f"pipelined-{method.schedule.name}"]
    if method.explore == "once" and not whole:
        parts.append("once")
    for name in ("time_max", "sub_max", "max_tokens"):
        if getattr(method.limits, name) != getattr(usual, name):
            parts.append(f"{name.replace('_', '')}{getattr(method.limits, name)}")
    if request.max_source_tokens is not None:
        parts.append(f"source{request.max_source_tokens}")
    if request.dtype != DEFAULT_DTYPE:
        parts.append(request.dtype)
    if request.model is not None:
        parts.append(Path(request.model).resolve().name)
    if request.texts:
        parts.append("text")
    elif request.data is not None:
        parts.append("stdin" if request.data == STDIN else _stem(request.data))
    if request.split not in (None, DEFAULT_SPLIT):
        parts.append(request.split)
    if request.limit is not None:
        parts.append(f"first{request.limit}")
    return re.sub(r"[^\w.-]+", "-", "-".join(parts))


def _stem(data: str) -> str:
    """A file's name without its endings, a data set's without its owner."""
    name = Path(data).resolve().name
    return name.removesuffix(".gz").rpartition(".")[0] or name
