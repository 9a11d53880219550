"""What goes wrong with this method in particular, and hardly shows in ROUGE: repeats, omissions, cuts.

A pipelined decoder writes a subsequence before it has seen the earlier ones to their end. It can say the same thing
twice, leave something out, or run into its bounds on time and subsequences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipedec_cli.evaluate.metrics.measure import ScoringItem

_NO_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Failures:
    """Counts over a set of predictions, and their rates in [0, 1]."""

    examples: int
    subsequences: int  # predicted, in all
    duplicated: int  # those that say the same as an earlier one of their prediction
    with_duplicates: int  # predictions that have such
    expected: int  # subsequences of the references, where they are known
    dropped: int  # how many of these are missing, prediction by prediction
    with_dropped: int  # predictions that have fewer subsequences than their reference
    compared: int  # predictions whose reference has known subsequences
    truncated: Mapping[str, int]  # predictions cut short, by what cut them (time_max, sub_max, max_tokens)

    @property
    def duplicated_rate(self) -> float:
        """Share of the predicted subsequences that repeat an earlier one."""
        return self.duplicated / self.subsequences if self.subsequences else 0.0

    @property
    def dropped_rate(self) -> float | None:
        """Share of the references' subsequences that are missing; None if no reference's are known."""
        if not self.compared:
            return None
        return self.dropped / self.expected if self.expected else 0.0

    @property
    def truncated_rate(self) -> float:
        """Share of the predictions that were cut short."""
        return sum(self.truncated.values()) / self.examples if self.examples else 0.0

    def as_json(self) -> dict[str, Any]:
        """Counts and rates as plain values."""
        rates = ("duplicated_rate", "dropped_rate", "truncated_rate")
        return {**asdict(self), **{name: getattr(self, name) for name in rates}}


def count_failures(items: Sequence[ScoringItem]) -> Failures:
    """Count repeats, omissions and cuts over a set of predictions."""
    repeats = [len(item.segments) - len(set(map(_normalise, item.segments))) for item in items]
    compared = [(len(item.segments), len(item.gold)) for item in items if item.gold is not None]
    missing = [max(0, right - predicted) for predicted, right in compared]
    truncated = Counter(item.truncated for item in items if item.truncated is not None)
    return Failures(
        examples=len(items),
        subsequences=sum(len(item.segments) for item in items),
        duplicated=sum(repeats),
        with_duplicates=sum(count > 0 for count in repeats),
        expected=sum(right for _, right in compared),
        dropped=sum(missing),
        with_dropped=sum(count > 0 for count in missing),
        compared=len(compared),
        truncated=dict(sorted(truncated.items())),
    )


def _normalise(text: str) -> str:
    """The words alone, in lower case; the text itself where there are none, so that ``!`` and ``?`` stay two things."""
    return _NO_WORD.sub(" ", text.casefold()).strip() or text.strip()
