"""What a segmented data set looks like: the row of the paper's Table 1, and how many subsequences targets have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipedec_cli.data.records import Record
from pipedec_cli.data.scripts import count_words


@dataclass(frozen=True, slots=True)
class TargetStatistics:
    """The paper's Table 1 for one set of records.

    Attributes:
        examples: records that have a target.
        words_per_target: average words of a target, by white space (by character in scripts without spaces).
        subsequences_per_target: average n.
        words_per_subsequence: words over subsequences, over the whole set.
        histogram: how many targets have n subsequences, by n, ascending.
    """

    examples: int
    words_per_target: float
    subsequences_per_target: float
    words_per_subsequence: float
    histogram: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON, the averages rounded to what a table shows and a bit more."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def describe_targets(records: Iterable[Record]) -> TargetStatistics:
    """The statistics of segmented records; those without segments are left out."""
    words = 0
    histogram: Counter[int] = Counter()
    for record in records:
        if record.target_segments is not None:
            words += sum(map(count_words, record.target_segments))
            histogram[len(record.target_segments)] += 1
    examples = histogram.total()
    subsequences = sum(n * count for n, count in histogram.items())
    return TargetStatistics(
        examples=examples,
        words_per_target=words / examples if examples else 0.0,
        subsequences_per_target=subsequences / examples if examples else 0.0,
        words_per_subsequence=words / subsequences if subsequences else 0.0,
        histogram=dict(sorted(histogram.items())),
    )
