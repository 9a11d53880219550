"""The table of all families: T5, decoder-only models, BART and T5Gemma."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipedec_cli.model.backbone import OPENERS, Backbone, Sizes
from pipedec_cli.model.engine.torch.parts import Block, Blocks, Form, Function, Modules

#: The most layers, and the most of each other size in a config.
_MOST_LAYERS, _MOST, _MOST_PLACES = 256, 1 << 20, 1 << 40
#: The sizes in a config, by their names in all families.
_SIZES: Final = (
    *("vocab_size", "d_model", "d_kv", "d_ff", "num_heads", "hidden_size", "intermediate_size", "head_dim"),
    *("num_attention_heads", "num_key_value_heads", "encoder_attention_heads", "decoder_attention_heads"),
    *("encoder_ffn_dim", "decoder_ffn_dim", "sliding_window"),
    *("relative_attention_num_buckets", "relative_attention_max_distance"),
)
_LAYERS: Final = ("num_layers", "num_decoder_layers", "num_hidden_layers", "encoder_layers", "decoder_layers")


def check_config(config: Any) -> None:
    """Refuse, with a ValueError, a config with ids, sizes, heads or numbers that the code of a step cannot take.

    Whether they fit the weights is checked when these are loaded.
    """
    for part in filter(None, (config, getattr(config, "encoder", None), getattr(config, "decoder", None))):
        _check_sizes(part)
    eos = config.eos_token_id
    if eos is None or eos == []:
        raise ValueError("it names no eos_token_id, which ends a text")
    ids = [(name, getattr(config, name, None)) for name in OPENERS]
    for name, value in [
        *ids,
        *(("eos_token_id", each) for each in (eos if isinstance(eos, list) else [eos])),
    ]:
        is_known = type(value) is int and 0 <= value < config.vocab_size
        if not is_known and (value is not None or name == "eos_token_id"):
            raise ValueError(f"{name} {value!r} is not below vocab_size {config.vocab_size}")


def _check_sizes(config: Any) -> None:
    """The same of a config without its ids, or of one half of a config."""
    bounds = dict.fromkeys(_SIZES, _MOST) | dict.fromkeys(_LAYERS, _MOST_LAYERS)
    for name, most in (*bounds.items(), ("max_position_embeddings", _MOST_PLACES)):
        value = getattr(config, name, None)
        if value is not None and (type(value) is not int or not 1 <= value <= most):
            raise ValueError(f"{name} {value!r} is no whole number from 1 to {most:,}")
    for name, value in vars(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    if hasattr(config, "relative_attention_num_buckets"):
        farthest, buckets = config.relative_attention_max_distance, config.relative_attention_num_buckets
        if buckets < 4 or farthest <= buckets // 2:
            known = f"relative_attention_num_buckets {buckets}"
            raise ValueError(f"{known} do not fit relative_attention_max_distance {farthest}")
    if hasattr(config, "num_key_value_heads"):
        heads, shared = config.num_attention_heads, config.num_key_value_heads
        if heads % (shared or heads):
            raise ValueError(f"num_attention_heads {heads} is no multiple of num_key_value_heads {shared}")
        if (getattr(config, "head_dim", None) or 2) % 2:
            raise ValueError(f"head_dim {config.head_dim} is odd, and rotary positions turn pairs of numbers")
        kinds = set(getattr(config, "layer_types", None) or ())
        if odd := kinds - {"full_attention", "sliding_attention"}:
            raise ValueError(f"layer_types has {min(map(str, odd))!r}, which is not known here")
        is_used = "sliding_attention" in kinds and getattr(config, "use_sliding_window", True)
        if is_used and config.sliding_window is None:
            raise ValueError("there is no sliding_window for the sliding_attention of its layer_types")


@dataclass(frozen=True, slots=True)
class Layer:
    """The parts of a layer, each of them a norm and a module, and the position bias."""

    own: Any
    cross: Any  # None in an encoder
    feed: Any
    bias: nn.Embedding


def layers(stack: Any) -> list[Layer]:
    """The layers of an encoder or a decoder, first to last. Only a decoder's layers attend over a source."""
    first = stack.block[0].layer[0].SelfAttention
    found = []
    for block in stack.block:
        own, *cross, feed = block.layer
        bias = getattr(own.SelfAttention, "relative_attention_bias", first.relative_attention_bias)
        found.append(Layer(own, cross[0] if cross else None, feed, bias))
    return found


