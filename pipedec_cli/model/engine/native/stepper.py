"""Encoder and decoder calls by the compiled kernels."""

from collections.abc import Iterable, Sequence
from ctypes import addressof, c_int64
from itertools import islice
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from pipedec_cli.model.engine.native.describing import describe_t5
from pipedec_cli.model.engine.native.library import CacheStruct
from pipedec_cli.model.engine.native.packing import NativeWeights, pack
from pipedec_cli.model.engine.prompt_cache import Columns, Ids
from pipedec_cli.model.engine.sequences import FIRST_ROOM, Sequences
from pipedec_cli.pipeline.attention import PROMPT_TIME
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Odds

#: Prompt tokens that one call reads: enough for the arithmetic, with small buffers.
READ_TOGETHER: Final = 512


class NativeStepper(Sequences):
    """Sequences of examples in flight, whose calls the compiled kernels compute.

    A row's answer depends on its own sequence alone. Buffers grow by doubling.
    """

    def __init__(self, weights: NativeWeights, sequences: int) -> None:
        """Make room for so many sequences, for the decoder with these weights."""
        super().__init__(sequences)
        self.weights = weights
        self._panel = weights.library.panel
        self._source_length = (c_int64 * sequences)()
        # How many columns the buffers of each sequence have.
        self._room = 0
        self._source_room = 0
        self._grid = self._buffers(0)
        self._source = self._buffers(0)
        self._grow(FIRST_ROOM)

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Ids]]) -> None:
        """Compute and keep the keys and values of encoded sources, given as (sequence, token ids).

        `memory` has the encoder's states of them, [n, longest, d_model].
        """
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
            wider = self._buffers(self._source_room)
            self._source = _widened(self._source, wider, map(len, self.there))
            self._point()

    def columns(self, sequence: int, tokens: int, *, encoded: bool) -> Columns:
        """Views of the keys and of the values of the first tokens of a sequence's prompt, or of its `encoded` source.

        It makes room for so many tokens. The last panel of keys has other columns as
        well, which are written before they are read.
        """
        if encoded:
            self._make_room(tokens)
            keys, values, *_ = self._source
        else:
            self._grow(tokens)
            keys, values, *_ = self._grid
        panels = -(-tokens // self._panel)
        words = -(-tokens // self._numbers_in_word)
        return keys[:, sequence, :, :panels], values[:, sequence, :, :words]

    def show(self, sequence: int, tokens: int, *, encoded: bool) -> None:
        """Let later rows of a sequence see that many tokens of its prompt, or of its `encoded` source."""
        if encoded:
            self._source_length[sequence] = tokens
            return
        _, _, subsequences, times, positions = self._grid
        subsequences[sequence, :tokens] = 0
        positions[sequence, :tokens] = torch.arange(tokens)
        times[sequence, :tokens] = torch.arange(PROMPT_TIME, PROMPT_TIME + tokens)

    def read(self, newcomers: Sequence[tuple[int, Ids, int]]) -> None:
        """Compute the keys and values of prompts, some of their tokens in each call.

        They are given as (sequence, token ids, how many of these it has already).
        """
        tokens = list[tuple[Row, int]]()
        for newcomer in sorted(newcomers):
            tokens += self.begin(*newcomer)
        for first in range(0, len(tokens), READ_TOGETHER):
            portion = tokens[first : first + READ_TOGETHER]
            rows = [row for row, _ in portion]
            # A prompt is row 0 of the grid.
            places = [(0, row.slot.time, position) for row, position in portion]
            self._run(rows, places)

    def step(
        self,
        rows: Sequence[Row],
        logits: Tensor | None = None,
        odds: Tensor | None = None,
    ) -> list[int]:
        """One decoder call: add the rows' tokens to their sequences, and give each row's most probable next token.

        It is one of those that the row's slot allows; −1 if a logit is NaN. `logits`,
        float32 [rows, vocabulary in whole panels], and `odds`, float32 [rows, 3], are
        filled if they are given.
        """
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
        # The kernels give logits of those rows only that ask for an answer.
        asking = [Row(number, slot._replace(answers=True)) for number, slot in rows]
        self.step(asking, logits)
        return logits[:, :vocabulary]

    def _run(
        self,
        rows: Sequence[Row],
        places: Sequence[tuple[int, int, int]],
        logits: Tensor | None = None,
        odds: Tensor | None = None,
    ) -> list[int]:
        """Run rows at these places: of each its subsequence, time and position. The other arguments are those of `step`.

        They get the next columns of their sequences. Returns each row's answer.
        """
        fields = list[int]()  # of a `RowStruct` for each row
        masks = list[bytes]()
        others = list[int]()
        size = -(-self.weights.struct.vocabulary // 8)
        for (sequence, slot), place in zip(rows, places, strict=True):
            subsequence, time, position = place
            choices = -1  # no answer is wanted
            if slot.answers:
                choices = bool(slot.allowed)
            fields += (
                slot.token,
                sequence,
                self.filled[sequence],
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
            weights.struct, self._cache, fields, b"".join(masks), others, logits, odds
        )

    def _grow(self, columns: int) -> None:
        """Make room for so many columns in each sequence, twice as many as before or more."""
        if columns > self._room:
            self._room = self._rounded(max(columns, 2 * self._room))
            filled = [max(self.filled[n], len(ids)) for n, ids in enumerate(self.there)]
            self._grid = _widened(self._grid, self._buffers(self._room), filled)
            self._point()

    def _rounded(self, columns: int) -> int:
        """As many columns in whole panels."""
        return -(-columns // self._panel) * self._panel

    @property
    def _numbers_in_word(self) -> int:
        """How many numbers of the cache a word of 32 bits holds: one float32 or two bfloat16."""
        return 1 if self.weights.dtype == torch.float32 else 2

    def _buffers(self, room: int) -> tuple[Tensor, ...]:
        """New buffers of 32-bit words for `room` columns: keys, values, subsequences, times and positions.

        Keys are [layers, sequences, heads, panels, words of a key, panel], values are
        [layers, sequences, heads, room / numbers in a word, head width in whole
        panels], the others [sequences, room]. A word holds one float32 or two bfloat16:
        neighbours within a key, neighbouring columns of values.
        """
        model = self.weights.struct
        outer = (model.layers, self.sequences, model.key_heads)
        words = self.weights.library.key_words(model, model.head_width)
        width = self._rounded(model.head_width)
        keys = (*outer, room // self._panel, words, self._panel)
        values = (*outer, room // self._numbers_in_word, width)
        places = (self.sequences, room)
        # The system gives zeros of numpy their memory when they are written to.
        shapes = (keys, values, places, places, places)
        return tuple(torch.from_numpy(np.zeros(shape, np.int32)) for shape in shapes)

    def _point(self) -> None:
        """Tell the kernels where the buffers are. Places of sources are not used."""
        keys, values, *places = self._grid
        buffers = (keys, values, *self._source[:2], *places)
        self._cache = CacheStruct(
            self.sequences,
            self._room,
            self._source_room,
            *(buffer.data_ptr() for buffer in buffers),
            addressof(self._source_length),
        )


def _widened(
    old: tuple[Tensor, ...], wider: tuple[Tensor, ...], used: Iterable[int]
) -> tuple[Tensor, ...]:
    """Copy buffers into wider ones, which are returned: those sequences that have columns in use, by `used`.

    The others take no memory yet.
    """
    copied = [sequence for sequence, columns in enumerate(used) if columns]
    for before, after in zip(old, wider, strict=True):
        # Keys and values have a dimension for the layers before that of the sequences.
        dimension = 1 if before.dim() > 2 else 0
        for sequence in copied:
            own = before.select(dimension, sequence)
            of_own = tuple(map(slice, own.shape))
            after.select(dimension, sequence)[of_own] = own
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
        """Pack an encoder of transformers, or of a `BareModel`, in a dtype.

        The packed `decoder` may share its embedding. With `consume` the encoder's own
        matrices are emptied.
        """
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
        longest = max(map(len, sources))
        encoder = self.weights.struct
        states = torch.zeros(len(sources), longest, encoder.width)
        together = max(1, TOKENS_TOGETHER // longest)
        for first in range(0, len(sources), together):
            portion = sources[first : first + together]
            self.weights.library.encode(encoder, portion, states[first:])
        return states
