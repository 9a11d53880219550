"""The compiled step with what it remembers of the examples in flight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipedec_cli.model.cache import FIRST_ROOM
from pipedec_cli.model.native.library import CacheStruct
from pipedec_cli.model.native.weights import NativeWeights
from pipedec_cli.pipeline.decode import Row


class NativeStepper:
    """Decoder calls by the compiled kernels, for a number of sequences. A row's answer depends on its own sequence alone.

    Its buffers grow by doubling and are never given back while it lives. Keys are kept as panels, values as rows
    of a width that is a whole number of panels; see ``native/vectors.h``.
    """

    def __init__(self, weights: NativeWeights, sequences: int) -> None:
        """Make the buffers.

        Args:
            weights: the packed weights.
            sequences: how many examples can be in flight.
        """
        self.weights = weights
        self.sequences = sequences
        self._panel = weights.library.panel
        self._numbers = 2 if weights.dtype == torch.bfloat16 else 1  # in a 32-bit word
        self._filled = [0] * sequences
        self._source_length = torch.zeros(sequences, dtype=torch.long)
        self._room = self._source_room = 0
        self._keys, self._values = self._buffers(0)
        self._source_keys, self._source_values = self._buffers(0)
        self._places = torch.zeros(2, sequences, 0, dtype=torch.int32)
        self._reserve(FIRST_ROOM)

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        return self.weights.kernels

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep the keys and values of encoded sources, [n, longest, d_model], in sequences that are then empty of tokens."""
        self._reserve_source(memory.shape[1])
        for sequence, source in newcomers:
            self.release(sequence)
            self._source_length[sequence] = len(source)
        cache, memory = self._struct(), memory.float().contiguous()
        for states, (sequence, source) in zip(memory, newcomers, strict=True):
            self.weights.library.remember_source(
                self.weights.struct, cache, sequence, len(source), states.data_ptr(), torch.get_num_threads()
            )

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""
        return self._call(rows)

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """One decoder call: each row's token, and its softmax over the vocabulary."""
        probabilities = torch.empty(len(rows))
        return self._call(rows, probabilities=probabilities), probabilities.tolist()

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: float32 [rows, vocabulary]."""
        logits = self._room_for_logits(rows)
        self._call(rows, logits)
        return logits[:, : self.weights.struct.vocabulary]

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence: what lies beyond its columns in use is never looked at."""
        self._filled[sequence] -= count

    def _call(
        self, rows: Sequence[Row], logits: Tensor | None = None, probabilities: Tensor | None = None
    ) -> list[int]:
        placed = []
        for sequence, slot in rows:
            placed.append((slot.token, sequence, self._filled[sequence], slot.subsequence, slot.time))
            self._filled[sequence] += 1
        self._reserve(max(self._filled))
        return self.weights.library.step(
            self.weights.struct,
            self._struct(),
            placed,
            torch.get_num_threads(),
            None if logits is None else logits.data_ptr(),
            None if probabilities is None else probabilities.data_ptr(),
        )

    def _room_for_logits(self, rows: Sequence[Row]) -> Tensor:
        return torch.empty(len(rows), self._rounded(self.weights.struct.vocabulary))

    def release(self, sequence: int) -> None:
        """Forget what is in a sequence: what lies beyond its columns in use is never looked at."""
        self._filled[sequence] = 0
        self._source_length[sequence] = 0

    def _reserve(self, columns: int) -> None:
        """Make room for this many columns a sequence, keeping what is there."""
        if columns <= self._room:
            return
        self._room = self._rounded(max(columns, 2 * self._room))
        self._keys, self._values = _kept((self._keys, self._values), self._buffers(self._room))
        wider = torch.zeros(2, self.sequences, self._room, dtype=torch.int32)
        wider[:, :, : self._places.shape[2]] = self._places
        self._places = wider

    def _reserve_source(self, length: int) -> None:
        """Make room for sources of this length, keeping what is there."""
        if length <= self._source_room:
            return
        self._source_room = self._rounded(length)
        wider = self._buffers(self._source_room)
        self._source_keys, self._source_values = _kept((self._source_keys, self._source_values), wider)

    def _rounded(self, columns: int) -> int:
        return -(-columns // self._panel) * self._panel

    def _buffers(self, room: int) -> tuple[Tensor, Tensor]:
        """Keys, [layers, sequences, heads, panels, d, panel], and values, [layers, sequences, heads, room, padded d].

        Both in 32-bit words: of bfloat16 keys two neighbours in d share one, of values two neighbouring columns.
        """
        shape = self.weights.struct
        outer = (shape.layers, self.sequences, shape.heads)
        width = shape.head_width // self._numbers
        keys = torch.zeros(*outer, room // self._panel, width, self._panel, dtype=torch.int32)
        padded = self._rounded(shape.head_width)
        return keys, torch.zeros(*outer, room // self._numbers, padded, dtype=torch.int32)

    def _struct(self) -> CacheStruct:
        return CacheStruct(
            sequences=self.sequences,
            room=self._room,
            source_room=self._source_room,
            keys=self._keys.data_ptr(),
            values=self._values.data_ptr(),
            source_keys=self._source_keys.data_ptr(),
            source_values=self._source_values.data_ptr(),
            subsequence=self._places[0].data_ptr(),
            time=self._places[1].data_ptr(),
            source_length=self._source_length.data_ptr(),
        )


def _kept(old: tuple[Tensor, Tensor], wider: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The wider buffers with what was in the old ones."""
    for before, after in zip(old, wider, strict=True):
        after[:, :, :, : before.shape[3]] = before
    return wider
