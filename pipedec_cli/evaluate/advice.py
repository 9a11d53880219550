"""Is the method worth it? Advice, once all is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pipedec_cli.evaluate.estimate import FEW_SUBSEQUENCES, WORTHWHILE

if TYPE_CHECKING:
    from pipedec_cli.evaluate.competitor import Competitor, Quality
    from pipedec_cli.evaluate.significance import Difference

#: Points of 100 by which the metric may fall for a decoder to count as equally good; the paper's own loss on its
#: longest answers.
TOLERANCE: Final = 0.5
#: ROUGE-L with the baseline's texts, from which on texts count as the same where there are no right answers: nine of ten
#: words, in their order.
SAME_TEXT: Final = 90.0
AS_FAST: Final = 1.1  # slower than the fastest by less than this factor is as fast, and quality decides
# How much more often than in the baseline something may go wrong before it is pointed out; shares of 1.
MORE_DROPPED: Final = 0.05
MORE_OFTEN: Final = 0.02
BASELINE_TRUNCATED: Final = 0.1  # a baseline that is cut short more often is no measure of anything
OFTEN_ALIKE: Final = 0.25  # of the texts: half of what makes a decoder useless
SHORTER: Final = 1.25  # a baseline's texts that are longer by less than this factor are as long


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do: ``take`` a delay, ``trade`` quality for speed, or stay with the baseline, for one of two reasons.

    Or nothing, because a decoder is of no use yet (``unfit``) or its times say nothing (``unclear``). `options` are those of
    `pipedec generate` that it speaks of, None for none; `text` is the advice in a sentence or two, and `cautions` what
    speaks against relying on it.
    """

    verdict: Literal["take", "trade", "few-subsequences", "no-gain", "unfit", "unclear"]
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
    labels: Mapping[str, str],
) -> Advice:
    """Choose among the delays that were tried, at least one: with gains over the baseline and, as that one, totals.

    `called` is the baseline in words, `subsequences` their mean number in a target if known, `labels` metrics' names.
    """
    if not tried:
        raise ValueError("no decoder to choose from")
    fit = [one for one in tried if not one.faults]
    why = tuple(f"{one.name}: {'; '.join(one.faults)}." for one in (baseline, *tried) if one.faults)
    if baseline.faults or not fit:
        return Advice("unfit", None, _unfit(baseline, fit, called), why)

    on, instead = _where_to_choose(tried, metric)

    def value(found: Quality) -> float:
        """Points over what counts as good enough, of scores or of agreement; 0 where nothing is known."""
        if metric in found.differences:
            return found.differences[metric].value + TOLERANCE
        rouge = found.agreement and found.agreement.rouge_l
        return 0.0 if rouge is None else rouge - SAME_TEXT

    def quality(one: Competitor) -> float:
        return value(one.quality if on is None else one.beside[on])

    few = ""
    if subsequences is not None and subsequences <= FEW_SUBSEQUENCES:
        few = f"the targets have {subsequences:.1f} {_parts(tried[0])} on average, and with one or two there is hardly "
        few += "anything to generate at once"
    fast = [one for one in fit if one.gain.speedup >= WORTHWHILE and one.gain.low > 1]
    sound = [one for one in fit if quality(one) >= 0]
    good = [one for one in fast if one in sound]
    fastest = max((one.gain.speedup for one in good), default=0.0)
    least = max(WORTHWHILE, fastest * AS_FAST)  # the speedup of one that would be taken if it were sure
    unsure = [one for one in sound if one.gain.low <= 1 and one.gain.speedup >= least]
    if unsure or not fast:
        best = max(unsure or fit, key=lambda one: one.gain.speedup)
        return _stay([best, *sound], baseline, called, few, why)
    chosen = max([one for one in good if one.gain.speedup * AS_FAST >= fastest] or fast, key=quality)
    told = chosen.beside[on] if on and instead else chosen.quality
    where = f", {'judged' if instead else 'chosen'} on {on}" if on else ""
    take = f"{chosen.name} (`pipedec generate {chosen.options}`{where})"
    found, label = told.differences.get(metric), labels[metric]
    speed = f"{chosen.gain.speedup:.1f} times as fast as {called}"
    change = _change(told, metric, label, called)
    if held := bool(good) and value(told) >= 0:
        fewer = _fewer("steps", chosen, baseline)
        steps = f", with {fewer:.1f} times fewer decoder steps" if fewer >= AS_FAST else ""
        text = f"Take {take}: {speed}{steps}{change}"
    elif good:
        text = (
            f"{take} is {speed}{change} It was as good on {on} and is not here: compare on more examples before you take it, "
            f"or stay with {called}."
        )
    elif found is not None and found.excludes_zero:
        costs = f"Every delay that saves time costs quality. {take} costs least:"
        remedy = "try larger delays or --min-start-probs, which give some quality back"
        if chosen.delay == "together":
            costs, remedy = f"It saves time and costs quality: {take} is", "train it further"
        text = f"{costs} {speed}{change} Take it if the speed is worth that, {remedy}, or stay with {called}."
    else:
        more = "score more examples" if found else "read some of its texts"
        text = f"{take} is {speed}{change} What it costs is open: {more} before you take it, or stay with {called}."
    worse = [
        f"{labels[name]} is worse: {other.value:+.1f}, 95 % interval {other.low:+.1f} to {other.high:+.1f}."
        for name, other in told.differences.items()
        if name in labels.keys() - {metric} and other.excludes_zero and other.value < 0
    ]
    minded = (f"Mind that {few}.",) if few else ()
    unseen = (f"Quality is that on {on}: nothing else could be scored.",) if instead else ()
    cautions = (*minded, *worse, *unseen, *_cautions(chosen, baseline, found, label), *why)
    return Advice("take" if held else "trade", chosen.options, text, cautions)


