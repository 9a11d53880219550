"""The decoding step in fixed shapes: what a GPU replays as one CUDA graph.

At batch 1 a step on a GPU is bound by launching some fifteen kernels a layer, not by what they compute. A graph launches
all of them at once, but its shapes and addresses cannot change. So the rows of every sequence are filled up to a bucket, and
so are columns and sources; the buffers stay where they are while graphs refer to them; and what passes between host and
GPU in a step is one small tensor in and one out. Off a GPU the same step runs as it stands, which is how it is tested.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.cache import Cache, LayerCache
from pipedec_cli.model.layers import PADDING
from pipedec_cli.model.operator_step import keep_sources
from pipedec_cli.model.weights import DecoderWeights, LayerWeights
from pipedec_cli.pipeline.attention import distance, position, visible
from pipedec_cli.pipeline.decode import Row

#: Set to 0, this environment variable turns graphs off: the steps are then launched kernel by kernel.
VARIABLE: Final = "PIPEDEC_CUDA_GRAPHS"
#: Rows a sequence; beyond the last one, multiples of it.
ROW_BUCKETS: Final = (1, 2, 4, 8, 12, 16, 20, 32)
#: Columns and source tokens come in multiples of these.
COLUMNS: Final = 64
SOURCE_TOKENS: Final = 128


def bucket(count: int, buckets: Sequence[int] = ROW_BUCKETS) -> int:
    """The smallest bucket that holds a count; multiples of the last one beyond it."""
    return next((size for size in buckets if size >= count), -(-count // buckets[-1]) * buckets[-1])


def wants_graphs(device: torch.device) -> bool:
    """Whether steps on a device are to be replayed as graphs."""
    return device.type == "cuda" and os.environ.get(VARIABLE) != "0"


@dataclass(slots=True)
class Call:
    """A decoder call of one shape, with n sequences of r rows each.

    Attributes:
        given: token, column, subsequence and time of each row, int64 [4, n, r], on the device.
        columns: how many of the cache's columns are looked at.
        logits: what came out, [n, r, vocabulary]; None before the first run.
        answers: the most probable tokens, [n, r].
        graph: the recorded CUDA graph; None off a GPU.
    """

    given: Tensor
    columns: int
    logits: Tensor | None = None
    answers: Tensor | None = None
    graph: Any = None


class StaticStepper:
    """Decoder calls of fixed shapes, for a number of sequences; on a GPU each shape is recorded once and replayed."""

    def __init__(self, weights: DecoderWeights, sequences: int, head_width: int) -> None:
        """Make the buffers.

        Args:
            weights: the matrices.
            sequences: how many examples can be in flight.
            head_width: d of an attention head.
        """
        self.weights = weights
        self.sequences = sequences
        self.cache = Cache(
            sequences, len(weights.layers), weights.heads, head_width, weights.dtype, weights.device
        )
        self._sequence = torch.arange(sequences, device=weights.device)[:, None]
        self._calls: dict[tuple[int, int], Call] = {}
        self._pool: Any = None

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        return "CUDA graphs" if self.weights.device.type == "cuda" else "fixed shapes"

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep the keys and values of encoded sources; see `Stepper.remember`."""
        needed = -(-memory.shape[1] // SOURCE_TOKENS) * SOURCE_TOKENS
        if needed > self.cache.source_hidden.shape[1]:
            self._calls.clear()  # the buffers move
            self.cache.reserve_source(needed)
        keep_sources(self.weights, self.cache, memory, newcomers)

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""
        call, places = self._run(rows)
        assert call.answers is not None
        answers: list[list[int]] = call.answers.tolist()
        return [answers[sequence][place] for sequence, place in places]

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice; see `Engine.logits`."""
        call, places = self._run(rows)
        assert call.logits is not None
        sequences, within = zip(*places, strict=True)
        return call.logits[list(sequences), list(within)].clone()

    def release(self, sequence: int) -> None:
        """Forget what is in a sequence; see `StepModel.release`."""
        self.cache.clear(sequence)

    def _run(self, rows: Sequence[Row]) -> tuple[Call, list[tuple[int, int]]]:
        """Run the call that holds these rows; where each of them is: its sequence, and its place there."""
        filled, places = self.cache.filled, []
        counts = [0] * self.sequences
        for sequence, _ in rows:
            places.append((sequence, counts[sequence]))
            counts[sequence] += 1
        columns = max(filled[sequence] + count for sequence, count in enumerate(counts))
        call = self._call(bucket(max(counts)), -(-columns // COLUMNS) * COLUMNS)
        spare = self.cache.room - 1  # where the rows that fill up put their keys: never looked at
        given = torch.full(call.given.shape, PADDING, dtype=torch.long)
        given[0], given[1] = 0, spare
        for (sequence, slot), (_, place) in zip(rows, places, strict=True):
            given[:, sequence, place] = torch.tensor(
                [slot.token, filled[sequence] + place, slot.subsequence, slot.time]
            )
        for sequence, count in enumerate(counts):
            filled[sequence] += count
        call.given.copy_(given)
        if call.graph is not None:
            call.graph.replay()
        elif self.weights.device.type == "cuda":
            self._record(call)
        else:
            self._compute(call)
        return call, places

    def _call(self, rows: int, columns: int) -> Call:
        """The call of a shape, made now if there was none."""
        if columns >= self.cache.room:
            self._calls.clear()  # the buffers move
            self.cache.reserve(columns + 1)
        if (rows, columns) not in self._calls:
            given = torch.empty(4, self.sequences, rows, dtype=torch.long, device=self.weights.device)
            self._calls[rows, columns] = Call(given, columns)
        return self._calls[rows, columns]

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
        tokens, column, subsequence, time = call.given
        cache, weights = self.cache, self.weights
        cache.subsequence[self._sequence, column] = subsequence
        cache.time[self._sequence, column] = time
        key = (cache.subsequence[:, : call.columns], cache.time[:, : call.columns])
        apart = distance(position(subsequence, time), position(*key)).clamp(0, weights.invisible - 1)
        pairs = torch.where(visible((subsequence, time), key), apart, weights.invisible)
        sources = cache.source_hidden[:, None, None, :]
        mask = torch.zeros(sources.shape, dtype=weights.dtype, device=weights.device)
        mask = mask.masked_fill_(sources, torch.finfo(mask.dtype).min)
        hidden = weights.embedding[tokens].float()
        bias: Tensor | None = None
        table: Tensor | None = None
        for layer, kept in zip(weights.layers, cache.layers, strict=True):
            if layer.bias is not table:
                table = layer.bias
                bias = table[:, pairs].transpose(0, 1)
            assert bias is not None
            hidden = hidden + self._self_attention(layer, kept, hidden, column, bias)
            hidden = hidden + self._cross_attention(layer, kept, hidden, mask)
            hidden = hidden + layer.feed(layer.feed_norm(hidden))
        call.logits = weights.head(weights.final_norm(hidden))
        call.answers = call.logits.argmax(dim=-1)

    def _self_attention(
        self, weights: LayerWeights, cache: LayerCache, hidden: Tensor, column: Tensor, bias: Tensor
    ) -> Tensor:
        sequences, rows, _ = hidden.shape
        both = weights.qkv(weights.self_norm(hidden)).view(sequences, rows, 3, self.weights.heads, -1)
        query, key, value = both.unbind(2)
        cache.keys[self._sequence, :, column] = key
        cache.values[self._sequence, :, column] = value
        columns = bias.shape[-1]
        return weights.self_out(
            _attend(query, cache.keys[:, :, :columns], cache.values[:, :, :columns], bias)
        )

    def _cross_attention(
        self, weights: LayerWeights, cache: LayerCache, hidden: Tensor, mask: Tensor
    ) -> Tensor:
        sequences, rows, _ = hidden.shape
        query = weights.cross_q(weights.cross_norm(hidden)).view(sequences, rows, self.weights.heads, -1)
        return weights.cross_out(_attend(query, cache.source_keys, cache.source_values, mask))


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """T5's unscaled attention: query [n, r, heads, d] over keys and values [n, heads, length, d], to [n, r, heads · d]."""
    scores = torch.matmul(query.transpose(1, 2), keys.transpose(2, 3)) + bias
    return torch.matmul(torch.softmax(scores, dim=-1), values).transpose(1, 2).flatten(2)
