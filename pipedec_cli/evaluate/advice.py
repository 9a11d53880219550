"""What a report ends in: which delay to take on these data, or that the method does not help here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pipedec_cli.evaluate.estimate import WORTHWHILE
from pipedec_cli.evaluate.significance import Difference

#: Points of 100 by which the metric may fall for a decoder to count as equally good; the paper's own loss on its
#: longest answers.
TOLERANCE: Final = 0.5
#: Decoders less than this factor slower than the fastest count as equally fast, and quality decides.
AS_FAST: Final = 1.1
#: Up to so many subsequences a target there is hardly anything to do at once.
FEW_SUBSEQUENCES: Final = 2.0
#: How much more often than in the baseline something may go wrong before it is pointed out; shares of 1.
MORE_DROPPED: Final = 0.05
MORE_DUPLICATED: Final = 0.02
MORE_TRUNCATED: Final = 0.02
#: A baseline that is cut short more often than this is no measure of anything.
BASELINE_TRUNCATED: Final = 0.1
#: By so much longer may the baseline's texts be before it is said that part of the speedup is shorter text.
SHORTER: Final = 1.25
USED_UP: Final = 0.02

Verdict = Literal["take", "trade", "few-subsequences", "no-gain"]


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a decoder's predictions go wrong, shares of 1; None where it is not known."""

    duplicated: float = 0.0
    dropped: float | None = None
    truncated: float = 0.0
    used_up: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one delay.

    Attributes:
        name: what tables call the decoder.
        options: the options of `pipedec generate` that give it.
        speedup: throughput over the baseline's.
        fewer_steps: the baseline's decoder steps over its own.
        difference: its metric minus the baseline's, in points of 100; None if nothing could be scored.
        rates: what goes wrong.
        fewer_tokens: the baseline's tokens over its own.
    """

    name: str
    options: str
    speedup: float
    fewer_steps: float
    difference: Difference | None
    rates: Rates = Rates()
    fewer_tokens: float = 1.0

    @property
    def as_good(self) -> bool:
        """Whether it is no worse than the baseline, within the tolerance."""
        return self.difference is None or self.difference.value >= -TOLERANCE


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do.

    Attributes:
        verdict: ``take`` a delay, ``trade`` quality for speed, or stay sequential for one of two reasons.
        options: the options of `pipedec generate` that are advised; None for the sequential decoder.
        text: the advice in a sentence or two.
        cautions: what speaks against relying on it.
    """

    verdict: Verdict
    options: str | None
    text: str
    cautions: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


def advise(
    outcomes: Sequence[Outcome],
    *,
    baseline: str,
    baseline_rates: Rates,
    subsequences: float | None,
    metric: str,
) -> Advice:
    """Choose among the delays that were tried.

    Args:
        outcomes: at least one.
        baseline: what the baseline is, in words.
        baseline_rates: what goes wrong there.
        subsequences: mean number of subsequences of a target; None if it is not known.
        metric: the name of the metric that `Outcome.difference` is of.
    """
    if not outcomes:
        raise ValueError("no outcome to choose from")
    fast = [outcome for outcome in outcomes if outcome.speedup >= WORTHWHILE]
    if not fast:
        return _stay(max(outcomes, key=lambda outcome: outcome.speedup), baseline, subsequences)
    good = [outcome for outcome in fast if outcome.as_good]
    if not good:
        least = max(fast, key=_quality)
        return Advice(
            "trade", least.options, _trade(least, baseline, metric), _cautions(least, baseline_rates, metric)
        )
    fastest = max(outcome.speedup for outcome in good)
    chosen = max((outcome for outcome in good if outcome.speedup * AS_FAST >= fastest), key=_quality)
    text = (
        f"Take {chosen.name} (`pipedec generate {chosen.options}`): {chosen.speedup:.1f} times as fast as {baseline}, "
        f"with {chosen.fewer_steps:.1f} times fewer decoder steps{_difference(chosen, metric)}."
    )
    return Advice("take", chosen.options, text, _cautions(chosen, baseline_rates, metric))


