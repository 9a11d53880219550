"""Is the method worth it? Advice, after everything is measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pipedec_cli.compare.entry import Entry, Quality
from pipedec_cli.compare.expected_calls import FEW_SUBSEQUENCES, WORTHWHILE
from pipedec_cli.data.predictions import limit_options
from pipedec_cli.metrics.scoring import LABELS

#: Points of 100 that the metric may fall while a decoder counts as equally good: the
#: paper's own loss on its longest answers.
TOLERANCE: Final = 0.5
#: ROUGE-L with the baseline's texts from which on texts count as the same without right
#: answers: nine of ten words, in order.
SAME_TEXT: Final = 90.0
AS_FAST: Final = 1.1  # slower than the fastest by less: equally fast, and much better quality decides
# How much more often than in the baseline something may go wrong without a caution;
# shares of 1.
MORE_DROPPED: Final = 0.05
MORE_OFTEN: Final = 0.02
BASELINE_TRUNCATED: Final = (
    0.1  # a baseline that is cut short more often is a poor measure
)
OFTEN_ALIKE: Final = 0.25  # of the texts: half of what makes a decoder useless
SHORTER: Final = (
    1.25  # texts that are longer by less than this factor count as equally long
)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do: ``take`` a decoder, ``trade`` quality for speed, or stay with the baseline, for one of two reasons.

    There is no advice while a decoder is useless (``unfit``) or its times say nothing
    (``unclear``). `entry` and `command` are the name and the command of the decoder
    that it is about, if any; `cautions` say why not to rely on it.
    """

    verdict: Literal["take", "trade", "few-subsequences", "no-gain", "unfit", "unclear"]
    text: str
    cautions: tuple[str, ...] = ()
    entry: str | None = None
    command: str | None = None

    @property
    def is_missing(self) -> bool:
        """Whether the text says only why there is no advice."""
        return self.verdict in ("unfit", "unclear")


@dataclass(frozen=True, slots=True)
class _Question:
    """The baseline with its name in words, the primary metric with its label, and where quality is judged.

    `choice` is the split before the last on which one of several decoders is chosen: a
    choice on the last split would flatter it. With `instead`, the last split has no
    scores, so `choice` also speaks for the quality.
    """

    baseline: Entry
    called: str
    metric: str
    label: str
    choice: str | None
    instead: bool

    def margin(self, quality: Quality) -> float:
        """Points above what counts as good enough, by score or by agreement; 0 if nothing is known."""
        if self.metric in quality.differences:
            return quality.differences[self.metric].value + TOLERANCE
        same = quality.agreement
        return same.rouge_l - SAME_TEXT if same and same.rouge_l is not None else 0.0

    def margin_of_choice(self, one: Entry) -> float:
        """The same on the split that decides."""
        return self.margin(
            one.quality if self.choice is None else one.other_splits[self.choice]
        )

    def fewer(self, what: Literal["steps", "tokens"], one: Entry) -> float:
        """How many times fewer steps or tokens an example takes than in the baseline."""
        assert one.totals is not None and self.baseline.totals is not None
        both = (one.totals, self.baseline.totals)
        mine, usual = (getattr(totals, f"{what}_per_example") for totals in both)
        return float(usual / mine) if mine else 1.0

    def quality_in_words(self, quality: Quality) -> str:
        """The end of a sentence about speed: the change of quality. A difference that may be chance is none."""
        found = quality.differences.get(self.metric)
        if found is None and quality.agreement is not None:
            return f"; its texts agree with those of {self.called}: {quality.agreement.line}."
        if found is None or found.low is None or found.high is None:
            return "."
        if found.low == found.high == 0:
            return f". {self.label} is the same."
        interval = f"95 % interval {found.low:+z.1f} to {found.high:+z.1f}"
        if found.excludes_zero:
            return f", {self.label} {found.value:+z.1f}, {interval}."
        examples = len(quality.scored.items) if quality.scored else 0
        return (
            f". {examples:,} examples show no difference in {self.label} ({interval})."
        )


