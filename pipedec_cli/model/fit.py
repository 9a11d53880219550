"""Whether a decoder-only model can decode a grid: a few tokens through transformers' modules, with our masks and positions."""

from collections.abc import Sequence
from inspect import signature
from typing import Any, Final

import torch
from torch import Tensor
from transformers import Cache

from pipedec_cli.data.errors import first_line
from pipedec_cli.model.families import backbone_of

#: Tokens of a prompt, in which two rows of one token follow it.
_PROMPT: Final = 6
#: How far all positions are moved.
_SHIFT: Final = 5
#: The most that logits may differ, as a share of the largest: of float32, and of narrower dtypes.
_ROUNDING: Final = {torch.float32: 1e-3}
_NARROW: Final = 0.05


def check_fit(model: Any) -> None:
    """A ValueError says which rule a decoder-only model breaks.

    Its layers must take any mask and positions; their logits are then the model's own. Nothing but the difference of two
    positions may count, and a row may see nothing of a row that is hidden from it. Keys and values are of one size.
    """
    backbone, device = backbone_of(model.config), model.device
    tokens = torch.arange(1, _PROMPT + 3, device=device)[None] % model.config.vocab_size
    causal = torch.ones(_PROMPT + 2, _PROMPT + 2, dtype=torch.bool, device=device).tril()[None]
    position, seen = torch.arange(_PROMPT + 2, device=device)[None], _Seen()
    one = [*range(_PROMPT), _PROMPT + 1]  # the prompt and the second row

    def logits(position: Tensor, sees: Tensor, cache: Cache | None = None) -> Tensor:
        states = backbone.parts.states(model, tokens[:, : len(sees[0])], position, sees, cache=cache)
        return backbone.parts.head(model)(states).float()

    if "position_ids" not in signature(type(backbone.parts.decoder(model)).forward).parameters:
        raise ValueError(
            "it cannot decode a grid: its layers take no positions; they are biases, or there is a state"
        )
    with torch.inference_mode():
        own = model(input_ids=tokens, use_cache=False).logits.float()
        if own.isnan().any():
            raise ValueError("what it computes of a few tokens is no number")
        try:
            ours = logits(position, causal, seen)
            moved = logits(position + _SHIFT, causal)
            position[:, -1], causal[:, -1, -2] = _PROMPT, False
            beside = logits(position, causal)[:, -1]
            tokens = tokens[:, one]
            alone = logits(position[:, one], causal[:, one][:, :, one])[:, -1]
        except Exception as error:  # whatever a module raises that has no place for what we say
            raise ValueError(
                f"it cannot decode a grid: its layers take no mask of ours ({first_line(error)})"
            ) from error
    rules: Sequence[tuple[Tensor, Tensor, str]] = (
        (ours, own, "with a causal mask its layers do not give its own logits"),
        (moved, ours, "more than the distances of positions counts, as where they are looked up in a table"),
        (beside, alone, "a row is changed by a row beside it, as where there is a state"),
    )
    most = _ROUNDING.get(model.dtype, _NARROW) * float(own.abs().max())
    for found, wanted, fault in rules:
        if float((found - wanted).abs().max()) > most:
            raise ValueError(f"it cannot decode a grid: {fault}")
    sizes = backbone.sizes(model.config)
    if seen.shapes != [(sizes.heads, sizes.head_width)] * (2 * sizes.layers):
        raise ValueError(
            "it cannot decode a grid: keys and values are not of one size in all layers, or there is a state"
        )


class _Seen(Cache):  # type: ignore[misc]
    """A cache that keeps nothing but heads and widths of the keys and values that come."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: list[tuple[int, ...]] = []

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Keys and values, [n, heads, queries, width], as they are."""
        self.shapes += [(one.shape[1], one.shape[3]) for one in (key_states, value_states)]
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0, as of the grid's cache."""
        return 0
