"""Speed and quality by number of target subsequences, as in the paper's Figures 4 and 5."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipedec_cli.evaluate.metrics.measure import Scores, ScoringItem

#: Targets with so many subsequences or more share a line: there are few of each.
MANY: Final = 10


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One decoder against the baseline on the targets of one number of subsequences (the paper's Figures 4 and 5).

    Attributes:
        subsequences: n; `MANY` stands for that many or more.
        examples: how many targets have n.
        fewer_steps: the baseline's decoder steps over this decoder's, on all of them.
        timed: how many of them were timed.
        speedup: the baseline's time over this decoder's on these; None if there is none.
        quality: its metric on all of them; None if nothing could be scored.
        baseline_quality: the baseline's.
    """

    subsequences: int
    examples: int
    fewer_steps: float
    timed: int
    speedup: float | None
    quality: float | None
    baseline_quality: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One decoder example by example, by id, for `by_size`."""

    scores: Scores
    steps: Mapping[str, int]
    seconds: Mapping[str, float]


def by_size(run: Run, baseline: Run, ids: Mapping[int, Sequence[str]], metric: str) -> tuple[SizeRow, ...]:
    """Steps, speed and quality by number of target subsequences.

    Args:
        run: the decoder that is looked at; seconds of the timed examples only.
        baseline: the one it is compared with, on the same examples.
        ids: the examples by number of target subsequences.
        metric: which metric.
    """
    groups: dict[int, list[str]] = {}
    for size, members in ids.items():
        groups.setdefault(min(size, MANY), []).extend(members)
    rows = []
    for size, members in sorted(groups.items()):
        timed = [example for example in members if example in run.seconds and example in baseline.seconds]
        seconds = sum(run.seconds[example] for example in timed)
        steps = sum(run.steps[example] for example in members)
        usual = sum(baseline.steps[example] for example in members)
        rows.append(
            SizeRow(
                subsequences=size,
                examples=len(members),
                fewer_steps=usual / steps if steps else 1.0,
                timed=len(timed),
                speedup=sum(baseline.seconds[example] for example in timed) / seconds if seconds else None,
                quality=run.scores.values_of(members)[metric],
                baseline_quality=baseline.scores.values_of(members)[metric],
            )
        )
    return tuple(rows)


def ids_by_size(items: Iterable[ScoringItem]) -> dict[int, list[str]]:
    """The ids of the items by number of target subsequences, for `Scores.values_of`; unknown ones are left out."""
    groups: dict[int, list[str]] = {}
    for item in items:
        if item.gold is not None:
            groups.setdefault(len(item.gold), []).append(item.id)
    return dict(sorted(groups.items()))
