"""What loading, training and the engine need of a family of models, and the table of all families."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.engine.torch.parts import Function, Modules, output_scale

#: The names in an encoder-decoder's config for the id that opens a text; the first that
#: is set counts, as in transformers.
OPENERS: Final = ("decoder_start_token_id", "bos_token_id", "pad_token_id")


def listed(ids: Any) -> list[Any]:
    """The ids that a config names under one key, as a list: it may name none, one or a list of them."""
    if ids is None:
        return []
    return ids if isinstance(ids, list) else [ids]


def ends_of(config: Any) -> tuple[int, ...]:
    """All ids that end a text."""
    return tuple(listed(config.eos_token_id))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a decoder."""

    layers: int
    heads: int  # of keys and values
    head_width: int
    width: int
    feed_width: int


@dataclass(frozen=True, slots=True)
class Backbone:
    """A family of models: functions that find the parts of a model, and the sizes in its config.

    Without an encoder the source is a prompt: row 0 of the grid.
    """

    name: str  # for users
    model_types: tuple[str, ...]  # transformers' names of the members
    auto_class: str  # the class of transformers that loads them
    encoder: (
        Callable[[Any], Any] | None
    )  # a module from input_ids and attention_mask to last_hidden_state
    embedding: Callable[[Any], nn.Embedding]  # of the decoder's tokens
    sizes: Callable[[Any], Sizes]  # from the config
    parts: Modules  # of the decoder, whose layers transformers computes
    #: Whether the tokenizer's special ids stand around a source for the encoder, rather
    #: than an <eos> behind it.
    framed: bool = False

    @property
    def prompted(self) -> bool:
        """Whether the source is a prompt, which the decoder reads."""
        return self.encoder is None

    @property
    def learned(self) -> bool:
        """Whether positions, of the source and of the target, are looked up in a table."""
        return self.parts.learned

    def opener(self, config: Any) -> int:
        """The id that opens a subsequence; of a decoder-only model its bos token, else its eos token."""
        names = ("bos_token_id",) if self.prompted else OPENERS
        for name in names:
            opener = getattr(config, name, None)
            if opener is not None:
                return int(opener)
        return ends_of(config)[0]

    def fresh(self, config: Any) -> Any:
        """A model of transformers with this config, in float32, with weights drawn from torch's global generator."""
        import transformers

        if isinstance(config, SimpleNamespace):  # it was read without transformers
            usual = transformers.AutoConfig.for_model(config.model_type)
            config = type(usual).from_dict(vars(config))
        auto_class = getattr(transformers, self.auto_class)
        return auto_class.from_config(config, dtype=torch.float32)


#: The most layers, and the most of each other size in a config.
_MOST_LAYERS = 256
_MOST = 1 << 20
_MOST_PLACES = 1 << 40
_MOST_TABLE = 1 << 16
#: The sizes in a config, by their names in all families.
_SIZES: Final = (
    "vocab_size",
    "d_model",
    "d_kv",
    "d_ff",
    "num_heads",
    "hidden_size",
    "intermediate_size",
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "sliding_window",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
)
_LAYERS: Final = (
    "num_layers",
    "num_decoder_layers",
    "num_hidden_layers",
    "encoder_layers",
    "decoder_layers",
)


def check_config(config: Any) -> None:
    """Raise a ValueError for a config with ids, sizes, heads or numbers that the code of a step cannot take.

    Whether they fit the weights is checked when these are loaded.
    """
    encoder = getattr(config, "encoder", None)
    decoder = getattr(config, "decoder", None)
    for part in (config, encoder, decoder, getattr(encoder, "text_config", None)):
        if part:
            _check_sizes(part)
    ends = listed(config.eos_token_id)
    if not ends:
        raise ValueError("it names no eos_token_id, which ends a text")
    for name in OPENERS:
        opener = getattr(config, name, None)
        if opener is not None:
            _check_id(name, opener, config.vocab_size)
    for end in ends:
        _check_id("eos_token_id", end, config.vocab_size)


def _check_id(name: str, value: Any, vocab_size: int) -> None:
    """Raise a ValueError if the value of a config's key `name` is no token id."""
    if type(value) is not int or not 0 <= value < vocab_size:
        raise ValueError(f"{name} {value!r} is not below vocab_size {vocab_size}")