def distance_buckets(config: Any, buckets: int | None = None) -> Tensor:
    """The bucket of each distance from 0 to ``relative_attention_max_distance``: int64 [farthest + 1].

    The first half of the buckets are for exact distances, the second half for ranges that grow logarithmically; the
    last is for all beyond. The number of `buckets` is by default the config's, as in the decoder.
    """
    buckets = buckets or int(config.relative_attention_num_buckets)
    max_distance: int = config.relative_attention_max_distance
    exact = buckets // 2
    distances = torch.arange(max_distance + 1)
    # All in float32, as in transformers: the borders of the ranges depend on the rounding.
    share = torch.log(distances.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    beyond = (exact + (share * (buckets - exact)).to(torch.long)).clamp(max=buckets - 1)
    return torch.where(distances < exact, distances, beyond)


def offset_buckets(config: Any) -> Tensor:
    """The encoder's bucket of each offset, key position − query position, from −max_distance to max_distance.

    The first half of the buckets are for keys at or before the query, the second half for keys after it.
    """
    half: int = config.relative_attention_num_buckets // 2
    behind = distance_buckets(config, half)
    return torch.cat([behind.flip(0), behind[1:] + half])


def output_scale(config: Any) -> float:
    """The factor of the last hidden states before the output matrix.

    T5's config says whether to scale (v1.1 and Flan-T5 do not), mT5 never scales, UMT5 scales if its embeddings are tied.
    """
    if config.model_type == "mt5":
        return 1.0
    scaled = config.tie_word_embeddings if config.model_type == "umt5" else config.scale_decoder_outputs
    return float(config.d_model**-0.5) if scaled else 1.0


def _blocks(model: Any, form: Form) -> list[Block]:
    return [
        Block(
            norm=form.norm(layer.own.layer_norm, 1.0),
            qkv=form.apart(*(getattr(layer.own.SelfAttention, name) for name in "qkv")),
            out=form.linear(layer.own.SelfAttention.o),
            source_norm=form.norm(layer.cross.layer_norm, 1.0),
            source_q=form.linear(layer.cross.EncDecAttention.q),
            source_kv=form.apart(*_source_kv(layer)),
            source_out=form.linear(layer.cross.EncDecAttention.o),
            feed_norm=form.norm(layer.feed.layer_norm, 1.0),
            feed=_feed(layer.feed.DenseReluDense, form),
            drop=form.dropout(layer.own.dropout),
            bias=layer.bias,
        )
        for layer in layers(model.decoder)
    ]


def _source_kv(layer: Layer) -> tuple[Any, Any]:
    return layer.cross.EncDecAttention.k, layer.cross.EncDecAttention.v


def _source_projections(model: Any) -> list[tuple[Any, Any]]:
    return [_source_kv(layer) for layer in layers(model.decoder)]


def _feed(dense: Any, form: Form) -> Function:
    """wo(act(wi x)), or wo(act(wi_0 x) · wi_1 x) if it is gated; ``wo`` may have a wider dtype."""
    act, drop = dense.act, form.dropout(dense.dropout)
    outward, wide = form.linear(dense.wo), dense.wo.weight.dtype
    inward = form.apart(*([dense.wi] if hasattr(dense, "wi") else [dense.wi_0, dense.wi_1]))

    def feed(x: Tensor) -> Tensor:
        gate, *value = inward(x)
        return outward(drop(act(gate) * value[0] if value else act(gate)).to(wide))

    return feed


def _final(model: Any, form: Form) -> Function:
    norm = form.norm(model.decoder.final_layer_norm, output_scale(model.config))
    drop = form.dropout(model.decoder.dropout)
    return lambda hidden: drop(norm(hidden))


def _head(model: Any, form: Form) -> Function:
    return form.linear(model.lm_head)


def _sizes(config: Any) -> Sizes:
    return Sizes(config.num_decoder_layers, config.num_heads, config.d_kv, config.d_model, config.d_ff)


T5 = Backbone(
    name="T5",
    model_types=("t5", "mt5", "umt5"),
    auto_class="AutoModelForSeq2SeqLM",
    encoder=lambda model: model.encoder,
    embedding=lambda model: model.decoder.embed_tokens,
    sizes=_sizes,
    parts=Blocks(
        lambda model: model.decoder.dropout, _blocks, _final, _head, distance_buckets, _source_projections
    ),
)


def _rotary_sizes(config: Any) -> Sizes:
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    shared = config.num_key_value_heads or heads
    return Sizes(config.num_hidden_layers, shared, width, config.hidden_size, config.intermediate_size)


def _bart_sizes(config: Any) -> Sizes:
    heads = config.decoder_attention_heads
    return Sizes(
        config.decoder_layers, heads, config.d_model // heads, config.d_model, config.decoder_ffn_dim
    )


def _capped(head: Function, cap: float | None) -> Function:
    """The head with its logits bounded softly to ±cap; None is no bound."""
    return head if cap is None else lambda states: (head(states) / cap).tanh() * cap


def _prompted(
    name: str,
    model_type: str,
    head: Callable[[Any], Function] = lambda model: model.lm_head,
) -> Backbone:
    return Backbone(
        name=name,
        model_types=(model_type,),
        auto_class="AutoModelForCausalLM",
        encoder=None,
        embedding=lambda model: model.model.embed_tokens,
        sizes=_rotary_sizes,
        parts=Modules(lambda model: model.model, head),
    )


T5GEMMA: Final = Backbone(
    name="T5Gemma",
    model_types=("t5gemma",),
    auto_class="AutoModelForSeq2SeqLM",
    encoder=lambda model: model.model.encoder,
    embedding=lambda model: model.model.decoder.embed_tokens,
    sizes=lambda config: _rotary_sizes(config.decoder),
    framed=True,
    parts=Modules(
        decoder=lambda model: model.model.decoder,
        head=lambda model: _capped(model.lm_head, model.config.decoder.final_logit_softcapping),
        config=lambda config: config.decoder,
        source_kv=lambda layer: (layer.cross_attn.k_proj, layer.cross_attn.v_proj),
    ),
)

BART: Final = Backbone(
    name="BART",
    model_types=("bart", "pegasus"),
    auto_class="AutoModelForSeq2SeqLM",
    encoder=lambda model: model.model.encoder,
    embedding=lambda model: model.model.decoder.embed_tokens,
    sizes=_bart_sizes,
    framed=True,
    parts=Modules(
        decoder=lambda model: model.model.decoder,
        head=lambda model: lambda states: model.lm_head(states) + model.final_logits_bias,
        source_kv=lambda layer: (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj),
        learned=True,
    ),
)

_ALL = (
    T5,
    _prompted("Llama", "llama"),
    _prompted("Qwen2", "qwen2"),
    _prompted("Qwen3", "qwen3"),
    _prompted("SmolLM3", "smollm3"),
    _prompted(
        "Gemma 3",
        "gemma3_text",
        lambda model: _capped(model.lm_head, model.config.final_logit_softcapping),
    ),
    T5GEMMA,
    BART,
)
#: Every family, by the names that transformers gives to its members.
FAMILIES: Final[dict[str, Backbone]] = {name: family for family in _ALL for name in family.model_types}


def backbone_of(config: Any) -> Backbone:
    """The family of a model, by its config."""
    return FAMILIES[config.model_type]
