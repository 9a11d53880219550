"""A model's weights packed for the compiled kernels: a T5's here, with the compiled encoder."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.engine.native.causal import pack_causal
from pipedec_cli.model.engine.native.kinds import kind_of
from pipedec_cli.model.engine.native.library import BuildError, Library
from pipedec_cli.model.engine.native.packing import (
    NativeWeights,
    Packing,
    floats,
    require_suited,
    team_library,
)
from pipedec_cli.model.engine.native.structures import ACTIVATIONS, LayerStruct, ModelStruct
from pipedec_cli.model.engine.torch.block import Blocks
from pipedec_cli.model.families import backbone_of
from pipedec_cli.model.t5 import distance_buckets, layers, offset_buckets, output_scale

#: Tokens that are encoded together, unless a single source has more: enough to use the arithmetic fully, few enough
#: for the buffers to stay small.
TOKENS_TOGETHER: Final = 2048


def pack_native(model: Any, dtype: torch.dtype | None = None, *, consume: bool = False) -> NativeWeights:
    """Pack a decoder-only model, or the decoder of a T5ForConditionalGeneration (or mT5, UMT5), on the CPU.

    A BuildError where that cannot be.

    The dtype is the model's own, or int8 to have its matrices rounded to that, with a scale for each output.
    Matrices are copied, but for an embedding that is not the output matrix; `consume` empties what is copied, so that it is
    not in memory twice. The model is of no use afterwards.
    """
    if backbone_of(model.config).prompted:
        return pack_causal(model, dtype, consume=consume)
    require_kernels(model.config)
    require_suited(model.decoder, model.lm_head)
    kernels = team_library()
    buckets = distance_buckets(model.config)
    looked_up = model.decoder.embed_tokens.weight
    packing = Packing(kernels, dtype or looked_up.dtype, consume=consume)
    tables = _tables(model.decoder, lambda weight: F.pad(weight[buckets].T, (0, 1), value=-torch.inf))
    scale = output_scale(model.config)
    # An encoder in another dtype has the embedding for itself, so that it cannot be emptied.
    alike = not consume or encoder_dtype(kernels, packing.dtype) == packing.dtype
    shared = alike and looked_up.data_ptr() == model.lm_head.weight.data_ptr()
    return _pack(model.decoder, packing, tables, len(buckets), head=model.lm_head, scale=scale, shared=shared)


def require_kernels(config: Any) -> None:
    """Refuse, in a BuildError, an encoder-decoder that the kernels cannot compute."""
    backbone = backbone_of(config)
    if not isinstance(backbone.parts, Blocks):
        raise BuildError(f"there are no kernels for {backbone.name}")
    if config.dense_act_fn not in ("relu", "gelu_new"):
        raise BuildError(f"the activation is {config.dense_act_fn}")
    if config.d_kv % 2:
        raise BuildError("the heads' width is odd")


def has_slow_products() -> bool:
    """Whether torch leaves some of this CPU's speed in float32 unused: so on x86; on Arm the system's library does not."""
    return platform.machine().lower() in ("x86_64", "amd64")


def has_bfloat16_products() -> bool:
    """Whether this CPU multiplies matrices faster in bfloat16 than in float32: with AMX, or on Arm."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    told: Callable[[], bool] | None = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return told is not None and told()


