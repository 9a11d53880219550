"""Is the method worth it? Advice, after everything is measured.

It is one sentence for each verdict. The figures stand in the tables of the report.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pipedec_cli.compare.entry import Entry, Quality
from pipedec_cli.compare.expected_calls import FEW_SUBSEQUENCES, WORTHWHILE
from pipedec_cli.data.predictions import limit_options
from pipedec_cli.metrics.differences import Difference
from pipedec_cli.metrics.failures import Failures
from pipedec_cli.metrics.scoring import LABELS

#: Points of 100 that the metric may fall while a decoder counts as equally good: the
#: paper's own loss on its longest answers.
TOLERANCE: Final = 0.5
#: ROUGE-L with the baseline's texts from which on texts count as the same without right
#: answers: nine of ten words, in order.
SAME_TEXT: Final = 90.0
#: Slower than the fastest by less: equally fast, and much better quality decides.
AS_FAST: Final = 1.1
#: More often than in the baseline something may go wrong without a caution; shares of 1.
MORE_OFTEN: Final = 0.02
_MARGINS: Final = {
    "alike": 0.25,  # half of what makes a decoder useless
    "dropped": 0.05,
    "duplicated": MORE_OFTEN,
    "truncated": MORE_OFTEN,
}
#: A baseline that is cut short more often is a poor measure.
BASELINE_TRUNCATED: Final = 0.1
#: Texts that are longer by less than this factor count as equally long.
SHORTER: Final = 1.25

Verdict = Literal["take", "trade", "few-subsequences", "no-gain", "unfit", "unclear"]

_STAY: Final = "The method does not help here"
#: What to do. `{how}` is the decoder with its command.
_SENTENCES: Final[dict[Verdict, str]] = {
    "take": "Take {how}: it is {speedup:.1f} times as fast as {baseline}{quality}.",
    "trade": (
        "{how} is {speedup:.1f} times as fast as {baseline}{quality}: "
        "weigh the one against the other, or stay with {baseline}."
    ),
    "few-subsequences": (
        f"{_STAY}: with one or two {{parts}} a target there is hardly anything to "
        "generate at once. {name} is {speedup:.1f} times as fast as {baseline}. "
        "Stay with {baseline}."
    ),
    "no-gain": (
        f"{_STAY}: at best, with {{name}}, it is {{speedup:.1f}} times as fast as "
        "{baseline}, in {fewer:.1f} times fewer decoder steps. Stay with {baseline}."
    ),
    "unfit": (
        "No advice: the texts of {useless} are useless. Train further, and read some "
        "predictions, before you compare again."
    ),
    "unclear": (
        "No advice: the times of {name} differ too much between repeats. Time again "
        "while the machine does nothing else, with more repeats or timing_examples. "
        "In decoder steps, which are exact, {steady} saves most."
    ),
}
_TOO_FEW: Final = (
    "No advice: these are too few examples. Compare more, and read some predictions."
)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do: ``take`` a decoder, ``trade`` quality for speed, or stay.

    Staying with the baseline has two reasons. There is no advice while a decoder is
    useless (``unfit``) or its times say nothing (``unclear``). `entry` and `command`
    are the name and the command of the decoder that it is about, if any; `cautions` say
    why not to rely on it.
    """

    verdict: Verdict
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
    """What the entries are compared with, and where their quality is judged."""

    baseline: Entry
    called: str  # the baseline in words
    metric: str  # by which quality is judged
    few: bool  # whether the targets have so few subsequences that little can be gained
    #: The split before the last on which one of several decoders is chosen: a choice on
    #: the last split would flatter it. None: there is no choice to make.
    choice: str | None
    #: Whether `choice` speaks for the quality as well: the last split has no scores.
    instead: bool

    @classmethod
    def of(
        cls,
        tried: Sequence[Entry],
        baseline: Entry,
        called: str,
        metric: str,
        subsequences: float | None,
    ) -> "_Question":
        """The question for the entries that were `tried`: quality is judged where they have scores.

        `subsequences` is their mean number in a target; None if it is not known.
        """
        few = subsequences is not None and subsequences <= FEW_SUBSEQUENCES
        first = tried[0]
        last_is_scored = metric in first.quality.differences
        others = first.other_splits.items()
        scored = [split for split, quality in others if metric in quality.differences]
        instead = bool(scored) and not last_is_scored
        splits = scored
        # Without any scores, the agreement with the baseline's texts decides.
        if not scored and not last_is_scored:
            splits = list(first.other_splits)
        choice = None
        if splits and (instead or len(tried) > 1):
            choice = splits[-1]
        return cls(baseline, called, metric, few, choice, instead)

    def judged(self, entry: Entry) -> Quality:
        """The quality that speaks for an entry."""
        if self.instead and self.choice is not None:
            return entry.other_splits[self.choice]
        return entry.quality

    def margin(self, quality: Quality) -> float:
        """Points of 100 by which a quality is above what counts as good enough; below it, less than 0.

        Good enough is a metric that is hardly worse than the baseline's or, without
        scores, texts that are nearly the baseline's. 0 if nothing is known.
        """
        if self.metric in quality.differences:
            return quality.differences[self.metric].value + TOLERANCE
        same = quality.agreement
        if same is None or same.rouge_l is None:
            return 0.0
        return same.rouge_l - SAME_TEXT

    def margin_of_choice(self, entry: Entry) -> float:
        """The same margin of an entry's quality on the split on which one of several is chosen."""
        if self.choice is None:
            return self.margin(entry.quality)
        return self.margin(entry.other_splits[self.choice])

    def fewer_steps(self, entry: Entry) -> float:
        """How many times fewer steps an example takes than in the baseline."""
        assert entry.totals is not None and self.baseline.totals is not None
        usual = self.baseline.totals.steps_per_example
        steps = entry.totals.steps_per_example
        return usual / steps if steps else 1.0

    def fewer_tokens(self, entry: Entry) -> float:
        """How many times fewer tokens an example has than in the baseline."""
        assert entry.totals is not None and self.baseline.totals is not None
        usual = self.baseline.totals.tokens_per_example
        tokens = entry.totals.tokens_per_example
        return usual / tokens if tokens else 1.0

    def advice(
        self, verdict: Verdict, entry: Entry, *, quality: str = "", steady: str = ""
    ) -> Advice:
        """The advice of a verdict on an entry, without cautions.

        `quality` are words on the entry's quality, for the verdicts that have a place for
        them, `steady` is the name of the entry that saves most steps, for "unclear".
        """
        where = ""
        if self.choice is not None:
            where = f", {'judged' if self.instead else 'chosen'} on {self.choice}"
        text = _SENTENCES[verdict].format(
            how=f"{entry.name} (`{entry.command}`{where})",
            name=entry.name,
            parts=_parts(entry),
            speedup=entry.gain.speedup,
            fewer=self.fewer_steps(entry),
            baseline=self.called,
            quality=quality,
            steady=steady,
        )
        if verdict in ("take", "trade"):
            return Advice(verdict, text, entry=entry.name, command=entry.command)
        return Advice(verdict, text)


