"""Whether a decoder-only model can decode a grid: a few tokens through transformers' modules, with our masks and positions."""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.model.families import backbone_of

#: Tokens of a prompt; of all, with a row of one token and a row of three behind it; and
#: how far positions are moved.
_PROMPT, _ALL, _SHIFT = 6, 10, 5
#: The most that logits may differ, as a share of the largest. In narrow dtypes it is
#: that of most tokens: some may have other experts.
_EXACT, _NARROW = 1e-3, 0.05


def check_fit(model: Any, name: str) -> None:
    """A UserError says which rule the decoder-only model of that name breaks.

    Its layers must take any mask and positions; with a causal mask their logits are
    then the model's own. Nothing but the difference of two positions may count, and a
    row may see nothing of a row that is hidden from it. Keys and values are of one size
    in all layers.
    """
    backbone, device = backbone_of(model.config), model.device
    tokens = torch.arange(1, _ALL + 1, device=device)[None] % model.config.vocab_size
    causal = torch.ones(_ALL, _ALL, dtype=torch.bool, device=device).tril()[None]
    position, seen = torch.arange(_ALL, device=device)[None], _Seen()
    alone = [*range(_PROMPT), *range(_PROMPT + 1, _ALL)]  # without the first row
    apart, beside = causal.clone(), position.clone()
    apart[:, _PROMPT + 1 :, _PROMPT] = False
    beside[:, _PROMPT + 1 :] -= 1

    def logits(
        tokens: Tensor, position: Tensor, sees: Tensor, cache: Cache | None = None
    ) -> Tensor:
        return backbone.parts.head(model)(
            backbone.parts.states(model, tokens, position, sees, cache=cache)
        ).float()

    def refuse(why: str) -> UserError:
        what = f"{name} is a {model.config.model_type!r} model, which cannot decode a grid: {why}"
        return UserError(
            what,
            todo="take a model of another family; docs/backbones.md lists the tested families",
        )

    if (
        "position_ids"
        not in signature(type(backbone.parts.decoder(model)).forward).parameters
    ):
        raise refuse(
            "its layers take no positions. They have biases or a state instead"
        )
    with torch.inference_mode():
        own = model(input_ids=tokens, use_cache=False).logits.float()
        if own.isnan().any():
            raise ValueError("what it computes of a few tokens is no number")
        try:
            ours = logits(tokens, position, causal, seen)
            moved = logits(tokens, position + _SHIFT, causal)
            rows = logits(tokens, beside, apart)[:, alone]
            row = logits(
                tokens[:, alone], beside[:, alone], apart[:, alone][:, :, alone]
            )
        except (
            Exception
        ) as error:  # whatever a module raises that has no place for what we say
            raise refuse(
                f"its layers do not take our mask ({first_line(error)})"
            ) from error
    rules: Sequence[tuple[Tensor, Tensor, str]] = (
        (ours, own, "with a causal mask its layers do not give its own logits"),
        (
            moved,
            ours,
            "more than the distances of positions counts, as where they are looked up in a table",
        ),
        (rows, row, "a row is changed by a row beside it, as where there is a state"),
    )
    for found, wanted, fault in rules:
        off = (found - wanted).abs().amax(-1) / own.abs().max()
        if (
            off.max() > _EXACT
            if model.dtype == torch.float32
            else off.median() > _NARROW
        ):
            raise refuse(fault)
    sizes = backbone.sizes(model.config)
    if seen.shapes != [(sizes.heads, sizes.head_width)] * (2 * sizes.layers):
        raise refuse(
            "some layers keep no keys and values, or keep them in another size"
        )


class _Seen(Cache):  # type: ignore[misc]
    """A cache that keeps nothing but heads and widths of the keys and values that come."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: list[tuple[int, ...]] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Keys and values, [n, heads, queries, width], as they are."""
        self.shapes += [
            (one.shape[1], one.shape[3]) for one in (key_states, value_states)
        ]
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0, as of the grid's cache."""
        return 0
