"""Where a model of transformers has the parts of its decoder, and how a grid runs through them. T5 has a position bias."""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.pipeline.attention import (
    PADDING,
    PROMPT_TIME,
    behind,
    number_of,
    visible,
)

#: From states to states: [..., in] → [..., out].
Function = Callable[[Tensor], Tensor]


class Layer(NamedTuple):
    """The parts of a T5's layer, each of them a norm and a module, and the position bias."""

    own: Any
    cross: Any  # None in an encoder
    feed: Any
    bias: nn.Embedding


def layers(stack: Any) -> list[Layer]:
    """The layers of an encoder or a decoder, first to last. Only a decoder's layers attend over a source."""
    first = stack.block[0].layer[0].SelfAttention
    parts = []
    for block in stack.block:
        own, *cross, feed = block.layer
        # In most T5s the first layer alone has a position bias, which all others share.
        bias = getattr(
            own.SelfAttention, "relative_attention_bias", first.relative_attention_bias
        )
        parts.append(Layer(own, cross[0] if cross else None, feed, bias))
    return parts


@cache  # a CUDA graph takes nothing from the host
@torch.inference_mode(False)  # training may ask for what decoding has made
def distance_buckets(
    buckets: int, farthest: int, device: torch.device | None = None
) -> Tensor:
    """The bucket, of so many, into which a T5's decoder sorts each distance from 0 to the `farthest`: int64 [farthest + 1].

    Half of the `buckets` are for exact distances, the others for ranges that grow
    logarithmically; the last is for all beyond.
    """
    exact = buckets // 2
    distances = torch.arange(farthest + 1)
    # All in float32, as in transformers: the borders of the ranges depend on the
    # rounding.
    share = torch.log(distances.clamp(min=1).float() / exact) / math.log(
        farthest / exact
    )
    beyond = (exact + (share * (buckets - exact)).to(torch.long)).clamp(max=buckets - 1)
    return torch.where(distances < exact, distances, beyond).to(device)


