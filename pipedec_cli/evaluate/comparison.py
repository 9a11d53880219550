"""A comparison of decoders: each entry from the plan to the table, and the result that reports and benches share."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from msgspec import to_builtins

from pipedec_cli.data.paper import PaperFigures
from pipedec_cli.data.wording import many
from pipedec_cli.evaluate.advice import Advice
from pipedec_cli.evaluate.agreement import TextAgreement, TokenAgreement
from pipedec_cli.evaluate.breakdown import SizeRow
from pipedec_cli.evaluate.child import Memory
from pipedec_cli.evaluate.forced import Lengths
from pipedec_cli.evaluate.machine import Machine
from pipedec_cli.evaluate.metrics.measure import Measure
from pipedec_cli.evaluate.peers import Absent
from pipedec_cli.evaluate.steps import Bandwidth, StepSpeed
from pipedec_cli.evaluate.timing import Gain, Runner, Source, Timing, gain

if TYPE_CHECKING:
    from pipedec_cli.evaluate.scoring import ScoredRun
    from pipedec_cli.evaluate.significance import Difference

Role = Literal["baseline", "pipelined", "exact", "peer"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all examples, and means. Steps are the decoder calls of each example, added up.

    In exact mode `draft_steps` of the steps made drafts; the others checked them.
    """

    examples: int
    steps: int
    tokens: int
    steps_per_example: float
    tokens_per_example: float
    tokens_per_step: float
    draft_steps: int | None = None
    draft_steps_per_example: float | None = None
    checks_per_example: float | None = None
    tokens_per_check: float | None = None

    @classmethod
    def of(cls, examples: int, steps: int, tokens: int, draft_steps: int | None = None) -> Totals:
        """The sums with their means."""
        count, exact = max(1, examples), tuple[Any, ...]()
        if draft_steps is not None:
            checks = steps - draft_steps
            exact = (draft_steps, draft_steps / count, checks / count, tokens / max(1, checks))
        means = (steps / count, tokens / count, tokens / max(1, steps))
        return cls(examples, steps, tokens, *means, *exact)


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of a decoder on one split: scores, their differences to the baseline by metric, and equal texts."""

    scored: ScoredRun | None = None
    differences: Mapping[str, Difference] = field(default_factory=dict)
    agreement: TextAgreement | None = None

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "quality": self.scored and self.scored.summary,
            "differences": to_builtins(self.differences),
            "text_agreement": to_builtins(self.agreement),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEntry:
    """A decoder that takes part, and how it decodes.

    `command` generates the same texts (None for others' decoders). Pipelined decoders, and exact mode with their drafts,
    have a `delay`, ``together`` for fields. `sources` are the ids to time, by its own tokenizer.
    """

    name: str
    role: Role
    runner: Runner
    command: str | None = None
    delay: int | Literal["together"] | None = None
    sources: Sequence[Source] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEntry(PlannedEntry):
    """An entry with its timings by batch size and its peak memory. `agreement` counts the baseline's tokens."""

    timings: Mapping[int, Timing] = field(default_factory=dict)
    memory: Memory | None = None
    agreement: TokenAgreement | None = None

    def gains_over(self, other: MeasuredEntry) -> dict[int, Gain]:
        """How much faster it is, by batch size, where both were timed."""
        both = self.timings.keys() & other.timings.keys()
        return {size: gain(self.timings[size], other.timings[size]) for size in sorted(both)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(MeasuredEntry):
    """An entry with its gains over the baseline and, on real input, its quality.

    `faults` say why its texts are useless. `row_budget_exhausted` is the share of timed examples in which empty rows used
    up sub_max. `quality` is on the split that everything is measured on; `other_splits` has that on others.
    """

    gains: Mapping[int, Gain] = field(default_factory=dict)
    quality: Quality = field(default_factory=Quality)
    other_splits: Mapping[str, Quality] = field(default_factory=dict)
    totals: Totals | None = None
    row_budget_exhausted: float | None = None
    faults: tuple[str, ...] = ()

    @property
    def gain(self) -> Gain:
        """The gain over the baseline at the smallest batch size."""
        return self.gains[min(self.gains)]

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        speed = []
        for size, timing in self.timings.items():
            values = to_builtins(timing) | {"over_baseline": to_builtins(self.gains.get(size))}
            del values["outputs"]
            speed.append(values)
        return {
            "name": self.name,
            "role": self.role,
            "settings": dict(self.runner.settings),
            "command": self.command,
            "delay": self.delay,
            **self.quality.values(),
            "faults": self.faults,
            "other_splits": {split: quality.values() for split, quality in self.other_splits.items()},
            "totals": to_builtins(self.totals),
            "row_budget_exhausted": self.row_budget_exhausted,
            "speed": speed,
            "memory": to_builtins(self.memory),
            "agreement": to_builtins(self.agreement),
        }


def promoted(entry: PlannedEntry) -> dict[str, Any]:
    """The fields of an entry, to make the next stage of."""
    return {one.name: getattr(entry, one.name) for one in fields(entry)}


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
        how = (
            f"one pass to warm up, medians of {many(self.repeats, 'repeat')}; loading and tokenizing left out"
        )
        return f"{which} timed in one process, the decoders in turn; {how}"


def choose_sample(count: int, wanted: int) -> list[int]:
    """Places of at most `wanted` examples, the same every time: one drawn from each of as many equal parts.

    So the sample covers a sorted file from end to end, and does not always meet a repetitive file at the same point.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Decoders side by side, the baseline first, on real input or on made-up lengths."""

    entries: tuple[Entry, ...]
    conditions: Conditions
    sample: Sample
    # Only on real input (`pipedec report`)
    baseline: str = ""  # in words
    metric: str = ""  # the primary metric
    split: str | None = None  # the split that everything is measured on
    subsequences_per_target: float | None = None  # the mean, if targets are segmented
    by_subsequences: Mapping[str, tuple[SizeRow, ...]] = field(default_factory=dict)  # by entry
    advice: Advice | None = None
    dtype: str = ""
    significance: str = ""  # how differences were tested
    paper: PaperFigures | None = None
    # Only on made-up lengths (`pipedec bench`)
    model: str = ""
    lengths: Lengths | None = None
    steps: tuple[StepSpeed, ...] = ()
    bandwidth: Bandwidth | None = None

    @property
    def first(self) -> Entry:
        """The baseline."""
        return self.entries[0]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes that were timed."""
        return tuple(self.first.timings)

    @property
    def pipelined(self) -> tuple[Entry, ...]:
        """Our decoders at their delays."""
        return tuple(entry for entry in self.entries if entry.role == "pipelined")

    @property
    def advised(self) -> str | None:
        """The name of the entry that the advice is about."""
        return self.advice.entry if self.advice else None

    @property
    def ratios(self) -> Iterator[tuple[Entry, Entry, int, Gain]]:
        """Each of ours over the sequential model in the same dtype, and over every peer, by batch size."""
        for size, one, other in product(self.batch_sizes, self.entries, self.entries):
            pipelined_over_baseline = (one.role, other.role) == ("pipelined", "baseline")
            same_dtype = one.runner.settings["dtype"] == other.runner.settings["dtype"]
            compared = one.role != "peer" and other.role == "peer"
            if compared or (pipelined_over_baseline and same_dtype):
                gains = one.gains_over(other)
                if size in gains:
                    yield one, other, size, gains[size]

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
        if self.lengths is not None:
            return ()
        notes, unscored = [], self.unscored_splits
        if self.explored:
            notes.append(
                "how often sub_max was used up is counted on the timed examples, other faults on all"
            )
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
        values: dict[str, Any] = to_builtins(replace(self, entries=()))
        values |= {
            "baseline": {"name": self.first.name, "description": self.baseline},
            "decoders": [entry.values() for entry in self.entries],
            "notes": list(self.notes),
        }
        values["sample"]["line"] = self.sample.line
        if self.lengths is not None:
            values["lengths"] |= {"forced": True, "line": self.lengths.line}
            values["ratios"] = [
                {"decoder": one.name, "over": other.name, "batch_size": size, **to_builtins(gain)}
                for one, other, size, gain in self.ratios
            ]
        return values