def advise(
    tried: Sequence[Entry],
    baseline: Entry,
    *,
    called: str,
    subsequences: float | None,
    metric: str,
) -> Advice:
    """Choose among the pipelined entries, at least one, with gains over the baseline and totals.

    `called` is the baseline in words, `subsequences` their mean number in a target if
    known.
    """
    useful = [one for one in tried if not one.faults]
    useless = tuple(
        f"{one.name}: {one.faults_in_words}."
        for one in (baseline, *tried)
        if one.faults
    )
    if baseline.faults or not useful:
        ours = "the pipelined decoder"
        if all(
            fault.few_examples for one in (baseline, *tried) for fault in one.faults
        ):
            text = "No advice: these are too few examples. Compare more, and read some predictions."
            return Advice("unfit", text, useless)
        if not baseline.faults:
            reason = f"{ours} are useless, however fast it is. Stay with {called}; train {ours} further"
        elif useful:
            reason = f"{called} are useless, so a comparison with it says nothing. Train further"
        else:
            reason = f"{called} and of {ours} are useless, so their speed says nothing. Train further"
        text = f"No advice: the texts of {reason}, and read some predictions, before you compare again."
        return Advice("unfit", text, useless)
    # One of several decoders is chosen on a split. It may stand in for the last split;
    # see `_Question`.
    last_is_scored = metric in tried[0].quality.differences
    scored = [
        split
        for split, found in tried[0].other_splits.items()
        if metric in found.differences
    ]
    instead = bool(scored) and not last_is_scored
    before = scored if scored or last_is_scored else [*tried[0].other_splits]
    choice = before[-1] if before and (instead or len(tried) > 1) else None
    question = _Question(baseline, called, metric, LABELS[metric], choice, instead)
    few = ""
    if subsequences is not None and subsequences <= FEW_SUBSEQUENCES:
        rows = f"{subsequences:.1f} {_parts(tried[0])} on average"
        few = f"the targets have {rows}, and with one or two there is hardly anything to generate at once"
    fast = [
        one for one in useful if one.gain.speedup >= WORTHWHILE and one.gain.low > 1
    ]
    sound = [one for one in useful if question.margin_of_choice(one) >= 0]
    good = [one for one in fast if one in sound]
    fastest = max((one.gain.speedup for one in good), default=0.0)
    # An entry whose times scatter is a question while it would be chosen if it were
    # sure.
    least = max(WORTHWHILE, fastest * AS_FAST)
    unsure = [one for one in sound if one.gain.low <= 1 and one.gain.speedup >= least]
    if unsure or not fast:
        best = max(unsure or useful, key=lambda one: one.gain.speedup)
        return _stay([best, *sound], question, few, useless)
    if good:
        chosen, how = _choose(good, question)
        advice = _take(chosen, question, few, useless, good=True)
        return replace(advice, text=advice.text + how)
    return _take(
        max(fast, key=question.margin_of_choice), question, few, useless, good=False
    )


def _choose(good: Sequence[Entry], question: _Question) -> tuple[Entry, str]:
    """The fastest, by decoder calls where times overlap, and a sentence that says so. Much better quality goes first."""
    fastest = max(good, key=lambda one: one.gain.speedup)
    overlapping = [
        one for one in good if one is fastest or one.gain.high > fastest.gain.low
    ]
    speeds, how = {one.name: one.gain.speedup for one in good}, ""
    if len(overlapping) > 1:
        good, speeds = (
            overlapping,
            {one.name: question.fewer("steps", one) for one in overlapping},
        )
        *names, last = speeds
        how = f" The times of {', '.join(names)} and {last} overlap and cannot tell which is faster: decoder calls decide."
    first = max(good, key=lambda one: speeds[one.name])
    as_fast = [one for one in good if speeds[one.name] * AS_FAST >= speeds[first.name]]
    best = max(as_fast, key=question.margin_of_choice)
    better = question.margin_of_choice(best) - question.margin_of_choice(first)
    return best if better > TOLERANCE else first, how


