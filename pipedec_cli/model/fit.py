"""Whether a decoder-only model can decode a grid: a few tokens through transformers' modules, with our masks and positions."""

from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.model.families import backbone_of

#: Tokens of a prompt.
_PROMPT = 6
#: All tokens: the prompt, with a row of one token and a row of three behind it.
_ALL = 10
#: How far positions are moved.
_SHIFT = 5
#: The most that logits may differ, as a share of the largest.
_EXACT = 1e-3
#: The same in narrow dtypes, of most tokens: some may have other experts.
_NARROW = 0.05


def check_fit(model: Any, name: str) -> None:
    """Try whether a decoder-only model can decode a grid; a UserError says which rule the model of that name breaks.

    Its layers must take any mask and positions; with a causal mask their logits are
    then the model's own. Nothing but the difference of two positions may count, and a
    row may see nothing of a row that is hidden from it. Keys and values are of one size
    in all layers.
    """
    backbone = backbone_of(model.config)
    parameters = signature(type(backbone.parts.decoder(model)).forward).parameters
    if "position_ids" not in parameters:
        why = "its layers take no positions. They have biases or a state instead"
        raise _no_grid(model, name, why)
    tokens = _few_tokens(model)
    with torch.inference_mode():
        own = model(input_ids=tokens, use_cache=False).logits.float()
        if own.isnan().any():
            raise ValueError("what it computes of a few tokens is no number")
        try:
            rules, shapes = _computed(model, tokens, own)
        # Whatever a module raises that has no place for what we say.
        except Exception as error:
            why = f"its layers do not take our mask ({first_line(error)})"
            raise _no_grid(model, name, why) from error
    most = own.abs().max()
    for rule in rules:
        if _differs(rule, most, model.dtype):
            raise _no_grid(model, name, rule.fault)
    sizes = backbone.sizes(model.config)
    if shapes != [(sizes.heads, sizes.head_width)] * (2 * sizes.layers):
        why = "some layers keep no keys and values, or keep them in another size"
        raise _no_grid(model, name, why)


class _Rule(NamedTuple):
    """Logits [1, n, vocabulary] that are to be the same as others, and what is at fault if they are not."""

    computed: Tensor
    wanted: Tensor
    fault: str


def _few_tokens(model: Any) -> Tensor:
    """The ids of a few tokens, [1, `_ALL`]."""
    tokens = torch.arange(1, _ALL + 1, device=model.device)[None]
    return tokens.remainder(int(model.config.vocab_size))


def _computed(
    model: Any, tokens: Tensor, own: Tensor
) -> tuple[list[_Rule], list[tuple[int, ...]]]:
    """Compute a few tokens with our masks and positions: the rules that are to hold, and the shapes of keys and values.

    `tokens` are ids, [1, n], and `own` the model's own logits of them, [1, n,
    vocabulary]. Each shape is (heads, width), of the keys and of the values of each
    layer.
    """
    causal = torch.ones(_ALL, _ALL, dtype=torch.bool, device=model.device).tril()[None]
    position = torch.arange(_ALL, device=model.device)[None]
    # Two rows follow the prompt, of which the second does not see the first.
    apart = causal.clone()
    apart[:, _PROMPT + 1 :, _PROMPT] = False
    beside = position.clone()
    beside[:, _PROMPT + 1 :] -= 1
    alone = [*range(_PROMPT), *range(_PROMPT + 1, _ALL)]  # without the first row
    seen = _Seen()
    ours = _logits(model, tokens, position, causal, seen)
    moved = _logits(model, tokens, position + _SHIFT, causal)
    rows = _logits(model, tokens, beside, apart)[:, alone]
    mask = apart[:, alone][:, :, alone]
    row = _logits(model, tokens[:, alone], beside[:, alone], mask)
    rules = [
        _Rule(ours, own, "with a causal mask its layers do not give its own logits"),
        _Rule(
            moved,
            ours,
            "more than the distances of positions counts, as where they are looked up in a table",
        ),
        _Rule(
            rows, row, "a row is changed by a row beside it, as where there is a state"
        ),
    ]
    return rules, seen.shapes


def _logits(
    model: Any,
    tokens: Tensor,
    position: Tensor,
    sees: Tensor,
    cache: Cache | None = None,
) -> Tensor:
    """The logits of tokens at positions, both [1, n], that see each other as the mask [1, n, n] says."""
    parts = backbone_of(model.config).parts
    states = parts.states(model, tokens, position, sees, cache=cache)
    logits: Tensor = parts.head(model)(states).float()
    return logits


def _differs(rule: _Rule, most: Tensor, dtype: torch.dtype) -> bool:
    """Whether the logits of a rule differ by more than rounding in this dtype.

    `most` is the size of the model's largest logit. In float32 all tokens must be
    alike, in others most of them.
    """
    difference = (rule.computed - rule.wanted).abs().amax(-1) / most
    if dtype == torch.float32:
        return bool(difference.max() > _EXACT)
    return bool(difference.median() > _NARROW)


def _no_grid(model: Any, name: str, why: str) -> UserError:
    """The error of a model that cannot decode a grid, and why."""
    kind = model.config.model_type
    return UserError(
        f"{name} is a {kind!r} model, which cannot decode a grid: {why}",
        todo="take a model of another family; docs/backbones.md lists the tested families",
    )


class _Seen(Cache):  # type: ignore[misc]
    """A cache that keeps nothing but heads and widths of the keys and values that come."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: list[tuple[int, ...]] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Note the shapes of keys and values, [n, heads, queries, width], and return both as they are."""
        for states in (key_states, value_states):
            self.shapes.append((states.shape[1], states.shape[3]))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0, as of the grid's cache."""
        return 0
