"""A comparison of decoders: what reports and benches share, and a report put together. Pure: nothing runs here."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean
from typing import Any, ClassVar, Final

from msgspec import to_builtins

from pipedec_cli.compare.advice import Advice, advise, exact_advice
from pipedec_cli.compare.entry import Entry, Quality, Totals
from pipedec_cli.compare.machine import Machine
from pipedec_cli.compare.peers import Absent
from pipedec_cli.compare.runners import Lengths
from pipedec_cli.compare.timing import Gain
from pipedec_cli.data.errors import many
from pipedec_cli.data.paper import PaperFigures
from pipedec_cli.data.records import SplitName
from pipedec_cli.metrics.measure import Measure, ScoringItem
from pipedec_cli.metrics.scoring import faults

#: The name of the baseline where there is no sequential model.
WAITING: Final = "waiting schedule"
#: The numbers of target subsequences in the paper's figures; targets with `MANY` or
#: more share a row.
PAPER_SIZES: Final = range(2, 10)
MANY: Final = PAPER_SIZES.stop


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One decoder against the baseline on the targets with one number of subsequences (`MANY`: that many or more).

    Steps and quality are of all these examples, the speedup of the timed ones; None
    where there are none.
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
    """Rows by number of target subsequences, each number of the paper among them; none if no target is segmented.

    `timed` are the ids of the timed examples.
    """
    groups: dict[int, list[str]] = {}
    for item in _segmented(baseline):
        groups.setdefault(min(len(item.gold or ()), MANY), []).append(item.id)
    mine, usual = entry.quality.scored, baseline.quality.scored
    assert mine is not None and usual is not None
    steps, usual_steps = (
        {each.id: each.steps for each in one.run.predictions} for one in (mine, usual)
    )
    # One at a time, if that was timed.
    clocks = (
        one.timings[1].example_seconds if 1 in one.timings else ()
        for one in (entry, baseline)
    )
    seconds, usual_seconds = (
        dict(zip(timed, clock, strict=bool(clock))) for clock in clocks
    )
    rows = []
    for size in sorted({*groups, *PAPER_SIZES}) if groups else ():
        members = groups.get(size, [])
        clocked = [
            example
            for example in members
            if example in seconds and example in usual_seconds
        ]
        row = SizeRow(
            size,
            len(members),
            fewer_steps=_ratio(usual_steps, steps, members),
            timed=len(clocked),
            speedup=_ratio(usual_seconds, seconds, clocked),
            quality=mine.scores.values_of(members)[metric],
            baseline_quality=usual.scores.values_of(members)[metric],
        )
        rows.append(row)
    return tuple(rows)


def _ratio(
    usual: Mapping[str, float], mine: Mapping[str, float], ids: Sequence[str]
) -> float | None:
    spent = sum(mine[example] for example in ids)
    return sum(usual[example] for example in ids) / spent if spent else None


def _segmented(entry: Entry) -> list[ScoringItem]:
    """The scored examples whose targets have known subsequences."""
    items = entry.quality.scored.items if entry.quality.scored else ()
    return [item for item in items if item.gold is not None]


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
        how = f"{passes}; loading and tokenizing left out"
        return f"{which} timed in one process, the decoders in turn; {how}"


def choose_sample(count: int, wanted: int) -> list[int]:
    """Places of at most `wanted` examples, one drawn from each of as many equal parts, the same every time."""
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
    """Where a comparison was made, which peers were absent, and whether other work disturbed it or a person `stopped` it.

    With `prompted` models, the time to read the prompt stands in the place of the
    encoder's. `rows` are by dtype: how many times as long a call with 8 rows takes as a
    call with 1 row.
    """

    device: str
    machine: Machine
    versions: Mapping[str, str | None]
    absent: tuple[Absent, ...] = ()
    disturbed: str | None = None
    stopped: str | None = None
    prompted: bool = False
    rows: Mapping[str, float] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """What 8 rows cost here, and the absent peers with the reason, a line each."""
        absent = [f"{peer.name} is absent: {peer.why}" for peer in self.absent]
        if not self.rows:
            return absent
        costs = ", ".join(f"{cost:.1f} in {dtype}" for dtype, cost in self.rows.items())
        dear = [dtype for dtype, cost in self.rows.items() if cost > _DEAR]
        advice = (
            f": on this machine a pipelined decoder gains less in {' and '.join(dear)}"
            if dear
            else ""
        )
        return [f"times as long as 1 row take 8 rows: {costs}{advice}", *absent]


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

    baseline: str  # in words
    metric: str  # the primary metric
    advice: Advice
    split: str | None = None  # the split that everything is measured on
    subsequences_per_target: float | None = None  # the mean, if targets are segmented
    by_subsequences: Mapping[str, tuple[SizeRow, ...]] = field(
        default_factory=dict
    )  # by entry
    dtype: str
    significance: str  # how differences were tested
    paper: PaperFigures | None = None

    @property
    def pipelined(self) -> tuple[Entry, ...]:
        """Our decoders at their delays."""
        return tuple(entry for entry in self.entries if entry.role == "pipelined")

    def qualities(self, entry: Entry) -> dict[str | None, Quality]:
        """An entry's quality by split; the split that everything is measured on comes last."""
        return dict([*entry.other_splits.items(), (self.split, entry.quality)])

    @property
    def unscored_splits(self) -> list[str | None]:
        """The splits without a right answer."""
        found = self.qualities(self.first).items()
        return [
            split
            for split, quality in found
            if quality.scored and quality.scored.is_unscored
        ]

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
        notes, unscored = [], self.unscored_splits
        if self.explored:
            counted = "how often sub_max was used up is counted on the timed examples"
            notes.append(f"{counted}, other faults on all")
        if unscored:
            on, there = (
                (f" on {' and '.join(map(str, unscored))}", " there")
                if self.measure
                else ("", "")
            )
            rows = (
                ", and there are no rows by number of subsequences"
                if self.split in unscored
                else ""
            )
            notes.append(
                f"the data have no right answers{on}, so nothing is scored{there}{rows}"
            )
        if self.split not in unscored and not any(self.by_subsequences.values()):
            notes.append(
                "the targets are not segmented, so there are no rows by number of subsequences"
            )
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
        """Each of ours over the sequential model in the same dtype, and over every peer, by batch size."""
        for size, one, other in product(self.batch_sizes, self.entries, self.entries):
            pipelined_over_baseline = (one.role, other.role) == (
                "pipelined",
                "baseline",
            )
            same_dtype = one.runner.settings["dtype"] == other.runner.settings["dtype"]
            compared = one.role != "peer" and other.role == "peer"
            gains = one.gains_over(other)
            if size in gains and (compared or (pipelined_over_baseline and same_dtype)):
                yield one, other, size, gains[size]

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = Comparison.values(self)
        values["lengths"] |= {"forced": True, "line": self.lengths.line}
        values["ratios"] = [
            {
                "entry": one.name,
                "over": other.name,
                "batch_size": size,
                **to_builtins(gain),
            }
            for one, other, size, gain in self.ratios
        ]
        return values


