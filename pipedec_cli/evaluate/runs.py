"""A scored run and a pair of them, as they are shown and saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipedec_cli.evaluate.failures import Failures
from pipedec_cli.evaluate.scoring import Scores
from pipedec_cli.evaluate.significance import Difference


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """The scores of one file of predictions.

    Attributes:
        name: what it is called in tables and in the files of its scores.
        file: where the predictions stand.
        scores: what the protocol says of them.
        failures: repeats, omissions and cuts.
        expected: how many predictions the run set out to make; None if nothing says so.
    """

    name: str
    file: str
    scores: Scores
    failures: Failures
    expected: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Corpus values and what they were computed with, as plain values."""
        scores, failures = self.scores, self.failures
        return {
            "name": self.name,
            "predictions": self.file,
            "task": scores.task,
            "protocol": scores.protocol,
            "signature": scores.signature,
            "values": scores.values,
            "counts": scores.counts,
            "rows": {"scored": len(scores.ids), "expected": self.expected},
            "failures": {
                **asdict(failures),
                "duplicated_rate": failures.duplicated_rate,
                "dropped_rate": failures.dropped_rate,
                "truncated_rate": failures.truncated_rate,
            },
            "notes": list(scores.notes),
        }

    def example_rows(self) -> Iterator[dict[str, Any]]:
        """Each example's id and its own values, None where it is not scorable."""
        for identifier, values in self.scores.examples.items():
            yield {"id": identifier, **values}


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """Two runs over the same examples, and how they differ.

    Attributes:
        first: the run that is looked at.
        second: the run that it is compared with.
        differences: first minus second, by metric.
        method: how the intervals came about.
        identical: examples with the very same prediction in both.
    """

    first: ScoredRun
    second: ScoredRun
    differences: Mapping[str, Difference]
    method: str
    identical: int

    def as_json(self) -> dict[str, Any]:
        """Both runs and their differences, as plain values."""
        return {
            "first": self.first.as_json(),
            "second": self.second.as_json(),
            "differences": {metric: asdict(difference) for metric, difference in self.differences.items()},
            "method": self.method,
            "identical_predictions": self.identical,
        }
