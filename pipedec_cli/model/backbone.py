"""What loading, the training pass and the engine ask of a family of models; a new family is another entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import torch
from msgspec import Meta, Struct
from torch import nn

from pipedec_cli.model.engine.torch.block import Blocks
from pipedec_cli.model.engine.torch.modules import Modules

#: What a config.json may hold.
TokenId = Annotated[int, Meta(ge=0)]
TokenIds = TokenId | Annotated[list[TokenId], Meta(min_length=1)]
Size = Annotated[int, Meta(ge=1, le=1 << 20)]
Layers = Annotated[int, Meta(ge=1, le=256)]
#: Where the config of an encoder-decoder says what opens a text: the first that is there, as transformers has it.
OPENERS: Final = ("decoder_start_token_id", "bos_token_id", "pad_token_id")


def start_of(config: Any) -> int:
    """The id that opens a text of an encoder-decoder."""
    named = (getattr(config, name, None) for name in OPENERS)
    return int(next(one for one in named if one is not None))


def eos_of(config: Any) -> int:
    """The id that ends a subsequence or a source."""
    eos = config.eos_token_id
    return int(eos[0] if isinstance(eos, list) else eos)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a decoder: its layers, the heads and the heads' width of its keys and values, and the widths that buffers take."""

    layers: int
    heads: int
    head_width: int
    width: int
    feed_width: int


@dataclass(frozen=True, slots=True)
class Backbone:
    """A family of models: the names of its members, and functions that find the parts of a model, ids in its config.

    The layers of its decoder are `parts`: written here as functions, or driven through transformers' modules. Where there
    is no encoder, the source is a prompt: row 0 of the grid.
    """

    name: str  # what users call it
    model_types: tuple[str, ...]  # what transformers calls its members
    auto_class: str  # the class of transformers that loads them
    config: type[Struct]  # what is taken from a config.json, with types and bounds
    encoder: Callable[[Any], Any] | None  # a module from input_ids and attention_mask to last_hidden_state
    embedding: Callable[[Any], nn.Embedding]  # of the decoder's tokens
    sizes: Callable[[Any], Sizes]  # from the config
    parts: Blocks | Modules
    opener: Callable[[Any], int] = start_of  # the id that opens a subsequence, from the config
    #: Whether an encoder's source stands between the ids that the tokenizer puts around it, and not before an <eos>.
    framed: bool = False
    #: The sizes of all that its checkpoints hold, by name, from the config; None where only transformers knows.
    parameters: Callable[[Any], dict[str, tuple[int, ...]]] | None = None
    #: Weights that checkpoints may hold and nothing reads.
    unread: tuple[str, ...] = ()
    #: Modules whose weight is another's, by its name, where a checkpoint has none for them.
    shared: Mapping[str, str] = field(default_factory=dict)

    @property
    def prompted(self) -> bool:
        """Whether the source is a prompt, which the decoder's own layers read."""
        return self.encoder is None

    @property
    def learned(self) -> bool:
        """Whether its tokens are looked up in a table of places, of the source and of the target."""
        return getattr(self.parts, "learned", False)

    def fresh(self, config: Any) -> Any:
        """A model of such a config, in float32, whose weights are drawn from torch's global generator."""
        import transformers

        return getattr(transformers, self.auto_class).from_config(config, dtype=torch.float32)
