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

from pipedec_cli.pipeline.attention import PADDING, PROMPT_TIME, behind, visible

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
    found = []
    for block in stack.block:
        own, *cross, feed = block.layer
        bias = getattr(
            own.SelfAttention, "relative_attention_bias", first.relative_attention_bias
        )
        found.append(Layer(own, cross[0] if cross else None, feed, bias))
    return found


@cache  # a CUDA graph takes nothing from the host
@torch.inference_mode(False)  # training may ask for what decoding has made
def distance_buckets(
    buckets: int, farthest: int, device: torch.device | None = None
) -> Tensor:
    """The bucket of each distance from 0 to the `farthest`: int64 [farthest + 1].

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
    """The encoder's bucket of each offset, key position − query position, from −`farthest` to `farthest`."""
    behind = distance_buckets(buckets // 2, farthest)
    return torch.cat([behind.flip(0), behind[1:] + buckets // 2])


def output_scale(config: Any) -> float:
    """The factor of the last hidden states before the output matrix.

    T5's config says whether to scale, mT5 never scales, UMT5 scales if its embeddings
    are tied.
    """
    if config.model_type == "mt5":
        return 1.0
    scaled = (
        config.tie_word_embeddings
        if config.model_type == "umt5"
        else config.scale_decoder_outputs
    )
    return float(config.d_model**-0.5) if scaled else 1.0


@dataclass(frozen=True, slots=True)
class Modules:
    """Functions that find the parts of a decoder in a model of transformers."""

    decoder: Callable[
        [Any], Any
    ]  # the module from ids, places and masks to last_hidden_state
    head: Callable[[Any], Function]  # from last states to logits
    #: The two modules of a layer that make keys and values of source states. None: the
    #: model has no encoder.
    source_kv: Callable[[Any], tuple[Any, Any]] | None = None
    learned: bool = (
        False  # positions are looked up in the decoder's table `embed_positions`
    )
    biased: bool = False  # distances make a bias in each layer, as in a T5

    def source_projections(self, model: Any) -> list[tuple[Any, Any]]:
        """The modules `source_kv` of each layer; empty for a model without an encoder."""
        decoder = self.decoder(model)
        return (
            [*map(self.source_kv, decoder.block if self.biased else decoder.layers)]
            if self.source_kv
            else []
        )

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
        **memory: Tensor,
    ) -> Tensor:
        """The full pass over the tokens of a grid: [batch, length, width]; see `training.loss.full_states`.

        A model without an encoder has a `prompt`, int64 [batch, prompt length], and a
        `prompt_mask` that is 1 at its tokens and 0 at padding. Others have `memory` and
        `memory_mask`; see `states`.
        """
        prompt = tokens[:, :0] if prompt is None else prompt
        prompt_mask = prompt if prompt_mask is None else prompt_mask
        padded = prompt_mask == 0
        columns = torch.arange(prompt.shape[1], device=tokens.device).expand_as(prompt)
        rows = torch.cat(
            [torch.zeros_like(prompt).masked_fill(padded, PADDING), subsequence], dim=1
        )
        times = torch.cat(
            [(columns + PROMPT_TIME).masked_fill(padded, PADDING), time], dim=1
        )
        padding = subsequence == PADDING
        known = -time.masked_fill(padding, 0).amin(dim=1, keepdim=True)
        before = known + prompt_mask.sum(dim=1, keepdim=True)
        behind_prompt = behind(subsequence, time, before).masked_fill(padding, 0)
        position = torch.cat([columns.masked_fill(padded, 0), behind_prompt], dim=1)
        sees = visible((rows, times), (rows, times))
        states = self.states(
            model, torch.cat([prompt, tokens], dim=1), position, sees, **memory
        )
        return states[:, prompt.shape[1] :]


def _attention_masks(decoder: Any, sees: Tensor, distances: Tensor) -> Any:
    """The mask of all layers, or of each kind of layers by its name. Layers with a window see what is nearer."""
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
    """A mask [n, 1, queries, keys] as the decoder's attention takes it: boolean, or numbers that are added to scores."""
    sees, dtype = sees[:, None], decoder.dtype
    if decoder.config._attn_implementation != "eager":
        return sees
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill(
        ~sees, torch.finfo(dtype).min
    )


@cache
def _cache_argument(forward: Callable[..., Any]) -> str:
    """The name of a decoder's cache argument: ``cache`` since transformers 5.24, which warns of the older name."""
    return (
        "cache"
        if "cache" in inspect.signature(forward).parameters
        else "past_key_values"
    )


@contextmanager
def _looked_up(decoder: Any, position: Tensor) -> Iterator[None]:
    """Have the decoder look up these positions instead of counting. Positions beyond its table use the last entry."""
    module = decoder.embed_positions
    first, table = getattr(module, "offset", 0), getattr(module, "weight", None)
    if table is None:  # M2M-100 computes its table
        first, table = module.padding_idx + 1, module.weights
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
def _biased(decoder: Any, apart: Tensor) -> Iterator[None]:
    """Have the layers of a T5 make their bias of these distances, [n, queries, keys].

    In training they do so until the next call, since the backward pass may compute
    layers again.
    """
    config = decoder.config
    buckets, farthest = (
        config.relative_attention_num_buckets,
        config.relative_attention_max_distance,
    )
    table = distance_buckets(buckets, farthest, apart.device)
    places = table[apart.clamp(0, farthest)]

    def bias(attention: Any, *_: Any, **__: Any) -> Tensor:
        values: Tensor = attention.relative_attention_bias(places)
        return values.permute(0, 3, 1, 2)

    found = [block.layer[0].SelfAttention for block in decoder.block]
    found = [attention for attention in found if attention.has_relative_attention_bias]
    for attention in found:
        attention.compute_bias = partial(bias, attention)
    try:
        yield
    finally:
        for attention in found if not decoder.training else ():
            del attention.compute_bias
