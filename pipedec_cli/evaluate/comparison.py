"""Decoders side by side: what a report holds, put together from scores, timings and memory. Pure: it runs nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from pipedec_cli.data.paper import DelayRow, PaperRow, SpeedupBySubsequences
from pipedec_cli.data.records import Generated
from pipedec_cli.evaluate.advice import Advice, Outcome, Rates
from pipedec_cli.evaluate.breakdown import SizeRow
from pipedec_cli.evaluate.failures import Failures
from pipedec_cli.evaluate.gain import Gain
from pipedec_cli.evaluate.machine import Machine
from pipedec_cli.evaluate.memory import Memory
from pipedec_cli.evaluate.metrics.measure import Scores
from pipedec_cli.evaluate.peers import Absent, Agreement
from pipedec_cli.evaluate.scoring import ScoredRun
from pipedec_cli.evaluate.significance import Difference
from pipedec_cli.evaluate.timing import Timing

Role = Literal["baseline", "pipelined", "peer"]

#: The one metric of each protocol that curves and advice are about.
PRIMARY: Final[Mapping[str, str]] = {
    "rouge": "rougeL",
    "chan2019": "present_f1@M",
    "meng2017": "present_f1@M",
    "multispanqa": "em_f1",
}


def primary_metric(scores: Scores) -> str:
    """The metric that stands for a protocol where there is room for one."""
    return PRIMARY.get(scores.measure.name, scores.measure.headline[-1])


@dataclass(frozen=True, slots=True)
class Totals:
    """What a decoder did on all examples that were generated from.

    Attributes:
        examples: how many.
        steps: decoder calls, each example's own added up.
        tokens: tokens made, <eos> not counted.
    """

    examples: int
    steps: int
    tokens: int

    @property
    def steps_per_example(self) -> float:
        """Mean decoder calls of an example."""
        return self.steps / self.examples if self.examples else 0.0

    @property
    def tokens_per_example(self) -> float:
        """Mean tokens of an example."""
        return self.tokens / self.examples if self.examples else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a decoder call gives an example."""
        return self.tokens / self.steps if self.steps else 0.0

    def as_json(self) -> dict[str, float]:
        """Sums and means as plain values."""
        means = ("steps_per_example", "tokens_per_example", "tokens_per_step")
        return {**asdict(self), **{name: getattr(self, name) for name in means}}


def totals(predictions: Iterable[Generated]) -> Totals:
    """Add up steps and tokens."""
    rows = [(prediction.steps, prediction.tokens) for prediction in predictions]
    return Totals(len(rows), sum(steps for steps, _ in rows), sum(tokens for _, tokens in rows))


@dataclass(frozen=True, slots=True)
class Entry:
    """One decoder in a report.

    Attributes:
        name: what tables call it; the key by which the report finds it.
        role: the baseline, one of ours at some delay, or a peer.
        settings: version and settings that bear on speed or output.
        options: the options of `pipedec generate` that give it; None for peers.
        delay: its Δt; None for all but the pipelined ones.
        scored: its quality on all examples; None for peers, whose tokens are compared instead.
        totals: what it did on all examples; None for peers.
        used_up: share of the timed examples in which explorations used up sub_max; None where there are none.
        differences: its scores minus the baseline's, by metric; {} for the baseline.
        timings: by batch size.
        gains: over the baseline, by batch size; {} for the baseline.
        memory: None where it could not be measured.
        agreement: its tokens against those of our sequential decoder; peers only.
    """

    name: str
    role: Role
    settings: Mapping[str, str]
    options: str | None = None
    delay: int | None = None
    scored: ScoredRun | None = None
    totals: Totals | None = None
    used_up: float | None = None
    differences: Mapping[str, Difference] = field(default_factory=dict)
    timings: Mapping[int, Timing] = field(default_factory=dict)
    gains: Mapping[int, Gain] = field(default_factory=dict)
    memory: Memory | None = None
    agreement: Agreement | None = None

    @property
    def rates(self) -> Rates:
        """What goes wrong in its predictions."""
        failures = self.scored.failures if self.scored else None
        return _rates(failures, self.used_up)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "name": self.name,
            "role": self.role,
            "settings": dict(self.settings),
            "options": self.options,
            "delay": self.delay,
            "quality": self.scored.as_json() if self.scored else None,
            "differences": {metric: asdict(difference) for metric, difference in self.differences.items()},
            "totals": self.totals.as_json() if self.totals else None,
            "used_up_sub_max": self.used_up,
            "speed": [
                timing.as_json()
                | {"over_baseline": self.gains[size].as_json() if size in self.gains else None}
                for size, timing in self.timings.items()
            ],
            "memory": self.memory.as_json() if self.memory else None,
            "agreement": asdict(self.agreement) if self.agreement else None,
        }


