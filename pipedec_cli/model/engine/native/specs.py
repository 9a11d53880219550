"""A model as the compiled kernels see it: its sizes, and the matrices and norms of each layer.

Of the compiled path only this file knows where the modules of a family are. A module has its weights and other modules;
all else comes from the config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from pipedec_cli.model.engine.native.build import BuildError
from pipedec_cli.model.engine.native.structures import ACTIVATIONS
from pipedec_cli.model.families import T5, Layer, distance_buckets, layers, offset_buckets, output_scale

#: Rotary embeddings whose frequencies do not depend on the length of a text.
STATIC_ROPES: Final = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer. Matrices and norms are modules under the names of `LayerStruct`."""

    matrices: dict[
        str, Sequence[Any]
    ]  # modules that make a matrix together; in the order in which a step reads them
    norms: dict[str, Any]
    bias: Tensor | None = None  # T5's position bias, float32 [heads, distances]; layers may share it
    rotary: int = -1  # which of the model's frequencies turn the heads; −1: none
    window: int = 0  # how many positions the layer sees; 0: all


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """An encoder or a decoder."""

    stack: Any  # the module with all layers and the embedding `embed_tokens`
    head: Any  # the output matrix; None for an encoder
    final_norm: Any
    layers: list[LayerSpec]
    sizes: dict[str, Any]  # fields of `ModelStruct`
    norm_offset: float = 0.0  # what the family adds to the weights of its norms
    frequencies: Tensor | None = None  # radians for each position, float32 [rotaries, head_width / 2]
    amplitudes: Tensor | None = None  # factors of cosine and sine, float32 [rotaries]


def describe(model: Any) -> ModelSpec:
    """Describe the decoder of a model; a BuildError if the kernels cannot compute it."""
    kind = model.config.model_type
    if kind not in FAMILIES:
        raise BuildError(f"there are no kernels for {kind}")
    return FAMILIES[kind](model)


def floats(module: Any) -> Tensor:
    """A copy of a module's weight in float32, contiguous and apart from the file that it was loaded from."""
    values: Tensor = module.weight.detach().to(torch.float32, copy=True).contiguous()
    return values


# --- T5 ---------------------------------------------------------------------------------------------------------------


def require_t5(config: Any) -> None:
    """Raise a BuildError for a config of an encoder-decoder that the kernels cannot compute."""
    if config.model_type not in T5.model_types:
        raise BuildError(f"there are no kernels for {config.model_type}")
    if config.dense_act_fn not in ("relu", "gelu_new"):
        raise BuildError(f"the activation is {config.dense_act_fn}")
    if config.d_kv % 2:
        raise BuildError("the heads' width is odd")


def _t5_decoder(model: Any) -> ModelSpec:
    require_t5(model.config)
    return describe_t5(model.decoder, head=model.lm_head, scale=output_scale(model.config))


def describe_t5(stack: Any, *, head: Any = None, scale: float = 1.0) -> ModelSpec:
    """Describe an encoder; or a decoder with its `head`, which multiplies the last states times `scale`."""
    config, found = stack.config, layers(stack)
    buckets = offset_buckets(config) if head is None else distance_buckets(config)
    biases = dict[Any, Tensor]()  # by the embedding
    for layer in found:
        if len(layer.bias.weight) != config.relative_attention_num_buckets:
            raise BuildError("the position biases are not of the size that the config says")
        if layer.bias not in biases:
            table = floats(layer.bias)[buckets].T
            biases[layer.bias] = (
                table if head is None else F.pad(table, (0, 1), value=-torch.inf)
            ).contiguous()
    sizes = {
        "heads": config.num_heads,
        "key_heads": config.num_heads,
        "head_width": config.d_kv,
        "width": config.d_model,
        "feed_width": config.d_ff,
        "reach": config.relative_attention_max_distance if head is None else len(buckets),
        "gated": hasattr(found[0].feed.DenseReluDense, "wi_0"),
        "activation": ACTIVATIONS[config.dense_act_fn],
        "epsilon": config.layer_norm_epsilon,
        "scale": scale,
        "embedding_scale": 1.0,
    }
    specs = [_t5_layer(layer, biases[layer.bias]) for layer in found]
    return ModelSpec(stack, head, stack.final_layer_norm, specs, sizes)


