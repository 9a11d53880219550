"""Prompts and sources that were read before: their keys and values, which a later one takes over."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

import torch
from torch import Tensor

Ids = tuple[int, ...]
#: Keys and values, the token's dimension cut to the tokens; see `Sequences.columns`.
Columns = Sequence[Tensor]


def common(one: Ids, other: Ids, *, whole: bool = False) -> int:
    """How many tokens two texts have in common from their beginning; as a `whole` all tokens or none.

    The number is found by halving: slices are compared faster than single tokens.
    """
    if whole:
        return len(one) if one == other else 0
    least = 0
    most = min(len(one), len(other))
    while least < most:
        half = (least + most + 1) // 2
        if one[least:half] == other[least:half]:
            least = half
        else:
            most = half - 1
    return least


#: Copies of at least so many bytes get memory of their own: a process may have some
#: 65,000 mappings.
_MAPPED: Final = 1 << 17


def _copied(tensor: Tensor) -> Tensor:
    """A copy whose memory goes back to the system when it is dropped. On the heap it would leave a hole, too small for a longer text."""
    if tensor.device.type != "cpu" or tensor.nbytes < _MAPPED:
        return tensor.clone()
    memory = mmap(-1, tensor.nbytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    copy = torch.frombuffer(memory, dtype=tensor.dtype)
    return copy.view(tensor.shape).copy_(tensor)


def _size(columns: Columns) -> int:
    """The bytes of columns."""
    return sum(tensor.nbytes for tensor in columns)


class Kept:
    """Keys and values by their tokens, in at most so many `bytes`; those go first that were not asked for the longest time.

    `hits` counts the tokens that were found, `evictions` the texts that had to go.
    """

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.bytes = 0
        self.hits = 0
        self.evictions = 0
        self._columns: dict[Ids, Columns] = {}  # the newest last
        self._sorted: list[Ids] = []

    def find(self, ids: Ids) -> Ids:
        """The kept text that has the most tokens in common with `ids` from the beginning; () if none is kept."""
        # One of the two neighbours in alphabetical order has the longest common
        # beginning.
        place = bisect_left(self._sorted, ids)
        neighbours = self._sorted[max(0, place - 1) : place + 1]
        return max(neighbours, key=lambda text: common(text, ids), default=())

    def take(self, ids: Ids) -> Columns:
        """The columns of a kept text, which counts as asked for."""
        columns = self._columns.pop(ids)
        self._columns[ids] = columns
        return columns

    def add(self, ids: Ids, columns: Columns) -> None:
        """Keep a copy of the columns (keys and values) of a text, unless a longer one that begins so is kept.

        A kept text with which this one begins is dropped, and the oldest ones are where
        there is no room.
        """
        size = _size(columns)
        nearest = self.find(ids)
        shared = common(nearest, ids)
        if shared == len(ids) or size > self.most:
            return
        if shared and shared == len(nearest):  # the new text begins with it
            self._drop(nearest)
        while self.bytes + size > self.most:
            oldest = next(iter(self._columns))
            self._drop(oldest)
            self.evictions += 1
        insort(self._sorted, ids)
        self._columns[ids] = [_copied(tensor) for tensor in columns]
        self.bytes += size

    def _drop(self, ids: Ids) -> None:
        columns = self._columns.pop(ids)
        self.bytes -= _size(columns)
        place = bisect_left(self._sorted, ids)
        del self._sorted[place]
