"""The full pass: all tokens of a training target through the decoder at once (Eq. 5 and 6).

It drives the parts of the ordinary model and adds no parameters. The cached step of the engine must equal it.
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
    """What a model predicts after every token of a grid: logits [batch, length, vocabulary], in the model's dtype.

    The source is `input_ids`, int64 [batch, source length], with 1 in `attention_mask` where it is no padding, which stands behind it;
    the grid is as in `decoder_logits`.
    """
    backbone = backbone_of(model.config)
    parts = backbone.parts
    if backbone.encoder is None:
        assert isinstance(parts, Modules), f"{backbone.name} has no encoder, and its layers are blocks"
        return parts.prompted_logits(model, input_ids, attention_mask, tokens, subsequence, time)
    memory = backbone.encoder(model)(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    run = decoder_logits if isinstance(parts, Blocks) else parts.decoder_logits
    return run(model, tokens, subsequence, time, memory, attention_mask)


def decoder_logits(
    model: Any, tokens: Tensor, subsequence: Tensor, time: Tensor, memory: Tensor, memory_mask: Tensor
) -> Tensor:
    """The same by a decoder of `Blocks`, of which the source is encoded.

    `tokens` are in any order, <bos> and <eos> included; `subsequence`, from 1, and `time` say where each stands, and are
    `attention.PADDING` for padding: int64 [batch, length] all. `memory` are the encoder's states H^E,
    [batch, source length, d_model], and `memory_mask` is true where the source is no padding, [batch, source length].
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
    look_at_source = partial(attend, mask=memory_mask[:, None, None, :].bool())

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
        hidden = run(partial(_layer, block, partial(attend, mask=bias), look_at_source), hidden, memory)
    return blocks.head(model, MODULES)(hidden)


def _layer(
    block: Block,
    attend: Callable[..., Tensor],
    look_at_source: Callable[..., Tensor],
    hidden: Tensor,
    memory: Tensor,
) -> Tensor:
    key, value = block.source_kv(memory)
    return block(hidden, attend, partial(look_at_source, key=key, value=value))


def recompute(model: Any) -> None:
    """Have training passes keep what goes into each layer alone, and compute the rest again on the way back."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def recomputes(model: Any) -> bool:
    """Whether `recompute` was asked for, by the flags that transformers keeps."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def _attend(query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor, heads: int, dropout: float) -> Tensor:
    """Unscaled attention over [batch, length, heads · d], whose mask is added, or says what is seen if it is boolean."""
    query, key, value = (
        states.view(*states.shape[:2], heads, -1).transpose(1, 2) for states in (query, key, value)
    )
    mask = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=1.0)
    return mixed.transpose(1, 2).flatten(2)


class TeacherForcing(nn.Module):
    """The training loss of Eq. 6 as a module, so that transformers' Trainer can wrap it for several devices."""

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
        """The mean negative log-likelihood of the next tokens.

        The source is `input_ids`, int64 [batch, source length], with 1 in `attention_mask` where it is no padding; the
        grid `decoder_input_ids`, `subsequence` and `time` as in `decoder_logits`; `labels` holds the next token of each,
        −100 where nothing is predicted. `num_items_in_batch` are the predictions of the accumulated batch.
        """
        logits = full_logits(self.plain, input_ids, attention_mask, decoder_input_ids, subsequence, time)
        total = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        count = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": total / count}