def advise(
    tried: Sequence[Entry],
    baseline: Entry,
    *,
    called: str,
    subsequences: float | None,
    metric: str,
) -> Advice:
    """Say which of the pipelined entries to take, or why none.

    Args:
        tried: the entries, at least one, filled with gains and totals.
        baseline: what they were measured against.
        called: the baseline in words.
        subsequences: the mean number of subsequences in a target; None if not known.
        metric: the metric by which quality is judged.
    """
    useful = [entry for entry in tried if not entry.faults]
    if baseline.faults or not useful:
        advice = _unfit(tried, baseline, called, any_useful=bool(useful))
    else:
        question = _Question.of(tried, baseline, called, metric, subsequences)
        advice = _of_useful(useful, question)
    return replace(advice, cautions=(*advice.cautions, *_faults(baseline, *tried)))


def _faults(*entries: Entry) -> Iterator[str]:
    """A sentence for each entry whose texts are useless: its name, and why."""
    for entry in entries:
        if entry.faults:
            yield f"{entry.name}: {entry.faults_in_words}."


def advise_taught(
    taught: Entry, untrained: Entry, difference: Difference | None, metric: str
) -> Advice:
    """Say whether to take a model that was taught to answer questions, by how much better it answers than it did.

    `untrained` is the model that it was, in the way in which it answers best, and the
    `difference` is that to it. Speed says little: who teaches a model wants better
    answers.
    """
    if difference is None:
        return Advice("unclear", "No advice: there are no right answers.")
    if difference.low is None:  # a single example
        return Advice("unclear", _TOO_FEW)
    interval = f"{difference.low:+.1f} to {difference.high:+.1f}"
    change = f"{LABELS[metric]} {difference.value:+.1f} ({interval}) against {untrained.name}"
    if not difference.excludes_zero:
        text = f"No advice: {change}, which may be chance. Compare on more examples."
        return Advice("unclear", text)
    if difference.value < 0:
        text = f"Stay with the model that was not taught, for such data: {change}. Teach it some records of their sort."
        return Advice("no-gain", text)
    text = f"Take the taught model (`{taught.command}`): {change}."
    cautions = tuple(_faults(untrained, taught))
    return Advice("take", text, cautions, entry=taught.name, command=taught.command)


