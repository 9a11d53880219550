"""The decoding step in torch's own operators, prepacked by oneDNN where that is possible: every machine has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipedec_cli.model.cache import Cache, LayerCache
from pipedec_cli.model.layers import PADDING
from pipedec_cli.model.weights import DecoderWeights, LayerWeights
from pipedec_cli.pipeline.attention import distance, position, visible
from pipedec_cli.pipeline.decode import Row


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The rows of one call as tensors, with n sequences of at most r rows each.

    Attributes:
        tokens: ids, [rows].
        sequence: whose row it is, [rows].
        column: where its key and value go, [rows].
        place: which of its sequence's rows it is, [rows].
        sequences: n; sequences beyond the last one in use are left out.
        width: r.
        length: columns that any sequence has in use, the new ones included.
        pairs: the column of the bias table for each query and key, [n, r, length].
    """

    tokens: Tensor
    sequence: Tensor
    column: Tensor
    place: Tensor
    sequences: int
    width: int
    length: int
    pairs: Tensor


class OperatorStepper:
    """Decoder calls by torch's operators, for a number of sequences."""

    def __init__(self, weights: DecoderWeights, sequences: int, head_width: int) -> None:
        """Make the buffers.

        Args:
            weights: the matrices.
            sequences: how many examples can be in flight.
            head_width: d of an attention head.
        """
        self.weights = weights
        self.cache = Cache(
            sequences, len(weights.layers), weights.heads, head_width, weights.dtype, weights.device
        )

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        return self.weights.kernels

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep the keys and values of encoded sources; see `Stepper.remember`."""
        self.cache.reserve_source(memory.shape[1])
        keep_sources(self.weights, self.cache, memory, newcomers)

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""
        best: list[int] = self.logits(rows).argmax(dim=-1).tolist()
        return best

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice; see `Engine.logits`."""
        plan = self._plan(rows)
        hidden = self.weights.embedding[plan.tokens].float()
        source_mask = self._source_mask(plan)
        bias: Tensor | None = None
        table: Tensor | None = None
        for weights, cache in zip(self.weights.layers, self.cache.layers, strict=True):
            if weights.bias is not table:
                table = weights.bias
                bias = table[:, plan.pairs].transpose(0, 1)
            assert bias is not None
            hidden = hidden + self._self_attention(weights, cache, hidden, plan, bias)
            hidden = hidden + self._cross_attention(weights, cache, hidden, plan, source_mask)
            hidden = hidden + weights.feed(weights.feed_norm(hidden))
        return self.weights.head(self.weights.final_norm(hidden))

    def release(self, sequence: int) -> None:
        """Forget what is in a sequence; see `StepModel.release`."""
        self.cache.clear(sequence)

    def _plan(self, rows: Sequence[Row]) -> StepPlan:
        """Give every row its column, write its place down, and look up who sees whom at what distance."""
        cache = self.cache
        places: list[int] = []
        columns: list[int] = []
        counts: dict[int, int] = {}
        for sequence, _ in rows:
            places.append(counts.get(sequence, 0))
            columns.append(cache.filled[sequence] + places[-1])
            counts[sequence] = places[-1] + 1
        for sequence, count in counts.items():
            cache.filled[sequence] += count
        sequences, width = max(counts) + 1, max(counts.values())
        length = max(cache.filled[:sequences])
        cache.reserve(length)
        table = torch.tensor(
            [
                [slot.token for _, slot in rows],
                [sequence for sequence, _ in rows],
                columns,
                places,
                [slot.subsequence for _, slot in rows],
                [slot.time for _, slot in rows],
            ],
            device=self.weights.device,
        )
        tokens, sequence_of, column, place, subsequence, time = table
        cache.subsequence[sequence_of, column] = subsequence
        cache.time[sequence_of, column] = time
        query = torch.full((2, sequences, width), PADDING, device=self.weights.device)
        query[:, sequence_of, place] = table[4:]
        key = (cache.subsequence[:sequences, :length], cache.time[:sequences, :length])
        sees = visible((query[0], query[1]), key)
        apart = distance(position(query[0], query[1]), position(*key)).clamp(0, self.weights.invisible - 1)
        pairs = torch.where(sees, apart, self.weights.invisible)
        return StepPlan(tokens, sequence_of, column, place, sequences, width, length, pairs)

    def _self_attention(
        self, weights: LayerWeights, cache: LayerCache, hidden: Tensor, plan: StepPlan, bias: Tensor
    ) -> Tensor:
        heads = self.weights.heads
        query, key, value = weights.qkv(weights.self_norm(hidden)).view(len(hidden), 3, heads, -1).unbind(1)
        cache.keys[plan.sequence, :, plan.column] = key
        cache.values[plan.sequence, :, plan.column] = value
        keys, values = (
            cache.keys[: plan.sequences, :, : plan.length],
            cache.values[: plan.sequences, :, : plan.length],
        )
        return weights.self_out(_attend(query, keys, values, bias, plan))

    def _cross_attention(
        self, weights: LayerWeights, cache: LayerCache, hidden: Tensor, plan: StepPlan, mask: Tensor
    ) -> Tensor:
        query = weights.cross_q(weights.cross_norm(hidden)).view(len(hidden), self.weights.heads, -1)
        length = mask.shape[-1]
        keys, values = (
            cache.source_keys[: plan.sequences, :, :length],
            cache.source_values[: plan.sequences, :, :length],
        )
        return weights.cross_out(_attend(query, keys, values, mask, plan))

    def _source_mask(self, plan: StepPlan) -> Tensor:
        """What is added to the scores over the sources, [n, 1, 1, longest source]."""
        longest = max(self.cache.source_length[: plan.sequences])
        hidden = self.cache.source_hidden[: plan.sequences, None, None, :longest]
        mask = torch.zeros(hidden.shape, dtype=self.weights.dtype, device=self.weights.device)
        return mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)


def keep_sources(
    weights: DecoderWeights, cache: Cache, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]
) -> None:
    """Put the keys and values of encoded sources into a cache that has room for them; see `Stepper.remember`."""
    batch, length, _ = memory.shape
    sequences = [sequence for sequence, _ in newcomers]
    for sequence, source in newcomers:
        cache.clear(sequence)
        cache.source_length[sequence] = len(source)
        cache.source_hidden[sequence, : len(source)] = False
    for layer, kept in zip(weights.layers, cache.layers, strict=True):
        both = layer.cross_kv(memory.flatten(0, 1).to(weights.dtype)).view(
            batch, length, 2, weights.heads, -1
        )
        kept.source_keys[sequences, :, :length] = both[:, :, 0].transpose(1, 2)
        kept.source_values[sequences, :, :length] = both[:, :, 1].transpose(1, 2)


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, plan: StepPlan) -> Tensor:
    """T5's unscaled attention of rows over their sequences' keys.

    Args:
        query: [rows, heads, d].
        keys: [n, heads, length, d].
        values: the same shape.
        bias: added to the scores, broadcastable to [n, heads, r, length].
        plan: which row is whose.

    Returns:
        [rows, heads · d].
    """
    if plan.sequences == 1:
        spread = query.transpose(0, 1)[None]
    else:
        spread = query.new_zeros(plan.sequences, plan.width, *query.shape[1:])
        spread[plan.sequence, plan.place] = query
        spread = spread.transpose(1, 2)
    scores = torch.matmul(spread, keys.transpose(2, 3)) + bias
    mixed = torch.matmul(torch.softmax(scores, dim=-1), values).transpose(1, 2)
    gathered = mixed[0] if plan.sequences == 1 else mixed[plan.sequence, plan.place]
    return gathered.flatten(1)
