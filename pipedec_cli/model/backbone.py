"""What loading, training and the engine need of a family of models. A new family is another entry in `families`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Final, Literal

import torch
from msgspec import Meta, Struct
from torch import nn

from pipedec_cli.model.engine.torch.block import Blocks
from pipedec_cli.model.engine.torch.modules import Modules

#: Types of values in a config.json.
TokenId = Annotated[int, Meta(ge=0)]
TokenIds = TokenId | Annotated[list[TokenId], Meta(min_length=1)]
Size = Annotated[int, Meta(ge=1, le=1 << 20)]
Layers = Annotated[int, Meta(ge=1, le=256)]
#: The functions between two products of a layer, by their names in transformers.
Activation = Literal[
    "gelu",
    "gelu_accurate",
    "gelu_fast",
    "gelu_new",
    "gelu_python",
    "gelu_pytorch_tanh",
    "hardswish",
    "leaky_relu",
    "linear",
    "mish",
    "quick_gelu",
    "relu",
    "relu2",
    "relu6",
    "sigmoid",
    "silu",
    "swish",
    "tanh",
]


#: The names in an encoder-decoder's config for the id that opens a text; the first that is set counts, as in transformers.
OPENERS: Final = ("decoder_start_token_id", "bos_token_id", "pad_token_id")


def eos_of(config: Any) -> int:
    """The id that ends a subsequence or a source."""
    eos = config.eos_token_id
    return int(eos[0] if isinstance(eos, list) else eos)


def require_ids(config: Any, *names: str) -> None:
    """Refuse, with a ValueError, a config whose ids of these names are not in the vocabulary."""
    for name in names:
        given = getattr(config, name)
        for value in given if isinstance(given, list) else [given or 0]:
            if value >= config.vocab_size:
                raise ValueError(f"{name} {value} is not below vocab_size {config.vocab_size}")


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

    The decoder's layers are `parts`: `Blocks`, which are computed here, or `Modules`, which transformers computes.
    Without an encoder the source is a prompt: row 0 of the grid.
    """

    name: str  # for users
    model_types: tuple[str, ...]  # transformers' names of the members
    auto_class: str  # the class of transformers that loads them
    config: type[Struct]  # the part of a config.json that is read, with types and bounds
    encoder: Callable[[Any], Any] | None  # a module from input_ids and attention_mask to last_hidden_state
    embedding: Callable[[Any], nn.Embedding]  # of the decoder's tokens
    sizes: Callable[[Any], Sizes]  # from the config
    parts: Blocks | Modules
    #: Whether the tokenizer's special ids stand around a source for the encoder, rather than an <eos> behind it.
    framed: bool = False

    @property
    def prompted(self) -> bool:
        """Whether the source is a prompt, which the decoder reads."""
        return self.encoder is None

    @property
    def learned(self) -> bool:
        """Whether positions, of the source and of the target, are looked up in a table."""
        return getattr(self.parts, "learned", False)

    def opener(self, config: Any) -> int:
        """The id that opens a subsequence; of a decoder-only model its bos token, else its eos token."""
        names = ("bos_token_id",) if self.prompted else OPENERS
        given = (getattr(config, name, None) for name in names)
        opener = next((value for value in given if value is not None), None)
        return eos_of(config) if opener is None else int(opener)

    def fresh(self, config: Any) -> Any:
        """A model in float32 with weights drawn from torch's global generator."""
        import transformers

        if isinstance(config, SimpleNamespace):  # of a prepared model
            config = type(transformers.AutoConfig.for_model(config.model_type)).from_dict(vars(config))
        return getattr(transformers, self.auto_class).from_config(config, dtype=torch.float32)
