"""A comparison of decoders: what reports and benches share, and what is in each alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Generic, TypeVar

from msgspec import to_builtins

from pipedec_cli.data.paper import PaperFigures
from pipedec_cli.data.wording import many
from pipedec_cli.evaluate.advice import Advice
from pipedec_cli.evaluate.breakdown import SizeRow
from pipedec_cli.evaluate.entry import Entry, MeasuredEntry, Quality
from pipedec_cli.evaluate.fidelity import FidelityTable
from pipedec_cli.evaluate.forced import Lengths
from pipedec_cli.evaluate.machine import Machine
from pipedec_cli.evaluate.metrics.measure import Measure
from pipedec_cli.evaluate.peers import Absent
from pipedec_cli.evaluate.steps import Bandwidth, StepSpeed
from pipedec_cli.evaluate.timing import Gain


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
    return [rng.randrange(part * count // taken, (part + 1) * count // taken) for part in range(taken)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Where a comparison was made, which peers were absent, and whether other work disturbed it.

    With `prompted` models, the time to read the prompt stands in the place of the encoder's.
    """

    device: str
    machine: Machine
    versions: Mapping[str, str | None]
    absent: tuple[Absent, ...] = ()
    disturbed: str | None = None
    prompted: bool = False

    @property
    def absences(self) -> list[str]:
        """The absent peers with the reason, a line each."""
        return [f"{peer.name} is absent: {peer.why}" for peer in self.absent]


E = TypeVar("E", bound=MeasuredEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Generic[E]):
    """Decoders side by side, the baseline first."""

    entries: tuple[E, ...]
    conditions: Conditions
    sample: Sample

    @property
    def first(self) -> E:
        """The baseline."""
        return self.entries[0]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes that were timed."""
        return tuple(self.first.timings)

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = to_builtins(replace(self, entries=()))
        values["entries"] = [entry.values() for entry in self.entries]
        values["sample"]["line"] = self.sample.line
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Comparison[Entry]):
    """Decoders side by side on real input."""

    baseline: str  # in words
    metric: str  # the primary metric
    advice: Advice
    split: str | None = None  # the split that everything is measured on
    subsequences_per_target: float | None = None  # the mean, if targets are segmented
    by_subsequences: Mapping[str, tuple[SizeRow, ...]] = field(default_factory=dict)  # by entry
    dtype: str
    significance: str  # how differences were tested
    fidelity: tuple[FidelityTable, ...] = ()  # what the dtype changes in each model, where it is not float32
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
        return [split for split, quality in found if quality.scored and quality.scored.is_unscored]

    @property
    def measure(self) -> Measure | None:
        """The metric, on any split that has scores."""
        scored = self.first.quality.scored
        if scored is None or len(self.unscored_splits) > len(self.first.other_splits):
            return None
        return scored.scores.measure

    @property
    def part(self) -> str:
        """The name of a row of the grid: a subsequence, or a field."""
        scored = self.first.quality.scored
        return scored.scores.measure.part if scored else Measure.part

    @property
    def stopped_on_repeat(self) -> bool:
        """Whether any text was ended because it repeated itself."""
        scored = (entry.quality.scored for entry in self.entries)
        return any(one is not None and one.failures.stopped_on_repeat for one in scored)

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
            on, there = "", ""
            if self.measure:
                on, there = f" on {' and '.join(map(str, unscored))}", " there"
            rows = ", and there are no rows by number of subsequences" if self.split in unscored else ""
            notes.append(f"the data have no right answers{on}, so nothing is scored{there}{rows}")
        if self.split not in unscored and not any(self.by_subsequences.values()):
            notes.append("the targets are not segmented, so there are no rows by number of subsequences")
        return tuple(notes)

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        baseline = {"name": self.first.name, "description": self.baseline}
        return Comparison.values(self) | {"baseline": baseline, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench(Comparison[MeasuredEntry]):
    """Decoders side by side on made-up lengths, and single decoder steps beside the memory's speed."""

    model: str  # in words
    lengths: Lengths
    steps: tuple[StepSpeed, ...]
    bandwidth: Bandwidth

    @property
    def ratios(self) -> Iterator[tuple[MeasuredEntry, MeasuredEntry, int, Gain]]:
        """Each of ours over the sequential model in the same dtype, and over every peer, by batch size."""
        for size, one, other in product(self.batch_sizes, self.entries, self.entries):
            pipelined_over_baseline = (one.role, other.role) == ("pipelined", "baseline")
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
            {"entry": one.name, "over": other.name, "batch_size": size, **to_builtins(gain)}
            for one, other, size, gain in self.ratios
        ]
        return values
