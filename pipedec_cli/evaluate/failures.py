"""What goes wrong with this method in particular, and hardly shows in ROUGE: repeats, omissions, cuts.

A pipelined decoder writes a subsequence before it has seen the earlier ones to their end. It can say the same thing
twice, leave something out, or run into its bounds on time and subsequences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    duplicated_rate: float  # of the predicted subsequences
    dropped_rate: float | None  # of the references' subsequences; None if no reference's are known
    truncated_rate: float  # of the predictions


def count_failures(items: Sequence[ScoringItem]) -> Failures:
    """Count repeats, omissions and cuts over a set of predictions."""
    repeats = [len(item.segments) - len(set(map(_normalise, item.segments))) for item in items]
    compared = [(len(item.segments), len(item.gold)) for item in items if item.gold is not None]
    missing = [max(0, right - predicted) for predicted, right in compared]
    truncated = Counter(item.truncated for item in items if item.truncated is not None)
    subsequences, expected = sum(len(item.segments) for item in items), sum(right for _, right in compared)
    return Failures(
        examples=len(items),
        subsequences=subsequences,
        duplicated=sum(repeats),
        with_duplicates=sum(count > 0 for count in repeats),
        expected=expected,
        dropped=sum(missing),
        with_dropped=sum(count > 0 for count in missing),
        compared=len(compared),
        truncated=dict(sorted(truncated.items())),
        duplicated_rate=sum(repeats) / subsequences if subsequences else 0.0,
        dropped_rate=(sum(missing) / expected if expected else 0.0) if compared else None,
        truncated_rate=truncated.total() / len(items) if items else 0.0,
    )


def _normalise(text: str) -> str:
    """The words alone, in lower case; the text itself where there are none, so that ``!`` and ``?`` stay two things."""
    return _NO_WORD.sub(" ", text.casefold()).strip() or text.strip()
