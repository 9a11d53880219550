"""A model as the compiled kernels see it: its layers, and the modules whose weights make its matrices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipedec_cli.model.engine.native.library import (
    ACTIVATIONS,
    BuildError,
)
from pipedec_cli.model.engine.native.ropes import frequencies_of
from pipedec_cli.model.engine.torch.parts import (
    distance_buckets,
    layers,
    offset_buckets,
    output_scale,
)
from pipedec_cli.model.families import T5

#: A weight, and those of its outputs that are a part of a matrix.
Part = tuple[nn.Parameter, slice]
#: Rotary embeddings whose frequencies do not depend on the length of a text.
STATIC_ROPES: Final = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer. Matrices and norms are modules under the names of `LayerStruct`."""

    #: The modules that make a matrix together, in the order in which a step reads them.
    matrices: dict[str, Sequence[Any]]
    norms: dict[str, Any]
    #: T5's position bias, float32 [heads, distances]; layers may share it.
    bias: Tensor | None = None
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
    #: Radians for each position, float32 [rotaries, head_width / 2].
    frequencies: Tensor | None = None
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


def _t5_decoder(model: Any) -> ModelSpec:
    """Describe a T5's decoder; a BuildError if the kernels cannot compute it."""
    config = model.config
    if config.dense_act_fn not in ("relu", "gelu_new"):
        raise BuildError(f"the activation is {config.dense_act_fn}")
    if config.d_kv % 2:
        raise BuildError("the heads' width is odd")
    return describe_t5(model.decoder, head=model.lm_head, scale=output_scale(config))


def describe_t5(stack: Any, *, head: Any = None, scale: float = 1.0) -> ModelSpec:
    """Describe a T5's encoder; or its decoder with its `head`, the output matrix.

    `scale` is the factor of the last states before the head. A BuildError if the
    position biases are not of the size that the config says.
    """
    config = stack.config
    blocks = layers(stack)
    count = config.relative_attention_num_buckets
    farthest = config.relative_attention_max_distance
    if head is None:
        buckets = offset_buckets(count, farthest)
        reach = farthest
    else:
        buckets = distance_buckets(count, farthest)
        reach = len(buckets)
    biases = dict[Any, Tensor]()  # by the embedding, which layers may share
    specs = list[LayerSpec]()
    for block in blocks:
        if len(block.bias.weight) != count:
            raise BuildError(
                "the position biases are not of the size that the config says"
            )
        if block.bias not in biases:
            biases[block.bias] = _t5_bias(block.bias, buckets, ends=head is not None)
        specs.append(_t5_layer(block, biases[block.bias]))
    sizes = {
        "heads": config.num_heads,
        "key_heads": config.num_heads,
        "head_width": config.d_kv,
        "width": config.d_model,
        "feed_width": config.d_ff,
        "reach": reach,
        "gated": hasattr(blocks[0].feed.DenseReluDense, "wi_0"),
        "activation": ACTIVATIONS[config.dense_act_fn],
        "epsilon": config.layer_norm_epsilon,
        "scale": scale,
        "embedding_scale": 1.0,
    }
    return ModelSpec(stack, head, stack.final_layer_norm, specs, sizes)


def _t5_bias(embedding: Any, buckets: Tensor, *, ends: bool) -> Tensor:
    """A layer's position bias for each distance, float32 [heads, distances].

    `embedding` has a bias for each bucket and head, `buckets` the bucket of each
    distance. With `ends`, one more column is −∞, for tokens that are hidden.
    """
    table = floats(embedding)[buckets].T
    if ends:
        hidden = table.new_full((len(table), 1), -torch.inf)
        table = torch.cat([table, hidden], dim=1)
    return table.contiguous()


def _t5_layer(block: Any, bias: Tensor) -> LayerSpec:
    """Describe one layer of a T5 with its position bias, and with its part for the source if it has one."""
    own = block.own.SelfAttention
    dense = block.feed.DenseReluDense
    matrices: dict[str, Sequence[Any]] = {
        "qkv": (own.q, own.k, own.v),
        "self_out": (own.o,),
    }
    norms = {"self_norm": block.own.layer_norm, "feed_norm": block.feed.layer_norm}
    if block.cross is not None:
        cross = block.cross.EncDecAttention
        norms["cross_norm"] = block.cross.layer_norm
        matrices["cross_q"] = (cross.q,)
        matrices["cross_out"] = (cross.o,)
        matrices["cross_kv"] = (cross.k, cross.v)
    is_gated = hasattr(dense, "wi_0")
    matrices["feed_in"] = (dense.wi_0, dense.wi_1) if is_gated else (dense.wi,)
    matrices["feed_out"] = (dense.wo,)
    return LayerSpec(matrices, norms, bias)