def _check_sizes(config: Any) -> None:
    """Raise a ValueError for sizes, heads or numbers in a config, or in one half of it, that a step cannot take."""
    _check_bounds(config)
    for name, value in vars(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    if hasattr(config, "relative_attention_num_buckets"):
        _check_buckets(config)
    if hasattr(config, "num_key_value_heads"):
        _check_heads(config)
        _check_layer_types(config)


def _check_bounds(config: Any) -> None:
    """Raise a ValueError if a size in a config is no whole number, or too large."""
    bounds = dict.fromkeys(_SIZES, _MOST) | dict.fromkeys(_LAYERS, _MOST_LAYERS)
    # BART's relatives make a table of positions.
    is_table = hasattr(config, "decoder_layers")
    bounds["max_position_embeddings"] = _MOST_TABLE if is_table else _MOST_PLACES
    for name, most in bounds.items():
        value = getattr(config, name, None)
        if value is None:
            continue
        if name == "sliding_window" and value == 0:
            continue  # none, as Qwen2-MoE's config says it
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"{name} {value!r} is no whole number from 1 to {most:,}")


def _check_buckets(config: Any) -> None:
    """Raise a ValueError if a T5's relative distances do not fit the buckets that they are sorted into."""
    farthest = config.relative_attention_max_distance
    buckets = config.relative_attention_num_buckets
    if buckets < 4 or farthest <= buckets // 2:
        known = f"relative_attention_num_buckets {buckets}"
        raise ValueError(
            f"{known} do not fit relative_attention_max_distance {farthest}"
        )


def _check_heads(config: Any) -> None:
    """Raise a ValueError if the number of a decoder-only model's heads, or their width, cannot be."""
    heads = config.num_attention_heads
    shared = config.num_key_value_heads
    if heads % (shared or heads):
        raise ValueError(
            f"num_attention_heads {heads} is no multiple of num_key_value_heads {shared}"
        )
    if (getattr(config, "head_dim", None) or 2) % 2:
        raise ValueError(
            f"head_dim {config.head_dim} is odd, and rotary positions turn pairs of numbers"
        )


def _check_layer_types(config: Any) -> None:
    """Raise a UserError if some layers of a decoder-only model do not attend, a ValueError if a window has no width."""
    kinds = set(getattr(config, "layer_types", None) or ())
    others = kinds - {"full_attention", "sliding_attention"}
    if others:
        kind = min(map(str, others))
        what = f"a {config.model_type!r} model with layers of the kind {kind!r} cannot decode a grid"
        todo = "take a model whose layers all attend; docs/backbones.md lists the tested families"
        raise UserError(what, todo=todo)
    has_window = getattr(config, "use_sliding_window", True)
    if "sliding_attention" in kinds and has_window and not config.sliding_window:
        raise ValueError(
            "there is no sliding_window for the sliding_attention of its layer_types"
        )


T5 = Backbone(
    name="T5",
    model_types=("t5", "mt5", "umt5"),
    auto_class="AutoModelForSeq2SeqLM",
    encoder=lambda model: model.encoder,
    embedding=lambda model: model.decoder.embed_tokens,
    sizes=lambda config: Sizes(
        config.num_decoder_layers,
        config.num_heads,
        config.d_kv,
        config.d_model,
        config.d_ff,
    ),
    parts=Modules(
        decoder=lambda model: model.decoder,
        head=lambda model: (
            lambda states: model.lm_head(states * output_scale(model.config))
        ),
        source_kv=lambda block: (
            block.layer[1].EncDecAttention.k,
            block.layer[1].EncDecAttention.v,
        ),
        biased=True,
    ),
)


def _rotary_sizes(config: Any) -> Sizes:
    """The sizes of a decoder with rotary positions, by its config. Several heads may share keys and values."""
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    is_new_falcon = getattr(config, "new_decoder_architecture", False)
    if getattr(config, "multi_query", False) and not is_new_falcon:
        shared = 1
    feed = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return Sizes(config.num_hidden_layers, shared, width, config.hidden_size, feed)


def _bart_sizes(config: Any) -> Sizes:
    """The sizes of a BART's decoder, by its config."""
    heads = config.decoder_attention_heads
    width: int = config.d_model
    return Sizes(
        config.decoder_layers, heads, width // heads, width, config.decoder_ffn_dim
    )