def _t5_layer(layer: Layer, bias: Tensor) -> LayerSpec:
    own, dense = layer.own.SelfAttention, layer.feed.DenseReluDense
    matrices = {"qkv": (own.q, own.k, own.v), "self_out": (own.o,)}
    norms = {"self_norm": layer.own.layer_norm, "feed_norm": layer.feed.layer_norm}
    if layer.cross is not None:
        cross, norms["cross_norm"] = layer.cross.EncDecAttention, layer.cross.layer_norm
        matrices |= {"cross_q": (cross.q,), "cross_out": (cross.o,), "cross_kv": (cross.k, cross.v)}
    inward = (dense.wi_0, dense.wi_1) if hasattr(dense, "wi_0") else (dense.wi,)
    return LayerSpec(matrices | {"feed_in": inward, "feed_out": (dense.wo,)}, norms, bias)


# --- Decoder-only models ----------------------------------------------------------------------------------------------


def _llama(model: Any) -> ModelSpec:
    """Llama, Qwen2, Qwen3 and SmolLM3: some have biases, norms of the heads, layers without positions, or windows."""
    config, stack, specs = model.config, model.model, list[LayerSpec]()
    turned = getattr(config, "no_rope_layers", None) or [1] * config.num_hidden_layers
    for layer, window, is_turned in zip(stack.layers, _windows(config), turned, strict=True):
        own = layer.self_attn
        norms = {"self_norm": layer.input_layernorm, "feed_norm": layer.post_attention_layernorm}
        if hasattr(own, "q_norm"):
            norms |= {"query_norm": own.q_norm, "key_norm": own.k_norm}
        specs.append(LayerSpec(_matrices(layer), norms, rotary=0 if is_turned else -1, window=window))
    sizes = _causal_sizes(model, specs, config.hidden_act)
    ropes = _ropes(stack, {"": config.rope_parameters}, sizes["head_width"])
    sizes |= {"query_scale": sizes["head_width"] ** -0.5, "rotaries": 1}
    return ModelSpec(stack, model.lm_head, stack.norm, specs, sizes, 0.0, *ropes)


def _gemma(model: Any) -> ModelSpec:
    """Gemma 3 for text: norms before and after each part; layers with a window have their own frequencies."""
    config, stack, specs = model.config, model.model, list[LayerSpec]()
    if config.use_bidirectional_attention:
        raise BuildError("attention is not causal")
    if config.attn_logit_softcapping:
        raise BuildError("the scores of attention are capped")
    ropes_by_kind = {kind: config.rope_parameters[kind] for kind in sorted({*config.layer_types})}
    kinds = list(ropes_by_kind)
    for layer, kind, window in zip(stack.layers, config.layer_types, _windows(config), strict=True):
        own = layer.self_attn
        norms = {"query_norm": own.q_norm, "key_norm": own.k_norm, "self_norm": layer.input_layernorm}
        norms |= {"self_post": layer.post_attention_layernorm, "feed_norm": layer.pre_feedforward_layernorm}
        norms["feed_post"] = layer.post_feedforward_layernorm
        specs.append(LayerSpec(_matrices(layer), norms, rotary=kinds.index(kind), window=window))
    sizes = _causal_sizes(model, specs, config.hidden_activation)
    ropes = _ropes(stack, {f"{kind}_": rope for kind, rope in ropes_by_kind.items()}, sizes["head_width"])
    scale = torch.tensor(config.hidden_size**0.5).to(stack.embed_tokens.weight.dtype)
    sizes |= {"query_scale": config.query_pre_attn_scalar**-0.5, "rotaries": len(kinds)}
    sizes |= {"embedding_scale": float(scale), "cap": config.final_logit_softcapping or 0.0}
    return ModelSpec(stack, model.lm_head, stack.norm, specs, sizes, 1.0, *ropes)


