"""The full pass: all tokens of a training target go through the decoder at once, and the loss of Eq. 6.

It drives the modules of the ordinary model and adds no parameters. The cached steps of
the engine must give the same. The loss needs the logits of some positions only, and of
a chunk of them at a time: `summed_loss`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pipedec_cli.model.engine.torch.parts import Function
from pipedec_cli.model.families import backbone_of

#: The most logits that exist at a time in training: 341 predictions over 49,152 words,
#: some 64 MiB in float32.
LOGITS: Final = 1 << 24

Recomputed = Literal["cheap", "all"]


class _Product(torch.autograd.Function):
    """x Wᵀ + b. The first pass keeps its result, and the pass that computes again takes it."""

    @staticmethod
    def forward(
        ctx: Any,
        kept: deque[Tensor],
        again: bool,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        if again:
            result = kept.popleft()
        else:
            result = F.linear(states, weight, bias)
            kept.append(result.detach())
        ctx.save_for_backward(states, weight)
        ctx.of_bias = bias.dtype if bias is not None else None
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        kind, rows = (
            gradient.dtype,
            gradient.flatten(0, -2),
        )  # autocast has computed in another dtype
        _, _, of_states, of_weight, *of_bias = ctx.needs_input_grad
        return (
            None,
            None,
            (gradient @ weight.to(kind)).to(states.dtype) if of_states else None,
            (rows.t() @ states.flatten(0, -2).to(kind)).to(weight.dtype)
            if of_weight
            else None,
            *(rows.sum(0).to(ctx.of_bias) if one else None for one in of_bias),
        )


class _Products(TorchFunctionMode):
    """Where this holds, products are `_Product`. torch's own selective checkpoints stop at each operator, which takes longer."""

    def __init__(self, kept: deque[Tensor], *, again: bool) -> None:
        super().__init__()
        self.kept, self.again = kept, again

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is F.linear and not kwargs:
            apply: Callable[..., Tensor] = _Product.apply
            return apply(self.kept, self.again, *args)
        return function(*args, **(kwargs or {}))


def _products() -> tuple[_Products, _Products]:
    """The contexts of the first pass of a layer, and of the pass that computes again."""
    kept = deque[Tensor]()
    return _Products(kept, again=False), _Products(kept, again=True)


_HOW: Final[dict[Recomputed, dict[str, Any]]] = {
    "all": {"use_reentrant": False},
    "cheap": {"use_reentrant": False, "context_fn": _products},
}


def full_states(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    tokens: Tensor,
    subsequence: Tensor,
    time: Tensor,
) -> Tensor:
    """What `head_of` makes logits of, for every token of a grid: [batch, grid length, width], in the model's dtype.

    `input_ids` are the sources, int64 [batch, source length]; `attention_mask` has the
    same shape and is 1 where a token is no padding. Padding stands behind the source.
    `tokens` of the grid, <bos> and <eos> included, in any order: int64 [batch, grid
    length]. `subsequence` (from 1) and `time` have the same shape and say where each
    token stands; they are `attention.PADDING` for padding.
    """
    backbone = backbone_of(model.config)
    source = {"prompt": input_ids, "prompt_mask": attention_mask}
    if backbone.encoder is not None:
        encoded = backbone.encoder(model)(
            input_ids=input_ids, attention_mask=attention_mask
        )
        source = {
            "memory": encoded.last_hidden_state,
            "memory_mask": attention_mask.bool(),
        }
    return backbone.parts.full_states(model, tokens, subsequence, time, **source)


def head_of(model: Any) -> Function:
    """The function from states of `full_states`, [..., width], to the logits of the next token, [..., vocabulary]."""
    return backbone_of(model.config).parts.head(model)


def recompute(model: Any, what: Recomputed) -> None:
    """Let training compute again in the backward pass, and not keep: ``all`` of a layer but its input, or ``cheap``.

    Cheap is what lies between the products of states with weights, such as norms and
    activations. It takes more memory than the products do, and little time.
    """
    enable = (
        getattr(model, "activation_checkpointing_enable", None)
        or model.gradient_checkpointing_enable
    )
    enable(_HOW[what])


def summed_loss(
    head: Function, weights: Sequence[Tensor], states: Tensor, labels: Tensor, rows: int
) -> Tensor:
    """−Σ log p(label), a float32 scalar. No more than `rows` rows of logits exist at a time.

    The `head` makes logits, [n, vocabulary], of `states`, [n, width]; it has these
    `weights`. `labels` are int64 [n]. The gradients of a chunk are computed with its
    loss: to compute its logits again would take the head a third more time.
    """
    weights = [weight for weight in weights if weight.requires_grad]
    if torch.is_grad_enabled():
        apply: Callable[..., Tensor] = _SummedLoss.apply
        return apply(head, rows, labels, states, *weights)
    parts = (slice(start, start + rows) for start in range(0, len(labels), rows))
    losses = (_of_chunk(head, states[part], labels[part]) for part in parts)
    return sum(losses, states.new_zeros((), dtype=torch.float32))


def _of_chunk(head: Function, states: Tensor, labels: Tensor) -> Tensor:
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
        total = states.new_zeros((), dtype=torch.float32)
        of_states, of_weights = (
            torch.empty_like(states),
            [torch.zeros_like(weight) for weight in weights],
        )
        for start in range(0, len(labels), rows):
            part = slice(start, start + rows)
            with torch.enable_grad():
                chunk = states[part].detach().requires_grad_()
                loss = _of_chunk(head, chunk, labels[part])
            of_states[part], *found = torch.autograd.grad(loss, [chunk, *weights])
            for sum_, one in zip(of_weights, found, strict=True):
                sum_.add_(one)
            total += loss.detach()
        ctx.save_for_backward(of_states, *of_weights)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, None, *(gradients[0] * one for one in ctx.saved_tensors))


class TeacherForcing(nn.Module):
    """The training loss as a module, so that transformers' Trainer can wrap it for several devices.

    Eq. 6: the loss is −Σ log p(next token | source, visible tokens), over all
    predictions, divided by their number.
    """

    #: Tells the Trainer that `forward` divides by the number of predictions in the
    #: whole accumulated batch.
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

        The arguments are those of `full_states`. `labels`, int64 [batch, grid length],
        is the next token after each, or −100 where nothing is learnt.
        `num_items_in_batch` is the number of predictions in the accumulated batch.
        """
        states = full_states(
            self.plain, input_ids, attention_mask, decoder_input_ids, subsequence, time
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
        return {
            "loss": total
            / (learnt.sum() if num_items_in_batch is None else num_items_in_batch)
        }
