"""Who sees whom in the grid, and at what distance: stated once, used by training and decoding alike."""

from __future__ import annotations

from torch import Tensor


def position(subsequence: Tensor, time: Tensor) -> Tensor:
    """The scalar position p = t + i of tokens.

    For every visible pair both differences are ≥ 0, so the paper's Manhattan distance |t1 − t2| + |i1 − i2| is
    p1 − p2: one number a token gives it to T5's relative buckets and to any rotary or ALiBi model.

    Args:
        subsequence: integers of any shape, counted from 1.
        time: integers of the same shape.
    """
    return subsequence + time


def visible(query: tuple[Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Token (i1, t1) sees token (i2, t2) if and only if i2 ≤ i1 and t2 ≤ t1.

    Args:
        query: (subsequence, time) of the tokens that look, integers of shape [..., Q].
        key: (subsequence, time) of those looked at, integers of shape [..., K].

    Returns:
        A boolean tensor of shape [..., Q, K].
    """
    (subsequence1, time1), (subsequence2, time2) = query, key
    earlier_or_same = subsequence2[..., None, :] <= subsequence1[..., :, None]
    return earlier_or_same & (time2[..., None, :] <= time1[..., :, None])


def distance(query: Tensor, key: Tensor) -> Tensor:
    """The distance of visible pairs; negative or meaningless for invisible ones.

    Args:
        query: positions of shape [..., Q].
        key: positions of shape [..., K].

    Returns:
        Integers of shape [..., Q, K].
    """
    return query[..., :, None] - key[..., None, :]