def offset_buckets(buckets: int, farthest: int) -> Tensor:
    """The bucket, of so many, of each offset between two tokens in a T5's encoder: int64 [2 · farthest + 1].

    An offset is key position − query position, from −`farthest` to `farthest`.
    """
    behind = distance_buckets(buckets // 2, farthest)
    return torch.cat([behind.flip(0), behind[1:] + buckets // 2])


def output_scale(config: Any) -> float:
    """The factor of the last hidden states before the output matrix.

    T5's config says whether to scale, mT5 never scales, UMT5 scales if its embeddings
    are tied.
    """
    if config.model_type == "mt5":
        return 1.0
    if config.model_type == "umt5":
        is_scaled = config.tie_word_embeddings
    else:
        is_scaled = config.scale_decoder_outputs
    return float(config.d_model**-0.5) if is_scaled else 1.0


@dataclass(frozen=True, slots=True)
class Modules:
    """Functions that find the parts of a decoder in a model of transformers."""

    #: The module that makes last_hidden_state of ids, places and masks.
    decoder: Callable[[Any], Any]
    head: Callable[[Any], Function]  # what makes logits of last states
    #: The two modules of a layer that make keys and values of source states. None: the
    #: model has no encoder.
    source_kv: Callable[[Any], tuple[Any, Any]] | None = None
    #: Whether positions are looked up in the decoder's table `embed_positions`.
    learned: bool = False
    biased: bool = False  # whether distances make a bias in each layer, as in a T5

    def source_projections(self, model: Any) -> list[tuple[Any, Any]]:
        """For each layer the two modules that make keys and values of source states; [] for a model without an encoder."""
        if self.source_kv is None:
            return []
        decoder = self.decoder(model)
        layers = decoder.block if self.biased else decoder.layers
        return [*map(self.source_kv, layers)]

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
        decoder = self.decoder(model)
        keys = position if key_position is None else key_position
        distances = position[:, :, None] - keys[:, None]
        arguments: dict[str, Any] = {
            "input_ids": tokens,
            "attention_mask": _attention_masks(decoder, sees, distances),
            _cache_argument(type(decoder).forward): cache,
            "use_cache": cache is not None,
        }
        if memory is not None and memory_mask is not None:
            # A T5Gemma 2 puts it beside the other mask.
            seen = memory_mask[:, None].expand(-1, tokens.shape[1], -1)
            arguments["encoder_hidden_states"] = memory
            arguments["encoder_attention_mask"] = _as_attention_mask(seen, decoder)
        placing: Any = nullcontext()
        if self.learned:
            placing = _looked_up(decoder, position)
        elif self.biased:
            placing = _biased(decoder, distances)
        else:
            arguments["position_ids"] = position
        with placing:
            states: Tensor = decoder(**arguments).last_hidden_state
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
        blind: bool = False,
        **memory: Tensor,
    ) -> Tensor:
        """Run all tokens of training grids through the decoder at once: last states, [batch, length, width].

        Args:
            model: a model of transformers.
            tokens: of the grids, int64 [batch, length].
            subsequence: of the tokens, from 1, PADDING for padding; the same shape.
            time: of the tokens, PADDING for padding; the same shape.
            prompt: of a model without an encoder, int64 [batch, prompt length]. It is
                row 0 of the grid.
            prompt_mask: 1 at the prompt's tokens, 0 at padding; the same shape.
            blind: whether each row sees the prompt and itself alone, which the times
                say (see `apart`): then each goes on right behind the prompt.
            memory: `memory` and `memory_mask` of other models; see `states`.
        """
        if prompt is None or prompt_mask is None:
            prompt = tokens[:, :0]
            prompt_mask = prompt
        padded = prompt_mask == 0
        columns = torch.arange(prompt.shape[1], device=tokens.device).expand_as(prompt)
        row = torch.zeros_like(prompt).masked_fill(padded, PADDING)
        rows = torch.cat([row, subsequence], dim=1)
        prompt_time = (columns + PROMPT_TIME).masked_fill(padded, PADDING)
        times = torch.cat([prompt_time, time], dim=1)
        padding = subsequence == PADDING
        before = prompt_mask.sum(dim=1, keepdim=True)
        if blind:
            places = before + number_of(subsequence, time)
        else:
            # How many known tokens, at most, stand before time 0.
            known = -time.masked_fill(padding, 0).amin(dim=1, keepdim=True)
            places = behind(subsequence, time, before + known)
        behind_prompt = places.masked_fill(padding, 0)
        position = torch.cat([columns.masked_fill(padded, 0), behind_prompt], dim=1)
        sees = visible((rows, times), (rows, times))
        states = self.states(
            model, torch.cat([prompt, tokens], dim=1), position, sees, **memory
        )
        return states[:, prompt.shape[1] :]


def _attention_masks(decoder: Any, sees: Tensor, distances: Tensor) -> Any:
    """The mask for all layers of a decoder, or one for each kind of layers by its name, in the form it takes them.

    `sees` and `distances` are of queries and keys, [n, queries, keys]. Layers with a
    window see only keys that are nearer than it is wide.
    """
    kinds = set(getattr(decoder.config, "layer_types", None) or ())
    window: Any = getattr(decoder.config, "sliding_window", None)
    if not kinds:
        seen = sees & (distances < window) if window else sees
        return _as_attention_mask(seen, decoder)
    masks = {"full_attention": _as_attention_mask(sees, decoder)}
    if "sliding_attention" in kinds:
        near = sees & (distances < window)
        masks["sliding_attention"] = _as_attention_mask(near, decoder)
    return masks


def _as_attention_mask(sees: Tensor, decoder: Any) -> Tensor:
    """A mask [n, 1, queries, keys] as the decoder's attention takes it: boolean, or numbers that are added to scores.

    `sees` is true where a query sees a key, bool [n, queries, keys].
    """
    sees = sees[:, None]
    if decoder.config._attn_implementation != "eager":
        return sees
    dtype = decoder.dtype
    added = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return added.masked_fill(~sees, torch.finfo(dtype).min)


@cache
def _cache_argument(forward: Callable[..., Any]) -> str:
    """The name of a decoder's cache argument: ``cache`` since transformers 5.24, which warns of the older name."""
    if "cache" in inspect.signature(forward).parameters:
        return "cache"
    return "past_key_values"


@contextmanager
def _looked_up(decoder: Any, position: Tensor) -> Iterator[None]:
    """Have the decoder look up these positions in its table, int64 [n, queries], in this context, instead of counting.

    Positions beyond its table use the last entry.
    """
    module = decoder.embed_positions
    first = getattr(module, "offset", 0)
    table = getattr(module, "weight", None)
    if table is None:  # M2M-100 computes its table
        first = module.padding_idx + 1
        table = module.weights
    # In place of its own forward, which fails where a grid has more tokens than the
    # table has entries.
    module.forward = lambda *_, **__: F.embedding(
        (position + first).clamp(max=len(table) - 1), table
    )
    try:
        yield
    finally:
        del module.forward


@contextmanager
def _biased(decoder: Any, distances: Tensor) -> Iterator[None]:
    """Have the layers of a T5 make their bias of these distances, [n, queries, keys], in this context.

    In training they do so until the next call, since the backward pass may compute
    layers again.
    """
    config = decoder.config
    buckets = config.relative_attention_num_buckets
    farthest = config.relative_attention_max_distance
    table = distance_buckets(buckets, farthest, distances.device)
    places = table[distances.clamp(0, farthest)]

    def bias(attention: Any, *_: Any, **__: Any) -> Tensor:
        values: Tensor = attention.relative_attention_bias(places)
        return values.permute(0, 3, 1, 2)

    biased = []
    for block in decoder.block:
        attention = block.layer[0].SelfAttention
        if attention.has_relative_attention_bias:
            attention.compute_bias = partial(bias, attention)
            biased.append(attention)
    try:
        yield
    finally:
        if not decoder.training:
            for attention in biased:
                del attention.compute_bias
