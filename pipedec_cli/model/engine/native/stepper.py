"""Encoder and decoder calls by the compiled kernels."""

from collections.abc import Iterable, Sequence
from ctypes import addressof, c_int64
from itertools import islice
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from pipedec_cli.model.engine.kept import Columns, Ids
from pipedec_cli.model.engine.native.describing import describe_t5
from pipedec_cli.model.engine.native.library import CacheStruct
from pipedec_cli.model.engine.native.packing import NativeWeights, pack
from pipedec_cli.model.engine.sequences import FIRST_ROOM, Sequences
from pipedec_cli.pipeline.attention import PROMPT_TIME
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Odds

#: Prompt tokens that one call reads: enough for the arithmetic, with small buffers.
READ_TOGETHER: Final = 512


class NativeStepper(Sequences):
    """See `Sequences`. A row's answer depends on its own sequence alone. Buffers grow by doubling."""

    def __init__(self, weights: NativeWeights, sequences: int) -> None:
        super().__init__(sequences)
        self.weights = weights
        self._panel = weights.library.panel
        self._source_length = (c_int64 * sequences)()
        self._room = self._source_room = 0
        self._grid, self._source = self._buffers(0), self._buffers(0)
        self._grow(FIRST_ROOM)

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Ids]]) -> None:
        """Keep keys and values of encoded sources, [n, longest, d_model]."""
        self._make_room(memory.shape[1])
        memory = memory.float().contiguous()
        for states, (sequence, source) in zip(memory, newcomers, strict=True):
            self._source_length[sequence] = len(source)
            own = states[: len(source)]
            self.weights.library.remember_source(
                self.weights.struct, self._cache, sequence, own
            )

    def _make_room(self, tokens: int) -> None:
        """Make room for so many tokens of each source."""
        if tokens > self._source_room:
            self._source_room = self._rounded(tokens)
            self._source = _widened(
                self._source, self._buffers(self._source_room), map(len, self.there)
            )
            self._point()

    def columns(self, sequence: int, tokens: int, *, encoded: bool) -> Columns:
        """See `Sequences.columns`. The last panel of keys has other columns as well, which are written before they are read."""
        self._make_room(tokens) if encoded else self._grow(tokens)
        keys, values = (self._source if encoded else self._grid)[:2]
        numbers = 1 if self.weights.dtype == torch.float32 else 2
        panels, words = -(-tokens // self._panel), -(-tokens // numbers)
        return keys[:, sequence, :, :panels], values[:, sequence, :, :words]

    def show(self, sequence: int, tokens: int, *, encoded: bool) -> None:
        """See `Sequences.show`."""
        if encoded:
            self._source_length[sequence] = tokens
            return
        subsequences, times, positions = (
            buffer[sequence, :tokens] for buffer in self._grid[2:]
        )
        subsequences.zero_()
        torch.arange(tokens, out=positions)
        torch.arange(PROMPT_TIME, PROMPT_TIME + tokens, out=times)

    def read(self, newcomers: Sequence[tuple[int, Ids, int]]) -> None:
        """See `Sequences.read`."""
        read = [pair for one in sorted(newcomers) for pair in self.begin(*one)]
        for first in range(0, len(read), READ_TOGETHER):
            portion = read[first : first + READ_TOGETHER]
            self._run(
                [row for row, _ in portion],
                [(0, row.slot.time, at) for row, at in portion],
            )

    def step(
        self,
        rows: Sequence[Row],
        logits: Tensor | None = None,
        odds: Tensor | None = None,
    ) -> list[int]:
        """One decoder call; see `Library.step`."""
        self.settle(rows)
        places = [self.place(*row) for row in rows]
        return self._run(rows, places, logits, odds)

    def step_with_odds(self, rows: Sequence[Row]) -> tuple[list[int], list[Odds]]:
        """The most probable next token of each row, and its odds."""
        size = 3 * len(rows)
        odds = torch.zeros(size + sum(len(row.slot.others) for row in rows))
        answers = self.step(rows, odds=odds)
        others = iter(odds[size:].tolist())
        told = []
        for row, numbers in zip(rows, odds[:size].view(-1, 3).tolist(), strict=True):
            more = tuple(islice(others, len(row.slot.others)))
            told.append(Odds(*numbers)._replace(others=more))
        return answers, told

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """Run a call: logits, float32 [rows, vocabulary]."""
        vocabulary = self.weights.struct.vocabulary
        logits = torch.empty(len(rows), self._rounded(vocabulary))
        self.step(
            [Row(number, slot._replace(answers=True)) for number, slot in rows], logits
        )
        return logits[:, :vocabulary]

    def _run(
        self,
        rows: Sequence[Row],
        places: Sequence[tuple[int, int, int]],
        logits: Tensor | None = None,
        odds: Tensor | None = None,
    ) -> list[int]:
        """Run rows at these places; see `Sequences.place`. They get the next columns of their sequences."""
        placed, masks = list[int](), list[bytes]()
        others = list[int]()
        size = -(-self.weights.struct.vocabulary // 8)
        for (sequence, slot), (subsequence, time, position) in zip(
            rows, places, strict=True
        ):
            column, choices = (
                self.filled[sequence],
                bool(slot.allowed) if slot.answers else -1,
            )
            placed += (
                slot.token,
                sequence,
                column,
                subsequence,
                time,
                choices,
                position,
                slot.end,
                len(slot.others),
            )
            others += slot.others
            if choices > 0:
                masks.append(slot.allowed.ljust(size, b"\0")[:size])
            self.filled[sequence] += 1
        self._grow(max(self.filled))
        weights = self.weights
        return weights.library.step(
            weights.struct, self._cache, placed, b"".join(masks), others, logits, odds
        )

    def _grow(self, columns: int) -> None:
        if columns > self._room:
            self._room = self._rounded(max(columns, 2 * self._room))
            used = (
                max(filled, len(there))
                for filled, there in zip(self.filled, self.there, strict=True)
            )
            self._grid = _widened(self._grid, self._buffers(self._room), used)
            self._point()

    def _rounded(self, columns: int) -> int:
        return -(-columns // self._panel) * self._panel

    def _buffers(self, room: int) -> tuple[Tensor, ...]:
        """New buffers of 32-bit words for `room` columns: keys, values, subsequences, times and positions.

        Keys are [layers, sequences, heads, panels, words of a key, panel], values are
        [layers, sequences, heads, room / numbers in a word, head width in whole
        panels], the others [sequences, room]. A word holds one float32 or two bfloat16:
        neighbours within a key, neighbouring columns of values.
        """
        shape, numbers = (
            self.weights.struct,
            1 if self.weights.dtype == torch.float32 else 2,
        )
        outer = (shape.layers, self.sequences, shape.key_heads)
        words = self.weights.library.key_words(shape, shape.head_width)
        keys = (*outer, room // self._panel, words, self._panel)
        values = (*outer, room // numbers, self._rounded(shape.head_width))
        places = (self.sequences, room)
        # The system gives zeros of numpy their memory when they are written to.
        shapes = (keys, values, places, places, places)
        return tuple(torch.from_numpy(np.zeros(shape, np.int32)) for shape in shapes)

    def _point(self) -> None:
        """Tell the kernels where the buffers are. Places of sources are not used."""
        addresses = [
            buffer.data_ptr()
            for buffer in (*self._grid[:2], *self._source[:2], *self._grid[2:])
        ]
        lengths = addressof(self._source_length)
        self._cache = CacheStruct(
            self.sequences, self._room, self._source_room, *addresses, lengths
        )


def _widened(
    old: tuple[Tensor, ...], wider: tuple[Tensor, ...], used: Iterable[int]
) -> tuple[Tensor, ...]:
    """Copy buffers into wider ones: the sequences that have `used` columns. The others take no memory yet."""
    copied = [sequence for sequence, columns in enumerate(used) if columns]
    for before, after in zip(old, wider, strict=True):
        sequences = 1 if before.dim() > 2 else 0  # the dimension
        for sequence in copied:
            own = before.select(sequences, sequence)
            after.select(sequences, sequence)[tuple(map(slice, own.shape))] = own
    return wider


#: Tokens that are encoded together, unless one source has more: enough for the
#: arithmetic, with small buffers.
TOKENS_TOGETHER: Final = 2048


class NativeEncoder(nn.Module):
    """A T5's encoder in C++. The states of a source depend on this source alone."""

    def __init__(
        self,
        encoder: Any,
        decoder: NativeWeights,
        dtype: torch.dtype = torch.float32,
        *,
        consume: bool = False,
    ) -> None:
        """Pack an encoder of transformers in a dtype. The packed decoder may share its embedding."""
        super().__init__()
        beside = decoder if decoder.dtype == dtype else None
        self.weights = pack(
            describe_t5(encoder),
            decoder.library,
            dtype,
            consume=consume,
            beside=beside,
            files=getattr(encoder, "files", ()),
        )

    def forward(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """Encode sources of token ids, none of them empty: float32 [sources, longest, d_model], 0 behind a source's end."""
        longest, weights = max(map(len, sources)), self.weights
        states = torch.zeros(len(sources), longest, weights.struct.width)
        together = max(1, TOKENS_TOGETHER // longest)
        for first in range(0, len(sources), together):
            weights.library.encode(
                weights.struct, sources[first : first + together], states[first:]
            )
        return states
