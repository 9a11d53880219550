"""The full pass: all tokens of a training target through the decoder at once (Eq. 5 and 6).

It drives the parts of the ordinary T5 and adds no parameters. The cached step in `engine` must equal it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.layers import (
    DecoderLayer,
    bias_embeddings,
    decoder_layers,
    distance_buckets,
    merge_heads,
    output_scale,
    split_heads,
)
from pipedec_cli.pipeline.attention import distance, position, visible


def decoder_logits(
    model: Any, tokens: Tensor, subsequence: Tensor, time: Tensor, memory: Tensor, memory_mask: Tensor
) -> Tensor:
    """What the decoder predicts after every token of a grid.

    Args:
        model: a T5ForConditionalGeneration (or mT5, UMT5).
        tokens: the ids in the grid, <bos> and <eos> included, int64 [batch, length], in any order.
        subsequence: whose token it is, counted from 1; `layers.PADDING` for padding. int64 [batch, length].
        time: the time-step at which it stands; `layers.PADDING` for padding. int64 [batch, length].
        memory: the encoder's hidden states H^E, [batch, source length, d_model].
        memory_mask: true where the source is no padding, [batch, source length].

    Returns:
        Logits of shape [batch, length, vocabulary], in the model's dtype.
    """
    dropout = model.config.dropout_rate if model.training else 0.0
    heads = model.config.num_heads
    sees = visible((subsequence, time), (subsequence, time))[:, None]
    table = distance_buckets(model.config).to(tokens.device)
    place = position(subsequence, time)
    buckets = table[distance(place, place).clamp(0, table.numel() - 1)]
    sees_source = memory_mask[:, None, None, :].bool()

    hidden = model.decoder.dropout(model.decoder.embed_tokens(tokens))
    bias: Tensor | None = None
    before: nn.Embedding | None = None
    for layer, embedding in zip(decoder_layers(model), bias_embeddings(model), strict=True):
        if embedding is not before:
            values = embedding(buckets).permute(0, 3, 1, 2)
            bias, before = values.masked_fill(~sees, torch.finfo(values.dtype).min), embedding
        hidden = hidden + layer.dropout(_self_attention(layer, hidden, bias, heads, dropout))
        hidden = hidden + layer.dropout(_cross_attention(layer, hidden, memory, sees_source, heads, dropout))
        hidden = layer.feed_forward(hidden)
    hidden = model.decoder.dropout(model.decoder.final_layer_norm(hidden))
    logits: Tensor = model.lm_head(hidden * output_scale(model.config))
    return logits


def _self_attention(
    layer: DecoderLayer, hidden: Tensor, bias: Tensor | None, heads: int, dropout: float
) -> Tensor:
    normed = layer.self_norm(hidden)
    parts = layer.self_attention
    query, key, value = (split_heads(linear(normed), heads) for linear in (parts.q, parts.k, parts.v))
    mask = None if bias is None else bias.to(query.dtype)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=1.0)
    output: Tensor = parts.o(merge_heads(mixed))
    return output


def _cross_attention(
    layer: DecoderLayer, hidden: Tensor, memory: Tensor, sees_source: Tensor, heads: int, dropout: float
) -> Tensor:
    parts = layer.cross_attention
    query = split_heads(parts.q(layer.cross_norm(hidden)), heads)
    key, value = (split_heads(linear(memory), heads) for linear in (parts.k, parts.v))
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=sees_source, dropout_p=dropout, scale=1.0
    )
    output: Tensor = parts.o(merge_heads(mixed))
    return output


class TeacherForcing(nn.Module):
    """The training loss of Eq. 6 as a module, so that transformers' Trainer can wrap it for several devices."""

    #: Tells the Trainer that `forward` divides by the number of predictions in the whole accumulated batch.
    accepts_loss_kwargs = True

    def __init__(self, t5: Any) -> None:
        super().__init__()
        self.t5 = t5

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        decoder_input_ids: Tensor,
        subsequence: Tensor,
        time: Tensor,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """The mean negative log-likelihood of the next tokens.

        Args:
            input_ids: the source, int64 [batch, source length].
            attention_mask: 1 where the source is no padding, same shape.
            decoder_input_ids: the grid's tokens, int64 [batch, length].
            subsequence: as in `decoder_logits`.
            time: as in `decoder_logits`.
            labels: the next token of each, −100 where nothing is predicted, int64 [batch, length].
            num_items_in_batch: predictions in the accumulated batch; by default those of this one.
        """
        memory = self.t5.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        logits = decoder_logits(self.t5, decoder_input_ids, subsequence, time, memory, attention_mask)
        total = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        count = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": total / count}