def _where_to_choose(tried: Sequence[Competitor], metric: str) -> tuple[str | None, bool]:
    """The split before the last that a choice among several is made on, if there is one: on the last it would be flattered.

    If there are scores, it has some. Where the last split has none, it speaks for the quality of one alone, too, instead.
    """
    known = metric in tried[0].differences
    scored = [split for split, found in tried[0].beside.items() if metric in found.differences]
    instead = bool(scored) and not known
    before = scored if scored or known else [*tried[0].beside]
    return before[-1] if before and (instead or len(tried) > 1) else None, instead


def where_no_word_may_change(exact: Sequence[Competitor], called: str) -> str:
    """A sentence about the fastest in exact mode that is sure to be faster than the baseline; "" if there is none."""
    faster = [one for one in exact if one.gain.low > 1]
    kept = [one for one in faster if one.text_agreement and one.text_agreement.equal == one.text_agreement.of]
    if not kept:
        return ""
    best = max(kept, key=lambda one: one.gain.speedup)
    speed = f"the very text of {called}, {best.gain.speedup:.1f} times as fast"
    return f"If no word may change, {best.name} (`pipedec generate {best.options}`) gives {speed}."


def _unfit(baseline: Competitor, fit: Sequence[Competitor], called: str) -> str:
    """That nothing is advised, and what to do."""
    again = "and read some predictions, before you compare again."
    if not baseline.faults:
        return (
            f"No advice: what the pipelined decoder writes is of no use yet, however fast it comes. Stay with {called}; "
            f"train the pipelined decoder further, {again}"
        )
    useless = f"what {called} writes is of no use yet, so that a comparison with it"
    if not fit:
        useless = f"neither {called} nor the pipelined decoder writes anything of use yet, so that which one is faster"
    return f"No advice: {useless} says nothing. Train further, {again}"


def _change(quality: Quality, metric: str, label: str, called: str) -> str:
    """How a sentence about speed ends: with what becomes of the quality. A difference that may be chance is none."""
    found = quality.differences.get(metric)
    if found is None and quality.agreement is not None:
        return f"; its texts agree with those of {called}: {quality.agreement.line}."
    if found is None or found.low is None or found.high is None:
        return "."
    if found.low == found.high == 0:
        return f". {label} is the same."
    interval = f"95 % interval {found.low:+.1f} to {found.high:+.1f}"
    if found.excludes_zero:
        return f", {label} {found.value:+.1f}, {interval}."
    examples = len(quality.scored.items) if quality.scored else 0
    return f". In {label} there is no difference that {examples:,} examples could show ({interval})."


def _parts(one: Competitor) -> str:
    """What the rows of its grid are called."""
    return "fields" if one.delay == "together" else "subsequences"


def _fewer(what: Literal["steps", "tokens"], one: Competitor, baseline: Competitor) -> float:
    """How many times fewer an example takes than in the baseline."""
    assert one.totals is not None and baseline.totals is not None
    mine, usual = (totals.as_json()[f"{what}_per_example"] for totals in (one.totals, baseline.totals))
    return usual / mine if mine else 1.0