def _decoder_spec(model: Any) -> ModelSpec:
    """Describe a decoder-only model of one of the `DECODERS`; a BuildError if the kernels cannot compute it."""
    config = model.config
    stack = model.model
    layout = DECODERS[config.model_type]
    if getattr(config, "use_bidirectional_attention", None):
        raise BuildError("attention is not causal")
    # Which layers have a rotary embedding, and the number of each one's.
    turned = getattr(config, "no_rope_layers", None) or [1] * config.num_hidden_layers
    ropes = {"": config.rope_parameters}
    numbers = [0] * len(turned)
    if any(isinstance(value, dict) for value in config.rope_parameters.values()):
        # Layers with a window have one of their own.
        kinds = sorted({*config.layer_types})
        ropes = {f"{kind}_": config.rope_parameters[kind] for kind in kinds}
        numbers = [kinds.index(kind) for kind in config.layer_types]
    specs = list[LayerSpec]()
    rows = zip(stack.layers, _windows(config), turned, numbers, strict=True)
    for layer, window, is_turned, number in rows:
        matrices: dict[str, Sequence[Any]] = {}
        for name, paths in layout.matrices.items():
            matrices[name] = tuple(map(layer.get_submodule, paths))
        norms = {name: layer.get_submodule(path) for name, path in layout.norms.items()}
        rotary = number if is_turned else -1
        specs.append(LayerSpec(matrices, norms, rotary=rotary, window=window))
    sizes = _causal_sizes(model, specs) | {"rotaries": len(ropes)}
    frequencies = _ropes(stack, ropes, sizes["head_width"])
    return ModelSpec(
        stack,
        model.lm_head,
        stack.norm,
        specs,
        sizes,
        layout.offset,
        *frequencies,
    )


def _causal_sizes(model: Any, specs: list[LayerSpec]) -> dict[str, Any]:
    """The sizes and factors of a decoder-only model with these layers, as fields of `ModelStruct`.

    A BuildError if the kernels cannot compute it.
    """
    config = model.config
    windows = {spec.window for spec in specs} - {0}
    named = partial(getattr, config)  # a key of the config, or a default
    has_biases = named("attention_bias", False) or named("mlp_bias", False)
    if has_biases or getattr(model.lm_head, "bias", None) is not None:
        raise BuildError("its matrices have biases")
    activation = named("hidden_activation", None) or config.hidden_act
    if activation not in ACTIVATIONS:
        raise BuildError(f"the activation is {activation}")
    if len(windows) > 1:
        raise BuildError("layers have windows of several sizes")
    usual_width = config.hidden_size // config.num_attention_heads
    head_width = named("head_dim", None) or usual_width
    embedding_scale = named("embedding_multiplier", 1.0)
    if config.model_type.startswith("gemma"):
        embedding_scale = float(torch.tensor(config.hidden_size**0.5).to(model.dtype))
    query_scale = named("query_pre_attn_scalar", head_width) ** -0.5
    query_norm = specs[0].norms.get("query_norm")
    return {
        "heads": config.num_attention_heads,
        "key_heads": config.num_key_value_heads,
        "head_width": head_width,
        "width": config.hidden_size,
        "feed_width": config.intermediate_size,
        "activation": ACTIVATIONS[activation],
        "gated": 1,
        "causal": 1,
        "window": max(windows, default=0),
        "wide_norms": query_norm is not None and len(query_norm.weight) != head_width,
        "epsilon": config.rms_norm_eps,
        "scale": 1.0 / named("logits_scaling", 1.0),
        "embedding_scale": embedding_scale,
        "query_scale": named("attention_multiplier", query_scale),
        "residual": named("residual_multiplier", 1.0),
        "cap": named("final_logit_softcapping", None) or 0.0,
        "score_cap": named("attn_logit_softcapping", None) or 0.0,
    }


