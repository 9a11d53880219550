"""Decoders that run through transformers' own modules, in the training pass and in cached steps.

The modules get the place of each token as `position_ids` and a four-dimensional mask that says which tokens it sees.
A decoder-only model has no encoder: its prompt is row 0 of the grid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipedec_cli.model.engine.torch.block import Function
from pipedec_cli.pipeline.attention import PADDING, PROMPT_TIME, behind, visible


@dataclass(frozen=True, slots=True)
class Modules:
    """Functions that find the parts of a decoder in a model of transformers."""

    decoder: Callable[[Any], Any]  # the module from ids, places and masks to last_hidden_state
    head: Callable[[Any], Function]  # from last states to logits
    config: Callable[[Any], Any] = lambda config: config  # the decoder's config, within the model's
    #: The two modules of a layer that make keys and values of source states. None: the model has no encoder.
    source_kv: Callable[[Any], tuple[Any, Any]] | None = None
    learned: bool = False  # positions are looked up in the decoder's table `embed_positions`

    def source_projections(self, model: Any) -> list[tuple[Any, Any]]:
        """The modules `source_kv` of each layer; empty for a model without an encoder."""
        return [] if self.source_kv is None else [*map(self.source_kv, self.decoder(model).layers)]

    def states(
        self,
        model: Any,
        tokens: Tensor,
        position: Tensor,
        sees: Tensor,
        *,
        key_position: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """Run tokens through the decoder: last states, [n, queries, width].

        Args:
            model: a model of transformers.
            tokens: int64 [n, queries].
            position: of the tokens, int64 [n, queries].
            sees: whether a query sees a key, bool [n, queries, keys].
            key_position: int64 [n, keys]. None: the keys are the queries.
            memory: states of the encoder, [n, source, width].
            memory_mask: true at source tokens, false at padding, bool [n, source].
            cache: keys and values of earlier calls, as transformers passes them.
        """
        decoder, config = self.decoder(model), self.config(model.config)
        apart = position[:, :, None] - (position if key_position is None else key_position)[:, None]
        given = {"input_ids": tokens, "attention_mask": _masks(sees, apart, config, decoder.dtype)}
        if memory is not None and memory_mask is not None:
            mask = _as_attention_mask(memory_mask[:, None], config, decoder.dtype)
            given |= {"encoder_hidden_states": memory, "encoder_attention_mask": mask}
        given |= {_cache_argument(type(decoder).forward): cache, "use_cache": cache is not None}
        if not self.learned:
            given["position_ids"] = position
        with _looked_up(decoder, position) if self.learned else nullcontext():
            states: Tensor = decoder(**given).last_hidden_state
        return states

    def full_states(
        self,
        model: Any,
        tokens: Tensor,
        subsequence: Tensor,
        time: Tensor,
        *,
        prompt: Tensor | None = None,
        prompt_mask: Tensor | None = None,
        **memory: Tensor,
    ) -> Tensor:
        """The full pass over the tokens of a grid: [batch, length, width]; see `training.loss.full_states`.

        A model without an encoder has a `prompt`, int64 [batch, prompt length], and a `prompt_mask` that is 1 at its
        tokens and 0 at padding. Others have `memory` and `memory_mask`; see `states`.
        """
        prompt = tokens[:, :0] if prompt is None else prompt
        prompt_mask = prompt if prompt_mask is None else prompt_mask
        padded = prompt_mask == 0
        columns = torch.arange(prompt.shape[1], device=tokens.device).expand_as(prompt)
        rows = torch.cat([torch.zeros_like(prompt).masked_fill(padded, PADDING), subsequence], dim=1)
        times = torch.cat([(columns + PROMPT_TIME).masked_fill(padded, PADDING), time], dim=1)
        behind_prompt = _positions(subsequence, time, prompt_mask.sum(dim=1, keepdim=True))
        position = torch.cat([columns.masked_fill(padded, 0), behind_prompt], dim=1)
        sees = visible((rows, times), (rows, times))
        states = self.states(model, torch.cat([prompt, tokens], dim=1), position, sees, **memory)
        return states[:, prompt.shape[1] :]


def _positions(subsequence: Tensor, time: Tensor, prompt: Tensor) -> Tensor:
    """Positions of grid tokens behind prompts of `prompt` tokens, int64 [batch, 1]: int64 [batch, length]; padding is at 0."""
    padding = subsequence == PADDING
    known = -time.masked_fill(padding, 0).amin(dim=1, keepdim=True)
    return behind(subsequence, time, known + prompt).masked_fill(padding, 0)


def _masks(sees: Tensor, apart: Tensor, config: Any, dtype: torch.dtype) -> Any:
    """The mask of `sees`, or a mask for each kind of layer. `apart` is how far a key stands before a query."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds:
        return _as_attention_mask(sees, config, dtype)
    masks = {"full_attention": sees}
    if "sliding_attention" in kinds:
        masks["sliding_attention"] = sees & (apart < config.sliding_window)
    return {kind: _as_attention_mask(mask, config, dtype) for kind, mask in masks.items()}


def _as_attention_mask(sees: Tensor, config: Any, dtype: torch.dtype) -> Tensor:
    """A mask [n, 1, queries, keys] as the model's attention takes it: boolean, or numbers that are added to scores."""
    sees = sees[:, None]
    if config._attn_implementation != "eager":
        return sees
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill(~sees, torch.finfo(dtype).min)


@cache
def _cache_argument(forward: Callable[..., Any]) -> str:
    """The name of a decoder's cache argument: ``cache`` since transformers 5.24, which warns of the older name."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


@contextmanager
def _looked_up(decoder: Any, position: Tensor) -> Iterator[None]:
    """Have the decoder look up these positions instead of counting. Positions beyond its table use the last entry."""

    def look_up(module: Any, *_: Any) -> Tensor:
        first = getattr(module, "offset", 0)
        return F.embedding((position + first).clamp(max=module.num_embeddings - 1), module.weight)

    hook = decoder.embed_positions.register_forward_hook(look_up)
    try:
        yield
    finally:
        hook.remove()