def _unfit(
    tried: Sequence[Entry], baseline: Entry, called: str, *, any_useful: bool
) -> Advice:
    """Why there is no advice: the texts of the baseline, or of all that were tried, are useless.

    `any_useful` says that not all are. Too few examples may be all that is wrong.
    """
    useless = []
    if baseline.faults:
        useless.append(called)
    if not any_useful:
        useless.append("the pipelined decoder")
    text = _SENTENCES["unfit"].format(useless=" and of ".join(useless))
    entries = [baseline, *tried]
    if all(fault.few_examples for entry in entries for fault in entry.faults):
        text = _TOO_FEW
    return Advice("unfit", text)


def _of_useful(useful: Sequence[Entry], question: _Question) -> Advice:
    """Advice on entries whose texts are of use: take the best of the fast ones that are good; else say why not."""
    sound = [entry for entry in useful if question.margin_of_choice(entry) >= 0]
    fast = list(filter(_is_fast, useful))
    good = list(filter(_is_fast, sound))
    # An entry whose times scatter, so that it gains nothing in some repeat, stands in the
    # way while it would be chosen if its median were sure.
    fastest = max(map(_speedup, good), default=0.0)
    least = max(WORTHWHILE, fastest * AS_FAST)
    scattered = [entry for entry in sound if entry.gain.low <= 1]
    unsure = [entry for entry in scattered if entry.gain.speedup >= least]
    if unsure or not fast:
        best = max(unsure or useful, key=_speedup)
        return _stay(best, sound or [best], question)
    if not good:
        return _weigh(max(fast, key=question.margin_of_choice), question)
    return _of_good(good, question)


def _of_good(good: Sequence[Entry], question: _Question) -> Advice:
    """Take the best of the decoders that are fast and good on the split of the choice."""
    chosen, overlap = _choose(good, question)
    judged = question.judged(chosen)
    if question.margin(judged) < 0:
        advice = _weigh(chosen, question, was_good=True)
    else:
        quality = ", and as good" if question.metric in judged.differences else ""
        advice = question.advice("take", chosen, quality=quality)
        advice = replace(advice, cautions=tuple(_cautions(chosen, question)))
    if overlap:
        text = f"{advice.text} The times of {overlap} overlap: decoder calls decide."
        advice = replace(advice, text=text)
    return advice


def _is_fast(entry: Entry) -> bool:
    """Whether an entry is faster than the baseline by enough, and in every repeat."""
    return entry.gain.speedup >= WORTHWHILE and entry.gain.low > 1


def _speedup(entry: Entry) -> float:
    return entry.gain.speedup


def _choose(good: Sequence[Entry], question: _Question) -> tuple[Entry, str]:
    """The entry to take among those that are good, and the names of entries whose times overlap; "" if none do.

    It is the fastest; among entries whose times overlap, the one with the fewest decoder
    calls. Of entries that are nearly as fast, one with much better quality goes first.
    """
    fastest = max(good, key=_speedup)
    overlapping = [
        entry
        for entry in good
        if entry is fastest or entry.gain.high > fastest.gain.low
    ]
    speeds = {entry.name: entry.gain.speedup for entry in good}
    names = ""
    if len(overlapping) > 1:
        good = overlapping
        speeds = {entry.name: question.fewer_steps(entry) for entry in good}
        names = " and ".join(speeds)
    first = max(good, key=lambda entry: speeds[entry.name])
    most = speeds[first.name]
    as_fast = [entry for entry in good if speeds[entry.name] * AS_FAST >= most]
    best = max(as_fast, key=question.margin_of_choice)
    better = question.margin_of_choice(best) - question.margin_of_choice(first)
    return (best if better > TOLERANCE else first), names


def _weigh(entry: Entry, question: _Question, *, was_good: bool = False) -> Advice:
    """Advice to weigh an entry's speed against its quality, which is worse, or not known.

    `was_good` says that it was as good on the split on which it was chosen.
    """
    difference = question.judged(entry).differences.get(question.metric)
    quality = ", and its quality is not known"
    remedy = "score more examples" if difference else "read some of its texts"
    if was_good:
        quality = f", as good on {question.choice} and not here"
        remedy = "compare on more examples"
    elif difference is not None and difference.excludes_zero:
        quality = ", and not as good"
        remedy = "larger delays give some quality back"
        if entry.delay == "together":
            remedy = "train it further"
    advice = question.advice("trade", entry, quality=quality)
    before = f"Before you take it: {remedy}."
    return replace(advice, cautions=(before, *_cautions(entry, question)))


