"""The table of all families, and the families that transformers computes: decoder-only models, BART and T5Gemma."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

import torch
from msgspec import UNSET, Meta, Struct, UnsetType
from torch import Tensor, nn

from pipedec_cli.model.backbone import (
    Activation,
    Backbone,
    Layers,
    Size,
    Sizes,
    TokenId,
    TokenIds,
    require_ids,
)
from pipedec_cli.model.engine.torch.block import Block, Blocks, Form, Function
from pipedec_cli.model.engine.torch.modules import Modules

Places = Annotated[int, Meta(ge=4, le=1 << 16)]


class Config(Struct):
    """The part of a config.json that is read, within the bounds that the code of a step relies on."""

    vocab_size: Size
    d_model: Size
    d_kv: Size
    d_ff: Size
    num_heads: Size
    num_layers: Layers
    num_decoder_layers: Layers | None
    relative_attention_num_buckets: Places
    relative_attention_max_distance: Places
    dropout_rate: Annotated[float, Meta(ge=0, le=1)]
    layer_norm_epsilon: Annotated[float, Meta(gt=0, le=1)]
    initializer_factor: Annotated[float, Meta(ge=0, le=1000)]
    feed_forward_proj: str
    dense_act_fn: str
    is_gated_act: bool
    tie_word_embeddings: bool
    pad_token_id: TokenId | None
    decoder_start_token_id: TokenId
    eos_token_id: TokenIds
    scale_decoder_outputs: bool = True  # only T5 has it
    tokenizer_class: str | None = None

    def __post_init__(self) -> None:
        """Refuse, with a ValueError, what does not fit together."""
        require_ids(self, "pad_token_id", "decoder_start_token_id", "eos_token_id")
        if self.feed_forward_proj.removeprefix("gated-") not in get_args(Activation):
            raise ValueError(f"feed_forward_proj {self.feed_forward_proj!r} names no known function")
        if self.relative_attention_max_distance <= self.relative_attention_num_buckets // 2:
            farthest = f"relative_attention_max_distance {self.relative_attention_max_distance}"
            half = f"half of relative_attention_num_buckets {self.relative_attention_num_buckets}"
            raise ValueError(f"{farthest} is not above {half}")


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
    config=Config,
    encoder=lambda model: model.encoder,
    embedding=lambda model: model.decoder.embed_tokens,
    sizes=_sizes,
    parts=Blocks(
        lambda model: model.decoder.dropout, _blocks, _final, _head, distance_buckets, _source_projections
    ),
)


Share = Annotated[float, Meta(ge=0, le=1)]
Factor = Annotated[float, Meta(gt=0, le=1e9)]
#: Of rotary positions: the base of the frequencies, their scale, and how they are made.
Base = Annotated[float, Meta(ge=1, le=1e15)]
Scale = Annotated[float, Meta(ge=1e-3, le=1e6)]
RopeType = Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3"]


class Rope(Struct, omit_defaults=True):
    """Rotary positions. Values that would give no finite frequency, or leave a part of a head unturned, are refused."""

    rope_type: RopeType | None = None
    type: RopeType | None = None  # its older name
    rope_theta: Base | None = None
    factor: Scale | None = None
    partial_rotary_factor: Annotated[float, Meta(ge=1, le=1)] | None = None
    original_max_position_embeddings: Annotated[int, Meta(ge=1)] | None = None
    attention_factor: Scale | None = None
    beta_fast: Scale | None = None
    beta_slow: Scale | None = None
    mscale: Scale | None = None
    mscale_all_dim: Scale | None = None
    truncate: bool | None = None
    low_freq_factor: Scale | None = None
    high_freq_factor: Scale | None = None
    short_factor: list[Scale] | None = None
    long_factor: list[Scale] | None = None


class Ropes(Rope, omit_defaults=True):
    """Rotary positions of all layers, or of each kind of layer."""

    full_attention: Rope | None = None
    sliding_attention: Rope | None = None


class Rotary(Struct, omit_defaults=True):
    """The part that is read of the config.json of a decoder with rotary positions, or of a half of a T5Gemma."""

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Layers
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    max_position_embeddings: Annotated[int, Meta(ge=1)] | None = None
    rms_norm_eps: Share | None = None
    hidden_act: Activation | None = None
    hidden_activation: Activation | None = None
    attention_bias: bool | None = None
    attention_dropout: Share | None = None
    mlp_bias: bool | None = None
    tie_word_embeddings: bool | None = None
    initializer_range: float | None = None
    rope_theta: Base | None = None
    rope_scaling: Ropes | None = None
    rope_parameters: Ropes | None = None
    rope_local_base_freq: Base | None = None
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: Size | None = None
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None
    sliding_window: Size | None = None
    use_sliding_window: bool | UnsetType = UNSET  # only some families have it
    max_window_layers: int | None = None
    query_pre_attn_scalar: Size | Factor | None = None  # not converted: Gemma 3 needs a whole number
    attn_logit_softcapping: Scale | None = None
    final_logit_softcapping: Scale | None = None
    dropout_rate: Share | None = None
    is_decoder: bool | None = None
    cross_attention_hidden_size: Size | None = None
    pad_token_id: TokenId | None = None
    bos_token_id: TokenId | None = None
    eos_token_id: TokenIds | None = None
    tokenizer_class: str | None = None

    def __post_init__(self) -> None:
        require_ids(self, "pad_token_id", "bos_token_id", "eos_token_id")
        if self.head_dim and self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd, and rotary positions turn pairs of numbers")
        unused = self.sliding_window is None or self.use_sliding_window is False
        if unused and "sliding_attention" in (self.layer_types or ()):
            raise ValueError("there is no sliding_window for the sliding_attention of its layer_types")


class Prompted(Rotary, omit_defaults=True):
    """The same of a decoder-only model. It must name the id that ends a text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eos_token_id is None:
            raise ValueError("it names no eos_token_id, which ends a text")


