"""Who sees whom in the grid, and at what distance: stated once, used by training and decoding alike."""

from __future__ import annotations

from typing import Final, TypeVar

from torch import Tensor

#: Stands for the subsequence and the time of padding: nothing real sees it, and it sees everything, so that no
#: row of attention is empty. Padding is told by position, never by token id: T5's <bos> is its pad token.
PADDING: Final = 1 << 20
#: A prompt is row 0 of the grid, before everything and causal in itself: its first token stands at this time.
PROMPT_TIME: Final = -PADDING

_Place = TypeVar("_Place", int, Tensor)


def position(subsequence: Tensor, time: Tensor) -> Tensor:
    """The scalar position p = t + i of tokens: integers of any shape, subsequences counted from 1.

    For every visible pair both differences are ≥ 0, so the paper's Manhattan distance |t1 − t2| + |i1 − i2| is
    p1 − p2: one number a token gives it to T5's relative buckets and to any rotary or ALiBi model.
    """
    return subsequence + time


def behind(subsequence: _Place, time: _Place, before: _Place) -> _Place:
    """The same, counted from what stands before the grid: a prompt and the longest key, S + K tokens; p = S + K + t + i − 1."""
    return before + time + subsequence - 1


def visible(query: tuple[Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Token (i1, t1) sees token (i2, t2) if and only if i2 ≤ i1 and t2 ≤ t1: a boolean tensor [..., Q, K].

    Both are (subsequence, time): of the tokens that look, [..., Q] each, and of those looked at, [..., K] each.
    """
    (subsequence1, time1), (subsequence2, time2) = query, key
    earlier_or_same = subsequence2[..., None, :] <= subsequence1[..., :, None]
    return earlier_or_same & (time2[..., None, :] <= time1[..., :, None])


def distance(query: Tensor, key: Tensor) -> Tensor:
    """The distances [..., Q, K] of positions [..., Q] and [..., K]; negative or meaningless for invisible pairs."""
    return query[..., :, None] - key[..., None, :]
