"""What can be saved before anything is trained: decoder calls, counted on the targets themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pipedec_cli.data.writing import rounded
from pipedec_cli.pipeline.grid import Limits, replay
from pipedec_cli.pipeline.schedule import Fixed

#: Fewer steps by less than this factor are not worth a method of one's own.
WORTHWHILE: Final = 1.3


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean decoder calls a target at one Δt, if both decoders wrote just the targets, to their ends.

    Attributes:
        sequential_steps: each token of the target, and <eos>.
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
        return rounded({**asdict(self), "ratio": self.ratio}, 4)


def estimate(
    wholes: Sequence[int], parts: Sequence[Sequence[int]], limits: Limits, delays: Sequence[int] = (1, 2, 3)
) -> list[Estimate]:
    """Replay targets on the grid, a result for each Δt: `wholes` and `parts` are their tokens and their subsequences'."""
    count = max(1, len(parts))
    sequential = sum(length + 1 for length in wholes) / count
    endless = replace(limits, time_max=10**9)  # a text that is cut has fewer steps, which is no gain
    results = []
    for delay in delays:
        steps = sum(replay(lengths, Fixed(delay), endless).steps for lengths in parts)
        cut = sum(replay(lengths, Fixed(delay), limits).truncated is not None for lengths in parts)
        results.append(Estimate(delay, len(parts), sequential, steps / count, cut / count))
    return results


def doubt(subsequences_per_target: float, estimates: Sequence[Estimate]) -> str | None:
    """Why the method will not help on these targets; None if it may."""
    best = max((entry.ratio for entry in estimates), default=0.0)
    if subsequences_per_target > 2 and best >= WORTHWHILE:
        return None
    return (
        f"the targets have {subsequences_per_target:.1f} subsequences on average, which saves at best a factor of "
        f"{best:.1f} in decoder steps: pipelined decoding will hardly help here"
    )