def encoder_dtype(kernels: Library, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype of the compiled encoder beside a decoder in a dtype; None where another is faster."""
    if dtype != torch.int8 and not has_slow_products():
        return None
    if dtype != torch.bfloat16 or kind_of(kernels, dtype).pairs:
        return dtype
    return None if has_bfloat16_products() else torch.float32


def weights_suffice(config: Any, dtype: torch.dtype) -> bool:
    """Whether compiled kernels encode and decode such a model in a dtype on this CPU, so that its weights are all they need."""
    try:
        require_kernels(config)
        return encoder_dtype(team_library(), dtype) is not None
    except BuildError:
        return False


class NativeEncoder(nn.Module):
    """A T5's encoder, in one call of C++ for several sources. A state depends on its own source alone.

    Its matrices are made float32, or what else the dtype says; what it gives is float32. The decoder that it is for may
    have the embedding of both among its own.
    """

    def __init__(
        self,
        encoder: Any,
        decoder: NativeWeights,
        dtype: torch.dtype = torch.float32,
        *,
        consume: bool = False,
    ) -> None:
        super().__init__()
        config, packing = encoder.config, Packing(decoder.library, dtype, consume=consume)
        buckets = offset_buckets(config)
        tables = _tables(encoder, lambda weight: weight[buckets].T)
        reach = config.relative_attention_max_distance
        beside = decoder if decoder.dtype == dtype else None
        self.weights = _pack(encoder, packing, tables, reach, beside=beside)

    def forward(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """Encode sources of token ids, none of them empty: float32 [sources, longest, d_model], 0 beyond a source's end."""
        longest = max(map(len, sources))
        states = torch.zeros(len(sources), longest, self.weights.struct.width)
        together = max(1, TOKENS_TOGETHER // longest)
        for first in range(0, len(sources), together):
            portion = sources[first : first + together]
            self.weights.library.encode(self.weights.struct, portion, states[first:])
        return states


def _tables(stack: Any, table: Callable[[Tensor], Tensor]) -> dict[int, Tensor]:
    """The bias by distance for each embedding's id: layers that share an embedding share the table."""
    embeddings = {id(layer.bias): layer.bias for layer in layers(stack)}
    return {key: table(floats(embedding)).contiguous() for key, embedding in embeddings.items()}


def _pack(
    stack: Any,
    packing: Packing,
    tables: Mapping[int, Tensor],
    reach: int,
    *,
    head: Any = None,
    scale: float = 1.0,
    shared: bool = False,
    beside: NativeWeights | None = None,
) -> NativeWeights:
    """Pack an encoder, perhaps `beside` a decoder, or a decoder with its head, which may be `shared` as the embedding."""
    config, found, add = stack.config, layers(stack), packing.add
    looked_up, embedding = stack.embed_tokens.weight, None
    vocabulary = beside.struct.vocabulary if beside else len(looked_up)
    if not shared and (beside is None or beside.struct.embedding):
        embedding = looked_up.detach().to(packing.narrow, copy=packing.consume and head is not None)
    last, structs = floats(stack.final_layer_norm), (LayerStruct * len(found))()
    width, inner, wide = config.d_model, config.num_heads * config.d_kv, config.d_ff
    gated = hasattr(found[0].feed.DenseReluDense, "wi_0")
    whole = ModelStruct(
        layers=len(found),
        heads=config.num_heads,
        key_heads=config.num_heads,
        head_width=config.d_kv,
        width=width,
        feed_width=wide,
        vocabulary=vocabulary,
        reach=reach,
        weights=packing.kind.weights,
        pairs=packing.kind.pairs,
        tiles=packing.kind.tiles,
        gated=gated,
        activation=ACTIVATIONS[config.dense_act_fn],
        epsilon=config.layer_norm_epsilon,
        scale=scale,
        embedding_scale=1.0,
        embedding=None if embedding is None else embedding.data_ptr(),
        head=beside.struct.head if beside else None,
        final_norm=last.data_ptr(),
        layer=structs,
    )
    kept: list[object] = [structs, embedding, last, beside]
    for struct, layer in zip(structs, found, strict=True):
        own, dense = layer.own.SelfAttention, layer.feed.DenseReluDense
        norms = {"self_norm": layer.own.layer_norm, "feed_norm": layer.feed.layer_norm}
        add(struct, "qkv", inner, width, own.q, own.k, own.v)
        add(struct, "self_out", width, inner, own.o)
        if head is not None:
            cross = layer.cross.EncDecAttention
            norms["cross_norm"] = layer.cross.layer_norm
            add(struct, "cross_q", inner, width, cross.q)
            add(struct, "cross_out", width, inner, cross.o)
        inward = (dense.wi_0, dense.wi_1) if gated else (dense.wi,)
        add(struct, "feed_in", wide, width, *inward, in_turn=True)
        add(struct, "feed_out", width, wide, dense.wo)
        scales, bias = {name: floats(norm) for name, norm in norms.items()}, tables[id(layer.bias)]
        if len(bias) != config.num_heads or any(len(scale) != width for scale in scales.values()):
            raise BuildError("norms or position biases are not of the size that the config says")
        tensors = scales | {"bias": bias}
        for name, tensor in tensors.items():
            setattr(struct, name, tensor.data_ptr())
        kept.append(tensors)
    if head is not None:
        add(whole, "head", vocabulary, width, head)
        for struct, layer in zip(structs, found, strict=True):  # not read in a step: behind all that is
            cross = layer.cross.EncDecAttention
            add(struct, "cross_kv", inner, width, cross.k, cross.v)
    kept.append(packing.fill(keep=None if shared else looked_up))
    if packing.consume:  # what is left of the model holds no part of the file that it was loaded from
        for parameter in {*stack.parameters(), *(head.parameters() if head else ())} - {looked_up}:
            parameter.data = parameter.data.clone()
        if embedding is not None:
            looked_up.data = embedding
    return NativeWeights(packing.kernels, whole, packing.dtype, kept)
