"""Matrix products of the decoding step, in the form that is fastest on the machine at hand.

A step at batch 1 reads every weight once for a few rows: it is bound by memory, and plain `F.linear` is far from
the bound on a CPU. oneDNN's prepacked weights are laid out once for its kernels, and are about twice as fast in
float32. Where those operators are missing, plain ones serve.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

#: Rows for which a weight is packed; one packing serves any number of rows.
PACKED_ROWS = 8

Linear = Callable[[Tensor], Tensor]


def can_prepack(dtype: torch.dtype) -> bool:
    """Whether this build and CPU have oneDNN's prepacked linear for a dtype."""
    if not torch._C._has_mkldnn or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return supported
    return dtype == torch.float32


def make_linear(weight: Tensor, *, prepack: bool) -> Linear:
    """A function x → x Wᵀ.

    Args:
        weight: W, [outputs, inputs]; it is not kept when it is packed, so the caller may let go of it.
        prepack: whether to lay the weight out for oneDNN; see `can_prepack`.

    Returns:
        A function from [rows, inputs] to [rows, outputs].
    """
    if not prepack:
        return lambda x: F.linear(x, weight)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACKED_ROWS)
    run = torch.ops.mkldnn._linear_pointwise

    def linear(x: Tensor) -> Tensor:
        product: Tensor = run(x, packed, None, "none", [], "")
        return product

    return linear
