"""Decoding steps through transformers' own modules, with the cache of the grid in the place of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, EncoderDecoderCache

from pipedec_cli.model.engine.torch.context import CacheShape, StepContext
from pipedec_cli.model.families import backbone_of


class StepLayers:
    """A decoder of transformers as a stepper drives it. `shape` says how many layers and heads it has."""

    def __init__(self, model: Any) -> None:
        """Take a model of transformers."""
        backbone = backbone_of(model.config)
        self.embedding: Tensor = backbone.embedding(model).weight.detach()
        self.dtype = self.embedding.dtype
        self.device = self.embedding.device
        sizes = backbone.sizes(model.config)
        self.shape = CacheShape(
            sizes.layers,
            sizes.heads,
            sizes.head_width,
            self.dtype,
            self.device,
        )
        self.model = model
        self.parts = backbone.parts
        self.prompted = backbone.prompted
        #: From last states, [rows, d_model], to logits, [rows, vocabulary].
        self.head = self.parts.head(model)

    def source_kv(self, states: Tensor) -> Iterator[Sequence[Tensor]]:
        """Yield for each layer keys and values of source states, [tokens, heads · width] each."""
        for key, value in self.parts.source_projections(self.model):
            yield key(states), value(states)

    def states(self, context: StepContext) -> Tensor:
        """Run the layers for the rows of a call: their last states, [rows, d_model]."""
        cache: Any = _StepCache(context)
        memory = None
        seen = None
        if not self.prompted:
            sources = _StepCache(context)
            seen = ~context.source_hidden
            for layer in range(self.shape.layers):
                keys, values = context.source(layer)
                sources.layers.append(SimpleNamespace(keys=keys, values=values))
            cache = EncoderDecoderCache(cache, sources)
            cache.is_updated = dict.fromkeys(range(self.shape.layers), True)
            # The modules ask for source states but do not read them: keys and values
            # are in the cache.
            memory = torch.zeros(*seen.shape, 1, dtype=self.dtype, device=self.device)
        states = self.parts.states(
            self.model,
            context.spread(context.tokens),
            context.spread(context.position),
            context.sees,
            key_position=context.key_position,
            memory=memory,
            memory_mask=seen,
            cache=cache,
        )
        return context.rows(states)


class _StepCache(Cache):  # type: ignore[misc]
    """The cache of a grid as transformers' modules use it."""

    def __init__(self, context: StepContext) -> None:
        super().__init__(layers=[])
        self.context = context

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values, [n, heads, queries, width]. Returns all that the call reads."""
        key = self.context.rows(key_states.transpose(1, 2))
        value = self.context.rows(value_states.transpose(1, 2))
        return self.context.keep(layer_idx, key, value)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0: modules must not count positions, since each token comes with its own."""
        return 0
