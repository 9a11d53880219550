"""A decoder call by torch as the layers see it, and the cache that it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(slots=True)
class Call:
    """A decoder call of one shape, over n sequences with at most r rows each."""

    #: For each row its token, lane, column, subsequence, time, position, and its number
    #: in the lane: int64 [7, rows].
    given: Tensor
    shape: tuple[
        int, int
    ]  # n and r. Where there are n · r rows, they are ordered by lane
    columns: int  # how many columns of the cache attention reads
    source: int  # how many source tokens attention reads
    logits: Tensor  # the result, [rows, vocabulary]; without meaning before the call has run
    answers: Tensor  # the most probable token of each row, int64 [rows]
    graph: Any = None  # the recorded CUDA graph, if there is one
    lanes: Tensor | None = (
        None  # the sequence of each lane; None: the first n sequences
    )


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
        (
            self.tokens,
            self._lane,
            self._column,
            subsequence,
            time,
            self.position,
            self._place,
        ) = call.given
        self._cache, self._call, (n, r) = cache, call, call.shape
        self._full = n * r == len(self.tokens)
        self._lanes = slice(n) if call.lanes is None else call.lanes
        self._sequence = self._lane if call.lanes is None else call.lanes[self._lane]
        cache.places[:, self._sequence, self._column] = call.given[3:6]
        rows, times, self.key_position = cache.places[:, self._lanes, : call.columns]
        self.sees = visible(
            (self.spread(subsequence, PADDING), self.spread(time, PADDING)),
            (rows, times),
        )
        self.source_hidden = cache.source_hidden[self._lanes, : call.source]

    def spread(self, rows: Tensor, filling: int = 0) -> Tensor:
        """Sort rows into lanes: [rows, ...] → [n, r, ...]."""
        shape = (*self._call.shape, *rows.shape[1:])
        if self._full:
            return rows.view(shape)
        spread = rows.new_full(shape, filling)
        spread[self._lane, self._place] = rows
        return spread

    def rows(self, spread: Tensor) -> Tensor:
        """Undo `spread`: [n, r, ...] → [rows, ...]."""
        return spread.flatten(0, 1) if self._full else spread[self._lane, self._place]

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
        keys, values = self._cache.sources[layer][
            :, self._lanes, :, : self._call.source
        ]
        return keys, values


def _widened(tensor: Tensor, room: int, dim: int, filling: int) -> Tensor:
    shape = list(tensor.shape)
    kept, shape[dim] = shape[dim], room
    wider = torch.full(shape, filling, dtype=tensor.dtype, device=tensor.device)
    wider.narrow(dim, 0, kept).copy_(tensor)
    return wider
