"""What a report ends in: which delay to take on these data, or that the method does not help here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pipedec_cli.evaluate.competitor import Competitor
from pipedec_cli.evaluate.estimate import WORTHWHILE

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


def advise(
    tried: Sequence[Competitor],
    baseline: Competitor,
    *,
    called: str,
    subsequences: float | None,
    metric: str,
    label: str,
) -> Advice:
    """Choose among the delays that were tried.

    Args:
        tried: at least one, each with its gains over the baseline and its totals.
        baseline: with its totals.
        called: what the baseline is, in words.
        subsequences: mean number of subsequences of a target; None if it is not known.
        metric: the metric that stands for quality.
        label: its name in tables.
    """
    if not tried:
        raise ValueError("no decoder to choose from")

    def quality(one: Competitor) -> float:
        return one.differences[metric].value if metric in one.differences else 0.0

    def in_words(one: Competitor) -> str:
        if metric not in one.differences:
            return ""
        found = one.differences[metric]
        ends = ""
        if found.low is not None and found.high is not None:
            ends = f", 95 % interval {found.low:+.1f} to {found.high:+.1f}"
        return f", {label} {found.value:+.1f}{ends}"

    fast = [one for one in tried if one.speedup >= WORTHWHILE]
    if not fast:
        return _stay(max(tried, key=lambda one: one.speedup), baseline, called, subsequences)
    good = [one for one in fast if quality(one) >= -TOLERANCE]
    if good:
        fastest = max(one.speedup for one in good)
        chosen = max((one for one in good if one.speedup * AS_FAST >= fastest), key=quality)
        text = (
            f"Take {chosen.name} (`pipedec generate {chosen.options}`): {chosen.speedup:.1f} times as fast as {called}, "
            f"with {_fewer('steps', chosen, baseline):.1f} times fewer decoder steps{in_words(chosen)}."
        )
    else:
        chosen = max(fast, key=quality)
        found = chosen.differences[metric]
        cost = (
            "Every delay that is worthwhile costs quality."
            if found.low is None or found.excludes_zero
            else "Every delay that is worthwhile seems to cost quality, but that may be chance: score more examples."
        )
        text = (
            f"{cost} {chosen.name} (`pipedec generate {chosen.options}`) costs least: {chosen.speedup:.1f} times as "
            f"fast as {called}{in_words(chosen)}. Take it if the speed is worth that, try larger delays, which give "
            "some quality back, or stay with the sequential decoder."
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
    steps = _fewer("steps", best, baseline)
    verdict: Verdict = "no-gain"
    if subsequences is not None and subsequences <= FEW_SUBSEQUENCES:
        verdict = "few-subsequences"
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
    return Advice(
        verdict,
        None,
        f"The method does not help here: {why}; at best it is {best.speedup:.1f} times as fast as {called} "
        f"({best.name}). Stay with the sequential decoder.",
    )


def _cautions(one: Competitor, baseline: Competitor, metric: str, label: str) -> Iterator[str]:
    """What the metric hardly shows."""
    assert one.scored is not None and baseline.scored is not None
    failures, usual, difference = one.scored.failures, baseline.scored.failures, one.differences.get(metric)
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
    dropped, dropped_before = failures.dropped_rate, usual.dropped_rate
    if dropped is not None and dropped_before is not None and dropped > dropped_before + MORE_DROPPED:
        yield (
            f"It leaves out {dropped:.0%} of the subsequences that the references have, the baseline "
            f"{dropped_before:.0%}; a larger delay may mend that."
        )
    if failures.duplicated_rate > usual.duplicated_rate + MORE_DUPLICATED:
        yield (
            f"{failures.duplicated_rate:.0%} of its subsequences repeat an earlier one, in the baseline "
            f"{usual.duplicated_rate:.0%}."
        )
    if failures.truncated_rate > usual.truncated_rate + MORE_TRUNCATED:
        yield (
            f"{failures.truncated_rate:.0%} of its texts are cut short: raise --time-max or --sub-max, or segment finer."
        )
    if one.used_up is not None and one.used_up > USED_UP:
        yield (
            f"In {one.used_up:.0%} of the examples failed explorations used up the places of sub_max: --explore once "
            "avoids that."
        )
