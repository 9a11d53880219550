"""Which token sees which in the grid, and where it stands. Training and decoding both use these functions."""

from typing import Final, TypeVar

from torch import Tensor

#: The subsequence and the time of padding. No real token sees padding; padding sees
#: every token, so that no row of attention is empty. Padding is found by position,
#: never by token id, because T5's <bos> is its pad token.
PADDING: Final = 1 << 30
#: A prompt is row 0 of the grid, before all other rows and causal in itself. Its first
#: token stands at this time.
PROMPT_TIME: Final = -(1 << 28)
#: Where rows do not see each other, each stands so many time-steps before the row
#: above: more than a row has tokens, and more than there are tokens of known answers in
#: a call.
APART: Final = 1 << 15

_Place = TypeVar("_Place", int, Tensor)


def behind(subsequence: _Place, time: _Place, before: _Place) -> _Place:
    """The position of a token of subsequence i at time t, behind a prompt: p = S + K + t + i − 1.

    `before` is S + K: the prompt's S tokens, and the K tokens of the longest key that
    opens a row. All three are integers, or tensors of them.

    For every visible pair both differences are ≥ 0, so the paper's Manhattan distance
    |t1 − t2| + |i1 − i2| is p1 − p2. One number a token is enough for T5's relative
    buckets and for any rotary or ALiBi model.
    """
    return before + time + subsequence - 1


def apart(subsequence: int, number: int) -> int:
    """The time of a row's token `number`, counted from 0, where each row sees the prompt and itself alone (blind rows).

    Rows above then stand later and rows below have larger numbers, so that `visible`
    hides both.
    """
    return number - APART * subsequence


def number_of(subsequence: _Place, time: _Place) -> _Place:
    """The number of a token in its row, from 0, where rows are `apart`: its place behind the prompt."""
    return time + APART * subsequence


def visible(query: tuple[Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Who sees whom, a boolean tensor [..., Q, K]: (i1, t1) sees (i2, t2) if and only if i2 ≤ i1 and t2 ≤ t1.

    `query` are the tokens that look, `key` those that are looked at, as in attention.
    Each is (subsequence, time), integers [..., Q] and [..., K].
    """
    (subsequence1, time1), (subsequence2, time2) = query, key
    earlier_or_same = subsequence2[..., None, :] <= subsequence1[..., :, None]
    return earlier_or_same & (time2[..., None, :] <= time1[..., :, None])
