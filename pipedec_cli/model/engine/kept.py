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
    """How many tokens two texts begin with that are the same; as a `whole` all or none."""
    if whole:
        return len(one) if one == other else 0
    least, most = 0, min(len(one), len(other))
    while least < most:  # slices are compared faster than tokens
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
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)


class Kept:
    """Keys and values by their tokens, in at most so many `bytes`; those go first that were not asked for the longest time.

    `hits` counts the tokens that were found, `evictions` the texts that had to go.
    """

    def __init__(self, most: int = 0) -> None:
        self.most, self.bytes, self.hits, self.evictions = most, 0, 0, 0
        self._columns: dict[Ids, Columns] = {}  # the newest last
        self._sorted: list[Ids] = []

    def find(self, ids: Ids) -> Ids:
        """The kept text that has the most tokens in common with another from the beginning; () if none is kept."""
        # The neighbour in alphabetical order has the longest common beginning.
        place = bisect_left(self._sorted, ids)
        near = self._sorted[max(0, place - 1) : place + 1]
        return max(near, key=lambda one: common(one, ids), default=())

    def take(self, ids: Ids) -> Columns:
        """The columns of a kept text, which counts as asked for."""
        self._columns[ids] = self._columns.pop(ids)
        return self._columns[ids]

    def add(self, ids: Ids, columns: Columns) -> None:
        """Keep a copy of the columns of a text, unless a longer text that begins so is kept, or there is no room."""
        nearest, size = self.find(ids), sum(one.nbytes for one in columns)
        shared = common(nearest, ids)
        if shared == len(ids) or size > self.most:
            return
        if shared and shared == len(nearest):  # the new text begins with it
            self._drop(nearest)
        while self.bytes + size > self.most:
            self._drop(next(iter(self._columns)))
            self.evictions += 1
        insort(self._sorted, ids)
        self._columns[ids] = [_copied(one) for one in columns]
        self.bytes += size

    def _drop(self, ids: Ids) -> None:
        self.bytes -= sum(one.nbytes for one in self._columns.pop(ids))
        del self._sorted[bisect_left(self._sorted, ids)]
