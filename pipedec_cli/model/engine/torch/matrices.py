"""A T5's decoder laid out for stepping by torch's operators: weights as they are read, and the layers of a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipedec_cli.model.backbone import backbone_of
from pipedec_cli.model.engine.torch.block import Block, Blocks, can_prepack, laid_out
from pipedec_cli.pipeline.attention import distance, position

if TYPE_CHECKING:
    from pipedec_cli.model.engine.torch.operators import Look


class Matrices:
    """A decoder's weights laid out for stepping, in the dtype and on the device of its embedding.

    `tables` hold each layer's position bias by distance, [heads, farthest + 2]; the last column is for what is not
    visible. Layers that share one share the tensor. There are `heads` of `width` numbers each.
    """

    def __init__(self, model: Any, *, prepack: bool | None = None) -> None:
        """Lay a model out, prepacked for oneDNN by default wherever that is possible."""
        backbone, config = backbone_of(model.config), model.config
        self.embedding: Tensor = backbone.embedding(model).weight.detach()
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        if prepack is None:
            prepack = self.device.type == "cpu" and can_prepack(self.dtype)
        self.kernels = "oneDNN prepacked" if prepack else "plain operators"
        parts, form = backbone.parts, laid_out(self.dtype, float(config.layer_norm_epsilon), prepack=prepack)
        assert isinstance(parts, Blocks), f"the parts of {backbone.name} are modules"
        self.blocks: list[Block] = parts.layers(model, form)
        self.head = parts.head(model, form)
        self.layers, self.heads, self.width, *_ = backbone.sizes(config)
        buckets, lowest = parts.buckets(config).to(self.device), torch.finfo(self.dtype).min
        tables = {
            bias: F.pad(bias.weight.detach()[buckets].T, (0, 1), value=lowest)
            for bias in {block.bias for block in self.blocks}
        }
        self.tables = [tables[block.bias] for block in self.blocks]

    def source_kv(self, states: Tensor) -> Iterator[Sequence[Tensor]]:
        """Keys and values of a source's states, [tokens, heads · width] each, layer by layer."""
        return (block.source_kv(states) for block in self.blocks)

    def states(self, look: Look) -> Tensor:
        """A cached step: the last states of the rows, [rows, d_model]."""
        query, key = look.places
        invisible = self.tables[0].shape[1] - 1
        apart = distance(position(*query), position(*key)).clamp(0, invisible - 1)
        pairs = torch.where(look.sees, apart, invisible)
        sources = look.source_hidden[:, None, None]
        mask = torch.zeros(sources.shape, dtype=self.dtype, device=self.device)
        mask = mask.masked_fill_(sources, torch.finfo(mask.dtype).min)

        def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
            """T5's unscaled attention: [rows, heads · d] over keys and values [n, heads, length, d]."""
            spread = look.spread(query.view(len(query), self.heads, -1))
            scores = torch.matmul(spread.transpose(1, 2), keys.transpose(2, 3)) + bias
            mixed = torch.matmul(torch.softmax(scores, dim=-1), values).transpose(1, 2)
            return look.rows(mixed).flatten(1)

        def look_at_grid(query: Tensor, key: Tensor, value: Tensor, *, layer: int, bias: Tensor) -> Tensor:
            mine = (states.view(len(states), self.heads, -1) for states in (key, value))
            return attend(query, *look.keep(layer, *mine), bias)

        hidden = self.embedding[look.tokens].float()
        bias: Tensor | None = None
        for layer, (block, table) in enumerate(zip(self.blocks, self.tables, strict=True)):
            if bias is None or table is not self.tables[layer - 1]:
                bias = table[:, pairs].transpose(0, 1)
            keys, values = look.source(layer)
            look_at_source = partial(attend, keys=keys, values=values, bias=mask)
            hidden = block(hidden, partial(look_at_grid, layer=layer, bias=bias), look_at_source)
        return hidden
