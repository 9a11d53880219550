"""Decoders side by side: what a report holds, put together from what was measured. Pure: nothing runs here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import to_builtins

from pipedec_cli.data.paper import PaperFigures
from pipedec_cli.evaluate.advice import Advice, advise, where_no_word_may_change
from pipedec_cli.evaluate.competitor import Agreement, Competitor, Quality, Totals
from pipedec_cli.evaluate.fitness import faults
from pipedec_cli.evaluate.machine import Machine
from pipedec_cli.evaluate.metrics.measure import Measure
from pipedec_cli.evaluate.peers import Absent
from pipedec_cli.evaluate.scoring import LABELS

if TYPE_CHECKING:
    from pipedec_cli.evaluate.metrics.measure import Scores

#: The numbers of target subsequences in the paper's Figures 4 and 5; targets with `MANY` or more share a line.
PAPER_SIZES: Final = range(2, 10)
MANY: Final = PAPER_SIZES.stop


class Sample(NamedTuple):
    """Which examples were timed: how many, out of how many, and how often each decoder went over them."""

    timed: int
    of: int
    repeats: int

    @property
    def line(self) -> str:
        """The statement that a timing must carry."""
        timed, of, repeats = self
        some = f"{timed} of {of} examples (one drawn from each of as many equal parts, always the same)"
        which, passes = f"all {of} examples" if timed == of else some, "repeat" if repeats == 1 else "repeats"
        how = f"one pass to warm up, medians of {repeats} {passes}; loading and tokenizing left out"
        return f"{which} timed in one process, the decoders in turn; {how}"


def choose_sample(count: int, wanted: int) -> list[int]:
    """Places of the examples to be timed, at most `wanted`, the same every time, one drawn from each of as many equal parts.

    So a file that is sorted is covered from end to end, and one that repeats itself is not always met at the same point.
    """
    taken = min(count, wanted)
    rng = random.Random(0)  # noqa: S311  # chance, not secrecy
    return [rng.randrange(part * count // taken, (part + 1) * count // taken) for part in range(taken)]


class SizeRow(NamedTuple):
    """One decoder against the baseline on the targets of one number of subsequences, `MANY` for that many or more.

    Steps and quality are those of all of these examples, the speedup of the timed ones; None where there is none.
    """

    subsequences: int
    examples: int
    fewer_steps: float | None
    timed: int
    speedup: float | None
    quality: float | None
    baseline_quality: float | None


class Run(NamedTuple):
    """One decoder example by example, by id: decoder steps of all, seconds of those that were timed."""

    scores: Scores
    steps: Mapping[str, int]
    seconds: Mapping[str, float]


def by_size(run: Run, baseline: Run, ids: Mapping[int, Sequence[str]], metric: str) -> tuple[SizeRow, ...]:
    """Steps, speed and quality on the same examples; `ids` are these by number of target subsequences, if any are known.

    Every number of the paper's figures has its row.
    """
    groups: dict[int, list[str]] = {size: [] for size in PAPER_SIZES if ids}
    for size, members in ids.items():
        groups.setdefault(min(size, MANY), []).extend(members)
    rows = []
    for size, members in sorted(groups.items()):
        timed = [example for example in members if example in run.seconds and example in baseline.seconds]
        seconds, usual_seconds = (sum(map(one.seconds.__getitem__, timed)) for one in (run, baseline))
        steps, usual_steps = (sum(map(one.steps.__getitem__, members)) for one in (run, baseline))
        fewer, speedup = usual_steps / steps if steps else None, usual_seconds / seconds if seconds else None
        quality, usual = (one.scores.values_of(members)[metric] for one in (run, baseline))
        rows.append(SizeRow(size, len(members), fewer, len(timed), speedup, quality, usual))
    return tuple(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a report and a bench have in common: the baseline, ours and peers as `entries`, what was absent, and where.

    `disturbed` says that other work got in the way. Where the source is a prompt (`prompted`), the time of reading it stands
    in the encoder's place.
    """

    entries: tuple[Competitor, ...]
    absent: tuple[Absent, ...] = ()
    device: str
    machine: Machine
    versions: Mapping[str, str | None]
    disturbed: str | None = None
    prompted: bool = False

    @property
    def first(self) -> Competitor:
        """The baseline."""
        return self.entries[0]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Those that were timed."""
        return tuple(self.first.timings)

    @property
    def absences(self) -> list[str]:
        """Who is absent and why, a line each."""
        return [f"{peer.name} is absent: {peer.why}" for peer in self.absent]

    @property
    def conditions(self) -> dict[str, Any]:
        """Absent peers and surroundings as plain values."""
        return {
            "absent": [peer._asdict() for peer in self.absent],
            "device": self.device,
            "machine": asdict(self.machine),
            "versions": dict(self.versions),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Comparison):
    """A comparison of decoders on one data set, by the primary metric; `sizes` goes by the names of the pipelined ones.

    `baseline` and `significance` (of differences) are words; `subsequences` is their mean number in a target, if segmented;
    `split` is the one that all is measured on, where it was named: the quality alone stands beside it on others.
    """

    baseline: str
    metric: str
    subsequences: float | None
    sizes: Mapping[str, tuple[SizeRow, ...]]
    advice: Advice
    sample: Sample
    dtype: str
    significance: str
    split: str | None = None
    paper: PaperFigures | None = None

    @property
    def pipelined(self) -> tuple[Competitor, ...]:
        """Our decoders at their delays."""
        return tuple(entry for entry in self.entries if entry.role == "pipelined")

    def qualities(self, one: Competitor) -> dict[str | None, Quality]:
        """A decoder's quality by split, that on the one that all else is measured on last."""
        return dict([*one.beside.items(), (self.split, one.quality)])

    @property
    def blind(self) -> list[str | None]:
        """The splits without a right answer."""
        found = self.qualities(self.first).items()
        return [split for split, (scored, *_) in found if scored and scored.is_blind]

    @property
    def measure(self) -> Measure | None:
        """What scores go by, on whatever split there are any."""
        if self.first.scored is None or len(self.blind) > len(self.first.beside):
            return None
        return self.first.scored.scores.measure

    @property
    def part(self) -> str:
        """What a row of the grid is called: a subsequence, or a field."""
        return self.first.scored.scores.measure.part if self.first.scored else Measure.part

    @property
    def stopped_on_repeat(self) -> bool:
        """Whether any text was ended where it began to repeat itself."""
        return any(one.scored is not None and one.scored.failures.stopped_on_repeat for one in self.entries)

    @property
    def explored(self) -> bool:
        """Whether anyone that was timed has explorations, which can use up sub_max."""
        return any(one.row_budget_exhausted is not None for one in self.entries)

    @property
    def notes(self) -> tuple[str, ...]:
        """What else a reader must be told."""
        found, blind = list[str](), self.blind
        if self.explored:
            found.append(
                "how often sub_max was used up is counted on the timed examples, what else goes wrong on all"
            )
        if blind:
            on, there = (f" on {' and '.join(map(str, blind))}", " there") if self.measure else ("", "")
            flat = ", nor told by number of subsequences" if self.split in blind else ""
            found.append(f"the data have no right answers{on}, so nothing is scored{there}{flat}")
        if self.split not in blind and not any(self.sizes.values()):
            found.append("the targets are not segmented, so nothing is told by number of subsequences")
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "baseline": {"name": self.first.name, "is": self.baseline},
            "metric": self.metric,
            "split": self.split,
            "subsequences_per_target": self.subsequences,
            "advice": asdict(self.advice),
            "decoders": [entry.as_json() for entry in self.entries],
            "by_subsequences": {name: [row._asdict() for row in rows] for name, rows in self.sizes.items()},
            "paper": to_builtins(self.paper),
            "significance": self.significance,
            "sample": {**self.sample._asdict(), "line": self.sample.line},
            "dtype": self.dtype,
            "notes": list(self.notes),
            **self.conditions,
        }


