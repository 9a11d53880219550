"""Two texts, or several objects, side by side: which part stands beside which."""

from collections.abc import Callable, Iterator, Sequence

from pipedec_cli.data.fields import alike, split_pair
from pipedec_cli.metrics.failures import said
from pipedec_cli.metrics.measure import set_f1

Words = set[str]


def aligned(segments: Sequence[str], beside: Sequence[str]) -> list[int]:
    """For each segment of a text, the number of the segment of the text `beside` at whose side it is shown.

    Segments are paired so that they have as many words in common as possible. A segment
    between two pairs stands beside the next segment there of the other text that has no
    pair, or at the end of it. So the numbers never fall. They are 0 if the other text is
    empty.
    """
    numbers = list[int]()
    following = 0  # the number behind the last pair
    for end, partner in _pairs(segments, beside):
        last = max(partner - 1, 0)
        between = range(following, following + end - len(numbers))
        numbers += [min(number, last) for number in between]
        if end < len(segments):
            numbers.append(partner)
        following = partner + 1
    return numbers


def _pairs(segments: Sequence[str], beside: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The pairs with the most words in common, by their numbers in both texts, in order; then the lengths of both."""
    mine = list(map(_words, segments))
    theirs = list(map(_words, beside))
    best = _most_in_common(mine, theirs)
    i = j = 0
    while i < len(mine) and j < len(theirs):
        rest = best[i]
        behind = best[i + 1]
        common = set_f1(mine[i], theirs[j])
        if common > 0 and rest[j] == common + behind[j + 1]:
            yield i, j
            i += 1
            j += 1
        elif rest[j] == rest[j + 1]:
            j += 1
        else:
            i += 1
    yield len(mine), len(theirs)


def _words(segment: str) -> Words:
    return set(said(segment).split())


def _most_in_common(
    mine: Sequence[Words],
    theirs: Sequence[Words],
) -> list[list[float]]:
    """A table of the most that pairs can have in common if only the rest of each text is paired.

    Row i, column j is of the rests that begin with segment i and with segment j.
    """
    width = len(theirs) + 1
    behind = [0.0] * width
    best = [behind]  # from the end
    for words in reversed(mine):
        rest = [0.0] * width
        for j in reversed(range(len(theirs))):
            common = set_f1(words, theirs[j])
            rest[j] = max(
                behind[j],
                rest[j + 1],
                common + behind[j + 1],
            )
        best.append(rest)
        behind = rest
    best.reverse()
    return best


def aligned_by_key(
    objects: Sequence[Sequence[str]], beside: Sequence[str]
) -> list[list[int]]:
    """For each ``key: value`` pair of each object the number of the row in which it is shown.

    The first rows are the pairs of the object `beside`. With several pairs of one key,
    the items of a list, equal ones stand side by side, and then the rest in order. A
    pair without a partner gets a new row at the end.
    """
    rows = list(beside)
    places = []
    for pairs in objects:
        seats = _Seats(rows)
        seats.take(pairs, _key_and_value)
        seats.take(pairs, _key)
        places.append(seats.of_all(pairs))
    return places


class _Seats:
    """Which row each pair of an object has, by the pair's number; each row has at most one pair."""

    def __init__(self, rows: list[str]) -> None:
        """New rows are added to the `rows`."""
        self._rows = rows
        self._free = dict(enumerate(rows))
        self._taken = dict[int, int]()

    def take(self, pairs: Sequence[str], by: Callable[[str], object]) -> None:
        """Let each pair that has no row yet take the first free row for which `by` gives the same as for the pair."""
        for number, pair in enumerate(pairs):
            if number not in self._taken:
                self._take_first(number, by(pair), by)

    def _take_first(
        self,
        number: int,
        wanted: object,
        by: Callable[[str], object],
    ) -> None:
        """Give the pair of this number the first free row for which `by` gives what is wanted, if there is one."""
        for row, other in self._free.items():
            if by(other) == wanted:
                self._taken[number] = row
                del self._free[row]
                return

    def of_all(self, pairs: Sequence[str]) -> list[int]:
        """The number of each pair's row; pairs without a row get a new one."""
        rows = []
        for number, pair in enumerate(pairs):
            if number not in self._taken:
                self._taken[number] = len(self._rows)
                self._rows.append(pair)
            rows.append(self._taken[number])
        return rows


def _key_and_value(pair: str) -> tuple[str, str]:
    return _key(pair), said(pair)


def _key(pair: str) -> str:
    return alike(split_pair(pair)[0])
