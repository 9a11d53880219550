"""Two texts side by side: which subsequence of one says what a subsequence of the other says, in order."""

from __future__ import annotations

from collections.abc import Sequence

from pipedec_cli.data.fields import alike, split_pair
from pipedec_cli.evaluate.failures import said


def aligned(segments: Sequence[str], beside: Sequence[str]) -> list[int]:
    """For each segment the place in the other text where it belongs, never falling; 0 throughout if that one is empty.

    The pairs that have the most words in common are made first. What is left between two of them stands beside what is left
    there of the other text, as it comes, or at the end of it.
    """
    mine, theirs = ([set(said(one).split()) for one in text] for text in (segments, beside))

    def common(i: int, j: int) -> float:
        return 2 * len(mine[i] & theirs[j]) / max(1, len(mine[i]) + len(theirs[j]))

    best = [[0.0] * (len(theirs) + 1) for _ in range(len(mine) + 1)]  # of what follows in both
    for i in reversed(range(len(mine))):
        for j in reversed(range(len(theirs))):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], common(i, j) + best[i + 1][j + 1])
    pairs, i, j = list[tuple[int, int]](), 0, 0
    while i < len(mine) and j < len(theirs):
        if common(i, j) > 0 and best[i][j] == common(i, j) + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            i += 1
    places, i, j = list[int](), 0, 0  # how far both have come
    for end, partner in (*pairs, (len(mine), len(theirs))):
        places += [min(j + more, max(partner - 1, 0)) for more in range(end - i)]
        places += [partner] if end < len(mine) else []
        i, j = end + 1, partner + 1
    return places


def aligned_by_key(objects: Sequence[Sequence[str]], beside: Sequence[str]) -> list[list[int]]:
    """For each pair of each object (``key: value``) the row it belongs in, whatever the order; the rows of `beside` come first.

    Of several with one key, the items of a list, those that are equal stand side by side, and the rest as they come. A pair
    that has no partner gets a row of its own, behind these.
    """
    rows = list(beside)
    places = []
    for pairs in objects:
        found, free = dict[int, int](), dict(enumerate(rows))
        for same in (_pair, _key):
            for at, pair in enumerate(pairs):
                partner = next((row for row, one in free.items() if same(one) == same(pair)), None)
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


def _pair(pair: str) -> tuple[str, str]:
    return _key(pair), said(pair)
