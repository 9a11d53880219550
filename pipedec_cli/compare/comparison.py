"""A comparison of decoders: what reports and benches share, and a report put together.

Pure: nothing runs here.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean
from typing import Any, ClassVar, Final

from msgspec import to_builtins

from pipedec_cli.compare.advice import Advice, advise, advise_taught, exact_advice
from pipedec_cli.compare.entry import Entry, Quality
from pipedec_cli.compare.machine import Machine
from pipedec_cli.compare.peers import Absent
from pipedec_cli.compare.runners import Lengths
from pipedec_cli.compare.timing import Gain
from pipedec_cli.data.errors import many
from pipedec_cli.data.paper import PaperFigures
from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import Measure, record_beside
from pipedec_cli.metrics.scoring import Scored, compare_runs

#: The name of the baseline where there is no sequential model.
WAITING: Final = "waiting schedule"
#: The name of a baseline that is a model as it was before it was taught questions.
UNTRAINED: Final = "untrained"
#: The name of the entry in which this model writes its objects in the ordinary way.
IN_ONE_GO: Final = "JSON in one go"
#: The numbers of target subsequences in the paper's figures; targets with `MANY` or
#: more share a row.
PAPER_SIZES: Final = range(2, 10)
MANY: Final = PAPER_SIZES.stop


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One decoder against the baseline on the targets with one number of subsequences.

    `MANY` stands for that many or more. Steps and quality are of all these examples,
    the speedup of the timed ones; None where there are none.
    """

    subsequences: int
    examples: int
    fewer_steps: float | None
    timed: int
    speedup: float | None
    quality: float | None
    baseline_quality: float | None


def by_size(
    entry: Entry, baseline: Entry, timed: Sequence[str], metric: str
) -> tuple[SizeRow, ...]:
    """An entry against the baseline on the targets with each number of subsequences, those of the paper among them.

    () if no target is segmented. `timed` are the ids of the examples that were timed, in
    order; `metric` is the quality.
    """
    groups: dict[int, list[str]] = {}
    for item in _segmented(baseline):
        size = len(record_beside(item).target_segments or ())
        groups.setdefault(min(size, MANY), []).append(item.id)
    if not groups:
        return ()
    mine = _scored(entry)
    usual = _scored(baseline)
    steps = _steps(mine)
    usual_steps = _steps(usual)
    seconds = _seconds(entry, timed)
    usual_seconds = _seconds(baseline, timed)
    clocked = seconds.keys() & usual_seconds.keys()
    rows = []
    for size in sorted({*groups, *PAPER_SIZES}):
        members = groups.get(size, [])
        both = [example for example in members if example in clocked]
        row = SizeRow(
            size,
            len(members),
            fewer_steps=_ratio(usual_steps, steps, members),
            timed=len(both),
            speedup=_ratio(usual_seconds, seconds, both),
            quality=mine.scores.values_of(members)[metric],
            baseline_quality=usual.scores.values_of(members)[metric],
        )
        rows.append(row)
    return tuple(rows)


def _scored(entry: Entry) -> Scored:
    assert entry.quality.scored is not None
    return entry.quality.scored


def _steps(run: Scored) -> dict[str, int]:
    """The decoder calls of each example."""
    return {prediction.id: prediction.steps for prediction in run.run.predictions}


def _seconds(entry: Entry, timed: Sequence[str]) -> dict[str, float]:
    """The seconds of each timed example; {} if they were not timed one by one."""
    if 1 not in entry.timings or not entry.timings[1].example_seconds:
        return {}
    return dict(zip(timed, entry.timings[1].example_seconds, strict=True))


def _ratio(
    usual: Mapping[str, float], mine: Mapping[str, float], ids: Sequence[str]
) -> float | None:
    """How many times less was spent, in `mine` than in the `usual` case, on some examples; None if nothing was."""
    spent = sum(mine[example] for example in ids)
    return sum(usual[example] for example in ids) / spent if spent else None


def _segmented(entry: Entry) -> list[Generated]:
    """The scored examples whose targets have known subsequences."""
    items = entry.quality.scored.items if entry.quality.scored else ()
    return [item for item in items if record_beside(item).target_segments is not None]


@dataclass(frozen=True, slots=True)
class Sample:
    """The examples that were timed: how many, out of how many, and how many passes over them counted."""

    timed: int
    of: int
    repeats: int

    @property
    def line(self) -> str:
        """The statement that a timing must carry."""
        which = f"all {self.of} examples"
        if self.timed < self.of:
            drawn = "one drawn from each of as many equal parts, always the same"
            which = f"{self.timed} of {self.of} examples ({drawn})"
        passes = f"one pass to warm up, medians of {many(self.repeats, 'repeat')}"
        turns = "timed in one process, the decoders in turn"
        return f"{which} {turns}; {passes}; loading and tokenizing left out"


