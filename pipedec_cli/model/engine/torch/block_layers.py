"""Decoding steps of a T5 by torch's operators, with weights laid out once for stepping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipedec_cli.model.engine.torch.block import Block, Blocks, can_prepack, step_form
from pipedec_cli.model.engine.torch.context import StepContext
from pipedec_cli.model.families import backbone_of
from pipedec_cli.pipeline.attention import distance, position


class BlockLayers:
    """A decoder of `Blocks` as a stepper drives it; see `StepLayers`.

    `tables` has the position bias of each layer by distance, [heads, farthest + 2]. The last column is for tokens that
    a row does not see. Layers that share a bias share the tensor.
    """

    def __init__(self, model: Any, *, prepack: bool | None = None) -> None:
        """Lay out a model's weights, in their dtype; for oneDNN (`prepack`) by default where that is possible."""
        backbone, config = backbone_of(model.config), model.config
        parts = backbone.parts
        assert isinstance(parts, Blocks), f"the layers of {backbone.name} are modules"
        self.embedding: Tensor = backbone.embedding(model).weight.detach()
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        if prepack is None:
            prepack = self.device.type == "cpu" and can_prepack(self.dtype)
        self.kernels = "oneDNN prepacked" if prepack else "plain operators"
        form = step_form(self.dtype, float(config.layer_norm_epsilon), prepack=prepack)
        self.blocks: list[Block] = parts.layers(model, form)
        final, output = parts.final(model, form), parts.head(model, form)
        self.head = lambda states: output(final(states))
        sizes = backbone.sizes(config)
        self.layers, self.heads, self.width = sizes.layers, sizes.heads, sizes.head_width
        buckets, lowest = parts.buckets(config).to(self.device), torch.finfo(self.dtype).min
        tables = {
            bias: F.pad(bias.weight.detach()[buckets].T, (0, 1), value=lowest)
            for bias in {block.bias for block in self.blocks}
        }
        self.tables = [tables[block.bias] for block in self.blocks]

    def source_kv(self, states: Tensor) -> Iterator[Sequence[Tensor]]:
        """Give for each layer keys and values of source states, [tokens, heads · width] each."""
        return (block.source_kv(states) for block in self.blocks)

    def states(self, context: StepContext) -> Tensor:
        """Run the layers: last states of the rows, float32 [rows, d_model]."""
        query, key = context.places
        invisible = self.tables[0].shape[1] - 1
        apart = distance(position(*query), position(*key)).clamp(0, invisible - 1)
        columns_of_table = torch.where(context.sees, apart, invisible)  # [n, r, columns]
        hidden_source = context.source_hidden[:, None, None]
        source_bias = torch.zeros(hidden_source.shape, dtype=self.dtype, device=self.device)
        source_bias = source_bias.masked_fill_(hidden_source, torch.finfo(self.dtype).min)

        def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
            """T5's unscaled attention: queries [rows, heads · width] over keys and values [n, heads, length, width]."""
            spread = context.spread(query.view(len(query), self.heads, -1))
            scores = torch.matmul(spread.transpose(1, 2), keys.transpose(2, 3)) + bias
            mixed = torch.matmul(torch.softmax(scores, dim=-1), values).transpose(1, 2)
            return context.rows(mixed).flatten(1)

        def attend_grid(query: Tensor, key: Tensor, value: Tensor, *, layer: int, bias: Tensor) -> Tensor:
            by_head = (states.view(len(states), self.heads, -1) for states in (key, value))
            return attend(query, *context.keep(layer, *by_head), bias)

        hidden = self.embedding[context.tokens].float()
        bias: Tensor | None = None
        for layer, (block, table) in enumerate(zip(self.blocks, self.tables, strict=True)):
            if bias is None or table is not self.tables[layer - 1]:
                bias = table[:, columns_of_table].transpose(0, 1)
            keys, values = context.source(layer)
            attend_source = partial(attend, keys=keys, values=values, bias=source_bias)
            hidden = block(hidden, partial(attend_grid, layer=layer, bias=bias), attend_source)
        return hidden
