"""The decoder layer of a T5 as functions. It is written once; its form differs in training and in decoding steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: From states to states: [..., in] → [..., out].
Function = Callable[[Tensor], Tensor]
#: Rows for which oneDNN packs a weight. The packed weight serves any number of rows.
PACKED_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class Form:
    """How the modules of a layer become functions."""

    linear: Callable[[Any], Function]
    apart: Callable[..., Callable[[Tensor], Sequence[Tensor]]]  # one input times several matrices of one size
    norm: Callable[[Any, float], Function]  # the result is multiplied by the number
    dropout: Callable[[Any], Function]


#: The form for training: the modules themselves.
MODULES: Final = Form(
    linear=lambda module: module,
    apart=lambda *modules: lambda x: [module(x) for module in modules],
    norm=lambda module, scale: module if scale == 1 else lambda x: module(x) * scale,
    dropout=lambda module: module,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A layer of a decoder with self-attention, attention over a source, and a feed-forward part."""

    norm: Function
    qkv: Callable[[Tensor], Sequence[Tensor]]  # query, key and value of the grid's tokens
    out: Function
    source_norm: Function
    source_q: Function
    source_kv: Callable[[Tensor], Sequence[Tensor]]  # key and value of the source's states
    source_out: Function
    feed_norm: Function
    feed: Function  # without norm and residual
    drop: Function  # dropout of what each of the three parts adds
    bias: nn.Embedding  # buckets × heads; layers may share it

    def __call__(
        self, hidden: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor], attend_source: Function
    ) -> Tensor:
        """Compute the next states, [..., d_model].

        Args:
            hidden: the states of the layer before, [..., d_model].
            attend: self-attention of query, key and value, [..., heads · width] each.
            attend_source: attention of queries over the source.
        """
        hidden = hidden + self.drop(self.out(attend(*self.qkv(self.norm(hidden)))))
        hidden = hidden + self.drop(self.source_out(attend_source(self.source_q(self.source_norm(hidden)))))
        return hidden + self.drop(self.feed(self.feed_norm(hidden)))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Functions that find the parts of a T5's decoder."""

    dropout: Callable[[Any], Function]  # the dropout behind the embedding
    layers: Callable[[Any, Form], list[Block]]  # first to last
    final: Callable[[Any, Form], Function]  # the norm behind the last layer, with the family's scale
    head: Callable[[Any, Form], Function]  # the output matrix: from those states to logits
    buckets: Callable[
        [Any], Tensor
    ]  # the bucket of each distance, int64 [farthest + 1]; the last is for all beyond
    source_projections: Callable[
        [Any], list[tuple[Any, Any]]
    ]  # for each layer, the modules to keys and values


def can_prepack(dtype: torch.dtype) -> bool:
    """Whether this build of torch and this CPU have oneDNN's prepacked linear layer for a dtype."""
    if not torch._C._has_mkldnn or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return supported
    return dtype == torch.float32


def step_form(dtype: torch.dtype, epsilon: float, *, prepack: bool) -> Form:
    """The form for decoding steps: states are summed in float32, products are in `dtype`, and there is no dropout.

    A step at batch 1 reads every weight once for a few rows, so memory bounds it. On a CPU plain `F.linear` is far from
    that bound. Weights that are packed once for oneDNN (`prepack`) are about twice as fast in float32.
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
