"""Decoder calls by torch, on any device.

On a GPU a step at batch 1 is bound by launching some fifteen kernels a layer. A CUDA graph launches all of them at
once, but its shapes and addresses are fixed. So for graphs the rows of each sequence, the columns and the sources are
filled up to a few sizes, and the buffers stay in place while graphs refer to them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.engine.prompts import Prompts
from pipedec_cli.model.engine.torch.context import Call, GridCache, StepContext, StepLayers
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.decode import Row

#: Set to 0, this environment variable turns CUDA graphs off.
VARIABLE: Final = "PIPEDEC_CUDA_GRAPHS"
#: Fixed sizes: rows of a sequence (above the last bucket its multiples), and units of columns and source tokens.
ROW_BUCKETS: Final = (1, 2, 4, 8, 12, 16, 20, 32)
COLUMNS = 64
SOURCE_TOKENS = 128
#: Tokens of each prompt that one call reads.
PROMPT_TOKENS = 512


def wants_graphs(device: torch.device) -> bool:
    """Whether steps on a device are replayed as CUDA graphs."""
    return device.type == "cuda" and os.environ.get(VARIABLE) != "0"


def bucket(count: int) -> int:
    """The smallest of `ROW_BUCKETS` that holds a count; above the last bucket a multiple of it."""
    return next((size for size in ROW_BUCKETS if size >= count), _rounded(count, ROW_BUCKETS[-1]))


def _rounded(count: int, unit: int) -> int:
    return -(-count // unit) * unit


class TorchStepper:
    """Decoder calls for a number of sequences. It has the methods of `Engine` except `admit`.

    Attributes:
        cache: keys, values and places of all sequences.
        filled: columns in use, by sequence.
        source_length: source tokens, by sequence.
    """

    def __init__(self, layers: StepLayers, sequences: int, *, fixed: bool | None = None) -> None:
        """Make the cache. `fixed`: fill calls up to a few shapes, which a GPU records once. None: if graphs are wanted."""
        self.layers, self.sequences = layers, sequences
        self.fixed = wants_graphs(layers.device) if fixed is None else fixed
        self.cache = GridCache(layers, sequences)
        self.filled, self.source_length = [0] * sequences, [0] * sequences
        self.prompts = Prompts(sequences)
        self._calls: dict[tuple[int, int], Call] = {}  # by rows of a sequence and columns
        self._pool: Any = None  # the memory that all graphs share

    def _grow(self, columns: int) -> None:
        if self.cache.grow(columns):
            self._forget_calls()

    def _forget_calls(self) -> None:
        """Graphs refer to buffers that have moved. torch frees a pool with the last graph that uses it."""
        self._calls.clear()
        self._pool = None

    @torch.inference_mode()
    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep keys and values of encoded sources, [n, longest, d_model], in sequences that start anew."""
        batch, length, _ = memory.shape
        if self.cache.grow_sources(_rounded(length, SOURCE_TOKENS) if self.fixed else length):
            self._forget_calls()
        for sequence, source in newcomers:
            self.release(sequence)
            self.source_length[sequence] = len(source)
            self.cache.source_hidden[sequence, : len(source)] = False
        numbers = [sequence for sequence, _ in newcomers]
        states = memory.flatten(0, 1).to(self.layers.dtype)
        for layer, both in zip(self.layers.source_kv(states), self.cache.sources, strict=True):
            for made, kept in zip(layer, both, strict=True):
                kept[numbers, :, :length] = made.view(batch, length, self.layers.heads, -1).transpose(1, 2)

    @torch.inference_mode()
    def read(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Read prompts, which may be empty, into sequences that start anew: they become row 0 of their grids."""
        prompts, begun = list[list[tuple[Row, int]]](), len(self.prompts.beginning)
        for sequence, prompt in newcomers:
            self.release(sequence)
            self.prompts.begin(sequence, len(prompt))
            prompts.append(self.prompts.prompt_rows(sequence, prompt))
        lanes = torch.tensor([sequence for sequence, _ in newcomers], device=self.layers.device)
        for first in range(0, max(map(len, prompts)), PROMPT_TOKENS):
            given: list[tuple[int, ...]] = []
            for lane, rows in enumerate(prompts):
                for place, (row, column) in enumerate(rows[first : first + PROMPT_TOKENS]):
                    given.append((row.slot.token, lane, column, 0, row.slot.time, column, place))
                    self.filled[row.sequence] += 1
            columns = max(self.filled[sequence] for sequence, _ in newcomers)
            self._grow(columns)
            table = torch.tensor(list(zip(*given, strict=True)), device=self.layers.device)
            shape = (len(newcomers), min(columns - begun - first, PROMPT_TOKENS))
            call = Call(table, shape, columns, 0, table, table, lanes=lanes)
            self.layers.states(StepContext(self.cache, call))

    @torch.inference_mode()
    def keep(self, beginning: Sequence[int]) -> None:
        """Read the beginning of all prompts, and keep it in every sequence; all sequences start anew."""
        self.prompts.beginning = ()
        for sequence in range(self.sequences):
            self.release(sequence)
        self.read([(0, beginning)])
        for buffer in (self.cache.places, *(both for both in self.cache.grid)):
            buffer[:, 1:] = buffer[:, :1]
        self.prompts.beginning = tuple(beginning)
        self.filled = [len(beginning)] * self.sequences

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> list[int]:
        """The most probable next token of each row, from those that its slot allows; −1 if a logit is NaN."""
        call, where = self._run(rows)
        answers: list[int] = call.answers.tolist()
        found = [answers[row] for row in where]
        narrow = [number for number, row in enumerate(rows) if row.slot.allowed]
        if narrow:
            logits = call.logits[[where[number] for number in narrow]]
            best = _best(_allowed(logits, [rows[number] for number in narrow])).tolist()
            for number, token in zip(narrow, best, strict=True):
                found[number] = token
        return found

    @torch.inference_mode()
    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """The most probable next token of each row, and its probability."""
        logits = _allowed(self.logits(rows).float(), rows)
        return _best(logits).tolist(), logits.softmax(dim=-1).amax(dim=-1).tolist()

    @torch.inference_mode()
    def logits(self, rows: Sequence[Row]) -> Tensor:
        """Run a call: logits [rows, vocabulary]."""
        call, where = self._run(rows)
        return call.logits[where] if self.fixed else call.logits

    @torch.inference_mode()
    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence; a ValueError if it has fewer."""
        filled = self.filled[sequence]
        if not 0 <= count <= filled:
            raise ValueError(f"{count} rows cannot be taken back from {filled}")
        self.cache.places[:, sequence, filled - count : filled] = PADDING
        self.filled[sequence] = filled - count

    @torch.inference_mode()
    def release(self, sequence: int) -> None:
        """Forget a sequence's grid and source, but for the beginning of all prompts."""
        self.take_back(sequence, self.filled[sequence] - len(self.prompts.beginning))
        self.prompts.begin(sequence, 0)
        self.source_length[sequence] = 0
        self.cache.source_hidden[sequence] = True

    def _run(self, rows: Sequence[Row]) -> tuple[Call, Sequence[int]]:
        """Run the call that holds these rows; gives the call and where each row is among its rows."""
        filled, counts = self.filled, [0] * self.sequences
        given: list[tuple[int, ...]] = []
        self.prompts.settle(rows)
        for sequence, slot in rows:
            place = (slot.subsequence, *self.prompts.place(sequence, slot), counts[sequence])
            given.append((slot.token, sequence, filled[sequence], *place))
            counts[sequence] += 1
            filled[sequence] += 1
        make = self._filled_up if self.fixed else self._as_it_is
        call, where = make(given, max(counts))
        if call.graph is not None:
            call.graph.replay()
        elif self.fixed and self.layers.device.type == "cuda":
            self._record(call)
        else:
            self._compute(call)
        return call, where

    def _as_it_is(self, given: list[tuple[int, ...]], width: int) -> tuple[Call, Sequence[int]]:
        """A call of these rows alone. It leaves out the sequences behind the last one that has a row."""
        sequences = max(row[1] for row in given) + 1
        columns, source = max(self.filled[:sequences]), max(self.source_length[:sequences])
        self._grow(columns)
        table = torch.tensor(list(zip(*given, strict=True)), device=self.layers.device)
        return Call(table, (sequences, width), columns, source, table, table), range(len(given))

    def _filled_up(self, given: list[tuple[int, ...]], width: int) -> tuple[Call, Sequence[int]]:
        """The call of the smallest shape that holds these rows. A call of each shape is made once."""
        width, columns = bucket(width), _rounded(max(self.filled), COLUMNS)
        self._grow(columns + 1)
        # Rows that fill up write their keys into the last column, which attention never reads.
        table = torch.full((7, self.sequences * width), PADDING)
        table[0], table[2], table[5] = 0, self.cache.places.shape[2] - 1, 0
        table[1], table[6] = torch.arange(table.shape[1]) // width, torch.arange(table.shape[1]) % width
        where = [row[1] * width + row[6] for row in given]
        table[:, where] = torch.tensor(given).T
        if (width, columns) not in self._calls:
            empty = torch.empty_like(table, device=self.layers.device)
            shape, source = (self.sequences, width), self.cache.source_hidden.shape[1]
            self._calls[width, columns] = Call(empty, shape, columns, source, empty, empty)
        call = self._calls[width, columns]
        call.given.copy_(table)
        return call, where

    def _record(self, call: Call) -> None:
        """Run a call and keep its kernels as a graph. The call runs three times, which writes the same keys each time."""
        aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._compute(call)  # libraries choose their kernels and get their workspaces
        torch.cuda.current_stream().wait_stream(aside)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        call.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(call.graph, pool=self._pool):
            self._compute(call)
        call.graph.replay()

    def _compute(self, call: Call) -> None:
        call.logits = self.layers.head(self.layers.states(StepContext(self.cache, call)))
        call.answers = _best(call.logits)


def _allowed(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """The logits of rows, −∞ at each token that a row's slot does not allow."""
    open_places = [(at, token) for at, row in enumerate(rows) for token in row.slot.allowed]
    if not open_places:
        return logits
    narrow = torch.tensor([[bool(row.slot.allowed)] for row in rows], device=logits.device)
    closed = narrow.repeat(1, logits.shape[1])
    closed[torch.tensor(open_places, device=logits.device).T.unbind()] = False
    return logits.masked_fill(closed, -torch.inf)


def _best(logits: Tensor) -> Tensor:
    """The token of each row's largest logit; −1 if one of them is NaN."""
    largest, tokens = logits.max(dim=-1)
    return tokens.masked_fill(largest.isnan(), -1)
