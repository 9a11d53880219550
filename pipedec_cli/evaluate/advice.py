"""Is the method worth it? Decoder calls counted on the targets before training; and advice, once all is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pipedec_cli.data.writing import rounded
from pipedec_cli.pipeline.grid import Limits, replay
from pipedec_cli.pipeline.schedule import Fixed

if TYPE_CHECKING:
    from pipedec_cli.evaluate.competitor import Competitor

WORTHWHILE: Final = 1.3  # fewer steps, or less time, by less than this factor are not worth it
#: Points of 100 by which the metric may fall for a decoder to count as equally good; the paper's own loss on its
#: longest answers.
TOLERANCE: Final = 0.5
AS_FAST: Final = 1.1  # slower than the fastest by less than this factor is as fast, and quality decides
FEW_SUBSEQUENCES: Final = 2.0  # up to so many a target there is hardly anything to do at once
# How much more often than in the baseline something may go wrong before it is pointed out; shares of 1.
MORE_DROPPED: Final = 0.05
MORE_OFTEN: Final = 0.02
BASELINE_TRUNCATED: Final = 0.1  # a baseline that is cut short more often is no measure of anything
SHORTER: Final = 1.25  # a baseline's texts that are longer by less than this factor are as long


class Estimate(NamedTuple):
    """Mean decoder calls a target at one Δt, if both decoders wrote just the targets, to their ends.

    The sequential decoder makes each token of the target, and <eos>. `truncated` is the share of targets that time_max
    or sub_max would cut, 0 to 1; their steps are counted uncut.
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
        return rounded({**self._asdict(), "ratio": self.ratio}, 4)


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
    if subsequences_per_target > FEW_SUBSEQUENCES and best >= WORTHWHILE:
        return None
    return (
        f"the targets have {subsequences_per_target:.1f} subsequences on average, which saves at best a factor of "
        f"{best:.1f} in decoder steps: pipelined decoding will hardly help here"
    )


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do: ``take`` a delay, ``trade`` quality for speed, or stay sequential for one of two reasons.

    `options` are those of `pipedec generate` that are advised, None for the sequential decoder; `text` is the advice in
    a sentence or two, and `cautions` what speaks against relying on it.
    """

    verdict: Literal["take", "trade", "few-subsequences", "no-gain"]
    options: str | None
    text: str
    cautions: tuple[str, ...] = ()


def advise(
    tried: Sequence[Competitor],
    baseline: Competitor,
    *,
    called: str,
    subsequences: float | None,
    metric: str,
    label: str,
) -> Advice:
    """Choose among the delays that were tried, at least one: with gains over the baseline and, as that one, totals.

    `called` is the baseline in words, `subsequences` their mean number in a target if known, `label` the metric's name.
    """
    if not tried:
        raise ValueError("no decoder to choose from")
    fast = [one for one in tried if one.speedup >= WORTHWHILE]
    if not fast:
        return _stay(max(tried, key=lambda one: one.speedup), baseline, called, subsequences)

    def quality(one: Competitor) -> float:
        return one.differences[metric].value if metric in one.differences else 0.0

    good = [one for one in fast if quality(one) >= -TOLERANCE]
    fastest = max((one.speedup for one in good), default=0.0)
    chosen = max([one for one in good if one.speedup * AS_FAST >= fastest] or fast, key=quality)
    take = f"{chosen.name} (`pipedec generate {chosen.options}`)"
    found = chosen.differences.get(metric)
    change = "" if found is None else f", {label} {found.value:+.1f}"
    if found is not None and found.low is not None:
        change += f", 95 % interval {found.low:+.1f} to {found.high:+.1f}"
    if good:
        text = (
            f"Take {take}: {chosen.speedup:.1f} times as fast as {called}, "
            f"with {_fewer('steps', chosen, baseline):.1f} times fewer decoder steps{change}."
        )
    else:
        costs = "costs quality."
        if found is not None and found.low is not None and not found.excludes_zero:
            costs = "seems to cost quality, but that may be chance: score more examples."
        text = (
            f"Every delay that is worthwhile {costs} {take} costs least: {chosen.speedup:.1f} times as fast as "
            f"{called}{change}. Take it if the speed is worth that, try larger delays, which give some quality back, or "
            "stay with the sequential decoder."
        )
    cautions = tuple(_cautions(chosen, baseline, metric, label))
    return Advice("take" if good else "trade", chosen.options, text, cautions)


def _fewer(what: Literal["steps", "tokens"], one: Competitor, baseline: Competitor) -> float:
    """How many times fewer an example takes than in the baseline."""
    assert one.totals is not None and baseline.totals is not None
    mine, usual = (totals.as_json()[f"{what}_per_example"] for totals in (one.totals, baseline.totals))
    return usual / mine if mine else 1.0


def _stay(best: Competitor, baseline: Competitor, called: str, subsequences: float | None) -> Advice:
    """Why nothing that was tried is worth it."""
    few = subsequences is not None and subsequences <= FEW_SUBSEQUENCES
    steps = _fewer("steps", best, baseline)
    if few:
        why = (
            f"the targets have {subsequences:.1f} subsequences on average, and with one or two there is hardly anything "
            "to generate at once"
        )
    elif steps >= WORTHWHILE:
        why = (
            f"it saves decoder steps, {steps:.1f} times, but not time: the encoder takes most of it, or a step with "
            "more rows costs more on this machine"
        )
    else:
        why = f"it saves hardly any decoder steps, {steps:.1f} times: one long subsequence sets the pace"
    speed = f"at best it is {best.speedup:.1f} times as fast as {called} ({best.name})"
    text = f"The method does not help here: {why}; {speed}. Stay with the sequential decoder."
    return Advice("few-subsequences" if few else "no-gain", None, text)


def _cautions(one: Competitor, baseline: Competitor, metric: str, label: str) -> Iterator[str]:
    """What the metric hardly shows, and what goes wrong more often than in the baseline."""
    assert one.scored is not None and baseline.scored is not None
    found, usual, difference = one.scored.failures, baseline.scored.failures, one.differences.get(metric)
    if usual.truncated_rate > BASELINE_TRUNCATED:
        yield (
            f"The baseline is cut short in {usual.truncated_rate:.0%} of its texts, which makes it slow and poor: train "
            "it further before you rely on this comparison."
        )
    if (longer := _fewer("tokens", one, baseline)) > SHORTER:
        yield f"The baseline's texts have {longer:.1f} times as many tokens: part of the speedup is shorter text."
    if difference is None:
        yield "Nothing could be scored: whether the quality holds is not known."
    elif difference.low is None:
        yield "One example says nothing of quality: score more."
    elif difference.value >= -TOLERANCE and difference.low < -2 * TOLERANCE:
        yield f"The interval reaches down to {difference.low:+.1f} {label}: too few examples to rule such a loss out."
    dropped, before = found.dropped_rate, usual.dropped_rate
    if dropped is not None and before is not None and dropped > before + MORE_DROPPED:
        yield (
            f"It leaves out {dropped:.0%} of the subsequences that the references have, the baseline {before:.0%}; "
            "a larger delay may mend that."
        )
    repeated, before = found.duplicated_rate, usual.duplicated_rate
    if repeated > before + MORE_OFTEN:
        yield f"{repeated:.0%} of its subsequences repeat an earlier one, in the baseline {before:.0%}."
    if (cut := found.truncated_rate) > usual.truncated_rate + MORE_OFTEN:
        yield f"{cut:.0%} of its texts are cut short: raise --time-max or --sub-max, or segment finer."
    if one.used_up is not None and one.used_up > MORE_OFTEN:
        yield (
            f"In {one.used_up:.0%} of the examples failed explorations used up the places of sub_max: --explore once "
            "avoids that."
        )
