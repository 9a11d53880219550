"""A decoder call by torch as the layers see it, and the cache that it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipedec_cli.model.engine.sequences import FIRST_ROOM
from pipedec_cli.pipeline.attention import PADDING, visible


class CacheShape(NamedTuple):
    """The layers of a decoder, each with `heads` of `width` numbers, and where they compute."""

    layers: int
    heads: int
    width: int
    dtype: torch.dtype
    device: torch.device


class GridCache:
    """Keys and values of sources and grids, in buffers that grow and are never given back.

    Attributes:
        grid: for each layer keys and values of the grid,
            [2, sequences, heads, room, width].
        sources: for each layer keys and values of the sources,
            [2, sequences, heads, source room, width].
        places: subsequence, time and position of the token in each column,
            int64 [3, sequences, room]. An empty column has PADDING.
        source_hidden: true where a sequence has no source token,
            bool [sequences, source room].
    """

    def __init__(self, shape: CacheShape, sequences: int) -> None:
        """Make a cache for so many sequences, with hardly any room yet."""
        layer = (2, sequences, shape.heads, 0, shape.width)
        empty = torch.empty(layer, dtype=shape.dtype, device=shape.device)
        self.grid = self.sources = [empty] * shape.layers
        self.places = torch.empty(
            3, sequences, 0, dtype=torch.long, device=shape.device
        )
        self.source_hidden = torch.empty(
            sequences, 0, dtype=torch.bool, device=shape.device
        )
        self.grow(1)

    def grow(self, columns: int) -> bool:
        """Make room for this many columns in each sequence; True if the buffers have moved."""
        room = self.places.shape[2]
        if columns <= room:
            return False
        room = max(columns, 2 * room, FIRST_ROOM)
        self.places = _widened(self.places, room, 2, PADDING)
        self.grid = [_widened(both, room, 3, 0) for both in self.grid]
        return True

    def grow_sources(self, tokens: int) -> bool:
        """Make room for sources of this many tokens; True if the buffers have moved."""
        if tokens <= self.source_hidden.shape[1]:
            return False
        self.source_hidden = _widened(self.source_hidden, tokens, 1, 1)
        self.sources = [_widened(both, tokens, 3, 0) for both in self.sources]
        return True


class PlacedRow(NamedTuple):
    """A row of a call as numbers: its token, and where it stands."""

    token: int
    lane: int  # which of the call's sequences it belongs to, from 0
    column: int  # of the cache
    subsequence: int
    time: int
    position: int
    number: int  # among the rows of its lane, from 0


@dataclass(slots=True)
class Call:
    """A decoder call of one shape, over n sequences with at most r rows each.

    The sequences of a call are its lanes, numbered from 0.
    """

    given: Tensor  # the numbers of a `PlacedRow` for each row, int64 [7, rows]
    #: n and r. Where there are n · r rows, they are ordered by lane.
    shape: tuple[int, int]
    columns: int  # how many columns of the cache attention reads
    source: int  # how many source tokens attention reads
    lanes: Tensor | None = None  # the sequence of each; None: the first n sequences
    graph: Any = None  # the recorded CUDA graph, if there is one
    #: The results, once the call has run: logits [rows, vocabulary], and the most
    #: probable token of each row, int64 [rows].
    logits: Tensor = field(init=False)
    answers: Tensor = field(init=False)


class StepContext:
    """A call as the layers see it. It enters the places of the rows into the cache.

    Attributes:
        tokens: int64 [rows].
        position: of the rows, int64 [rows].
        key_position: of the columns, int64 [n, columns].
        sees: whether a row sees a column, bool [n, r, columns].
        source_hidden: bool [n, source tokens].
    """

    def __init__(self, cache: GridCache, call: Call) -> None:
        """Write the subsequence, time and position of each row of a call into its column of the cache.

        Then say which columns each row sees.
        """
        (
            self.tokens,
            self._lane,
            self._column,
            subsequence,
            time,
            self.position,
            self._place,
        ) = call.given
        self._cache = cache
        self._call = call
        n, r = call.shape
        self._full = n * r == len(self.tokens)
        # The sequences of the call, and that of each row.
        self._lanes = slice(n) if call.lanes is None else call.lanes
        self._sequence = self._lane if call.lanes is None else call.lanes[self._lane]
        cache.places[:, self._sequence, self._column] = call.given[3:6]
        rows, times, self.key_position = cache.places[:, self._lanes, : call.columns]
        query = (self.spread(subsequence, PADDING), self.spread(time, PADDING))
        self.sees = visible(query, (rows, times))
        self.source_hidden = cache.source_hidden[self._lanes, : call.source]

    def spread(self, rows: Tensor, filling: int = 0) -> Tensor:
        """Sort rows into lanes: [rows, ...] → [n, r, ...]. Lanes with fewer rows are filled up with `filling`."""
        shape = (*self._call.shape, *rows.shape[1:])
        if self._full:
            return rows.view(shape)
        spread = rows.new_full(shape, filling)
        spread[self._lane, self._place] = rows
        return spread

    def rows(self, spread: Tensor) -> Tensor:
        """Undo `spread`: [n, r, ...] → [rows, ...]."""
        if self._full:
            return spread.flatten(0, 1)
        return spread[self._lane, self._place]

    def keep(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the rows' keys and values, [rows, heads, width], into the cache.

        Returns:
            All keys and values of the grid that the call reads,
            [n, heads, columns, width] each.
        """
        keys, values = self._cache.grid[layer]
        keys[self._sequence, :, self._column] = key
        values[self._sequence, :, self._column] = value
        columns = self._call.columns
        return keys[self._lanes, :, :columns], values[self._lanes, :, :columns]

    def source(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the sources, [n, heads, source tokens, width] each."""
        sources = self._cache.sources[layer]
        keys, values = sources[:, self._lanes, :, : self._call.source]
        return keys, values


def _widened(tensor: Tensor, room: int, dim: int, filling: int) -> Tensor:
    """A copy of a tensor that has the size `room` in a dimension; what is new is filled with a number."""
    shape = list(tensor.shape)
    kept = shape[dim]
    shape[dim] = room
    wider = torch.full(shape, filling, dtype=tensor.dtype, device=tensor.device)
    wider.narrow(dim, 0, kept).copy_(tensor)
    return wider
