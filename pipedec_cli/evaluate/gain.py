"""How much faster one decoder is than another, and where the gain comes from: fewer calls, or cheaper ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pipedec_cli.evaluate.timing import Timing


@dataclass(frozen=True, slots=True)
class Gain:
    """One decoder's speed over another's, and where it comes from.

    Attributes:
        speedup: throughput over the other's.
        low: the smallest ratio of two passes of the same repeat.
        high: the largest one.
        decoding: decoding time alone; None where one of the two does not tell it apart, like the next.
        faster_calls: time per call, the other's over this one's: what kernels give, and what more rows a call cost.
        fewer_calls: decoder calls, the other's over this one's: what the schedule gives.
    """

    speedup: float
    low: float
    high: float
    decoding: float | None
    faster_calls: float | None
    fewer_calls: float

    def as_json(self) -> dict[str, float | None]:
        """The ratios as plain values."""
        return asdict(self)


def gain(timing: Timing, over: Timing) -> Gain:
    """How much faster one decoder is than another that was timed beside it.

    Args:
        timing: the one that is looked at.
        over: the one that it is compared with.
    """
    paired = [
        other.total / lap.total * (timing.examples / over.examples)
        for lap, other in zip(timing.laps, over.laps, strict=True)
    ]
    mine, others = timing.decoding_seconds, over.decoding_seconds
    decoding = others / mine if mine and others else None
    fewer = over.calls / timing.calls
    return Gain(
        speedup=timing.throughput / over.throughput,
        low=min(paired),
        high=max(paired),
        decoding=decoding,
        faster_calls=None if decoding is None else decoding / fewer,
        fewer_calls=fewer,
    )


def gains_over(timings: Mapping[int, Timing], baseline: Mapping[int, Timing]) -> dict[int, Gain]:
    """A decoder's gains by batch size, where both were timed."""
    return {size: gain(timing, baseline[size]) for size, timing in timings.items() if size in baseline}
