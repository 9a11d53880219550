"""Decoders driven through transformers' own modules: the full pass over a grid, and what a cached step needs of them.

They take the place of each token as `position_ids`, who sees whom as a mask of four dimensions, and keep keys and values
in a cache of ours. Where there is no encoder, the prompt is row 0 of the grid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Cache, EncoderDecoderCache

from pipedec_cli.model.backbone import Backbone, backbone_of
from pipedec_cli.model.engine.torch.block import Function
from pipedec_cli.pipeline.attention import PADDING, PROMPT_TIME, behind, visible

if TYPE_CHECKING:
    from pipedec_cli.model.engine.torch.operators import Look


@dataclass(frozen=True, slots=True)
class Modules:
    """A decoder as modules of transformers, by functions that find them."""

    decoder: Callable[[Any], Any]  # from ids, places and masks to last_hidden_state
    head: Callable[[Any], Function]  # from the last states to logits
    config: Callable[[Any], Any] = lambda config: config  # the decoder's own, of the model's
    #: Of a layer, the projections of a source's states to keys and values; None where there is no encoder.
    source_kv: Callable[[Any], tuple[Any, Any]] | None = None
    learned: bool = False  # places are looked up in a table of the decoder's, `embed_positions`

    def source_projections(self, model: Any) -> list[tuple[Any, Any]]:
        """Layer by layer, those to keys and values; none where there is no encoder."""
        return [] if self.source_kv is None else [*map(self.source_kv, self.decoder(model).layers)]


@dataclass(frozen=True, slots=True)
class Pass:
    """What goes through a decoder at once: int64 [n, queries] `tokens` and `position`, and who sees whom, [n, queries, keys].

    The keys stand at `key_position`, [n, keys]; they are those of the queries unless a `cache` says otherwise. `memory` are a
    source's states, and `source_mask` is true where it is no padding, [n, source].
    """

    tokens: Tensor
    position: Tensor
    sees: Tensor
    key_position: Tensor
    memory: Tensor | None = None
    source_mask: Tensor | None = None
    cache: Any = None

    def states(self, model: Any) -> Tensor:
        """The last states, [n, queries, width]."""
        parts = modules_of(backbone_of(model.config))
        decoder, config = parts.decoder(model), parts.config(model.config)
        given: dict[str, Any] = {
            "input_ids": self.tokens,
            "attention_mask": self._masks(config, decoder.dtype),
        }
        if self.memory is not None and self.source_mask is not None:
            mask = _formed(self.source_mask[:, None], config, decoder.dtype)
            given |= {"encoder_hidden_states": self.memory, "encoder_attention_mask": mask}
        given |= {_cache_name(type(decoder).forward): self.cache, "use_cache": self.cache is not None}
        given |= {} if parts.learned else {"position_ids": self.position}
        with _placed(decoder, self.position) if parts.learned else nullcontext():
            states: Tensor = decoder(**given).last_hidden_state
        return states

    def _masks(self, config: Any, dtype: torch.dtype) -> Tensor | dict[str, Tensor]:
        """Who sees whom; one for each kind of layer, where there are kinds. A window is measured by position."""
        kinds = set(getattr(config, "layer_types", None) or ())
        if not kinds:
            return _formed(self.sees, config, dtype)
        masks = {"full_attention": self.sees}
        if "sliding_attention" in kinds:
            apart = self.position[:, :, None] - self.key_position[:, None]
            masks["sliding_attention"] = self.sees & (apart < config.sliding_window)
        return {kind: _formed(mask, config, dtype) for kind, mask in masks.items()}


@cache
def _cache_name(forward: Callable[..., Any]) -> str:
    """What a decoder calls its keys and values: ``cache`` since transformers 5.24, which warns of the older name."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


def modules_of(backbone: Backbone) -> Modules:
    """The parts of a family that is driven through modules."""
    assert isinstance(backbone.parts, Modules), f"the parts of {backbone.name} are blocks"
    return backbone.parts


def prompted_logits(
    model: Any, input_ids: Tensor, attention_mask: Tensor, tokens: Tensor, subsequence: Tensor, time: Tensor
) -> Tensor:
    """The full pass without an encoder: the prompt and the grid behind it in one; see `training.loss.full_logits`.

    Keys stand at times before 0, the longest from −K on, and the prompt before all of them.
    """
    padded = attention_mask == 0
    columns = torch.arange(input_ids.shape[1], device=tokens.device).expand_as(input_ids)
    lengths = attention_mask.sum(dim=1, keepdim=True)
    rows = torch.cat([torch.zeros_like(input_ids).masked_fill(padded, PADDING), subsequence], dim=1)
    times = torch.cat([(columns + PROMPT_TIME).masked_fill(padded, PADDING), time], dim=1)
    places = [columns.masked_fill(padded, 0), _positions(subsequence, time, lengths)]
    position = torch.cat(places, dim=1)
    whole = Pass(
        torch.cat([input_ids, tokens], dim=1), position, visible((rows, times), (rows, times)), position
    )
    parts = modules_of(backbone_of(model.config))
    return parts.head(model)(whole.states(model)[:, input_ids.shape[1] :])


