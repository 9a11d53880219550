"""The compiled step with what it remembers of the examples in flight."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, c_int64
from typing import Final

import torch
from torch import Tensor

from pipedec_cli.model.engine.native.packing import NativeWeights
from pipedec_cli.model.engine.native.structures import CacheStruct
from pipedec_cli.model.engine.prompts import Prompts
from pipedec_cli.model.engine.torch.context import FIRST_ROOM
from pipedec_cli.pipeline.decode import Row

#: Tokens of prompts that are read in one call: enough to use the arithmetic fully, few enough for the buffers to stay small.
READ_TOGETHER: Final = 512


class NativeStepper:
    """Decoder calls by the compiled kernels, for a number of sequences. A row's answer depends on its own sequence alone.

    Beside weights in int8, what it remembers is in bfloat16. Its buffers grow by doubling and are never given back while it
    lives. Keys are kept as panels, values as rows of a width that is a whole number of panels; see ``native/vectors.h``.
    """

    def __init__(self, weights: NativeWeights, sequences: int) -> None:
        self.weights, self.kernels = weights, weights.kernels
        self.sequences = sequences
        self._panel = weights.library.panel
        self._numbers = 1 if weights.dtype == torch.float32 else 2  # in a 32-bit word
        self._filled = [0] * sequences
        self._source_length = (c_int64 * sequences)()
        self.prompts = Prompts(sequences)
        self._room = self._source_room = 0
        self._grid, self._source = self._buffers(0), self._buffers(0)
        self._reserve(FIRST_ROOM)

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep the keys and values of encoded sources, [n, longest, d_model], in sequences that are then empty of tokens."""
        if memory.shape[1] > self._source_room:
            self._source_room = self._rounded(memory.shape[1])
            self._source = _widened(self._source, self._buffers(self._source_room))
            self._lay_out()
        for sequence, source in newcomers:
            self.release(sequence)
            self._source_length[sequence] = len(source)
        memory = memory.float().contiguous()
        for number, (sequence, source) in enumerate(newcomers):
            states = memory[number, : len(source)]
            self.weights.library.remember_source(self.weights.struct, self._cache, sequence, states)

    def read(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Read prompts, of which any may be empty, into sequences that are then empty of other tokens; of decoder-only models."""
        rows, positions = list[Row](), list[int]()
        for sequence, prompt in sorted(newcomers):
            self.release(sequence)
            self.prompts.begin(sequence, len(prompt))
            rows += self.prompts.prompt_rows(sequence, prompt)
            positions += range(len(prompt))
        for first in range(0, len(rows), READ_TOGETHER):
            portion = slice(first, first + READ_TOGETHER)
            self._run(rows[portion], positions[portion])

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """One decoder call: each row's token, and its softmax over the vocabulary."""
        probabilities = torch.zeros(len(rows))
        return self._step(rows, probabilities=probabilities), probabilities.tolist()

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: float32 [rows, vocabulary]."""
        vocabulary = self.weights.struct.vocabulary
        logits = torch.empty(len(rows), self._rounded(vocabulary))
        self._step([Row(number, slot._replace(answers=True)) for number, slot in rows], logits)
        return logits[:, :vocabulary]

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence: what lies beyond its columns in use is never looked at."""
        if not 0 <= count <= self._filled[sequence]:
            raise ValueError(f"{count} rows cannot be taken back from {self._filled[sequence]}")
        self._filled[sequence] -= count

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""
        return self._step(rows)

    def _step(
        self, rows: Sequence[Row], logits: Tensor | None = None, probabilities: Tensor | None = None
    ) -> list[int]:
        """The same; see `Library.step`."""
        if not self.weights.struct.causal:
            return self._run(rows, [0] * len(rows), logits, probabilities)
        self.prompts.settle(rows)
        return self._run(rows, [self.prompts.position(*row) for row in rows], logits, probabilities)

    def _run(
        self,
        rows: Sequence[Row],
        positions: Sequence[int],
        logits: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> list[int]:
        """The same for rows at such positions, which join the cache behind what is there."""
        placed, allowed = list[int](), list[int]()
        for (sequence, slot), position in zip(rows, positions, strict=True):
            column, choices = self._filled[sequence], len(slot.allowed) if slot.answers else -1
            placed += (slot.token, sequence, column, slot.subsequence, slot.time, choices, position)
            allowed += slot.allowed
            self._filled[sequence] += 1
        self._reserve(max(self._filled))
        weights = self.weights
        return weights.library.step(weights.struct, self._cache, placed, allowed, logits, probabilities)

    def release(self, sequence: int) -> None:
        """Forget what is in a sequence, likewise."""
        self._filled[sequence] = self._source_length[sequence] = 0
        self.prompts.begin(sequence, 0)

    def _reserve(self, columns: int) -> None:
        """Make room for this many columns a sequence, keeping what is there."""
        if columns > self._room:
            self._room = self._rounded(max(columns, 2 * self._room))
            self._grid = _widened(self._grid, self._buffers(self._room))
            self._lay_out()

    def _rounded(self, columns: int) -> int:
        return -(-columns // self._panel) * self._panel

    def _buffers(self, room: int) -> tuple[Tensor, ...]:
        """Keys, [layers, sequences, heads, panels, d, panel], values, [layers, sequences, heads, room, padded d], places.

        Keys and values are 32-bit words: of bfloat16 keys two neighbours in d share one, of values two neighbouring
        columns. Places are the subsequences, the times and the positions, [sequences, room] each; a source has no use for them.
        """
        shape, words = self.weights.struct, self._numbers
        outer = (shape.layers, self.sequences, shape.key_heads)
        keys = (*outer, room // self._panel, self.weights.library.key_words(shape), self._panel)
        values = (*outer, room // words, self._rounded(shape.head_width))
        places = (self.sequences, room)
        return tuple(torch.zeros(size, dtype=torch.int32) for size in (keys, values, places, places, places))

    def _lay_out(self) -> None:
        """Say where the buffers lie."""
        addresses = [buffer.data_ptr() for buffer in (*self._grid[:2], *self._source[:2], *self._grid[2:])]
        lengths = addressof(self._source_length)
        self._cache = CacheStruct(self.sequences, self._room, self._source_room, *addresses, lengths)


def _widened(old: tuple[Tensor, ...], wider: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The wider buffers with what was in the old ones."""
    for before, after in zip(old, wider, strict=True):
        after[tuple(map(slice, before.shape))] = before
    return wider
