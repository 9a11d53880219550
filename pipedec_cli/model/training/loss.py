"""The full pass: all tokens of a training target go through the decoder at once, and the loss of Eq. 6.

It drives the modules of the ordinary model and adds no parameters. The cached steps of the engine must give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipedec_cli.model.engine.torch.block import MODULES, Block, Blocks
from pipedec_cli.model.engine.torch.modules import Modules
from pipedec_cli.model.families import backbone_of
from pipedec_cli.pipeline.attention import distance, position, visible


def full_logits(
    model: Any, input_ids: Tensor, attention_mask: Tensor, tokens: Tensor, subsequence: Tensor, time: Tensor
) -> Tensor:
    """The logits of the next token after every token of a grid: [batch, grid length, vocabulary], in the model's dtype.

    `input_ids` are the sources, int64 [batch, source length]; `attention_mask` has the same shape and is 1 where a token
    is no padding. Padding stands behind the source. `tokens`, `subsequence` and `time` are as in `decoder_logits`.
    """
    backbone, grid = backbone_of(model.config), (tokens, subsequence, time)
    parts = backbone.parts
    if backbone.encoder is None:
        assert isinstance(parts, Modules), f"{backbone.name} has no encoder, and its layers are blocks"
        return parts.full_logits(model, *grid, prompt=input_ids, prompt_mask=attention_mask)
    memory = backbone.encoder(model)(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    if isinstance(parts, Blocks):
        return decoder_logits(model, *grid, memory, attention_mask)
    return parts.full_logits(model, *grid, memory=memory, memory_mask=attention_mask.bool())


def decoder_logits(
    model: Any, tokens: Tensor, subsequence: Tensor, time: Tensor, memory: Tensor, memory_mask: Tensor
) -> Tensor:
    """As `full_logits`, for a decoder of `Blocks` and an encoded source.

    `tokens` of the grid, <bos> and <eos> included, in any order: int64 [batch, grid length]. `subsequence` (from 1) and
    `time` have the same shape and say where each token stands; they are `attention.PADDING` for padding. `memory` are
    the states of the encoder, [batch, source length, d_model]. `memory_mask`, [batch, source length], is true where the
    source is no padding.
    """
    backbone = backbone_of(model.config)
    blocks = backbone.parts
    assert isinstance(blocks, Blocks), f"the parts of {backbone.name} are modules"
    sees = visible((subsequence, time), (subsequence, time))[:, None]
    table = blocks.buckets(model.config).to(tokens.device)
    place = position(subsequence, time)
    buckets = table[distance(place, place).clamp(0, table.numel() - 1)]
    dropout = model.config.dropout_rate if model.training else 0.0
    attend = partial(_attend, heads=model.config.num_heads, dropout=dropout)
    attend_source = partial(attend, mask=memory_mask[:, None, None, :].bool())

    again = model.training and recomputes(model)
    run: Callable[..., Tensor] = (
        partial(checkpoint, use_reentrant=False) if again else lambda layer, *states: layer(*states)
    )
    hidden = blocks.dropout(model)(backbone.embedding(model)(tokens))
    bias: Tensor | None = None
    before: nn.Embedding | None = None
    for block in blocks.layers(model, MODULES):
        if block.bias is not before:
            values = block.bias(buckets).permute(0, 3, 1, 2)
            bias, before = values.masked_fill(~sees, torch.finfo(values.dtype).min), block.bias
        hidden = run(partial(_layer, block, partial(attend, mask=bias), attend_source), hidden, memory)
    return blocks.head(model, MODULES)(hidden)


def _layer(
    block: Block,
    attend: Callable[..., Tensor],
    attend_source: Callable[..., Tensor],
    hidden: Tensor,
    memory: Tensor,
) -> Tensor:
    key, value = block.source_kv(memory)
    return block(hidden, attend, partial(attend_source, key=key, value=value))


def _attend(query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor, heads: int, dropout: float) -> Tensor:
    """Unscaled attention; all states are [batch, length, heads · d].

    A boolean `mask` is true where a token is seen. A mask of numbers is added to the scores.
    """
    query, key, value = (
        states.view(*states.shape[:2], heads, -1).transpose(1, 2) for states in (query, key, value)
    )
    mask = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=1.0)
    return mixed.transpose(1, 2).flatten(2)


def recompute(model: Any) -> None:
    """Let training keep only the input of each layer, and compute the rest again in the backward pass."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def recomputes(model: Any) -> bool:
    """Whether `recompute` was called; transformers keeps the flags."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


class TeacherForcing(nn.Module):
    """The training loss as a module, so that transformers' Trainer can wrap it for several devices.

    Eq. 6: the loss is −Σ log p(next token | source, visible tokens), over all predictions, divided by their number.
    """

    #: Tells the Trainer that `forward` divides by the number of predictions in the whole accumulated batch.
    accepts_loss_kwargs = True

    def __init__(self, plain: Any) -> None:
        super().__init__()
        self.plain = plain

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
        """The mean negative log-likelihood of the next tokens, a float32 scalar, as ``loss``.

        The arguments are those of `full_logits`. `labels`, int64 [batch, grid length], is the next token after each, or
        −100 where nothing is learnt. `num_items_in_batch` is the number of predictions in the accumulated batch.
        """
        logits = full_logits(self.plain, input_ids, attention_mask, decoder_input_ids, subsequence, time)
        total = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        count = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": total / count}