def _capped(head: Function, cap: float | None) -> Function:
    """The function `head`, which makes logits, with these bounded softly to ±cap; None is no bound."""
    if cap is None:
        return head
    return lambda states: (head(states) / cap).tanh() * cap


def _logits(model: Any) -> Function:
    """What makes logits of a decoder-only model's states: its output matrix, a factor and a bound that its config names."""
    config = model.config
    matrix = model.get_output_embeddings()
    times = getattr(config, "logit_scale", None) or 1.0
    divided_by = getattr(config, "logits_scaling", None) or 1.0
    factor = times / divided_by
    scaled = matrix if factor == 1.0 else lambda states: matrix(states) * factor
    return _capped(scaled, getattr(config, "final_logit_softcapping", None))


@cache
def _decoder_only(model_type: str) -> Backbone:
    """How a decoder-only model of any type is run. No list says which types can be: `check_fit` tries it when it is loaded."""
    return Backbone(
        name=TESTED.get(model_type, model_type),
        model_types=(model_type,),
        auto_class="AutoModelForCausalLM",
        encoder=None,
        embedding=lambda model: model.get_input_embeddings(),
        sizes=_rotary_sizes,
        parts=Modules(lambda model: model.base_model, _logits),
    )


T5GEMMA: Final = Backbone(
    name="T5Gemma",
    model_types=("t5gemma",),
    auto_class="AutoModelForSeq2SeqLM",
    encoder=lambda model: model.model.encoder,
    embedding=lambda model: model.model.decoder.embed_tokens,
    sizes=lambda config: _rotary_sizes(config.decoder),
    framed=True,
    parts=Modules(
        decoder=lambda model: model.model.decoder,
        head=lambda model: _capped(
            model.lm_head, model.config.decoder.final_logit_softcapping
        ),
        source_kv=lambda layer: (layer.cross_attn.k_proj, layer.cross_attn.v_proj),
    ),
)


def _merged_source_kv(layer: Any) -> tuple[Function, Function]:
    """What makes the keys, and what makes the values, of a source in a T5Gemma 2's layer, [..., heads * width].

    A layer has no matrices for that: it takes those of its self-attention.
    """
    own = layer.self_attn

    def keys(states: Tensor) -> Tensor:
        by_head = own.k_proj(states).unflatten(-1, (-1, own.head_dim))
        normed: Tensor = own.k_norm(by_head)
        return normed.flatten(-2)

    return keys, own.v_proj


T5GEMMA2: Final = replace(
    T5GEMMA,
    name="T5Gemma 2",
    model_types=("t5gemma2",),
    parts=replace(T5GEMMA.parts, source_kv=_merged_source_kv),
)

BART: Final = Backbone(
    name="BART",
    model_types=("bart", "pegasus", "mbart", "marian", "m2m_100"),  # NLLB is a M2M-100
    auto_class="AutoModelForSeq2SeqLM",
    encoder=lambda model: model.model.encoder,
    embedding=lambda model: model.model.decoder.embed_tokens,
    sizes=_bart_sizes,
    framed=True,
    parts=Modules(
        decoder=lambda model: model.model.decoder,
        head=lambda model: (
            lambda states: (
                model.lm_head(states) + getattr(model, "final_logits_bias", 0.0)
            )
        ),
        source_kv=lambda layer: (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj),
        learned=True,
    ),
)

#: The families with an encoder, by the names that transformers gives to their members.
FAMILIES: Final[dict[str, Backbone]] = {
    name: family
    for family in (T5, T5GEMMA, T5GEMMA2, BART)
    for name in family.model_types
}
#: The decoder-only families that were tested, by their names in transformers. Others
#: are tried as they are loaded.
TESTED: Final = {
    "llama": "Llama",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "smollm3": "SmolLM3",
    "gemma3_text": "Gemma 3",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "phi3": "Phi-3",
    "gemma2": "Gemma 2",
    "olmo2": "OLMo 2",
    "granite": "Granite",
    "qwen3_moe": "Qwen3-MoE",
    "exaone4": "EXAONE 4",
    "stablelm": "StableLM",
    "glm4": "GLM-4",
    "cohere": "Cohere",
}


def backbone_of(config: Any) -> Backbone:
    """The family of a model, by its config. A model of a type that is not listed counts as decoder-only."""
    return FAMILIES.get(config.model_type) or _decoder_only(config.model_type)