def decoder_logits(
    model: Any, tokens: Tensor, subsequence: Tensor, time: Tensor, memory: Tensor, memory_mask: Tensor
) -> Tensor:
    """The full pass behind an encoder; see `training.loss.decoder_logits`."""
    position = _positions(subsequence, time, 0)
    sees = visible((subsequence, time), (subsequence, time))
    whole = Pass(tokens, position, sees, position, memory, memory_mask.bool())
    return modules_of(backbone_of(model.config)).head(model)(whole.states(model))


def _positions(subsequence: Tensor, time: Tensor, prompt: Tensor | int) -> Tensor:
    """Where the tokens of grids stand behind prompts of so many tokens, [batch, length]; padding at 0."""
    padding = subsequence == PADDING
    known = -time.masked_fill(padding, 0).amin(dim=1, keepdim=True)
    return behind(subsequence, time, known + prompt).masked_fill(padding, 0)


class ModuleLayers:
    """What a `TorchStepper` asks of a decoder: its sizes, keys and values of sources, and the states of a call."""

    def __init__(self, model: Any) -> None:
        """Take a model as it stands."""
        self.model, backbone = model, backbone_of(model.config)
        self.parts, self.prompted = modules_of(backbone), backbone.prompted
        embedding = backbone.embedding(model).weight
        self.dtype, self.device = embedding.dtype, embedding.device
        self.layers, self.heads, self.width, *_ = backbone.sizes(model.config)
        self.kernels, self.head = "transformers' modules", self.parts.head(model)

    def source_kv(self, states: Tensor) -> Iterator[Sequence[Tensor]]:
        """Keys and values of a source's states, [tokens, heads · width] each, layer by layer."""
        for key, value in self.parts.source_projections(self.model):
            yield key(states), value(states)

    def states(self, look: Look) -> Tensor:
        """A cached step: the last states of the rows, [rows, width]."""
        cache, memory, source = _GridCache(look), None, None
        if not self.prompted:
            source = ~look.source_hidden
            memory = torch.zeros(*source.shape, 1, dtype=self.dtype, device=self.device)  # never looked at
            cache = _with_sources(cache, look, self.layers)
        place, key_place = look.spread(look.position), look.key_position
        given = Pass(look.spread(look.tokens), place, look.sees, key_place, memory, source, cache)
        return look.rows(given.states(self.model))


class _GridCache(Cache):  # type: ignore[misc]
    """Keys and values in the columns of a grid."""

    def __init__(self, look: Look) -> None:
        super().__init__(layers=[])
        self.look = look

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Put the new ones, [n, heads, queries, width], into their columns; all that may be looked at."""
        key, value = (self.look.rows(states.transpose(1, 2)) for states in (key_states, value_states))
        return self.look.keep(layer_idx, key, value)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """None to be counted: every token says where it stands."""
        return 0


@dataclass(slots=True)
class _Kept:
    keys: Tensor
    values: Tensor


def _with_sources(cache: Cache, look: Look, layers: int) -> EncoderDecoderCache:
    sources = _GridCache(look)
    sources.layers = [_Kept(*look.source(layer)) for layer in range(layers)]
    both = EncoderDecoderCache(cache, sources)
    both.is_updated = dict.fromkeys(range(layers), True)
    return both


def _formed(sees: Tensor, config: Any, dtype: torch.dtype) -> Tensor:
    """A mask as the model's attention takes it: [n, 1, queries, keys], boolean or to be added."""
    sees = sees[:, None]
    if config._attn_implementation != "eager":
        return sees
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill(~sees, torch.finfo(dtype).min)


@contextmanager
def _placed(decoder: Any, position: Tensor) -> Iterator[None]:
    """Look up these positions, and not those that the decoder counts; beyond the table's last one that one goes on."""

    def look_up(module: Any, *_: Any) -> Tensor:
        first = getattr(module, "offset", 0)
        places = (position + first).clamp(max=module.num_embeddings - 1)
        return F.embedding(places, module.weight)

    hook = decoder.embed_positions.register_forward_hook(look_up)
    try:
        yield
    finally:
        hook.remove()
