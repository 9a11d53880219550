"""A T5's decoder layer as functions, written once for training and for stepping; what differs is their form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: From states to states: [..., in] → [..., out].
Function = Callable[[Tensor], Tensor]
#: Rows for which a weight is packed; one packing serves any number of rows.
PACKED_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class Form:
    """In which form the parts of a model compute: as its modules, which are trained, or laid out for stepping."""

    linear: Callable[[Any], Function]
    apart: Callable[..., Callable[[Tensor], Sequence[Tensor]]]  # one input times several matrices of one size
    norm: Callable[[Any, float], Function]  # a norm, and a factor for its result
    dropout: Callable[[Any], Function]


MODULES: Final = Form(
    linear=lambda module: module,
    apart=lambda *modules: lambda x: [module(x) for module in modules],
    norm=lambda module, scale: module if scale == 1 else lambda x: module(x) * scale,
    dropout=lambda module: module,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One layer of a decoder that looks at a source, as functions; the caller says how attention is computed."""

    norm: Function
    qkv: Callable[[Tensor], Sequence[Tensor]]  # of the grid's tokens
    out: Function
    source_norm: Function
    source_q: Function
    source_kv: Callable[[Tensor], Sequence[Tensor]]  # of the source's states
    source_out: Function
    feed_norm: Function
    feed: Function  # without norm and residual
    drop: Function  # of what each of the three parts adds
    bias: nn.Embedding  # buckets × heads; layers may share one

    def __call__(
        self, hidden: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor], attend_source: Function
    ) -> Tensor:
        """From the states of the layer before, [..., d_model], to this one's.

        `attend` takes query, key and value, [..., heads · d] each, to what the grid's tokens see; `attend_source` takes
        queries to what they see of the source.
        """
        hidden = hidden + self.drop(self.out(attend(*self.qkv(self.norm(hidden)))))
        hidden = hidden + self.drop(self.source_out(attend_source(self.source_q(self.source_norm(hidden)))))
        return hidden + self.drop(self.feed(self.feed_norm(hidden)))


@dataclass(frozen=True, slots=True)
class Blocks:
    """A decoder in such layers, as functions that find its parts."""

    dropout: Callable[[Any], Function]  # the one after the embedding
    layers: Callable[[Any, Form], list[Block]]  # first to last
    head: Callable[[Any, Form], Function]  # from the last states to logits, the family's scale included
    buckets: Callable[[Any], Tensor]  # each distance's, int64 [farthest + 1]; the last goes on
    source_projections: Callable[[Any], list[tuple[Any, Any]]]  # layer by layer, to keys and values


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