def assemble(
    found: Mapping[str, Any], timed: Sequence[str], *, metric: str, called: str, **rest: Any
) -> Report:
    """Put together what was scored and measured (`found`, the fields of `Comparison`), examples with the ids `timed`.

    Advice calls the baseline `called`; `rest` holds other attributes of `Report`.
    """
    (first, *others), runs = found["entries"], dict[str, Run]()
    for one in (first, *others):
        size, timing = next(iter(one.timings.items()), (0, None))
        if one is not first:
            one.gains = one.gains_over(first)
        if one.role in ("peer", "exact") and timing is not None:
            one.agreement = Agreement.between(timing.outputs, first.timings[size].outputs)
        if one.scored is not None:
            made = one.scored.run.predictions
            steps = {each.id: each.steps for each in made}
            spent, tokens = (sum(getattr(each, what) for each in made) for what in ("steps", "tokens"))
            drafting = sum(each.draft_steps or 0 for each in made) if one.role == "exact" else None
            one.totals = Totals(len(made), spent, tokens, drafting)
            one.faults = tuple(faults(one.scored))
            if one.role == "pipelined" and one.delay != "together" and timing is not None:
                one.row_budget_exhausted = (
                    sum(output.row_budget_exhausted for output in timing.outputs) / timing.examples
                )
            alone = one.timings[1].example_seconds if 1 in one.timings else ()
            if one.role != "exact":  # its texts, and so its quality, are the baseline's
                runs[one.name] = Run(one.scored.scores, steps, dict(zip(timed, alone, strict=bool(alone))))
    items = first.scored.items if first.scored else ()
    groups: dict[int, list[str]] = {}
    for name, gold in [(item.id, item.gold) for item in items if item.gold is not None]:
        groups.setdefault(len(gold), []).append(name)
    sizes = [size for size, members in groups.items() for _ in members]
    mean = sum(sizes) / len(sizes) if sizes else None
    tried = [one for one in others if one.role == "pipelined" and one.delay is not None]
    usual, exact = runs.pop(first.name), [one for one in others if one.role == "exact"]
    advice = advise(tried, first, called=called, subsequences=mean, metric=metric, labels=LABELS)
    if not first.faults and (more := where_no_word_may_change(exact, called)):
        advice = replace(advice, text=f"{advice.text} {more}")
    if disturbed := found.get("disturbed"):  # speeds that are too low weaken whatever is said of them
        warning = f"{disturbed[0].upper()}{disturbed[1:]}."
        advice = replace(advice, cautions=(warning, *advice.cautions))
    return Report(
        metric=metric,
        subsequences=mean,
        sizes={name: by_size(run, usual, groups, metric) for name, run in runs.items()},
        advice=advice,
        **found,
        **rest,
    )