def _stay(best: Entry, sound: Sequence[Entry], question: _Question) -> Advice:
    """Advice to stay with the baseline, or none, with a sentence on the `best` entry.

    `sound` entries are as good as the baseline.
    """
    gain = best.gain
    steps = question.fewer_steps(best)
    # Repeats that go from no gain to a good gain say nothing, whatever their median is.
    scattered = gain.low <= 1 and min(gain.high, steps) >= WORTHWHILE
    verdict: Verdict = "few-subsequences" if question.few else "no-gain"
    if gain.speedup >= WORTHWHILE or (scattered and not question.few):
        verdict = "unclear"
    steady = max(sound, key=question.fewer_steps)
    advice = question.advice(verdict, best, steady=steady.name)
    cautions = list(_goes_wrong(best, question.baseline))
    if 0 < question.fewer_tokens(best) < 1 / SHORTER:
        cautions.append("Its texts are longer than the baseline's: train it further.")
    return replace(advice, cautions=tuple(cautions))


def exact_advice(exact: Sequence[Entry], called: str) -> str:
    """A sentence about the fastest entry of exact mode that is surely faster than the baseline, `called` so.

    Exact mode writes the baseline's own text. "" if no entry is faster.
    """
    faster = []
    for entry in exact:
        same = entry.quality.agreement
        if entry.gain.low > 1 and same is not None and same.equal == same.of:
            faster.append(entry)
    if not faster:
        return ""
    best = max(faster, key=_speedup)
    speed = f"exactly the text of {called}, {best.gain.speedup:.1f} times as fast"
    return f"If no word may change, {best.name} (`{best.command}`) gives {speed}."


def _parts(entry: Entry) -> str:
    """What the rows of an entry's texts are called."""
    return "fields" if entry.delay == "together" else "subsequences"


def _cautions(entry: Entry, question: _Question) -> Iterator[str]:
    """What to know before a decoder is taken, besides its speed and the metric."""
    if question.few:
        parts = _parts(entry)
        yield f"The targets have one or two {parts}: longer ones gain more."
    if question.instead:
        yield f"The quality is that on {question.choice}: nothing else could be scored."
    yield from _of_speed(entry, question)
    yield from _of_quality(entry, question)
    yield from _goes_wrong(entry, question.baseline)


def _of_speed(entry: Entry, question: _Question) -> Iterator[str]:
    """What else the speedup may come from, and where it is smaller."""
    if _failures(question.baseline).truncated_rate > BASELINE_TRUNCATED:
        poor = "The baseline is often cut short, which makes it slow and poor"
        yield f"{poor}: train it further before you rely on this comparison."
    # Fields do not generate the tokens of keys.
    if question.fewer_tokens(entry) > SHORTER and entry.delay != "together":
        yield "The baseline's texts are longer: part of the speedup is shorter text."
    smallest = min(entry.gains)
    for size, gain in entry.gains.items():
        if size != smallest and gain.speedup < min(WORTHWHILE, entry.gain.speedup):
            slower = f"at {size} it is {gain.speedup:.1f} times as fast"
            yield f"That is at batch size {smallest}; {slower}."


def _of_quality(entry: Entry, question: _Question) -> Iterator[str]:
    """Other metrics that are worse, and what is not known of the quality."""
    differences = question.judged(entry).differences
    for name, other in differences.items():
        is_other = name in LABELS and name != question.metric
        if is_other and other.excludes_zero and other.value < 0:
            yield f"{LABELS[name]} is worse."
    difference = differences.get(question.metric)
    if difference is None:
        yield "Nothing could be scored: the quality is not known."
    elif difference.low is None:
        yield "One example says nothing about quality: score more."
    elif difference.value >= -TOLERANCE and difference.low < -2 * TOLERANCE:
        yield "The interval is wide: too few examples to rule a large loss out."


def _failures(entry: Entry) -> Failures:
    assert entry.quality.scored is not None
    return entry.quality.scored.failures


def _goes_wrong(entry: Entry, baseline: Entry) -> Iterator[str]:
    """Cautions on what goes wrong in an entry's texts more often than in the baseline's; the table has the rates."""
    mine = _failures(entry)
    usual = _failures(baseline)
    more = []
    for what, margin in _MARGINS.items():
        rate = getattr(mine, f"{what}_rate")
        usual_rate = getattr(usual, f"{what}_rate")
        if None not in (rate, usual_rate) and rate > usual_rate + margin:
            more.append(what)
    if more:
        remedy = "train it further"
        if entry.delay != "together":
            remedy = f"{remedy}, or try a larger delay"
        yield f"More is {' and '.join(more)} than in the baseline: {remedy}."
    if "truncated" in more:
        finer = ", or segment finer" if "sub_max" in mine.truncated else ""
        option = limit_options(mine.truncated)
        yield f"`pipedec generate {option}` allows longer texts{finer}."
    if (entry.row_budget_exhausted or 0) > MORE_OFTEN:
        yield "Empty rows used up sub_max: `--set empty_rows=stop` avoids that."