def _stay(
    among: Sequence[Competitor], baseline: Competitor, called: str, few: str, useless: Sequence[str]
) -> Advice:
    """Why nothing that was tried is worth it; the fastest comes first, then those that are as good."""
    cautions = (*_goes_wrong(among[0], baseline), *useless)
    best, gain, end = among[0], among[0].gain, f"Stay with {called}."
    steps, longer = _fewer("steps", best, baseline), _fewer("tokens", baseline, best)
    spread = f"{gain.low:.1f} to {gain.high:.1f} times as fast as {called}"
    # Repeats that go from no gain to a good one say nothing, whatever their median.
    scattered = gain.low <= 1 and min(gain.high, steps) >= WORTHWHILE
    if gain.speedup >= WORTHWHILE or (scattered and not few):
        factor, name = max((_fewer("steps", one, baseline), one.name) for one in among[1:] or among)
        text = (
            f"No advice: the times differ too much from repeat to repeat. {best.name} was {spread}. Time again while the "
            "machine does nothing else, with more --repeats or --timing-examples. In decoder steps, which are exact, "
            f"{name} saves most: a factor of {factor:.1f}."
        )
        return Advice("unclear", None, text, cautions)
    if few:
        why = few
    elif steps >= WORTHWHILE:
        why = (
            f"it takes {steps:.1f} times fewer decoder steps, but hardly less time: the encoder takes most of it, or a "
            "step with more rows costs more on this machine"
        )
    else:
        saved = f"hardly any decoder steps ({steps:.1f} times fewer)" if steps >= 1.05 else "no decoder steps"
        saved += f" (it takes {1 / steps:.1f} times as many)" if steps < 1 else ""
        sets = "one long subsequence sets the pace"
        if longer > SHORTER:
            sets = f"its texts have {longer:.1f} times as many tokens as those of {called}"
            end = f"Train the pipelined decoder further, or stay with {called}."
        why = f"it saves {saved}: {sets}"
    speed = f"at best it is {gain.speedup:.1f} times as fast as {called} ({best.name})"
    if gain.low <= 1 <= gain.high:
        speed = f"the repeats show no difference in speed ({best.name} was {spread})"
    text = f"The method does not help here: {why}; {speed}. {end}"
    return Advice("few-subsequences" if few else "no-gain", None, text, cautions)


def _cautions(
    one: Competitor, baseline: Competitor, difference: Difference | None, label: str
) -> Iterator[str]:
    """What a `difference` in the metric hardly shows."""
    assert baseline.scored is not None
    usual = baseline.scored.failures
    if usual.truncated_rate > BASELINE_TRUNCATED:
        yield (
            f"The baseline is cut short in {usual.truncated_rate:.0%} of its texts, which makes it slow and poor: train "
            "it further before you rely on this comparison."
        )
    together = one.delay == "together"  # which makes no tokens of keys
    if (longer := _fewer("tokens", one, baseline)) > SHORTER and not together:
        yield f"The baseline's texts have {longer:.1f} times as many tokens: part of the speedup is shorter text."
    for size, gain in list(one.gains.items())[1:]:
        if gain.speedup < min(WORTHWHILE, one.gain.speedup):
            yield f"That is at batch size {min(one.gains)}; at {size} it is {gain.speedup:.1f} times as fast."
    if difference is None:
        yield "Nothing could be scored: whether the quality holds is not known."
    elif difference.low is None:
        yield "One example says nothing of quality: score more."
    elif difference.value >= -TOLERANCE and difference.low < -2 * TOLERANCE:
        yield f"The interval reaches down to {difference.low:+.1f} {label}: too few examples to rule such a loss out."
    yield from _goes_wrong(one, baseline)


def _goes_wrong(one: Competitor, baseline: Competitor) -> Iterator[str]:
    """What goes wrong more often than in the baseline."""
    assert one.scored is not None and baseline.scored is not None
    found, usual = one.scored.failures, baseline.scored.failures
    if found.alike_rate > OFTEN_ALIKE:
        alike = f"{found.alike_rate:.0%} of its texts, and {usual.alike_rate:.0%} of the baseline's"
        which = "sources" if one.scored.is_blind else "right answers"
        yield f"{alike}, are the same as another example's, though the {which} differ."
    together = one.delay == "together"  # which explores nothing
    dropped, before = found.dropped_rate, usual.dropped_rate
    if dropped is not None and before is not None and dropped > before + MORE_DROPPED:
        mend = "" if together else "; a larger delay may mend that"
        yield f"It leaves out {dropped:.0%} of the {_parts(one)} that the references have, the baseline {before:.0%}{mend}."
    repeated, before = found.duplicated_rate, usual.duplicated_rate
    if repeated > before + MORE_OFTEN:
        yield f"{repeated:.0%} of its {_parts(one)} repeat an earlier one, in the baseline {before:.0%}."
    if (cut := found.truncated_rate) > usual.truncated_rate + MORE_OFTEN:
        by = {name: f"--{name.replace('_', '-')}" for name in found.truncated}
        finer = ", or segment finer" if "sub_max" in by else ""
        todo = f"`pipedec generate` takes a larger {' and '.join(by.values())}{finer}"
        yield f"{cut:.0%} of its texts are cut short by {' and '.join(by)}: {todo}."
    if one.row_budget_exhausted is not None and one.row_budget_exhausted > MORE_OFTEN:
        yield (
            f"In {one.row_budget_exhausted:.0%} of the examples failed explorations used up the places of sub_max: "
            "--empty-rows stop avoids that."
        )
