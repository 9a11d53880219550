"""The decoding step in torch's own operators: every machine has it.

On a CPU the matrices are prepacked by oneDNN where that is possible. On a GPU a step at batch 1 is bound by launching
some fifteen kernels a layer, not by what they compute, and a CUDA graph launches all of them at once; but its shapes
and addresses cannot change. So there the rows of every sequence are filled up to a bucket, and so are columns and
sources; the buffers stay where they are while graphs refer to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from pipedec_cli.model.backbone import Block, Form, Function, backbone_of
from pipedec_cli.pipeline.attention import PADDING, distance, position, visible
from pipedec_cli.pipeline.decode import Row

#: Set to 0, this environment variable turns CUDA graphs off: the steps are then launched kernel by kernel.
VARIABLE: Final = "PIPEDEC_CUDA_GRAPHS"
#: Columns of a grid for which a sequence has room at first; it doubles when that is used up.
FIRST_ROOM = 128
#: Rows for which a weight is packed; one packing serves any number of rows.
PACKED_ROWS: Final = 8
#: What fixed shapes come in: rows a sequence (beyond the last one, multiples of it), columns, and source tokens.
ROW_BUCKETS: Final = (1, 2, 4, 8, 12, 16, 20, 32)
COLUMNS = 64
SOURCE_TOKENS = 128


def wants_graphs(device: torch.device) -> bool:
    """Whether steps on a device are to be replayed as graphs."""
    return device.type == "cuda" and os.environ.get(VARIABLE) != "0"


def can_prepack(dtype: torch.dtype) -> bool:
    """Whether this build and CPU have oneDNN's prepacked linear for a dtype."""
    if not torch._C._has_mkldnn or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return supported
    return dtype == torch.float32


def laid_out(dtype: torch.dtype, epsilon: float, *, prepack: bool) -> Form:
    """The form for stepping: the residual stream in float32, products in the matrices' dtype, nothing left out.

    A step at batch 1 reads every weight once for a few rows: it is bound by memory, and plain `F.linear` is far from
    the bound on a CPU. Weights laid out once for oneDNN's kernels (`prepack`) are about twice as fast in float32.
    """

    def linear(*modules: Any) -> Function:
        weights = [module.weight.detach() for module in modules]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        if not prepack or weight.dtype != dtype:
            return lambda x: F.linear(x, weight)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACKED_ROWS)
        run: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise
        return lambda x: run(x, packed, None, "none", [], "")

    def apart(*modules: Any) -> Callable[[Tensor], Sequence[Tensor]]:
        product, parts = linear(*modules), len(modules)
        return lambda x: product(x).chunk(parts, dim=-1)

    def norm(module: Any, scale: float) -> Function:
        weight = module.weight.detach().float()

        def normed(x: Tensor) -> Tensor:
            result = F.rms_norm(x, weight.shape, weight, epsilon)
            return (result if scale == 1 else result * scale).to(dtype)

        return normed

    return Form(linear, apart, norm, dropout=lambda _: lambda x: x)


class Matrices:
    """A decoder's weights laid out for stepping, in the dtype and on the device of its embedding.

    Attributes:
        kernels: what computes with them, for tables and logs.
        blocks: the layers, first to last.
        tables: each layer's position bias by distance, [heads, farthest + 2]; the last column is for what is not
            visible. Layers that share one share the tensor.
        head: from the last states to logits.
        heads: attention heads, of `width` numbers each.
    """

    def __init__(self, model: Any, *, prepack: bool | None = None) -> None:
        """Lay a model out, prepacked for oneDNN by default wherever that is possible."""
        backbone, config = backbone_of(model.config), model.config
        self.embedding: Tensor = backbone.embedding(model).weight.detach()
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        if prepack is None:
            prepack = self.device.type == "cpu" and can_prepack(self.dtype)
        self.kernels = "oneDNN prepacked" if prepack else "plain operators"
        form = laid_out(self.dtype, float(config.layer_norm_epsilon), prepack=prepack)
        self.blocks: list[Block] = backbone.blocks(model, form)
        self.head = backbone.head(model, form)
        self.heads: int = config.num_heads
        self.width: int = config.d_kv
        buckets = backbone.buckets(config).to(self.device)
        made: dict[int, Tensor] = {}
        for block in self.blocks:
            if id(block.bias) not in made:
                values = block.bias.weight.detach()[buckets].T
                hidden = torch.full_like(values[:, :1], torch.finfo(values.dtype).min)
                made[id(block.bias)] = torch.cat([values, hidden], dim=1).contiguous()
        self.tables = [made[id(block.bias)] for block in self.blocks]


