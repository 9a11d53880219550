"""The full pass: all tokens of a training target go through the decoder at once, and the loss of Eq. 6.

It drives the modules of the ordinary model and adds no parameters. The cached steps of
the engine must give the same. The loss needs the logits of some positions only, and of
a chunk of them at a time: `summed_loss`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.engine.torch.parts import Function
from pipedec_cli.model.families import backbone_of

#: The most logits that exist at a time in training: 341 predictions over 49,152 words,
#: some 64 MiB in float32.
LOGITS: Final = 1 << 24


def full_states(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    tokens: Tensor,
    subsequence: Tensor,
    time: Tensor,
    *,
    blind: bool = False,
) -> Tensor:
    """The decoder's last hidden states for every token of a grid: [batch, grid length, width], in the model's dtype.

    `head_of` makes logits of them. `input_ids` are the sources, int64 [batch, source
    length]; `attention_mask` has the same shape and is 1 where a token is no padding.
    Padding stands behind the source. `tokens` of the grid, <bos> and <eos> included, in
    any order: int64 [batch, grid length]. `subsequence` (from 1) and `time` have the
    same shape and say where each token stands; they are `attention.PADDING` for
    padding. In `blind` rows, which a model without an encoder has, the times are those
    of `attention.apart`.
    """
    backbone = backbone_of(model.config)
    grid = (tokens, subsequence, time)
    if backbone.encoder is None:
        return backbone.parts.full_states(
            model, *grid, prompt=input_ids, prompt_mask=attention_mask, blind=blind
        )
    encoder = backbone.encoder(model)
    encoded = encoder(input_ids=input_ids, attention_mask=attention_mask)
    return backbone.parts.full_states(
        model,
        *grid,
        memory=encoded.last_hidden_state,
        memory_mask=attention_mask.bool(),
    )


def head_of(model: Any) -> Function:
    """The function from states of `full_states`, [..., width], to the logits of the next token, [..., vocabulary]."""
    return backbone_of(model.config).parts.head(model)


def recompute(model: Any) -> None:
    """Let training keep the inputs of layers alone, and compute the rest again in the backward pass, to save memory."""
    # transformers 5 has had both names.
    enable = getattr(model, "activation_checkpointing_enable", None)
    enable = enable or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def recomputes(model: Any) -> bool:
    """Whether `recompute` was called."""
    if hasattr(model, "is_activation_checkpointing"):
        return bool(model.is_activation_checkpointing)
    return bool(model.is_gradient_checkpointing)


def summed_loss(
    head: Function, weights: Sequence[Tensor], states: Tensor, labels: Tensor, rows: int
) -> Tensor:
    """−Σ log p(label), a float32 scalar. No more than `rows` rows of logits exist at a time.

    The `head` makes logits, [n, vocabulary], of `states`, [n, width]; it has these
    `weights`. `labels` are int64 [n]. The gradients of a chunk are computed with its
    loss: to compute its logits again would take the head a third more time.
    """
    if torch.is_grad_enabled():
        learnt = [weight for weight in weights if weight.requires_grad]
        apply: Callable[..., Tensor] = _SummedLoss.apply
        return apply(head, rows, labels, states, *learnt)
    total = states.new_zeros((), dtype=torch.float32)
    for start in range(0, len(labels), rows):
        span = slice(start, start + rows)
        total = total + _chunk_loss(head, states[span], labels[span])
    return total


def _chunk_loss(head: Function, states: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(head(states).float(), labels, reduction="sum")


class _SummedLoss(torch.autograd.Function):
    """The loss of all chunks; its backward pass only scales the gradients that the forward pass has computed."""

    @staticmethod
    def forward(
        ctx: Any,
        head: Function,
        rows: int,
        labels: Tensor,
        states: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        """The loss and, kept in `ctx` for the backward pass, its gradients by the states and the weights.

        The `head` makes logits, [n, vocabulary], of `states`, [n, width], so many
        `rows` at a time; `weights` are those of the head that learn. `labels` are int64
        [n].
        """
        total = states.new_zeros((), dtype=torch.float32)
        of_states = torch.empty_like(states)
        of_weights = [torch.zeros_like(weight) for weight in weights]
        for start in range(0, len(labels), rows):
            span = slice(start, start + rows)
            with torch.enable_grad():
                chunk = states[span].detach().requires_grad_()
                loss = _chunk_loss(head, chunk, labels[span])
            gradients = torch.autograd.grad(loss, [chunk, *weights])
            of_states[span] = gradients[0]
            for total_gradient, gradient in zip(of_weights, gradients[1:], strict=True):
                total_gradient.add_(gradient)
            total += loss.detach()
        ctx.save_for_backward(of_states, *of_weights)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of `forward`'s arguments, None for those that are no tensors of numbers; `gradients` has the loss's."""
        scaled = [gradients[0] * gradient for gradient in ctx.saved_tensors]
        return (None, None, None, *scaled)


class TeacherForcing(nn.Module):
    """The training loss as a module, so that transformers' Trainer can wrap it for several devices.

    Eq. 6: the loss is −Σ log p(next token | source, visible tokens), over all
    predictions, divided by their number.
    """

    #: Tells the Trainer that `forward` divides by the number of predictions in the
    #: whole accumulated batch.
    accepts_loss_kwargs = True

    def __init__(self, plain: Any, *, blind: bool = False) -> None:
        """Take the ordinary model, as transformers has it, and whether it learns `blind` rows (see `full_states`)."""
        super().__init__()
        self.plain = plain
        self.blind = blind

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

        The arguments are those of `full_states`. `labels`, int64 [batch, grid length],
        is the next token after each, or −100 where nothing is learnt.
        `num_items_in_batch` is the number of predictions in the accumulated batch.
        """
        states = full_states(
            self.plain,
            input_ids,
            attention_mask,
            decoder_input_ids,
            subsequence,
            time,
            blind=self.blind,
        )
        learnt = labels != -100
        output = self.plain.get_output_embeddings()
        rows = max(1, LOGITS // self.plain.config.vocab_size)
        total = summed_loss(
            head_of(self.plain),
            [*output.parameters()],
            states[learnt],
            labels[learnt],
            rows,
        )
        if num_items_in_batch is None:
            num_items_in_batch = learnt.sum()
        # A record whose values are all left out has no prediction, and no loss.
        count = torch.as_tensor(num_items_in_batch).clamp(min=1)
        return {"loss": total / count.to(total.device)}
