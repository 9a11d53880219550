"""The parts of a T5 decoder by name, and its relative position bias as a table over distances.

T5, Flan-T5, mT5 and UMT5 share these names; UMT5 has a position bias in every layer, the others one that all
layers share. This is the only place that knows the module tree of transformers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

#: Stands for the subsequence and the time of padding: nothing real sees it, and it sees everything, so that no
#: row of attention is empty. Padding is told by position, never by token id: T5's <bos> is its pad token.
PADDING = 1 << 20


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One layer's modules.

    Attributes:
        self_norm: the norm before self-attention.
        self_attention: holds q, k, v, o, and in UMT5 relative_attention_bias.
        cross_norm: the norm before attention over the source.
        cross_attention: holds q, k, v, o.
        feed_forward: norm, linear layers, dropout and residual in one.
        dropout: the one after either attention.
    """

    self_norm: nn.Module
    self_attention: Any
    cross_norm: nn.Module
    cross_attention: Any
    feed_forward: Any
    dropout: nn.Module


def decoder_layers(model: Any) -> list[DecoderLayer]:
    """The layers of a T5ForConditionalGeneration's decoder, first to last."""
    return [
        DecoderLayer(
            self_norm=block.layer[0].layer_norm,
            self_attention=block.layer[0].SelfAttention,
            cross_norm=block.layer[1].layer_norm,
            cross_attention=block.layer[1].EncDecAttention,
            feed_forward=block.layer[2],
            dropout=block.layer[0].dropout,
        )
        for block in model.decoder.block
    ]


def bias_embeddings(model: Any) -> list[nn.Embedding]:
    """The position bias of each layer, buckets × heads; in all but UMT5 it is the first layer's every time."""
    first = model.decoder.block[0].layer[0].SelfAttention
    return [
        getattr(block.layer[0].SelfAttention, "relative_attention_bias", first.relative_attention_bias)
        for block in model.decoder.block
    ]


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """One layer's modules, named as those of `DecoderLayer`, and its position bias, buckets × heads."""

    self_norm: nn.Module
    self_attention: Any
    feed_forward: Any
    bias: nn.Embedding


def encoder_layers(encoder: Any) -> list[EncoderLayer]:
    """The layers of a T5's encoder, first to last."""
    first = encoder.block[0].layer[0].SelfAttention
    return [
        EncoderLayer(
            self_norm=block.layer[0].layer_norm,
            self_attention=(own := block.layer[0].SelfAttention),
            feed_forward=block.layer[1],
            bias=getattr(own, "relative_attention_bias", first.relative_attention_bias),
        )
        for block in encoder.block
    ]


def offset_buckets(config: Any) -> Tensor:
    """The encoder's bucket of each offset, the key's place less the query's, from −max_distance to max_distance.

    Half of the buckets are for keys behind the query and for its own place, half for those ahead.

    Returns:
        int64 of shape [2 · max_distance + 1].
    """
    half: int = config.relative_attention_num_buckets // 2
    behind = distance_buckets(config, half)
    return torch.cat([behind.flip(0), behind[1:] + half])


def distance_buckets(config: Any, buckets: int | None = None) -> Tensor:
    """T5's bucket of each distance from 0 to ``relative_attention_max_distance``, at which the last bucket is reached.

    Half of the buckets are for exact distances, the other half for logarithmically growing ranges.

    Args:
        config: the model's.
        buckets: how many there are; the config's number by default, which is the decoder's.

    Returns:
        int64 of shape [max_distance + 1].
    """
    buckets = buckets or int(config.relative_attention_num_buckets)
    max_distance: int = config.relative_attention_max_distance
    exact = buckets // 2
    distances = torch.arange(max_distance + 1)
    # float32 throughout, as transformers computes it: the borders of the ranges depend on the rounding.
    large = (
        torch.log(distances.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    )
    beyond = (exact + large.to(torch.long)).clamp(max=buckets - 1)
    return torch.where(distances < exact, distances, beyond)


def split_heads(states: Tensor, heads: int) -> Tensor:
    """[batch, length, heads · d] → [batch, heads, length, d]."""
    batch, length, _ = states.shape
    return states.view(batch, length, heads, -1).transpose(1, 2)


def merge_heads(states: Tensor) -> Tensor:
    """[batch, heads, length, d] → [batch, length, heads · d]."""
    return states.transpose(1, 2).flatten(2)


def output_scale(config: Any) -> float:
    """What the last hidden states are multiplied with before the output matrix, as each family has it.

    T5 says so in its config (1 for v1.1 and Flan-T5), mT5 never scales, UMT5 scales when its embeddings are tied.
    """
    if config.model_type == "mt5":
        return 1.0
    scaled = config.tie_word_embeddings if config.model_type == "umt5" else config.scale_decoder_outputs
    return float(config.d_model**-0.5) if scaled else 1.0
