"""Where the parts of decoder-only models are, by family: the only place of the compiled path that knows their modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from pipedec_cli.model.engine.native.library import BuildError
from pipedec_cli.model.families import backbone_of

#: Kinds of rotary embedding whose frequencies depend on no text's length.
STATIC_ROPES: Final = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class Rotary:
    """Radians a position, float [head_width / 2], and what cosine and sine are multiplied with."""

    frequencies: Tensor
    amplitude: float


@dataclass(frozen=True, slots=True)
class CausalLayer:
    """One layer's modules; `attention` holds q_proj and so on, `feed` gate_proj and so on."""

    attention: Any
    feed: Any
    self_norm: Any
    feed_norm: Any
    self_post: Any = None  # norms of what a part adds
    feed_post: Any = None
    query_norm: Any = None  # of each head
    key_norm: Any = None
    rotary: str | None = ""  # which of the model's, by name; None: positions have no say
    window: int = 0  # positions that are seen; 0: all


@dataclass(frozen=True, slots=True)
class CausalParts:
    """What a family has beside the config's sizes."""

    layers: list[CausalLayer]
    rotaries: dict[str, Rotary]
    activation: str
    query_scale: float
    norm_offset: float = 0.0  # added to the weight of every norm
    embedding_scale: float = 1.0
    cap: float = 0.0  # of the logits; 0: none


def parts_of(model: Any) -> CausalParts:
    """The parts of a model; a BuildError if it is of no family that is known here."""
    find = _FAMILIES.get(model.config.model_type)
    if find is None:
        raise BuildError(f"there are no kernels for {model.config.model_type}")
    return find(model)


def head_width(config: Any) -> int:
    """Of one head: not every config says it."""
    return backbone_of(config).sizes(config).head_width


def _llama(model: Any) -> CausalParts:
    """Llama, and what differs from it in norms of the heads, layers without positions, or windows."""
    config, stack = model.config, model.model
    layers = [
        CausalLayer(
            attention=layer.self_attn,
            feed=layer.mlp,
            self_norm=layer.input_layernorm,
            feed_norm=layer.post_attention_layernorm,
            query_norm=getattr(layer.self_attn, "q_norm", None),
            key_norm=getattr(layer.self_attn, "k_norm", None),
            rotary="" if getattr(layer.self_attn, "use_rope", True) else None,
            window=getattr(layer.self_attn, "sliding_window", None) or 0,
        )
        for layer in stack.layers
    ]
    rotary = _rotary(stack.rotary_emb, stack.rotary_emb.rope_type, "")
    return CausalParts(layers, {"": rotary}, config.hidden_act, head_width(config) ** -0.5)


def _gemma(model: Any) -> CausalParts:
    """Gemma 3, text alone: norms before and after each part, and frequencies of their own for windowed layers."""
    config, stack = model.config, model.model
    if config.use_bidirectional_attention:
        raise BuildError("attention is not causal")
    if config.attn_logit_softcapping:
        raise BuildError("the scores of attention are capped")
    layers = [
        CausalLayer(
            attention=layer.self_attn,
            feed=layer.mlp,
            self_norm=layer.input_layernorm,
            feed_norm=layer.pre_feedforward_layernorm,
            self_post=layer.post_attention_layernorm,
            feed_post=layer.post_feedforward_layernorm,
            query_norm=layer.self_attn.q_norm,
            key_norm=layer.self_attn.k_norm,
            rotary=layer.self_attn.layer_type,
            window=layer.self_attn.sliding_window or 0,
        )
        for layer in stack.layers
    ]
    ropes = {
        name: _rotary(stack.rotary_emb, kind, f"{name}_") for name, kind in stack.rotary_emb.rope_type.items()
    }
    embedding = stack.embed_tokens
    return CausalParts(
        layers,
        ropes,
        config.hidden_activation,
        config.query_pre_attn_scalar**-0.5,
        norm_offset=1.0,
        embedding_scale=float(embedding.embed_scale.to(embedding.weight.dtype)),
        cap=config.final_logit_softcapping or 0.0,
    )


def _rotary(module: Any, kind: str, prefix: str) -> Rotary:
    """The frequencies that a rotary embedding has under a prefix."""
    if kind not in STATIC_ROPES:
        raise BuildError(f"the rotary embedding is {kind}")
    found = getattr(module, f"{prefix}inv_freq").detach().float()
    return Rotary(found.contiguous(), float(getattr(module, f"{prefix}attention_scaling")))


_FAMILIES: Final[dict[str, Callable[[Any], CausalParts]]] = {
    "llama": _llama,
    "qwen3": _llama,
    "smollm3": _llama,
    "gemma3_text": _gemma,
}