def assemble(
    entries: Sequence[Entry],
    conditions: Conditions,
    timed: Sequence[str],
    *,
    called: str,
    **described: Any,
) -> Report:
    """Put a report together of measured entries, the baseline first. `timed` are the ids of the timed examples.

    `called` is the baseline in the advice; `described` are the fields of `Report` that
    say what was compared.
    """
    first, *others = entries
    metric, sizes = (
        described["metric"],
        [len(item.gold or ()) for item in _segmented(first)],
    )
    tried = [one for one in others if one.role == "pipelined" and one.delay is not None]
    # The texts of exact mode, and so their quality, are the baseline's.
    own = [one for one in others if one.quality.scored and one.role != "exact"]
    subsequences = fmean(sizes) if sizes else None
    advice = advise(
        tried, first, called=called, subsequences=subsequences, metric=metric
    )
    exact = exact_advice([one for one in others if one.role == "exact"], called)
    if exact and not first.faults:
        advice = replace(advice, text=f"{advice.text} {exact}")
    if first.name == WAITING:
        todo = "`pipedec train --decoder sequential` makes one"
        advice = replace(
            advice,
            text=f"There is no sequential model to compare with: {todo}. {advice.text}",
        )
    if disturbed := conditions.disturbed:
        caution = f"{disturbed[0].upper()}{disturbed[1:]}."
        advice = replace(advice, cautions=(caution, *advice.cautions))
    return Report(
        entries=tuple(entries),
        conditions=conditions,
        subsequences_per_target=subsequences,
        by_subsequences={one.name: by_size(one, first, timed, metric) for one in own},
        advice=advice,
        **described,
    )


def with_quality(
    entry: Entry, qualities: Mapping[SplitName, Quality], keys: int = 0
) -> Entry:
    """The entry with its qualities by split, the split that everything is measured on last, and what follows of them.

    An object has so many `keys`.
    """
    *splits, last = qualities
    scored = qualities[last].scored
    assert scored is not None
    predictions = scored.run.predictions
    drafting = (
        sum(each.draft_steps or 0 for each in predictions)
        if entry.role == "exact"
        else None
    )
    steps, tokens = (
        sum(each.steps for each in predictions),
        sum(each.tokens for each in predictions),
    )
    totals = Totals.of(len(predictions), steps, tokens, drafting)
    return replace(
        entry,
        quality=qualities[last],
        other_splits={split: qualities[split] for split in splits},
        totals=replace(
            totals, keys_per_step=keys * len(predictions) / max(1, steps) or None
        ),
        faults=tuple(faults(scored)),
    )