def choose_sample(count: int, wanted: int) -> list[int]:
    """The positions of at most `wanted` of `count` examples, one drawn from each of as many equal parts, the same every time."""
    taken = min(count, wanted)
    rng = random.Random(0)  # noqa: S311  # chance, not secrecy
    return [
        rng.randrange(part * count // taken, (part + 1) * count // taken)
        for part in range(taken)
    ]


#: Eight rows that take more than so many times as long as one row are not nearly free.
_DEAR: Final = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under what conditions a comparison was made."""

    device: str
    machine: Machine
    versions: Mapping[str, str | None]  # of packages; None of one that is not installed
    absent: tuple[Absent, ...] = ()  # the peers that could not take part
    disturbed: str | None = None  # what to say of other work on the machine, if any
    stopped: str | None = None  # what to say if a person stopped it
    #: Whether models are decoder-only: the time to read the prompt then stands in the
    #: place of the encoder's.
    prompted: bool = False
    #: By dtype, how many times as long a call with 8 rows takes as a call with 1 row.
    rows: Mapping[str, float] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """What 8 rows cost here, and the absent peers with the reason, a line each."""
        absent = [f"{peer.name} is absent: {peer.why}" for peer in self.absent]
        if not self.rows:
            return absent
        costs = ", ".join(f"{cost:.1f} in {dtype}" for dtype, cost in self.rows.items())
        remark = f"a call with 8 rows takes this many times as long as one with 1 row: {costs}"
        dear = [dtype for dtype, cost in self.rows.items() if cost > _DEAR]
        if dear:
            less = f"a pipelined decoder gains less in {' and '.join(dear)}"
            remark = f"{remark}: on this machine {less}"
        return [remark, *absent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Decoders side by side, the baseline first."""

    scored: ClassVar[bool] = False  # whether the entries have texts and scores
    entries: tuple[Entry, ...]
    conditions: Conditions
    sample: Sample

    @property
    def first(self) -> Entry:
        """The baseline."""
        return self.entries[0]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes that were timed."""
        return tuple(self.first.timings)

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = to_builtins(replace(self, entries=()))
        values["entries"] = [entry.values(scored=self.scored) for entry in self.entries]
        values["sample"]["line"] = self.sample.line
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Comparison):
    """Decoders side by side on real input."""

    scored: ClassVar[bool] = True

    #: In words.
    baseline: str
    #: The primary metric.
    metric: str
    advice: Advice
    #: The split that everything is measured on.
    split: str | None = None
    #: The mean, if targets are segmented.
    subsequences_per_target: float | None = None
    #: By entry.
    by_subsequences: Mapping[str, tuple[SizeRow, ...]] = field(default_factory=dict)
    dtype: str
    #: How differences were tested.
    significance: str
    paper: PaperFigures | None = None

    @property
    def pipelined(self) -> tuple[Entry, ...]:
        """Our decoders at their delays."""
        return tuple(entry for entry in self.entries if entry.role == "pipelined")

    def qualities(self, entry: Entry) -> dict[str | None, Quality]:
        """An entry's quality by split.

        The split that everything is measured on comes last.
        """
        return dict([*entry.other_splits.items(), (self.split, entry.quality)])

    @property
    def unscored_splits(self) -> list[str | None]:
        """The splits without a right answer."""
        splits = []
        for split, quality in self.qualities(self.first).items():
            if quality.scored and quality.scored.is_unscored:
                splits.append(split)
        return splits

    @property
    def measure(self) -> Measure | None:
        """The metric, on any split that has scores."""
        scored = self.first.quality.scored
        if scored is None or len(self.unscored_splits) > len(self.first.other_splits):
            return None
        return scored.scores.measure

    @property
    def metrics(self) -> list[str]:
        """The metrics that have scores on any split."""
        return list(self.measure.headline) if self.measure else []

    @property
    def part(self) -> str:
        """The name of a row of the grid: a subsequence, or a field."""
        scored = self.first.quality.scored
        return scored.scores.measure.part if scored else Measure.part

    @property
    def stopped_on_repeat(self) -> bool:
        """Whether any text was ended because it repeated itself."""
        scored = (entry.quality.scored for entry in self.entries)
        return any(run is not None and run.failures.stopped_on_repeat for run in scored)

    @property
    def explored(self) -> bool:
        """Whether any timed entry has empty rows that can use up sub_max."""
        return any(entry.row_budget_exhausted is not None for entry in self.entries)

    @property
    def notes(self) -> tuple[str, ...]:
        """What else a reader must know."""
        notes = []
        if self.explored:
            counted = "how often sub_max was used up is counted on the timed examples"
            notes.append(f"{counted}, other faults on all")
        unscored = self.unscored_splits
        no_rows = "there are no rows by number of subsequences"
        if unscored:
            lacking = "the data have no right answers, so nothing is scored"
            if self.measure:
                on = " and ".join(map(str, unscored))
                lacking = f"the data have no right answers on {on}, so nothing is scored there"
            if self.split in unscored:
                lacking = f"{lacking}, and {no_rows}"
            notes.append(lacking)
        if self.split not in unscored and not any(self.by_subsequences.values()):
            notes.append(f"the targets are not segmented, so {no_rows}")
        return tuple(notes)

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        baseline = {"name": self.first.name, "description": self.baseline}
        return Comparison.values(self) | {
            "baseline": baseline,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench(Comparison):
    """Decoders side by side on made-up lengths."""

    model: str  # in words
    lengths: Lengths

    @property
    def ratios(self) -> Iterator[tuple[Entry, Entry, int, Gain]]:
        """The gains of our entries: each with the entry that it is compared with, the batch size and the gain.

        They are over the sequential model in the same dtype, and over every peer.
        """
        for size, entry, other in product(self.batch_sizes, self.entries, self.entries):
            gains = entry.gains_over(other)
            if size in gains and _is_compared(entry, other):
                yield entry, other, size, gains[size]

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = Comparison.values(self)
        values["lengths"] |= {"forced": True, "line": self.lengths.line}
        values["ratios"] = []
        for entry, other, size, gain in self.ratios:
            pair = {"entry": entry.name, "over": other.name, "batch_size": size}
            values["ratios"].append({**pair, **to_builtins(gain)})
        return values


def _is_compared(entry: Entry, other: Entry) -> bool:
    """Whether a bench sets one entry against another."""
    if other.role == "peer":
        return entry.role != "peer"
    if entry.role != "pipelined" or other.role != "baseline":
        return False
    return entry.runner.settings["dtype"] == other.runner.settings["dtype"]


def assemble(
    entries: Sequence[Entry],
    conditions: Conditions,
    timed: Sequence[str],
    *,
    called: str,
    metric: str,
    **described: Any,
) -> Report:
    """Put a report together of filled entries, the baseline first.

    Args:
        entries: the baseline, then the others.
        conditions: where the comparison was made.
        timed: the ids of the timed examples.
        called: the baseline in the advice.
        metric: the primary metric.
        described: the fields of `Report` that say what was compared.
    """
    first, *others = entries
    right = [record_beside(item).target_segments or () for item in _segmented(first)]
    subsequences = fmean(map(len, right)) if right else None
    rows = {}
    for entry in others:
        # The texts of exact mode, and so their quality, are the baseline's.
        if entry.quality.scored and entry.role != "exact":
            rows[entry.name] = by_size(entry, first, timed, metric)
    advice = _advice(entries, called, metric, subsequences)
    if conditions.disturbed:
        caution = f"{conditions.disturbed[0].upper()}{conditions.disturbed[1:]}."
        advice = replace(advice, cautions=(caution, *advice.cautions))
    return Report(
        entries=tuple(entries),
        conditions=conditions,
        metric=metric,
        subsequences_per_target=subsequences,
        by_subsequences=rows,
        advice=advice,
        **described,
    )


def _advice_on_taught(entries: Sequence[Entry], metric: str) -> Advice:
    """Whether to take a model that was taught to answer questions: it is set against the best of the ways without a training."""
    first, taught, *ordinary = entries

    def quality(entry: Entry) -> float:
        return _scored(entry).scores.values[metric] or 0.0

    best = max((first, *ordinary), key=quality)
    differences = compare_runs(_scored(taught), _scored(best))
    return advise_taught(taught, best, differences.get(metric), metric)


def _advice(
    entries: Sequence[Entry], called: str, metric: str, subsequences: float | None
) -> Advice:
    """What to do, with a sentence on exact mode and on a baseline that is missing."""
    first, *others = entries
    if first.name == UNTRAINED:
        return _advice_on_taught(entries, metric)
    tried = [
        entry
        for entry in others
        if entry.role == "pipelined" and entry.delay is not None
    ]
    advice = advise(
        tried, first, called=called, subsequences=subsequences, metric=metric
    )
    sentences = [advice.text]
    exact = exact_advice([entry for entry in others if entry.role == "exact"], called)
    if exact and not first.faults:
        sentences.append(exact)
    if first.name == WAITING:
        todo = "`pipedec train --decoder sequential` makes one"
        lacking = f"There is no sequential model to compare with: {todo}."
        sentences.insert(0, lacking)
    return replace(advice, text=" ".join(sentences))
