"""T5, Flan-T5, mT5 and UMT5: the parts of their models, and their decoder's blocks for training and decoding.

UMT5 has a position bias in every layer; in the others all layers share one. Only this file knows their module tree in
transformers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import torch
from msgspec import Meta, Struct
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
