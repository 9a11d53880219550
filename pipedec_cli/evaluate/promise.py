"""What the grid promises before any training: decoder calls, counted on the targets themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pipedec_cli.pipeline.grid import Limits, replay
from pipedec_cli.pipeline.schedule import Fixed

DELAYS: Final = (1, 2, 3)

#: Fewer steps by less than this factor are not worth a method of one's own.
WORTHWHILE: Final = 1.3

_NO_END: Final = 10**9


@dataclass(frozen=True, slots=True)
class Promise:
    """The decoder calls of both decoders, if they wrote just the targets, to their ends.

    Attributes:
        delay: Δt.
        targets: how many targets were replayed.
        sequential_steps: mean calls of the sequential decoder: each token of the target, and <eos>.
        pipelined_steps: mean calls of the pipelined decoder.
        truncated: the share of targets that time_max or sub_max would cut, 0 to 1; their steps are counted uncut.
    """

    delay: int
    targets: int
    sequential_steps: float
    pipelined_steps: float
    truncated: float

    @property
    def ratio(self) -> float:
        """How many times fewer calls."""
        return self.sequential_steps / self.pipelined_steps if self.pipelined_steps else 0.0

    def to_json(self) -> dict[str, Any]:
        """The figures, rounded, with the ratio."""
        values = {**asdict(self), "ratio": self.ratio}
        return {
            name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()
        }


def promise(
    wholes: Sequence[int],
    parts: Sequence[Sequence[int]],
    limits: Limits,
    *,
    delays: Sequence[int] = DELAYS,
) -> list[Promise]:
    """Replay targets on the grid, a result for each delay.

    Args:
        wholes: the length of each target as one string, <eos> not counted.
        parts: the lengths of its subsequences.
        limits: the pipelined decoder's bounds.
        delays: the Δt to try.
    """
    results = []
    count = max(1, len(parts))
    endless = replace(limits, time_max=_NO_END)  # a text that is cut has fewer steps, which is no gain
    for delay in delays:
        runs = [replay(lengths, Fixed(delay), endless) for lengths in parts]
        cut = [replay(lengths, Fixed(delay), limits).truncated for lengths in parts]
        results.append(
            Promise(
                delay=delay,
                targets=len(parts),
                sequential_steps=sum(length + 1 for length in wholes) / count,
                pipelined_steps=sum(run.steps for run in runs) / count,
                truncated=sum(reason is not None for reason in cut) / count,
            )
        )
    return results


def doubt(subsequences_per_target: float, promises: Sequence[Promise]) -> str | None:
    """Why the method will not help on these targets; None if it may."""
    best = max((entry.ratio for entry in promises), default=0.0)
    if subsequences_per_target > 2 and best >= WORTHWHILE:
        return None
    return (
        f"the targets have {subsequences_per_target:.1f} subsequences on average, which saves at best a factor of "
        f"{best:.1f} in decoder steps: pipelined decoding will hardly help here"
    )
