"""The decoding step in torch's own operators: every machine has it.

On a GPU a step at batch 1 is bound by launching some fifteen kernels a layer, not by what they compute, and a CUDA
graph launches all of them at once; but its shapes and addresses cannot change. So there the rows of every sequence are
filled up to a bucket, and so are columns and sources; the buffers stay where they are while graphs refer to them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.steps.weights import Matrices
from pipedec_cli.pipeline.attention import PADDING, distance, position, visible
from pipedec_cli.pipeline.decode import Row

#: Set to 0, this environment variable turns CUDA graphs off: the steps are then launched kernel by kernel.
VARIABLE: Final = "PIPEDEC_CUDA_GRAPHS"
#: Columns of a grid for which a sequence has room at first; it doubles when that is used up.
FIRST_ROOM = 128
#: What fixed shapes come in: rows a sequence (beyond the last one, multiples of it), columns, and source tokens.
ROW_BUCKETS: Final = (1, 2, 4, 8, 12, 16, 20, 32)
COLUMNS = 64
SOURCE_TOKENS = 128


def wants_graphs(device: torch.device) -> bool:
    """Whether steps on a device are to be replayed as graphs."""
    return device.type == "cuda" and os.environ.get(VARIABLE) != "0"


def bucket(count: int, buckets: Sequence[int] = ROW_BUCKETS) -> int:
    """The smallest bucket that holds a count; multiples of the last one beyond it."""
    return next((size for size in buckets if size >= count), _rounded(count, buckets[-1]))


def _rounded(count: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-count // unit) * unit


class Cache:
    """Keys and values of the examples in flight. Buffers grow by doubling and are never given back.

    Attributes:
        grid: each layer's keys and values, [2, sequences, heads, room, width].
        sources: the same of the sources, whose room is the longest's.
        places: whose token stands in a column and when, int64 [2, sequences, room]; PADDING where none does.
        filled: columns in use, by sequence.
        source_hidden: true where a sequence's source is padding, [sequences, source room].
        source_length: tokens of each sequence's source.
    """

    def __init__(self, weights: Matrices, sequences: int) -> None:
        dtype, device = weights.dtype, weights.device
        empty = torch.empty(2, sequences, weights.heads, 0, weights.width, dtype=dtype, device=device)
        self.grid = self.sources = [empty] * len(weights.blocks)
        self.places = torch.empty(2, sequences, 0, dtype=torch.long, device=device)
        self.source_hidden = torch.empty(sequences, 0, dtype=torch.bool, device=device)
        self.filled, self.source_length = [0] * sequences, [0] * sequences
        self.reserve(FIRST_ROOM)

    @property
    def room(self) -> int:
        """Columns that each sequence has."""
        return self.places.shape[2]

    def reserve(self, columns: int) -> None:
        """Make room for this many columns a sequence, keeping what is there."""
        if columns > self.room:
            room = max(columns, 2 * self.room, FIRST_ROOM)
            self.places = _widened(self.places, room, 2, PADDING)
            self.grid = [_widened(both, room, 3, 0) for both in self.grid]

    def reserve_source(self, length: int) -> None:
        """Make room for sources of this length, keeping what is there."""
        if length > self.source_hidden.shape[1]:
            self.source_hidden = _widened(self.source_hidden, length, 1, 1)
            self.sources = [_widened(both, length, 3, 0) for both in self.sources]

    def take_back(self, sequence: int, count: int) -> None:
        """Empty the newest columns of a sequence: they are free again, and nothing later sees them."""
        filled = self.filled[sequence]
        if not 0 <= count <= filled:
            raise ValueError(f"{count} rows cannot be taken back from {filled}")
        self.places[:, sequence, filled - count : filled] = PADDING
        self.filled[sequence] = filled - count

    def clear(self, sequence: int) -> None:
        """Forget a sequence's grid and source."""
        self.take_back(sequence, self.filled[sequence])
        self.source_length[sequence] = 0
        self.source_hidden[sequence] = True


