"""Steps, speed and quality by number of target subsequences, as in the paper's Figures 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipedec_cli.evaluate.metrics.measure import Scores

#: The numbers of target subsequences in the paper's figures; targets with `MANY` or more share a row.
PAPER_SIZES: Final = range(2, 10)
MANY: Final = PAPER_SIZES.stop


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One decoder against the baseline on the targets with one number of subsequences (`MANY`: that many or more).

    Steps and quality are of all these examples, the speedup of the timed ones; None where there are none.
    """

    subsequences: int
    examples: int
    fewer_steps: float | None
    timed: int
    speedup: float | None
    quality: float | None
    baseline_quality: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One decoder by the ids of examples: decoder steps of all, seconds of the timed ones."""

    scores: Scores
    steps: Mapping[str, int]
    seconds: Mapping[str, float]


def by_size(run: Run, baseline: Run, ids: Mapping[int, Sequence[str]], metric: str) -> tuple[SizeRow, ...]:
    """Rows by number of target subsequences, each number of the paper among them; none without `ids` by number."""
    groups: dict[int, list[str]] = {size: [] for size in PAPER_SIZES if ids}
    for size, members in ids.items():
        groups.setdefault(min(size, MANY), []).extend(members)
    rows = []
    for size, members in sorted(groups.items()):
        timed = [example for example in members if example in run.seconds and example in baseline.seconds]
        seconds, usual_seconds = (sum(map(one.seconds.__getitem__, timed)) for one in (run, baseline))
        steps, usual_steps = (sum(map(one.steps.__getitem__, members)) for one in (run, baseline))
        row = SizeRow(
            size,
            len(members),
            fewer_steps=usual_steps / steps if steps else None,
            timed=len(timed),
            speedup=usual_seconds / seconds if seconds else None,
            quality=run.scores.values_of(members)[metric],
            baseline_quality=baseline.scores.values_of(members)[metric],
        )
        rows.append(row)
    return tuple(rows)