def _windows(config: Any) -> list[int]:
    """How many positions each layer of a decoder-only model sees; 0: all."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None) or 0
    if not kinds:
        return [window] * config.num_hidden_layers
    if not getattr(config, "use_sliding_window", True):  # only some families have it
        window = 0
    return [window if kind == "sliding_attention" else 0 for kind in kinds]


def _ropes(
    stack: Any, parameters: dict[str, Any], head_width: int
) -> tuple[Tensor, Tensor]:
    """The frequencies of a decoder's rotary embeddings, float32 [rotaries, head_width / 2], and their amplitudes, [rotaries].

    `parameters` are those of each, by the prefix of their names in transformers'
    module. A stack without this module has only such frequencies as the parameters
    alone determine. A BuildError for what the kernels cannot compute.
    """
    module = getattr(stack, "rotary_emb", None)
    frequencies = list[Tensor]()
    amplitudes = list[float]()
    for prefix, rope in parameters.items():
        kind = rope.get("rope_type", "default")
        if kind not in STATIC_ROPES:
            raise BuildError(f"the rotary embedding is {kind}")
        if module is None:
            frequencies.append(frequencies_of(rope, head_width))
            amplitudes.append(1.0)
        else:
            frequencies.append(getattr(module, f"{prefix}inv_freq").detach().float())
            amplitudes.append(float(getattr(module, f"{prefix}attention_scaling")))
        if len(frequencies[-1]) * 2 != head_width:
            raise BuildError("a part of each head alone is turned")
        if not frequencies[-1].isfinite().all():
            raise BuildError("a frequency of the rotary embedding is no number")
    return torch.stack(frequencies), torch.tensor(amplitudes, dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a layer of a decoder-only family has: its modules by their names in `LayerStruct`."""

    #: Modules that make a matrix together, in the order of `LayerSpec`.
    matrices: dict[str, tuple[str, ...]]
    norms: dict[str, str]
    biased: bool = False  # whether queries, keys and values have biases
    offset: float = 0.0  # see `ModelSpec.norm_offset`

    @property
    def weights(self) -> set[str]:
        """The names of all weights of a layer."""
        paths = [path for several in self.matrices.values() for path in several]
        biases = {f"{path}.bias" for path in self.matrices["qkv"] if self.biased}
        return {f"{path}.weight" for path in (*paths, *self.norms.values())} | biases


_BESIDE: Final = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_out": ("self_attn.o_proj",),
    "feed_in": ("mlp.gate_proj", "mlp.up_proj"),
    "feed_out": ("mlp.down_proj",),
}
_FUSED: Final = _BESIDE | {
    "qkv": ("self_attn.qkv_proj",),
    "feed_in": ("mlp.gate_up_proj",),
}
_BEFORE: Final = {
    "self_norm": "input_layernorm",
    "feed_norm": "post_attention_layernorm",
}
_BEHIND: Final = {
    "self_post": "post_attention_layernorm",
    "feed_post": "post_feedforward_layernorm",
}
_AROUND: Final = _BEHIND | {
    "self_norm": "input_layernorm",
    "feed_norm": "pre_feedforward_layernorm",
}
_HEADS: Final = {
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
}
#: The decoder-only families that are compiled.
DECODERS: Final = {
    **dict.fromkeys(
        ("llama", "smollm3", "mistral", "granite"), Layout(_BESIDE, _BEFORE)
    ),
    "qwen2": Layout(_BESIDE, _BEFORE, biased=True),
    "qwen3": Layout(_BESIDE, _BEFORE | _HEADS),
    "phi3": Layout(_FUSED, _BEFORE),
    "olmo2": Layout(_BESIDE, _BEHIND | _HEADS),
    "gemma2": Layout(_BESIDE, _AROUND, offset=1.0),
    "gemma3_text": Layout(_BESIDE, _AROUND | _HEADS, offset=1.0),
}
#: What describes a model, by its type.
FAMILIES: Final[dict[str, Callable[[Any], ModelSpec]]] = {
    **dict.fromkeys(T5.model_types, _t5_decoder),
    **dict.fromkeys(DECODERS, _decoder_spec),
}