class Cache:
    """Keys and values of the examples in flight. Buffers grow by doubling and are never given back.

    Attributes:
        keys: of each layer, [sequences, heads, room, width]; `values` alike, and for the longest source
            `source_keys` and `source_values`.
        subsequence: whose token stands in a column, and `time`: when. int64 [sequences, room]; PADDING where none does.
        filled: columns in use, by sequence.
        source_hidden: true where a sequence's source is padding, [sequences, source room].
        source_length: tokens of each sequence's source.
    """

    def __init__(self, weights: Matrices, sequences: int) -> None:
        dtype, device = weights.dtype, weights.device
        empty = torch.empty(sequences, weights.heads, 0, weights.width, dtype=dtype, device=device)
        self.keys, self.values, self.source_keys, self.source_values = (
            [empty] * len(weights.blocks) for _ in range(4)
        )
        self.subsequence = self.time = torch.empty(sequences, 0, dtype=torch.long, device=device)
        self.source_hidden = torch.empty(sequences, 0, dtype=torch.bool, device=device)
        self.filled, self.source_length = [0] * sequences, [0] * sequences
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
        self.subsequence = _widened(self.subsequence, room, 1, PADDING)
        self.time = _widened(self.time, room, 1, PADDING)
        self.keys = [_widened(keys, room, 2, 0) for keys in self.keys]
        self.values = [_widened(values, room, 2, 0) for values in self.values]

    def reserve_source(self, length: int) -> None:
        """Make room for sources of this length, keeping what is there."""
        if length <= self.source_hidden.shape[1]:
            return
        self.source_hidden = _widened(self.source_hidden, length, 1, 1)
        self.source_keys = [_widened(keys, length, 2, 0) for keys in self.source_keys]
        self.source_values = [_widened(values, length, 2, 0) for values in self.source_values]

    def take_back(self, sequence: int, count: int) -> None:
        """Empty the newest columns of a sequence: they are free again, and nothing later sees them."""
        filled = self.filled[sequence]
        if not 0 <= count <= filled:
            raise ValueError(f"{count} rows cannot be taken back from {filled}")
        self.subsequence[sequence, filled - count : filled] = PADDING
        self.time[sequence, filled - count : filled] = PADDING
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
        logits: what came out, [rows, vocabulary], and `answers`: the most probable tokens; None before the first run.
        graph: the recorded CUDA graph; None where there is none.
    """

    given: Tensor
    shape: tuple[int, int]
    columns: int
    source: int
    logits: Tensor | None = None
    answers: Tensor | None = None
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
        for layer, block in enumerate(self.weights.blocks):
            both = cache.source_keys[layer], cache.source_values[layer]
            for kept, made in zip(both, block.source_kv(states), strict=True):
                heads = made.view(batch, length, self.weights.heads, -1).transpose(1, 2)
                kept[numbers, :, :length] = heads

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""
        call, where = self._run(rows)
        assert call.answers is not None
        answers: list[int] = call.answers.tolist()
        return [answers[row] for row in where]

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """One decoder call; see `engine.Stepper`."""
        logits = self.logits(rows).float()
        return logits.argmax(dim=-1).tolist(), logits.softmax(dim=-1).amax(dim=-1).tolist()

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: [rows, vocabulary]."""
        call, where = self._run(rows)
        assert call.logits is not None
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
            column, place = filled[sequence], counts[sequence]
            given.append((slot.token, sequence, column, slot.subsequence, slot.time, place))
            counts[sequence] += 1
            filled[sequence] += 1
        call, where = (self._fixed if self.fixed else self._ragged)(given, counts)
        if call.graph is not None:
            call.graph.replay()
        elif self.fixed and self.weights.device.type == "cuda":
            self._record(call)
        else:
            self._compute(call)
        return call, where

    def _ragged(self, given: list[tuple[int, ...]], counts: list[int]) -> tuple[Call, Sequence[int]]:
        """A call of these rows alone; sequences beyond the last one in use are left out."""
        cache, sequences = self.cache, max(row[1] for row in given) + 1
        columns = max(cache.filled[:sequences])
        cache.reserve(columns)
        table = torch.tensor(list(zip(*given, strict=True)), device=self.weights.device)
        shape = (sequences, max(counts))
        return Call(table, shape, columns, max(cache.source_length[:sequences])), range(len(given))

    def _fixed(self, given: list[tuple[int, ...]], counts: list[int]) -> tuple[Call, Sequence[int]]:
        """The call of the smallest shape that holds these rows, filled up; made now if there was none."""
        cache, width = self.cache, bucket(max(counts))
        columns = _rounded(max(cache.filled), COLUMNS)
        if columns >= cache.room:
            self._calls.clear()  # the buffers move
            cache.reserve(columns + 1)
        sequences, places = torch.meshgrid(torch.arange(self.sequences), torch.arange(width), indexing="ij")
        # Rows that fill up put their keys into the last column, which is never looked at.
        table = torch.full((6, sequences.numel()), PADDING)
        table[0], table[2] = 0, cache.room - 1
        table[1], table[5] = sequences.flatten(), places.flatten()
        where = [row[1] * width + row[5] for row in given]
        table[:, where] = torch.tensor(given).T
        if (width, columns) not in self._calls:
            room = cache.source_hidden.shape[1]
            empty = torch.empty_like(table, device=self.weights.device)
            self._calls[width, columns] = Call(empty, (self.sequences, width), columns, room)
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
        tokens, sequence, column, subsequence, time, place = call.given
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
            cache.keys[layer][sequence, :, column] = key.view(len(key), heads, -1)
            cache.values[layer][sequence, :, column] = value.view(len(value), heads, -1)
            return attend(
                query, cache.keys[layer][:n, :, :columns], cache.values[layer][:n, :, :columns], bias
            )

        cache.subsequence[sequence, column] = subsequence
        cache.time[sequence, column] = time
        if full:
            places = call.given[3:5].view(2, n, r)
        else:
            places = torch.full((2, n, r), PADDING, device=weights.device)
            places[:, sequence, place] = call.given[3:5]
        query, key = (places[0], places[1]), (cache.subsequence[:n, :columns], cache.time[:n, :columns])
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
            source_keys = cache.source_keys[layer][:n, :, : call.source]
            source_values = cache.source_values[layer][:n, :, : call.source]
            hidden = block(
                hidden,
                partial(look_at_grid, layer=layer, bias=bias),
                partial(attend, keys=source_keys, values=source_values, bias=mask),
            )
        call.logits = weights.head(hidden)
        call.answers = call.logits.argmax(dim=-1)


def bucket(count: int, buckets: Sequence[int] = ROW_BUCKETS) -> int:
    """The smallest bucket that holds a count; multiples of the last one beyond it."""
    return next((size for size in buckets if size >= count), _rounded(count, buckets[-1]))


def _rounded(count: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-count // unit) * unit