def _widened(tensor: Tensor, room: int, dim: int, filling: int) -> Tensor:
    shape = list(tensor.shape)
    kept, shape[dim] = shape[dim], room
    wider = torch.full(shape, filling, dtype=tensor.dtype, device=tensor.device)
    wider.narrow(dim, 0, kept).copy_(tensor)
    return wider


@dataclass(slots=True)
class Call:
    """A decoder call of one shape, over the first n sequences with at most r rows each.

    Attributes:
        given: token, sequence, column, subsequence, time of each row and which of its sequence's rows it is,
            int64 [6, rows], on the device.
        shape: n and r. Where there are n · r rows they stand in the order of their sequences.
        columns: how many of the cache's columns are looked at, and `source`: how many of the sources' tokens.
        logits: what came out, [rows, vocabulary], and `answers`: the most probable tokens; of no meaning before a run.
        graph: the recorded CUDA graph; None where there is none.
    """

    given: Tensor
    shape: tuple[int, int]
    columns: int
    source: int
    logits: Tensor
    answers: Tensor
    graph: Any = None


class TorchStepper:
    """Decoder calls by torch's operators, for a number of sequences; see `engine.Stepper`."""

    def __init__(self, weights: Matrices, sequences: int, *, fixed: bool | None = None) -> None:
        """Make the buffers.

        `fixed` says whether calls are filled up to a few shapes, each of which a GPU records once and then replays; by
        default where graphs are wanted.
        """
        self.weights = weights
        self.sequences = sequences
        self.fixed = wants_graphs(weights.device) if fixed is None else fixed
        self.cache = Cache(weights, sequences)
        self._calls: dict[tuple[int, int], Call] = {}
        self._pool: Any = None

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        if not self.fixed:
            return self.weights.kernels
        return "CUDA graphs" if self.weights.device.type == "cuda" else "fixed shapes"

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep the keys and values of encoded sources; see `engine.Stepper`."""
        cache, (batch, length, _) = self.cache, memory.shape
        needed = _rounded(length, SOURCE_TOKENS) if self.fixed else length
        if needed > cache.source_hidden.shape[1]:
            self._calls.clear()  # the buffers move
            cache.reserve_source(needed)
        numbers = [sequence for sequence, _ in newcomers]
        for sequence, source in newcomers:
            cache.clear(sequence)
            cache.source_length[sequence] = len(source)
            cache.source_hidden[sequence, : len(source)] = False
        states = memory.flatten(0, 1).to(self.weights.dtype)
        for block, both in zip(self.weights.blocks, cache.sources, strict=True):
            for kept, made in zip(both, block.source_kv(states), strict=True):
                kept[numbers, :, :length] = made.view(batch, length, self.weights.heads, -1).transpose(1, 2)

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""
        call, where = self._run(rows)
        answers: list[int] = call.answers.tolist()
        return [answers[row] for row in where]

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """One decoder call; see `engine.Stepper`."""
        logits = self.logits(rows).float()
        return logits.argmax(dim=-1).tolist(), logits.softmax(dim=-1).amax(dim=-1).tolist()

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: [rows, vocabulary]."""
        call, where = self._run(rows)
        return call.logits[where] if self.fixed else call.logits

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest rows of a sequence; see `engine.Stepper`."""
        self.cache.take_back(sequence, count)

    def release(self, sequence: int) -> None:
        """Forget an example; see `StepModel.release`."""
        self.cache.clear(sequence)

    def _run(self, rows: Sequence[Row]) -> tuple[Call, Sequence[int]]:
        """Run the call that holds these rows; and which of its rows they are."""
        filled, counts = self.cache.filled, [0] * self.sequences
        given: list[tuple[int, ...]] = []
        for sequence, slot in rows:
            place = (slot.subsequence, slot.time, counts[sequence])
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
        cache, sequences = self.cache, max(row[1] for row in given) + 1
        columns, source = max(cache.filled[:sequences]), max(cache.source_length[:sequences])
        cache.reserve(columns)
        table = torch.tensor(list(zip(*given, strict=True)), device=self.weights.device)
        return Call(table, (sequences, width), columns, source, table, table), range(len(given))

    def _filled_up(self, given: list[tuple[int, ...]], width: int) -> tuple[Call, Sequence[int]]:
        """The call of the smallest shape that holds these rows, filled up; made now if there was none."""
        cache, width = self.cache, bucket(width)
        columns = _rounded(max(cache.filled), COLUMNS)
        if columns >= cache.room:
            self._calls.clear()  # the buffers move
            cache.reserve(columns + 1)
        # Rows that fill up put their keys into the last column, which is never looked at.
        table = torch.full((6, self.sequences * width), PADDING)
        table[0], table[2] = 0, cache.room - 1
        table[1], table[5] = torch.arange(table.shape[1]) // width, torch.arange(table.shape[1]) % width
        where = [row[1] * width + row[5] for row in given]
        table[:, where] = torch.tensor(given).T
        if (width, columns) not in self._calls:
            empty = torch.empty_like(table, device=self.weights.device)
            source = cache.source_hidden.shape[1]
            self._calls[width, columns] = Call(empty, (self.sequences, width), columns, source, empty, empty)
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
        weights, cache, (n, r), columns = self.weights, self.cache, call.shape, call.columns
        tokens, sequence, column, _, _, place = call.given
        heads, full = weights.heads, n * r == len(tokens)

        def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
            """T5's unscaled attention: [rows, heads · d] over keys and values [n, heads, length, d]."""
            if full:
                spread = query.view(n, r, heads, -1)
            else:
                spread = query.new_zeros(n, r, heads, weights.width)
                spread[sequence, place] = query.view(len(query), heads, -1)
            scores = torch.matmul(spread.transpose(1, 2), keys.transpose(2, 3)) + bias
            mixed = torch.matmul(torch.softmax(scores, dim=-1), values).transpose(1, 2)
            return (mixed.flatten(0, 1) if full else mixed[sequence, place]).flatten(1)

        def look_at_grid(query: Tensor, key: Tensor, value: Tensor, *, layer: int, bias: Tensor) -> Tensor:
            keys, values = cache.grid[layer]
            keys[sequence, :, column] = key.view(len(key), heads, -1)
            values[sequence, :, column] = value.view(len(value), heads, -1)
            return attend(query, keys[:n, :, :columns], values[:n, :, :columns], bias)

        cache.places[:, sequence, column] = call.given[3:5]
        if full:
            looking = call.given[3:5].view(2, n, r)
        else:
            looking = torch.full((2, n, r), PADDING, device=weights.device)
            looking[:, sequence, place] = call.given[3:5]
        query, key = (looking[0], looking[1]), (cache.places[0, :n, :columns], cache.places[1, :n, :columns])
        invisible = weights.tables[0].shape[1] - 1
        apart = distance(position(*query), position(*key)).clamp(0, invisible - 1)
        pairs = torch.where(visible(query, key), apart, invisible)
        sources = cache.source_hidden[:n, None, None, : call.source]
        mask = torch.zeros(sources.shape, dtype=weights.dtype, device=weights.device)
        mask = mask.masked_fill_(sources, torch.finfo(mask.dtype).min)

        hidden = weights.embedding[tokens].float()
        bias: Tensor | None = None
        for layer, (block, table) in enumerate(zip(weights.blocks, weights.tables, strict=True)):
            if bias is None or table is not weights.tables[layer - 1]:
                bias = table[:, pairs].transpose(0, 1)
            keys, values = cache.sources[layer][:, :n, :, : call.source]
            look_at_source = partial(attend, keys=keys, values=values, bias=mask)
            hidden = block(hidden, partial(look_at_grid, layer=layer, bias=bias), look_at_source)
        call.logits = weights.head(hidden)
        call.answers = call.logits.argmax(dim=-1)