def _stay(best: Outcome, baseline: str, subsequences: float | None) -> Advice:
    """Why nothing that was tried is worth it."""
    measured = f"at best it is {best.speedup:.1f} times as fast as {baseline} ({best.name})"
    if subsequences is not None and subsequences <= FEW_SUBSEQUENCES:
        return Advice(
            "few-subsequences",
            None,
            f"The method does not help here: the targets have {subsequences:.1f} subsequences on average, and with one "
            f"or two there is hardly anything to generate at once; {measured}. Stay with the sequential decoder.",
        )
    if best.fewer_steps >= WORTHWHILE:
        why = (
            f"it saves decoder steps, {best.fewer_steps:.1f} times, but not time: the encoder takes most of it, or a "
            "step with more rows costs more on this machine"
        )
    else:
        why = f"it saves hardly any decoder steps, {best.fewer_steps:.1f} times: one long subsequence sets the pace"
    return Advice(
        "no-gain",
        None,
        f"The method does not help here: {why}; {measured}. Stay with the sequential decoder.",
    )


def _trade(least: Outcome, baseline: str, metric: str) -> str:
    sure = least.difference is None or least.difference.low is None or least.difference.excludes_zero
    found = (
        "Every delay that is worthwhile costs quality."
        if sure
        else "Every delay that is worthwhile seems to cost quality, but that may be chance: score more examples."
    )
    return (
        f"{found} {least.name} (`pipedec generate {least.options}`) costs least: "
        f"{least.speedup:.1f} times as fast as {baseline}{_difference(least, metric)}. Take it if the speed is worth "
        "that, try larger delays, which give some quality back, or stay with the sequential decoder."
    )


def _difference(outcome: Outcome, metric: str) -> str:
    if outcome.difference is None:
        return ""
    difference = outcome.difference
    ends = ""
    if difference.low is not None and difference.high is not None:
        ends = f", 95 % interval {difference.low:+.1f} to {difference.high:+.1f}"
    return f", {metric} {difference.value:+.1f}{ends}"


def _cautions(outcome: Outcome, usual: Rates, metric: str) -> tuple[str, ...]:
    """What the metric hardly shows."""
    rates, difference = outcome.rates, outcome.difference
    found = []
    if usual.truncated > BASELINE_TRUNCATED:
        found.append(
            f"The baseline is cut short in {usual.truncated:.0%} of its texts, which makes it slow and poor: train it "
            "further before you rely on this comparison."
        )
    if outcome.fewer_tokens > SHORTER:
        found.append(
            f"The baseline's texts have {outcome.fewer_tokens:.1f} times as many tokens: part of the speedup is shorter "
            "text."
        )
    if difference is None:
        found.append("Nothing could be scored: whether the quality holds is not known.")
    elif difference.low is None:
        found.append("One example says nothing of quality: score more.")
    elif outcome.as_good and difference.low < -2 * TOLERANCE:
        found.append(
            f"The interval reaches down to {difference.low:+.1f} {metric}: too few examples to rule such a loss out."
        )
    if (
        rates.dropped is not None
        and usual.dropped is not None
        and rates.dropped > usual.dropped + MORE_DROPPED
    ):
        found.append(
            f"It leaves out {rates.dropped:.0%} of the subsequences that the references have, the baseline "
            f"{usual.dropped:.0%}; a larger delay may mend that."
        )
    if rates.duplicated > usual.duplicated + MORE_DUPLICATED:
        found.append(
            f"{rates.duplicated:.0%} of its subsequences repeat an earlier one, in the baseline {usual.duplicated:.0%}."
        )
    if rates.truncated > usual.truncated + MORE_TRUNCATED:
        found.append(
            f"{rates.truncated:.0%} of its texts are cut short: raise --time-max or --sub-max, or segment finer."
        )
    if rates.used_up is not None and rates.used_up > USED_UP:
        found.append(
            f"In {rates.used_up:.0%} of the examples failed explorations used up the places of sub_max: --explore once "
            "avoids that."
        )
    return tuple(found)


def _quality(outcome: Outcome) -> float:
    return 0.0 if outcome.difference is None else outcome.difference.value