def _rates(failures: Failures | None, used_up: float | None) -> Rates:
    if failures is None:
        return Rates(used_up=used_up)
    return Rates(failures.duplicated_rate, failures.dropped_rate, failures.truncated_rate, used_up)


def outcome(entry: Entry, baseline: Entry, metric: str) -> Outcome:
    """What advice needs of one delay: speed at the smallest batch size, the work over all examples, one metric."""
    mine, usual = entry.totals or Totals(0, 0, 0), baseline.totals or Totals(0, 0, 0)
    return Outcome(
        name=entry.name,
        options=entry.options or "",
        speedup=entry.gains[min(entry.gains)].speedup,
        fewer_steps=_ratio(usual.steps_per_example, mine.steps_per_example),
        difference=entry.differences.get(metric),
        rates=entry.rates,
        fewer_tokens=_ratio(usual.tokens_per_example, mine.tokens_per_example),
    )


def _ratio(theirs: float, mine: float) -> float:
    return theirs / mine if mine else 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Which examples were timed.

    Attributes:
        timed: how many.
        of: out of how many.
        repeats: how often each decoder went over them.
    """

    timed: int
    of: int
    repeats: int

    @property
    def line(self) -> str:
        """The statement that a timing must carry."""
        which = f"all {self.of}" if self.timed == self.of else f"{self.timed} of {self.of}"
        spread = (
            "" if self.timed == self.of else " (one drawn from each of as many equal parts, always the same)"
        )
        return (
            f"{which} examples{spread} timed in one process, the decoders in turn; one pass to warm up, medians of "
            f"{self.repeats} repeat{'' if self.repeats == 1 else 's'}; loading and tokenizing left out"
        )


def choose_sample(count: int, wanted: int) -> list[int]:
    """Places of the examples to be timed, at most `wanted`, the same every time.

    One is drawn from each of as many equal parts: a file that is sorted is covered from end to end, and one that
    repeats itself is not met at the same point every time.
    """
    taken = min(count, wanted)
    rng = random.Random(0)  # noqa: S311  # chance, not secrecy
    return [rng.randrange(part * count // taken, (part + 1) * count // taken) for part in range(taken)]


@dataclass(frozen=True, slots=True)
class Paper:
    """What the paper reports for the data set at hand.

    Attributes:
        row: both its decoders.
        delays: its Table 5; () for a data set that is not in it.
        curve: the ends of its Figure 4; None likewise.
    """

    row: PaperRow
    delays: tuple[DelayRow, ...] = ()
    curve: SpeedupBySubsequences | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison of decoders on one data set.

    Attributes:
        entries: the baseline first, then ours, then the peers.
        baseline: what the baseline is, in words.
        metric: the primary metric.
        subsequences: mean number of subsequences of a target; None if the targets are not segmented.
        sizes: by the name of each pipelined decoder.
        advice: what to do.
        sample: what was timed.
        dtype: of our decoders.
        device: what they ran on.
        machine: where.
        versions: of what was timed.
        significance: how the intervals of differences came about.
        absent: peers that could not be timed.
        paper: the paper's figures, where the data set is one of its.
        notes: what else a reader must be told.
    """

    entries: tuple[Entry, ...]
    baseline: str
    metric: str
    subsequences: float | None
    sizes: Mapping[str, tuple[SizeRow, ...]]
    advice: Advice
    sample: Sample
    dtype: str
    device: str
    machine: Machine
    versions: Mapping[str, str | None]
    significance: str
    absent: tuple[Absent, ...] = ()
    paper: Paper | None = None
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> Entry:
        """The baseline."""
        return self.entries[0]

    @property
    def pipelined(self) -> tuple[Entry, ...]:
        """Our decoders at their delays."""
        return tuple(entry for entry in self.entries if entry.role == "pipelined")

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Those that were timed."""
        return tuple(self.first.timings)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "baseline": {"name": self.first.name, "is": self.baseline},
            "metric": self.metric,
            "subsequences_per_target": self.subsequences,
            "advice": self.advice.as_json(),
            "decoders": [entry.as_json() for entry in self.entries],
            "absent": [asdict(peer) for peer in self.absent],
            "by_subsequences": {name: [asdict(row) for row in rows] for name, rows in self.sizes.items()},
            "paper": self.paper.as_json() if self.paper else None,
            "significance": self.significance,
            "sample": {**asdict(self.sample), "line": self.sample.line},
            "dtype": self.dtype,
            "device": self.device,
            "machine": self.machine.as_json(),
            "versions": dict(self.versions),
            "notes": list(self.notes),
        }
