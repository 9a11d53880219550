"""A model's weights laid out for decoding: for the compiled kernels where they can be had, else for torch's operators."""

from __future__ import annotations

import copy
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from pipedec_cli.model.backbone import Block, Form, Function, backbone_of
from pipedec_cli.model.native.library import BuildError, Library
from pipedec_cli.model.native.weights import NativeEncoder, NativeWeights, pack_native

#: Rows for which a weight is packed; one packing serves any number of rows.
PACKED_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All that decoding needs of a model: an encoder, and the decoder packed for the compiled kernels or for torch's.

    `kernels` says which compute the steps, for tables and logs, and why no faster ones.
    """

    stepping: NativeWeights | Matrices
    encoder: Any
    kernels: str
    dtype: torch.dtype
    device: torch.device


def lay_out(
    model: Any, *, prepack: bool | None = None, native: bool | None = None, consume: bool = False
) -> DecoderWeights:
    """Lay a model out for decoding.

    Args:
        model: of one of the families in `backbone`, in the dtype and on the device to decode with.
        prepack: whether to pack the matrices for oneDNN; by default wherever that is possible.
        native: whether to pack them for the compiled step; by default wherever that is possible, unless `prepack`
            is given: it is about the other step.
        consume: let the compiled kernels empty the matrices that they have copied, so that they are not in memory
            twice. The model itself is of no use afterwards, but for its config.

    Raises:
        BuildError: the compiled step was asked for by name and cannot be had.
    """
    embedding = backbone_of(model.config).embedding(model).weight
    dtype, device = embedding.dtype, embedding.device
    reason = ""
    if native or (native is None and prepack is None):
        try:
            packed = pack_native(model, consume=consume)
            encoder = make_encoder(model, packed.library, consume=consume)
            return DecoderWeights(packed, encoder, packed.kernels, dtype, device)
        except BuildError as error:
            if native:
                raise
            reason = f"; not compiled: {error}" if device.type == "cpu" else ""
    matrices = Matrices(model, prepack=prepack)
    matrices.kernels += reason
    return DecoderWeights(matrices, make_encoder(model), matrices.kernels, dtype, device)


def has_slow_products() -> bool:
    """Whether torch leaves some of this CPU's speed in float32 unused: so on x86; on Arm the system's library does not."""
    return platform.machine().lower() in ("x86_64", "amd64")


def has_bfloat16_products() -> bool:
    """Whether this CPU multiplies matrices faster in bfloat16 than in float32: with AMX, or on Arm."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    told: Callable[[], bool] | None = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return told is not None and told()


def make_encoder(model: Any, kernels: Library | None = None, *, consume: bool = False) -> Any:
    """The model's encoder, in the form and dtype that are fastest for it.

    An encoder is bound by arithmetic. On an x86 the compiled one comes closer to its limit than torch's operators. For
    bfloat16 there are matrix instructions on Arm and on an x86 with AMX, which torch uses; on any other x86 products in
    bfloat16 take half as long again as in float32, so the encoder is one in float32 there, with the very same weights.

    `kernels` are given where the decoder's step uses them too; `consume` as in `lay_out`. What comes back is called as
    transformers' encoder is.
    """
    encoder = backbone_of(model.config).encoder(model)
    if model.device.type != "cpu" or (model.dtype == torch.bfloat16 and has_bfloat16_products()):
        return encoder
    if kernels is not None and has_slow_products():
        return NativeEncoder(encoder, kernels, consume=consume)
    return copy.deepcopy(encoder).float() if model.dtype == torch.bfloat16 else encoder


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
        form = laid_out(self.dtype, float(config.layer_norm_epsilon), prepack=prepack)
        self.blocks: list[Block] = backbone.blocks(model, form)
        self.head = backbone.head(model, form)
        self.heads: int = config.num_heads
        self.width: int = config.d_kv
        buckets, lowest = backbone.buckets(config).to(self.device), torch.finfo(self.dtype).min
        tables = {
            bias: F.pad(bias.weight.detach()[buckets].T, (0, 1), value=lowest)
            for bias in {block.bias for block in self.blocks}
        }
        self.tables = [tables[block.bias] for block in self.blocks]
