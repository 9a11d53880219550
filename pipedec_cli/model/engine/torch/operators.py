"""The decoding step in torch's own operators: every machine has it.

On a GPU a step at batch 1 is bound by launching some fifteen kernels a layer, not by what they compute, and a CUDA
graph launches all of them at once; but its shapes and addresses cannot change. So there the rows of every sequence are
filled up to a bucket, and so are columns and sources; the buffers stay where they are while graphs refer to them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.engine.prompts import Prompts
from pipedec_cli.model.engine.torch.matrices import Matrices
from pipedec_cli.model.engine.torch.modules import ModuleLayers
from pipedec_cli.pipeline.attention import PADDING, visible
from pipedec_cli.pipeline.decode import Row

#: Set to 0, this environment variable turns CUDA graphs off: the steps are then launched kernel by kernel.
VARIABLE: Final = "PIPEDEC_CUDA_GRAPHS"
#: Columns of a grid for which a sequence has room at first; it doubles when that is used up.
FIRST_ROOM = 128
#: What fixed shapes come in: rows a sequence (beyond the last one, multiples of it), columns, and source tokens.
ROW_BUCKETS: Final = (1, 2, 4, 8, 12, 16, 20, 32)
COLUMNS = 64
SOURCE_TOKENS = 128
#: Tokens of a prompt that are read in one call.
PROMPT_TOKENS = 512


def wants_graphs(device: torch.device) -> bool:
    """Whether steps on a device are to be replayed as graphs."""
    return device.type == "cuda" and os.environ.get(VARIABLE) != "0"


def bucket(count: int, buckets: Sequence[int] = ROW_BUCKETS) -> int:
    """The smallest bucket that holds a count; multiples of the last one beyond it."""
    return next((size for size in buckets if size >= count), _rounded(count, buckets[-1]))


def _rounded(count: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-count // unit) * unit


@dataclass(slots=True)
class Call:
    """A decoder call of one shape, over n lanes with at most r rows each."""

    #: Token, lane, column, subsequence, time and position of each row, and which of its lane's rows it is: int64 [7, rows].
    given: Tensor
    shape: tuple[int, int]  # n and r; if there are n · r rows, they stand in the order of their sequences
    columns: int  # how many of the cache's columns are looked at
    source: int  # how many of the sources' tokens
    logits: Tensor  # what came out, [rows, vocabulary]; of no meaning before a run
    answers: Tensor  # the most probable tokens
    graph: Any = None  # the recorded CUDA graph, if there is one
    lanes: Tensor | None = None  # the sequence of each lane; the first n, if there are none


class Look:
    """A call as the layers of a decoder see it: its rows, where their keys go, and what they look at."""

    def __init__(self, stepper: TorchStepper, call: Call) -> None:
        """Write down where the rows stand."""
        self.tokens, self._lane, self._column, *where, self._place = call.given
        self.position = where[2]
        self._stepper, self._call, (n, r) = stepper, call, call.shape
        self._full = n * r == len(self.tokens)
        self._lanes = slice(n) if call.lanes is None else call.lanes
        self._sequence = self._lane if call.lanes is None else call.lanes[self._lane]
        stepper.places[:, self._sequence, self._column] = call.given[3:6]
        subsequence, time, self.key_position = stepper.places[:, self._lanes, : call.columns]
        #: Who looks and who may be looked at, by subsequence and time.
        self.places = (self.spread(where[0], PADDING), self.spread(where[1], PADDING)), (subsequence, time)
        self.sees = visible(*self.places)  # [n, r, columns]
        self.source_hidden = stepper.source_hidden[self._lanes, : call.source]  # [n, source tokens]

    def spread(self, rows: Tensor, filling: int = 0) -> Tensor:
        """The rows by lane: [n, r, ...] of [rows, ...]."""
        shape = (*self._call.shape, *rows.shape[1:])
        if self._full:
            return rows.view(shape)
        spread = rows.new_full(shape, filling)
        spread[self._lane, self._place] = rows
        return spread

    def rows(self, spread: Tensor) -> Tensor:
        """The other way round."""
        return spread.flatten(0, 1) if self._full else spread[self._lane, self._place]

    def keep(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put keys and values, [rows, heads, width], into their columns; what may be looked at, [n, heads, columns, width]."""
        keys, values = self._stepper.grid[layer]
        keys[self._sequence, :, self._column] = key
        values[self._sequence, :, self._column] = value
        columns = self._call.columns
        return keys[self._lanes, :, :columns], values[self._lanes, :, :columns]

    def source(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the sources, [n, heads, source tokens, width]."""
        keys, values = self._stepper.sources[layer][:, self._lanes, :, : self._call.source]
        return keys, values


class TorchStepper:
    """Decoder calls by torch's operators, for a number of sequences; see `engine.Engine`.

    Its buffers grow by doubling and are never given back.

    Attributes:
        grid: each layer's keys and values, [2, sequences, heads, room, width].
        sources: the same of the sources, whose room is the longest's.
        places: of the token in a column subsequence, time and position, int64 [3, sequences, room]; PADDING where there is none.
        filled: columns in use, by sequence.
        source_hidden: true where a sequence's source is padding, [sequences, source room].
        source_length: tokens of each sequence's source.
    """

    def __init__(
        self, weights: Matrices | ModuleLayers, sequences: int, *, fixed: bool | None = None
    ) -> None:
        """Make the buffers.

        `fixed` says whether calls are filled up to a few shapes, each of which a GPU records once and then replays; by
        default where graphs are wanted.
        """
        self.weights, self.sequences = weights, sequences
        dtype, device = weights.dtype, weights.device
        self.fixed = wants_graphs(device) if fixed is None else fixed
        empty = torch.empty(2, sequences, weights.heads, 0, weights.width, dtype=dtype, device=device)
        self.grid = self.sources = [empty] * weights.layers
        self.places = torch.empty(3, sequences, 0, dtype=torch.long, device=device)
        self.source_hidden = torch.empty(sequences, 0, dtype=torch.bool, device=device)
        self.filled, self.source_length = [0] * sequences, [0] * sequences
        self.prompts = Prompts(sequences)
        self._calls: dict[tuple[int, int], Call] = {}
        self._pool: Any = None
        self._reserve(FIRST_ROOM)

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        if not self.fixed:
            return self.weights.kernels
        return "CUDA graphs" if self.weights.device.type == "cuda" else "fixed shapes"

    def _reserve(self, columns: int) -> None:
        """Make room for this many columns a sequence, keeping what is there."""
        if columns > self.places.shape[2]:
            self._calls.clear()  # the buffers move
            room = max(columns, 2 * self.places.shape[2], FIRST_ROOM)
            self.places = _widened(self.places, room, 2, PADDING)
            self.grid = [_widened(both, room, 3, 0) for both in self.grid]

    @torch.inference_mode()
    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep the keys and values of encoded sources; see `engine.Engine.admit`."""
        batch, length, _ = memory.shape
        needed = _rounded(length, SOURCE_TOKENS) if self.fixed else length
        if needed > self.source_hidden.shape[1]:
            self._calls.clear()  # the buffers move
            self.source_hidden = _widened(self.source_hidden, needed, 1, 1)
            self.sources = [_widened(both, needed, 3, 0) for both in self.sources]
        for sequence, source in newcomers:
            self.release(sequence)
            self.prompts.begin(sequence, 0)
            self.source_length[sequence] = len(source)
            self.source_hidden[sequence, : len(source)] = False
        numbers = [sequence for sequence, _ in newcomers]
        states = memory.flatten(0, 1).to(self.weights.dtype)
        for layer, both in zip(self.weights.source_kv(states), self.sources, strict=True):
            for made, kept in zip(layer, both, strict=True):
                kept[numbers, :, :length] = made.view(batch, length, self.weights.heads, -1).transpose(1, 2)

    @torch.inference_mode()
    def read(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Put prompts, which may be empty, into free sequences as row 0 of their grids, some of their tokens at a time."""
        prompts = list[list[Row]]()
        for sequence, prompt in newcomers:
            self.release(sequence)
            self.prompts.begin(sequence, len(prompt))
            prompts.append(self.prompts.prompt_rows(sequence, prompt))
        lanes = torch.tensor([sequence for sequence, _ in newcomers], device=self.weights.device)
        for first in range(0, max(map(len, prompts)), PROMPT_TOKENS):
            given: list[tuple[int, ...]] = []
            for lane, rows in enumerate(prompts):
                for place, (sequence, slot) in enumerate(rows[first : first + PROMPT_TOKENS]):
                    column = first + place
                    given.append((slot.token, lane, column, 0, slot.time, column, place))
                    self.filled[sequence] += 1
            columns = max(self.filled[sequence] for sequence, _ in newcomers)
            self._reserve(columns)
            table = torch.tensor(list(zip(*given, strict=True)), device=self.weights.device)
            shape = (len(newcomers), min(columns - first, PROMPT_TOKENS))
            self.weights.states(Look(self, Call(table, shape, columns, 0, table, table, lanes=lanes)))

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `engine.Engine.step`."""
        call, where = self._run(rows)
        answers: list[int] = call.answers.tolist()
        found = [answers[row] for row in where]
        if narrow := [number for number, row in enumerate(rows) if row.slot.allowed]:
            logits = call.logits[[where[number] for number in narrow]]
            choices = [(at, one) for at, number in enumerate(narrow) for one in rows[number].slot.allowed]
            closed = torch.ones(logits.shape, dtype=torch.bool, device=logits.device)
            closed[torch.tensor(choices, device=logits.device).T.unbind()] = False
            best = _best(logits.masked_fill(closed, -torch.inf)).tolist()
            for number, token in zip(narrow, best, strict=True):
                found[number] = token
        return found

    @torch.inference_mode()
    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """One decoder call; see `engine.Engine.step_with_probabilities`."""
        logits = self.logits(rows).float()
        return _best(logits).tolist(), logits.softmax(dim=-1).amax(dim=-1).tolist()

    @torch.inference_mode()
    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: [rows, vocabulary]."""
        call, where = self._run(rows)
        return call.logits[where] if self.fixed else call.logits

    @torch.inference_mode()
    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest rows of a sequence; see `engine.Engine.take_back`."""
        filled = self.filled[sequence]
        if not 0 <= count <= filled:
            raise ValueError(f"{count} rows cannot be taken back from {filled}")
        self.places[:, sequence, filled - count : filled] = PADDING
        self.filled[sequence] = filled - count

    @torch.inference_mode()
    def release(self, sequence: int) -> None:
        """Forget a sequence's grid and source."""
        self.take_back(sequence, self.filled[sequence])
        self.source_length[sequence] = 0
        self.source_hidden[sequence] = True

    def _run(self, rows: Sequence[Row]) -> tuple[Call, Sequence[int]]:
        """Run the call that holds these rows; and which of its rows they are."""
        filled, counts = self.filled, [0] * self.sequences
        given: list[tuple[int, ...]] = []
        self.prompts.settle(rows)
        for sequence, slot in rows:
            position = self.prompts.position(sequence, slot)
            place = (slot.subsequence, slot.time, position, counts[sequence])
            given.append((slot.token, sequence, filled[sequence], *place))
            counts[sequence] += 1
            filled[sequence] += 1
        call, where = (self._filled_up if self.fixed else self._as_it_is)(given, max(counts))
        if call.graph is not None:
            call.graph.replay()
        elif self.fixed and self.weights.device.type == "cuda":
            self._record(call)
        else:
            self._compute(call)
        return call, where

    def _as_it_is(self, given: list[tuple[int, ...]], width: int) -> tuple[Call, Sequence[int]]:
        """A call of these rows alone; sequences beyond the last one in use are left out."""
        sequences = max(row[1] for row in given) + 1
        columns, source = max(self.filled[:sequences]), max(self.source_length[:sequences])
        self._reserve(columns)
        table = torch.tensor(list(zip(*given, strict=True)), device=self.weights.device)
        return Call(table, (sequences, width), columns, source, table, table), range(len(given))

    def _filled_up(self, given: list[tuple[int, ...]], width: int) -> tuple[Call, Sequence[int]]:
        """The call of the smallest shape that holds these rows, filled up; made now if there was none."""
        width, columns = bucket(width), _rounded(max(self.filled), COLUMNS)
        self._reserve(columns + 1)
        # Rows that fill up put their keys into the last column, which is never looked at.
        table = torch.full((7, self.sequences * width), PADDING)
        table[0], table[2], table[5] = 0, self.places.shape[2] - 1, 0
        table[1], table[6] = torch.arange(table.shape[1]) // width, torch.arange(table.shape[1]) % width
        where = [row[1] * width + row[6] for row in given]
        table[:, where] = torch.tensor(given).T
        if (width, columns) not in self._calls:
            empty = torch.empty_like(table, device=self.weights.device)
            shape, source = (self.sequences, width), self.source_hidden.shape[1]
            self._calls[width, columns] = Call(empty, shape, columns, source, empty, empty)
        call = self._calls[width, columns]
        call.given.copy_(table)
        return call, where

    def _record(self, call: Call) -> None:
        """Run a call and keep its kernels as a graph. Running it again does no harm: it writes the same keys."""
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
        call.logits = self.weights.head(self.weights.states(Look(self, call)))
        call.answers = _best(call.logits)


def _best(logits: Tensor) -> Tensor:
    """The token of each row's largest logit; -1 where one of them is no number."""
    largest, tokens = logits.max(dim=-1)
    return tokens.masked_fill(largest.isnan(), -1)


def _widened(tensor: Tensor, room: int, dim: int, filling: int) -> Tensor:
    shape = list(tensor.shape)
    kept, shape[dim] = shape[dim], room
    wider = torch.full(shape, filling, dtype=tensor.dtype, device=tensor.device)
    wider.narrow(dim, 0, kept).copy_(tensor)
    return wider
