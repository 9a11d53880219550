"""What goes wrong with this method in particular, and hardly shows in ROUGE: repeats, omissions, cuts.

A pipelined decoder writes a subsequence before it has seen the earlier ones to their end. It can say the same thing
twice, leave something out, or run into its bounds on time and subsequences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipedec_cli.evaluate.items import ScoringItem, list_of_strings

_NO_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Failures:
    """Counts over a set of predictions, and their rates in [0, 1].

    Attributes:
        examples: predictions looked at.
        subsequences: predicted subsequences in all.
        duplicated: those that say the same as an earlier one of their prediction.
        with_duplicates: predictions that have such.
        expected: subsequences of the references, where they are known.
        dropped: how many of these are missing, prediction by prediction.
        with_dropped: predictions that have fewer subsequences than their reference.
        compared: predictions whose reference has known subsequences.
        truncated: predictions cut short, by what cut them (``time_max``, ``sub_max``, ``max_tokens``).
    """

    examples: int
    subsequences: int
    duplicated: int
    with_duplicates: int
    expected: int
    dropped: int
    with_dropped: int
    compared: int
    truncated: Mapping[str, int]

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


def count_failures(items: Iterable[ScoringItem]) -> Failures:
    """Count repeats, omissions and cuts over a set of predictions."""
    examples = subsequences = duplicated = with_duplicates = 0
    expected = dropped = with_dropped = compared = 0
    truncated: Counter[str] = Counter()
    for item in items:
        examples += 1
        subsequences += len(item.segments)
        repeats = repeated(item.segments)
        duplicated += repeats
        with_duplicates += repeats > 0
        if item.gold is not None:
            compared += 1
            expected += len(item.gold)
            missing = max(0, len(item.gold) - len(item.segments))
            dropped += missing
            with_dropped += missing > 0
        if item.truncated is not None:
            truncated[item.truncated] += 1
    return Failures(
        examples,
        subsequences,
        duplicated,
        with_duplicates,
        expected,
        dropped,
        with_dropped,
        compared,
        dict(sorted(truncated.items())),
    )


def repeated(segments: Sequence[str]) -> int:
    """How many of the segments say the same as an earlier one: case, punctuation and white space aside.

    Raises:
        TypeError: `segments` is one string.
    """
    normalised = [_normalise(segment) for segment in list_of_strings(segments, "segments")]
    return len(normalised) - len(set(normalised))


def _normalise(text: str) -> str:
    """The words alone; the text itself where there are none, so that ``!`` and ``?`` stay two things."""
    return _NO_WORD.sub(" ", text.casefold()).strip() or text.strip()
