"""A decoder-only model's weights packed for the compiled kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pipedec_cli.model.engine.native.families import CausalLayer, CausalParts, head_width, parts_of
from pipedec_cli.model.engine.native.library import BuildError
from pipedec_cli.model.engine.native.packing import (
    NativeWeights,
    Packing,
    floats,
    require_suited,
    team_library,
)
from pipedec_cli.model.engine.native.structures import ACTIVATIONS, LayerStruct, ModelStruct


def pack_causal(model: Any, dtype: torch.dtype | None = None, *, consume: bool = False) -> NativeWeights:
    """Pack a model of one of the `families`, on the CPU; a BuildError where that cannot be; see `weights.pack_native`.

    Where embedding and head are one matrix, it is kept once, in panels.
    """
    config, looked_up, head = model.config, model.model.embed_tokens.weight, model.lm_head
    require_suited(model.model, head)
    if config.attention_bias or getattr(config, "mlp_bias", False) or head.bias is not None:
        raise BuildError("its matrices have biases")
    parts = parts_of(model)
    if parts.activation not in ACTIVATIONS:
        raise BuildError(f"the activation is {parts.activation}")
    packing = Packing(team_library(), dtype or looked_up.dtype, consume=consume)
    shared = head.weight.data_ptr() == looked_up.data_ptr()
    embedding = None if shared else looked_up.detach().to(packing.narrow, copy=consume).contiguous()
    whole, kept = _model_struct(model, parts, packing, embedding)
    structs = (LayerStruct * len(parts.layers))()
    whole.layer = structs
    names = list(parts.rotaries)
    for struct, layer in zip(structs, parts.layers, strict=True):
        _add_matrices(packing, struct, layer, config)
        struct.rotary = -1 if layer.rotary is None else names.index(layer.rotary)
        struct.windowed = layer.window > 0
        kept.append(_point_to_norms(struct, layer, parts.norm_offset, config))
    packing.add(whole, "head", len(looked_up), config.hidden_size, head)
    kept += [structs, packing.fill(keep=None if shared else looked_up)]
    if consume:  # what is left of the model holds no part of the file that it was loaded from
        for parameter in {*model.parameters()} - {looked_up}:
            parameter.data = parameter.data.clone()
        if embedding is not None:
            looked_up.data = embedding
    return NativeWeights(packing.kernels, whole, packing.dtype, kept)


def _model_struct(
    model: Any, parts: CausalParts, packing: Packing, embedding: Tensor | None
) -> tuple[ModelStruct, list[object]]:
    """Sizes, flags and what belongs to no layer; and the tensors that it points to."""
    config, rotaries = model.config, list(parts.rotaries.values())
    if any(len(rotary.frequencies) * 2 != head_width(config) for rotary in rotaries):
        raise BuildError("a part of each head alone is turned")
    if config.num_attention_heads % config.num_key_value_heads:
        raise BuildError("the heads are no multiple of those of keys and values")
    windows = {layer.window for layer in parts.layers} - {0}
    if len(windows) > 1:
        raise BuildError("layers have windows of several sizes")
    last = floats(model.model.norm) + parts.norm_offset
    frequencies = torch.stack([rotary.frequencies for rotary in rotaries])
    amplitudes = torch.tensor([rotary.amplitude for rotary in rotaries], dtype=torch.float32)
    struct = ModelStruct(
        layers=len(parts.layers),
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_width=head_width(config),
        width=config.hidden_size,
        feed_width=config.intermediate_size,
        vocabulary=len(model.model.embed_tokens.weight),
        weights=packing.kind.weights,
        activation=ACTIVATIONS[parts.activation],
        pairs=packing.kind.pairs,
        tiles=packing.kind.tiles,
        gated=1,
        causal=1,
        window=max(windows, default=0),
        rotaries=len(rotaries),
        epsilon=config.rms_norm_eps,
        scale=1.0,
        embedding_scale=parts.embedding_scale,
        query_scale=parts.query_scale,
        cap=parts.cap,
        embedding=None if embedding is None else embedding.data_ptr(),
        final_norm=last.data_ptr(),
        frequencies=frequencies.data_ptr(),
        amplitudes=amplitudes.data_ptr(),
    )
    return struct, [embedding, last, frequencies, amplitudes]


def _add_matrices(packing: Packing, struct: LayerStruct, layer: CausalLayer, config: Any) -> None:
    """Name a layer's matrices, in the order of reading."""
    own, feed, width, wide = layer.attention, layer.feed, config.hidden_size, config.intermediate_size
    inner, inner_kv = (
        heads * head_width(config) for heads in (config.num_attention_heads, config.num_key_value_heads)
    )
    packing.add(struct, "qkv", (inner, inner_kv, inner_kv), width, own.q_proj, own.k_proj, own.v_proj)
    packing.add(struct, "self_out", width, inner, own.o_proj)
    packing.add(struct, "feed_in", wide, width, feed.gate_proj, feed.up_proj, in_turn=True)
    packing.add(struct, "feed_out", width, wide, feed.down_proj)


def _point_to_norms(struct: LayerStruct, layer: CausalLayer, offset: float, config: Any) -> dict[str, Tensor]:
    """Point to a layer's norms, what is added to their weights included; these are given back to be kept."""
    found = {}
    for name in ("self_norm", "feed_norm", "self_post", "feed_post", "query_norm", "key_norm"):
        if (norm := getattr(layer, name)) is not None:
            found[name] = floats(norm) + offset
            wanted = head_width(config) if name in ("query_norm", "key_norm") else config.hidden_size
            if len(found[name]) != wanted:
                raise BuildError("norms are not of the size that the config says")
            setattr(struct, name, found[name].data_ptr())
    return found
