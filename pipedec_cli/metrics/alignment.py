"""Two texts, or several objects, side by side: which part stands beside which."""

from collections.abc import Callable, Iterator, Sequence

from pipedec_cli.data.fields import alike, split_pair
from pipedec_cli.metrics.failures import said


def aligned(segments: Sequence[str], beside: Sequence[str]) -> list[int]:
    """For each segment its place in the other text.

    Pairs have as many words in common as possible. A segment between two pairs stands
    beside the next segment there of the other text that has no pair, or at the end of
    it. So places never fall. They are 0 if the other text is empty.
    """
    places = list[int]()
    following = 0  # the place behind the last pair
    for end, partner in _pairs(segments, beside):
        last = max(partner - 1, 0)
        between = range(following, following + end - len(places))
        places += [min(place, last) for place in between]
        if end < len(segments):
            places.append(partner)
        following = partner + 1
    return places


def _pairs(segments: Sequence[str], beside: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The pairs with the most words in common, in order; then the lengths of both."""
    mine = [set(said(segment).split()) for segment in segments]
    theirs = [set(said(segment).split()) for segment in beside]

    def common(i: int, j: int) -> float:
        """The F1 of the words of two segments, times 2."""
        return 2 * len(mine[i] & theirs[j]) / max(1, len(mine[i]) + len(theirs[j]))

    # Of the rest of both texts, the most that pairs can have in common.
    best = [[0.0] * (len(theirs) + 1) for _ in range(len(mine) + 1)]
    for i in reversed(range(len(mine))):
        for j in reversed(range(len(theirs))):
            paired = common(i, j) + best[i + 1][j + 1]
            best[i][j] = max(best[i + 1][j], best[i][j + 1], paired)
    i = j = 0
    while i < len(mine) and j < len(theirs):
        if common(i, j) > 0 and best[i][j] == common(i, j) + best[i + 1][j + 1]:
            yield i, j
            i += 1
            j += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            i += 1
    yield len(mine), len(theirs)


def aligned_by_key(
    objects: Sequence[Sequence[str]], beside: Sequence[str]
) -> list[list[int]]:
    """For each ``key: value`` pair of each object its row, in any order.

    The rows of `beside` come first. With several pairs of one key, the items of a list,
    equal ones stand side by side, and then the rest in order. A pair without a partner
    gets a new row at the end.
    """
    rows = list(beside)
    places = []
    for pairs in objects:
        taken = dict[int, int]()  # the row of each pair that has a partner
        free = dict(enumerate(rows))
        _take_rows(taken, free, pairs, by=lambda pair: (_key(pair), said(pair)))
        _take_rows(taken, free, pairs, by=_key)
        for number, pair in enumerate(pairs):
            if number not in taken:
                taken[number] = len(rows)
                rows.append(pair)
        places.append([taken[number] for number in range(len(pairs))])
    return places


def _take_rows(
    taken: dict[int, int],
    free: dict[int, str],
    pairs: Sequence[str],
    by: Callable[[str], object],
) -> None:
    """Let each pair without a row take the first free row that is the same by a measure."""
    for number, pair in enumerate(pairs):
        if number in taken:
            continue
        wanted = by(pair)
        row = next((row for row, other in free.items() if by(other) == wanted), None)
        if row is not None:
            taken[number] = row
            del free[row]


def _key(pair: str) -> str:
    return alike(split_pair(pair)[0])
