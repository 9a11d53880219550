"""What an engine remembers of the examples in flight: keys and values of their grids and of their sources."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipedec_cli.model.layers import PADDING

#: Tokens of a grid for which a sequence has room at first; it doubles when that is used up.
FIRST_ROOM = 128


@dataclass(slots=True)
class LayerCache:
    """One layer's keys and values, [sequences, heads, room, d] each; the room of the source is the longest's."""

    keys: Tensor
    values: Tensor
    source_keys: Tensor
    source_values: Tensor


class Cache:
    """Buffers for a fixed number of sequences. They grow by doubling and are never given back while an engine lives.

    Attributes:
        layers: keys and values by layer.
        subsequence: whose token stands in a column, int64 [sequences, room]; PADDING where there is none.
        time: when it stands, same shape.
        filled: columns in use, by sequence.
        source_hidden: true where a sequence's source is padding, [sequences, source room].
        source_length: tokens of each sequence's source.
    """

    def __init__(
        self, sequences: int, layers: int, heads: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        empty = torch.empty(sequences, heads, 0, width, dtype=dtype, device=device)
        self.layers = [LayerCache(empty, empty, empty, empty) for _ in range(layers)]
        self.subsequence = torch.empty(sequences, 0, dtype=torch.long, device=device)
        self.time = torch.empty(sequences, 0, dtype=torch.long, device=device)
        self.filled = [0] * sequences
        self.source_hidden = torch.empty(sequences, 0, dtype=torch.bool, device=device)
        self.source_length = [0] * sequences
        self.reserve(FIRST_ROOM)

    @property
    def room(self) -> int:
        """Columns that each sequence has."""
        return self.subsequence.shape[1]

    def reserve(self, columns: int) -> None:
        """Make room for this many columns a sequence, keeping what is there."""
        if columns <= self.room:
            return
        room = max(columns, 2 * self.room, FIRST_ROOM)
        self.subsequence = _widen(self.subsequence, room, 1, PADDING)
        self.time = _widen(self.time, room, 1, PADDING)
        for layer in self.layers:
            layer.keys = _widen(layer.keys, room, 2, 0)
            layer.values = _widen(layer.values, room, 2, 0)

    def reserve_source(self, length: int) -> None:
        """Make room for sources of this length, keeping what is there."""
        if length <= self.source_hidden.shape[1]:
            return
        self.source_hidden = _widen(self.source_hidden, length, 1, 1)
        for layer in self.layers:
            layer.source_keys = _widen(layer.source_keys, length, 2, 0)
            layer.source_values = _widen(layer.source_values, length, 2, 0)

    def clear(self, sequence: int) -> None:
        """Forget a sequence's grid and source."""
        self.filled[sequence] = 0
        self.subsequence[sequence] = PADDING
        self.time[sequence] = PADDING
        self.source_length[sequence] = 0
        self.source_hidden[sequence] = True


def _widen(tensor: Tensor, room: int, dim: int, filling: int) -> Tensor:
    shape = list(tensor.shape)
    kept, shape[dim] = shape[dim], room
    wider = torch.full(shape, filling, dtype=tensor.dtype, device=tensor.device)
    wider.narrow(dim, 0, kept).copy_(tensor)
    return wider
