"""What goes wrong with pipelined decoding in particular, counted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import regex

from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import record_beside

#: Marks are vowels in Hindi, tones in Thai.
_WORD = regex.compile(r"(?:[\p{L}\p{N}]\p{M}*)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failures of this method that ROUGE hardly shows: counts, and rates in [0, 1].

    A pipelined decoder writes a subsequence before it has seen the end of the earlier
    ones. It can say the same thing twice, leave something out, or reach its bounds on
    time and subsequences.
    """

    examples: int
    #: Predicted subsequences, in all.
    subsequences: int
    #: Subsequences that say the same as an earlier one of their prediction.
    duplicated: int
    #: Predictions that have a duplicate.
    with_duplicates: int
    #: Subsequences of the references, where they are known.
    expected: int
    #: Expected subsequences that are missing, prediction by prediction.
    dropped: int
    #: Predictions that have fewer subsequences than their reference.
    with_dropped: int
    #: Predictions whose reference has known subsequences.
    compared: int
    #: Predictions cut short, by the bound: time_max, sub_max, max_tokens.
    truncated: Mapping[str, int]
    #: Predictions that were ended because they repeated themselves.
    stopped_on_repeat: int
    #: Of the predicted subsequences.
    duplicated_rate: float
    #: Of the expected subsequences; None if no reference's are known.
    dropped_rate: float | None
    #: Of the predictions.
    truncated_rate: float
    stopped_on_repeat_rate: float
    #: Texts equal to another, of those whose sources and right answers differ.
    alike_rate: float


def said(text: str) -> str:
    """The words of a text, to compare texts by.

    A text without words is compared as it is, so that ! and ? differ.
    """
    return " ".join(_WORD.findall(text.casefold())) or text.strip()


def duplicates(segments: Sequence[str]) -> list[int]:
    """The numbers, from 0, of subsequences that say the same as an earlier one."""
    earlier = set[str]()
    numbers = []
    for number, segment in enumerate(segments):
        words = said(segment)
        if words in earlier:
            numbers.append(number)
        earlier.add(words)
    return numbers


def dropped(example: Generated) -> int | None:
    """The number of subsequences that a prediction lacks; None if it is not known."""
    right = record_beside(example).target_segments
    return None if right is None else max(0, len(right) - len(example.segments))


def right_answers(example: Generated) -> tuple[object, object]:
    """The right answers of an example, to compare with another's."""
    record = record_beside(example)
    return record.references, record.target_segments


def count_failures(examples: Sequence[Generated]) -> Failures:
    """Count repeats, omissions and cuts over a set of predictions."""
    count = max(1, len(examples))
    repeats = [len(duplicates(example.segments)) for example in examples]
    missing = []
    expected = 0
    for example in examples:
        lacking = dropped(example)
        if lacking is not None:
            missing.append(lacking)
            expected += len(record_beside(example).target_segments or ())
    cuts = (example.truncated for example in examples)
    truncated = Counter(cut for cut in cuts if cut is not None)
    stopped = sum(example.stopped_on_repeat for example in examples)
    subsequences = sum(len(example.segments) for example in examples)
    return Failures(
        examples=len(examples),
        subsequences=subsequences,
        duplicated=sum(repeats),
        with_duplicates=sum(map(bool, repeats)),
        expected=expected,
        dropped=sum(missing),
        with_dropped=sum(map(bool, missing)),
        compared=len(missing),
        truncated=dict(sorted(truncated.items())),
        stopped_on_repeat=stopped,
        duplicated_rate=sum(repeats) / max(1, subsequences),
        dropped_rate=sum(missing) / max(1, expected) if missing else None,
        truncated_rate=truncated.total() / count,
        stopped_on_repeat_rate=stopped / count,
        alike_rate=_alike_rate(examples),
    )


def _alike_rate(examples: Sequence[Generated]) -> float:
    """The share of texts that are the same as another one though they should differ.

    There should be as many different texts as there are different sources, or different
    right answers if these are fewer.
    """
    texts = {said(example.text) for example in examples}
    sources = {record_beside(example).source for example in examples}
    right = {right_answers(example) for example in examples}
    right.discard(((), None))  # of examples without a right answer
    different = min(len(sources), len(right) or len(sources))
    return max(0.0, 1 - len(texts) / max(1, different))