def _causal_sizes(model: Any, specs: list[LayerSpec], activation: str) -> dict[str, Any]:
    """The sizes that all decoder-only families have; a BuildError if the kernels cannot compute the model."""
    config, windows = model.config, {spec.window for spec in specs} - {0}
    if (
        getattr(config, "attention_bias", False)
        or getattr(config, "mlp_bias", False)
        or getattr(model.lm_head, "bias", None) is not None
    ):
        raise BuildError("its matrices have biases")
    if activation not in ACTIVATIONS:
        raise BuildError(f"the activation is {activation}")
    if config.num_attention_heads % config.num_key_value_heads:
        raise BuildError("the heads are no multiple of those of keys and values")
    if len(windows) > 1:
        raise BuildError("layers have windows of several sizes")
    return {
        "heads": config.num_attention_heads,
        "key_heads": config.num_key_value_heads,
        "head_width": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        "width": config.hidden_size,
        "feed_width": config.intermediate_size,
        "activation": ACTIVATIONS[activation],
        "gated": 1,
        "causal": 1,
        "window": max(windows, default=0),
        "epsilon": config.rms_norm_eps,
        "scale": 1.0,
        "embedding_scale": 1.0,
    }


def _matrices(layer: Any) -> dict[str, Sequence[Any]]:
    own, feed = layer.self_attn, layer.mlp
    matrices = {"qkv": (own.q_proj, own.k_proj, own.v_proj), "self_out": (own.o_proj,)}
    return matrices | {"feed_in": (feed.gate_proj, feed.up_proj), "feed_out": (feed.down_proj,)}


def _windows(config: Any) -> list[int]:
    """How many positions each layer sees; 0: all."""
    kinds = getattr(config, "layer_types", None)
    if not kinds or not getattr(config, "use_sliding_window", True):  # only some families have the latter
        return [0] * config.num_hidden_layers
    return [config.sliding_window if kind == "sliding_attention" else 0 for kind in kinds]


def _ropes(stack: Any, parameters: dict[str, Any], head_width: int) -> tuple[Tensor, Tensor]:
    """The frequencies and amplitudes of rotary embeddings, whose parameters have the prefix of their names as a key.

    A stack without transformers' embedding has only such as its parameters alone determine: those of the kind "default".
    """
    module, frequencies, amplitudes = getattr(stack, "rotary_emb", None), list[Tensor](), list[float]()
    for prefix, rope in parameters.items():
        kind = rope.get("rope_type", "default")
        if kind not in STATIC_ROPES or (module is None and kind != "default"):
            raise BuildError(f"the rotary embedding is {kind}")
        if module is None:
            places = torch.arange(0, head_width, 2, dtype=torch.int64).float()
            frequencies.append(1.0 / (rope["rope_theta"] ** (places / head_width)))
            amplitudes.append(1.0)
        else:
            frequencies.append(getattr(module, f"{prefix}inv_freq").detach().float())
            amplitudes.append(float(getattr(module, f"{prefix}attention_scaling")))
        if len(frequencies[-1]) * 2 != head_width:
            raise BuildError("a part of each head alone is turned")
        if not frequencies[-1].isfinite().all():
            raise BuildError("a frequency of the rotary embedding is no number")
    return torch.stack(frequencies), torch.tensor(amplitudes, dtype=torch.float32)


FAMILIES: Final[dict[str, Callable[[Any], ModelSpec]]] = {
    **dict.fromkeys(T5.model_types, _t5_decoder),
    "llama": _llama,
    "qwen2": _llama,
    "qwen3": _llama,
    "smollm3": _llama,
    "gemma3_text": _gemma,
}
