"""What goes wrong with pipelined decoding in particular, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import regex

from pipedec_cli.evaluate.metrics.measure import ScoringItem

_WORD = regex.compile(r"(?:[\p{L}\p{N}]\p{M}*)+")  # marks are vowels in Hindi, tones in Thai


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failures of this method that ROUGE hardly shows: counts, and rates in [0, 1].

    A pipelined decoder writes a subsequence before it has seen the end of the earlier ones. It can say the same thing
    twice, leave something out, or reach its bounds on time and subsequences.
    """

    examples: int
    subsequences: int  # predicted, in all
    duplicated: int  # subsequences that say the same as an earlier one of their prediction
    with_duplicates: int  # predictions that have a duplicate
    expected: int  # subsequences of the references, where they are known
    dropped: int  # expected subsequences that are missing, prediction by prediction
    with_dropped: int  # predictions that have fewer subsequences than their reference
    compared: int  # predictions whose reference has known subsequences
    truncated: Mapping[str, int]  # predictions cut short, by the bound (time_max, sub_max, max_tokens)
    stopped_on_repeat: int  # predictions that were ended because they repeated themselves
    duplicated_rate: float  # of the predicted subsequences
    dropped_rate: float | None  # of the expected subsequences; None if no reference's are known
    truncated_rate: float  # of the predictions
    stopped_on_repeat_rate: float  # of the predictions
    alike_rate: float  # equal to another text, of those whose sources and right answers differ

    @property
    def subsequences_per_text(self) -> float:
        """The mean number of predicted subsequences."""
        return self.subsequences / max(1, self.examples)

    @property
    def expected_per_text(self) -> float | None:
        """The mean number of subsequences in a reference; None if no reference's are known."""
        return self.expected / self.compared if self.compared else None


def said(text: str) -> str:
    """The words of a text, to compare texts by; the text itself if it has no words, so that ! and ? differ."""
    return " ".join(_WORD.findall(text.casefold())) or text.strip()


def duplicates(segments: Sequence[str]) -> list[int]:
    """The places of subsequences that say the same as an earlier subsequence."""
    first: dict[str, int] = {}
    return [place for place, one in enumerate(segments) if first.setdefault(said(one), place) != place]


def dropped(item: ScoringItem) -> int | None:
    """The number of subsequences that a prediction lacks; None if those of its reference are not known."""
    return None if item.gold is None else max(0, len(item.gold) - len(item.segments))


def count_failures(items: Sequence[ScoringItem]) -> Failures:
    """Count repeats, omissions and cuts over a set of predictions."""
    repeats = [len(duplicates(item.segments)) for item in items]
    missing = [lacking for item in items if (lacking := dropped(item)) is not None]
    truncated = Counter(item.truncated for item in items if item.truncated is not None)
    stopped_on_repeat = sum(item.stopped_on_repeat for item in items)
    right = {item.right for item in items} - {((), None)}  # items without a right answer
    sources = len({item.source for item in items})
    different = min(sources, len(right) or sources)
    texts = len({said(item.prediction) for item in items})
    subsequences = sum(len(item.segments) for item in items)
    expected = sum(len(item.gold) for item in items if item.gold is not None)
    return Failures(
        examples=len(items),
        subsequences=subsequences,
        duplicated=sum(repeats),
        with_duplicates=sum(map(bool, repeats)),
        expected=expected,
        dropped=sum(missing),
        with_dropped=sum(map(bool, missing)),
        compared=len(missing),
        truncated=dict(sorted(truncated.items())),
        stopped_on_repeat=stopped_on_repeat,
        duplicated_rate=sum(repeats) / max(1, subsequences),
        dropped_rate=sum(missing) / max(1, expected) if missing else None,
        truncated_rate=truncated.total() / max(1, len(items)),
        stopped_on_repeat_rate=stopped_on_repeat / max(1, len(items)),
        alike_rate=max(0.0, 1 - texts / max(1, different)),
    )
