"""Two texts side by side: which subsequence of one belongs beside which of the other."""

from __future__ import annotations

from collections.abc import Sequence

from pipedec_cli.data.fields import alike, split_pair
from pipedec_cli.evaluate.failures import said


def aligned(segments: Sequence[str], beside: Sequence[str]) -> list[int]:
    """For each segment its place in the other text. Places never fall; they are 0 if the other text is empty.

    Pairs have as many words in common as possible. A segment between two pairs stands beside the next segment there of the
    other text that has no pair, or at the end of it.
    """
    mine, theirs = ([set(said(one).split()) for one in text] for text in (segments, beside))

    def common(i: int, j: int) -> float:
        return 2 * len(mine[i] & theirs[j]) / max(1, len(mine[i]) + len(theirs[j]))

    best = [[0.0] * (len(theirs) + 1) for _ in range(len(mine) + 1)]  # words in common of the rest of both
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
    places, i, j = list[int](), 0, 0
    for end, partner in (*pairs, (len(mine), len(theirs))):
        places += [min(j + more, max(partner - 1, 0)) for more in range(end - i)]
        places += [partner] if end < len(mine) else []
        i, j = end + 1, partner + 1
    return places


def aligned_by_key(objects: Sequence[Sequence[str]], beside: Sequence[str]) -> list[list[int]]:
    """For each ``key: value`` pair of each object its row, in any order; the rows of `beside` come first.

    With several pairs of one key, the items of a list, equal ones stand side by side, and then the rest in order. A pair
    without a partner gets a new row at the end.
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