def _take(
    chosen: Entry,
    question: _Question,
    few: str,
    useless: tuple[str, ...],
    *,
    good: bool,
) -> Advice:
    """Advice to take a decoder; or to weigh its speed against its quality, where it is not `good` or not on the last split."""
    choice, called = question.choice, question.called
    judged = (
        chosen.quality
        if choice is None or not question.instead
        else chosen.other_splits[choice]
    )
    where = (
        f", {'judged' if question.instead else 'chosen'} on {choice}" if choice else ""
    )
    take = f"{chosen.name} (`{chosen.command}`{where})"
    speed = f"{chosen.gain.speedup:.1f} times as fast as {called}"
    change, difference = (
        question.quality_in_words(judged),
        judged.differences.get(question.metric),
    )
    held = good and question.margin(judged) >= 0
    if held:
        fewer = question.fewer("steps", chosen)
        steps = (
            f", with {fewer:.1f} times fewer decoder steps" if fewer >= AS_FAST else ""
        )
        text = f"Take {take}: {speed}{steps}{change}"
    elif good:
        text = (
            f"{take} is {speed}{change} It was as good on {choice} and is not here: compare on more examples "
            f"before you take it, or stay with {called}."
        )
    elif difference is not None and difference.excludes_zero:
        costs = f"Every delay that saves time costs quality. {take} costs least:"
        remedy = "try larger delays, which give some quality back"
        if chosen.delay == "together":
            costs, remedy = (
                f"It saves time and costs quality: {take} is",
                "train it further",
            )
        text = f"{costs} {speed}{change} Take it if the speed is worth that, {remedy}, or stay with {called}."
    else:
        more = "score more examples" if difference else "read some of its texts"
        text = f"{take} is {speed}{change} Its cost is not known: {more} before you take it, or stay with {called}."
    cautions = [f"Note that {few}."] if few else []
    cautions += [
        f"{LABELS[name]} is worse: {other.value:+z.1f}, 95 % interval {other.low:+z.1f} to {other.high:+z.1f}."
        for name, other in judged.differences.items()
        if name in LABELS.keys() - {question.metric}
        and other.excludes_zero
        and other.value < 0
    ]
    if question.instead:
        cautions.append(
            f"The quality is that on {choice}: nothing else could be scored."
        )
    cautions += [*_cautions(chosen, judged, question), *useless]
    return Advice(
        "take" if held else "trade", text, tuple(cautions), chosen.name, chosen.command
    )


def exact_advice(exact: Sequence[Entry], called: str) -> str:
    """A sentence about the fastest exact mode that is surely faster than the baseline; "" if there is none."""
    faster = [one for one in exact if one.gain.low > 1]
    kept = [
        one
        for one in faster
        if (same := one.quality.agreement) and same.equal == same.of
    ]
    if not kept:
        return ""
    best = max(kept, key=lambda one: one.gain.speedup)
    speed = f"exactly the text of {called}, {best.gain.speedup:.1f} times as fast"
    return f"If no word may change, {best.name} (`{best.command}`) gives {speed}."


def _parts(one: Entry) -> str:
    return "fields" if one.delay == "together" else "subsequences"


def _stay(
    among: Sequence[Entry], question: _Question, few: str, useless: Sequence[str]
) -> Advice:
    """Why nothing is worth it. The fastest entry comes first in `among`, then the entries that are as good."""
    best, called = among[0], question.called
    gain, end = best.gain, f"Stay with {called}."
    cautions = (*_goes_wrong(best, question.baseline), *useless)
    steps, tokens = question.fewer("steps", best), question.fewer("tokens", best)
    spread = f"{gain.low:.1f} to {gain.high:.1f} times as fast as {called}"
    # Repeats that go from no gain to a good gain say nothing, whatever their median is.
    scattered = gain.low <= 1 and min(gain.high, steps) >= WORTHWHILE
    if gain.speedup >= WORTHWHILE or (scattered and not few):
        factor, name = max(
            (question.fewer("steps", one), one.name) for one in among[1:] or among
        )
        text = (
            f"No advice: the times differ too much between repeats. {best.name} was {spread}. Time again while the "
            "machine does nothing else, with more repeats or timing_examples. In decoder steps, which are exact, "
            f"{name} saves most: a factor of {factor:.1f}."
        )
        return Advice("unclear", text, cautions)
    if few:
        why = few
    elif steps >= WORTHWHILE:
        why = (
            f"it takes {steps:.1f} times fewer decoder steps, but hardly less time: the encoder takes most of it, or a "
            "step with more rows costs more on this machine"
        )
    else:
        saved = (
            f"hardly any decoder steps ({steps:.1f} times fewer)"
            if steps >= 1.05
            else "no decoder steps"
        )
        saved += f" (it takes {1 / steps:.1f} times as many)" if steps < 1 else ""
        cause = "one long subsequence decides the time"
        if tokens and 1 / tokens > SHORTER:
            cause = f"its texts have {1 / tokens:.1f} times as many tokens as those of {called}"
            end = f"Train the pipelined decoder further, or stay with {called}."
        why = f"it saves {saved}: {cause}"
    speed = f"at best it is {gain.speedup:.1f} times as fast as {called} ({best.name})"
    if gain.low <= 1 <= gain.high:
        speed = f"the repeats show no difference in speed ({best.name} was {spread})"
    text = f"The method does not help here: {why}; {speed}. {end}"
    return Advice("few-subsequences" if few else "no-gain", text, cautions)