class Llama(Prompted, omit_defaults=True):
    """The same of a Llama, whose layers are all of one kind."""

    layer_types: None = None


class Gemma(Prompted, omit_defaults=True):
    """The same of a Gemma 3, which may say that every n-th layer sees all tokens, instead of naming the kind of each."""

    sliding_window_pattern: Size | None = None


class T5GemmaConfig(Struct, omit_defaults=True):
    """The same of a T5Gemma and its two halves."""

    encoder: Rotary
    decoder: Rotary
    vocab_size: Size
    tie_word_embeddings: bool | None = None
    dropout_rate: Share | None = None
    initializer_range: float | None = None
    pad_token_id: TokenId | None = None
    bos_token_id: TokenId | None = None
    eos_token_id: TokenIds = 1
    decoder_start_token_id: TokenId | None = None

    def __post_init__(self) -> None:
        require_ids(self, "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


class BartConfig(Struct, omit_defaults=True):
    """The same of a BART or a PEGASUS."""

    vocab_size: Size
    d_model: Size
    encoder_layers: Layers
    decoder_layers: Layers
    encoder_attention_heads: Size
    decoder_attention_heads: Size
    encoder_ffn_dim: Size
    decoder_ffn_dim: Size
    max_position_embeddings: Annotated[int, Meta(ge=1, le=1 << 20)]
    activation_function: Activation
    eos_token_id: TokenIds
    decoder_start_token_id: TokenId
    dropout: Share | None = None
    attention_dropout: Share | None = None
    activation_dropout: Share | None = None
    encoder_layerdrop: Share | None = None
    decoder_layerdrop: Share | None = None
    scale_embedding: bool | None = None
    init_std: float | None = None
    tie_word_embeddings: bool | None = None
    pad_token_id: TokenId | None = None
    bos_token_id: TokenId | None = None

    def __post_init__(self) -> None:
        require_ids(self, "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
        for heads in (self.encoder_attention_heads, self.decoder_attention_heads):
            if self.d_model % heads:
                raise ValueError(f"d_model {self.d_model} is no multiple of {heads} attention heads")


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
    config: type[Prompted] = Prompted,
    head: Callable[[Any], Function] = lambda model: model.lm_head,
) -> Backbone:
    return Backbone(
        name=name,
        model_types=(model_type,),
        auto_class="AutoModelForCausalLM",
        config=config,
        encoder=None,
        embedding=lambda model: model.model.embed_tokens,
        sizes=_rotary_sizes,
        parts=Modules(lambda model: model.model, head),
    )


T5GEMMA: Final = Backbone(
    name="T5Gemma",
    model_types=("t5gemma",),
    auto_class="AutoModelForSeq2SeqLM",
    config=T5GemmaConfig,
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
    config=BartConfig,
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
    _prompted("Llama", "llama", Llama),
    _prompted("Qwen2", "qwen2"),
    _prompted("Qwen3", "qwen3"),
    _prompted("SmolLM3", "smollm3"),
    _prompted(
        "Gemma 3",
        "gemma3_text",
        Gemma,
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
