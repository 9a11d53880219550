"""What loading, training and the engine need of a family of models. A new family is another entry in `families`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import nn

from pipedec_cli.model.engine.torch.parts import Blocks, Modules

#: The names in an encoder-decoder's config for the id that opens a text; the first that is set counts, as in transformers.
OPENERS: Final = ("decoder_start_token_id", "bos_token_id", "pad_token_id")


def eos_of(config: Any) -> int:
    """The id that ends a subsequence or a source."""
    eos = config.eos_token_id
    return int(eos[0] if isinstance(eos, list) else eos)


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

        if isinstance(config, SimpleNamespace):  # of a model that was read without transformers
            config = type(transformers.AutoConfig.for_model(config.model_type)).from_dict(vars(config))
        return getattr(transformers, self.auto_class).from_config(config, dtype=torch.float32)