def _cautions(one: Entry, judged: Quality, question: _Question) -> Iterator[str]:
    """What a difference in the metric hardly shows."""
    baseline, difference = question.baseline, judged.differences.get(question.metric)
    assert baseline.quality.scored is not None
    truncated = baseline.quality.scored.failures.truncated_rate
    if truncated > BASELINE_TRUNCATED:
        poor = f"The baseline is cut short in {truncated:.0%} of its texts, which makes it slow and poor"
        yield f"{poor}: train it further before you rely on this comparison."
    longer = question.fewer("tokens", one)
    if (
        longer > SHORTER and one.delay != "together"
    ):  # fields do not generate the tokens of keys
        yield f"The baseline's texts have {longer:.1f} times as many tokens: part of the speedup is shorter text."
    for size, gain in list(one.gains.items())[1:]:
        if gain.speedup < min(WORTHWHILE, one.gain.speedup):
            yield f"That is at batch size {min(one.gains)}; at {size} it is {gain.speedup:.1f} times as fast."
    if difference is None:
        yield "Nothing could be scored: the quality is not known."
    elif difference.low is None:
        yield "One example says nothing about quality: score more."
    elif difference.value >= -TOLERANCE and difference.low < -2 * TOLERANCE:
        lowest = f"{difference.low:+z.1f} {question.label}"
        yield f"The interval reaches down to {lowest}: too few examples to rule such a loss out."
    yield from _goes_wrong(one, baseline)


def _goes_wrong(one: Entry, baseline: Entry) -> Iterator[str]:
    scored, usual_scored = one.quality.scored, baseline.quality.scored
    assert scored is not None and usual_scored is not None
    found, usual, together = (
        scored.failures,
        usual_scored.failures,
        one.delay == "together",
    )
    if found.alike_rate > OFTEN_ALIKE:
        alike = f"{found.alike_rate:.0%} of its texts, and {usual.alike_rate:.0%} of the baseline's"
        which = "sources" if scored.is_unscored else "right answers"
        yield f"{alike}, are the same as another example's, though the {which} differ."
    dropped, before = found.dropped_rate, usual.dropped_rate
    if dropped is not None and before is not None and dropped > before + MORE_DROPPED:
        remedy = "" if together else "; a larger delay may help"
        rows = f"{dropped:.0%} of the {_parts(one)} that the references have"
        yield f"It leaves out {rows}, the baseline {before:.0%}{remedy}."
    if found.duplicated_rate > usual.duplicated_rate + MORE_OFTEN:
        repeated = (
            f"{found.duplicated_rate:.0%} of its {_parts(one)} repeat an earlier one"
        )
        yield f"{repeated}, in the baseline {usual.duplicated_rate:.0%}."
    if found.truncated_rate > usual.truncated_rate + MORE_OFTEN:
        finer = ", or segment finer" if "sub_max" in found.truncated else ""
        limits = " and ".join(found.truncated)
        cut = f"{found.truncated_rate:.0%} of its texts are cut short by {limits}"
        yield f"{cut}: `pipedec generate {limit_options(found.truncated)}` allows more{finer}."
    if one.row_budget_exhausted is not None and one.row_budget_exhausted > MORE_OFTEN:
        where = f"In {one.row_budget_exhausted:.0%} of the examples"
        yield f"{where} empty rows used up sub_max: `--set empty_rows=stop` avoids that."
