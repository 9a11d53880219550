"""Where a text begins to repeat itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise


def before_repeats(subsequences: Sequence[Hashable]) -> int:
    """How many subsequences of a text stand before it repeats itself.

    It does where a subsequence comes twice in a row, or where two neighbours come again. A single subsequence that
    comes again later may be said of another thing. None stands for an empty subsequence, or for one that is live.
    """
    seen = set[tuple[Hashable, Hashable]]()
    for number, pair in enumerate(pairwise(subsequences), start=1):
        if None in pair:
            continue
        if pair in seen:
            return number - 1
        if pair[0] == pair[1]:
            return number
        seen.add(pair)
    return len(subsequences)
