"""What goes wrong with pipelined decoding in particular, counted; and two texts side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import regex

from pipedec_cli.data.fields import alike, split_pair
from pipedec_cli.metrics.measure import ScoringItem

_WORD = regex.compile(
    r"(?:[\p{L}\p{N}]\p{M}*)+"
)  # marks are vowels in Hindi, tones in Thai


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failures of this method that ROUGE hardly shows: counts, and rates in [0, 1].

    A pipelined decoder writes a subsequence before it has seen the end of the earlier
    ones. It can say the same thing twice, leave something out, or reach its bounds on
    time and subsequences.
    """

    examples: int
    subsequences: int  # predicted, in all
    duplicated: (
        int  # subsequences that say the same as an earlier one of their prediction
    )
    with_duplicates: int  # predictions that have a duplicate
    expected: int  # subsequences of the references, where they are known
    dropped: int  # expected subsequences that are missing, prediction by prediction
    with_dropped: int  # predictions that have fewer subsequences than their reference
    compared: int  # predictions whose reference has known subsequences
    truncated: Mapping[
        str, int
    ]  # predictions cut short, by the bound (time_max, sub_max, max_tokens)
    stopped_on_repeat: (
        int  # predictions that were ended because they repeated themselves
    )
    duplicated_rate: float  # of the predicted subsequences
    dropped_rate: (
        float | None
    )  # of the expected subsequences; None if no reference's are known
    truncated_rate: float  # of the predictions
    stopped_on_repeat_rate: float  # of the predictions
    alike_rate: (
        float  # equal to another text, of those whose sources and right answers differ
    )


def said(text: str) -> str:
    """The words of a text, to compare texts by; the text itself if it has no words, so that ! and ? differ."""
    return " ".join(_WORD.findall(text.casefold())) or text.strip()


def duplicates(segments: Sequence[str]) -> list[int]:
    """The places of subsequences that say the same as an earlier subsequence."""
    first: dict[str, int] = {}
    return [
        place
        for place, one in enumerate(segments)
        if first.setdefault(said(one), place) != place
    ]


def dropped(item: ScoringItem) -> int | None:
    """The number of subsequences that a prediction lacks; None if those of its reference are not known."""
    return None if item.gold is None else max(0, len(item.gold) - len(item.segments))


def count_failures(items: Sequence[ScoringItem]) -> Failures:
    """Count repeats, omissions and cuts over a set of predictions."""
    repeats = [len(duplicates(item.segments)) for item in items]
    missing = [lacking for item in items if (lacking := dropped(item)) is not None]
    truncated = Counter(item.truncated for item in items if item.truncated is not None)
    stopped_on_repeat = sum(item.stopped_on_repeat for item in items)
    right = {item.right for item in items} - {
        ((), None)
    }  # items without a right answer
    sources, texts = (
        len({item.source for item in items}),
        len({said(item.prediction) for item in items}),
    )
    different = min(sources, len(right) or sources)
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


def aligned(segments: Sequence[str], beside: Sequence[str]) -> list[int]:
    """For each segment its place in the other text. Places never fall; they are 0 if the other text is empty.

    Pairs have as many words in common as possible. A segment between two pairs stands
    beside the next segment there of the other text that has no pair, or at the end of
    it.
    """
    mine, theirs = (
        [set(said(one).split()) for one in text] for text in (segments, beside)
    )

    def common(i: int, j: int) -> float:
        return 2 * len(mine[i] & theirs[j]) / max(1, len(mine[i]) + len(theirs[j]))

    best = [
        [0.0] * (len(theirs) + 1) for _ in range(len(mine) + 1)
    ]  # words in common of the rest of both
    for i in reversed(range(len(mine))):
        for j in reversed(range(len(theirs))):
            best[i][j] = max(
                best[i + 1][j], best[i][j + 1], common(i, j) + best[i + 1][j + 1]
            )
    pairs, i, j = list[tuple[int, int]](), 0, 0
    while i < len(mine) and j < len(theirs):
        if common(i, j) > 0 and best[i][j] == common(i, j) + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            i += 1
    places, i, j = list[int](), 0, 0
    for end, partner in (*pairs, (len(mine), len(theirs))):
        places += [min(j + more, max(partner - 1, 0)) for more in range(end - i)]
        places += [partner] if end < len(mine) else []
        i, j = end + 1, partner + 1
    return places


def aligned_by_key(
    objects: Sequence[Sequence[str]], beside: Sequence[str]
) -> list[list[int]]:
    """For each ``key: value`` pair of each object its row, in any order; the rows of `beside` come first.

    With several pairs of one key, the items of a list, equal ones stand side by side,
    and then the rest in order. A pair without a partner gets a new row at the end.
    """
    rows = list(beside)
    places = []
    for pairs in objects:
        found, free = dict[int, int](), dict(enumerate(rows))
        for same in (lambda pair: (_key(pair), said(pair)), _key):
            for at, pair in enumerate(pairs):
                partner = next(
                    (row for row, one in free.items() if same(one) == same(pair)), None
                )
                if at not in found and partner is not None:
                    found[at] = partner
                    del free[partner]
        for at, pair in enumerate(pairs):
            if at not in found:
                found[at] = len(rows)
                rows.append(pair)
        places.append([found[at] for at in range(len(pairs))])
    return places


def _key(pair: str) -> str:
    return alike(split_pair(pair)[0])
