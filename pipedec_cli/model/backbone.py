"""What loading, the training pass and the engine ask of a family of models. T5 is the first; another is another file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

#: From states to states: [..., in] → [..., out].
Function = Callable[[Tensor], Tensor]


class Form(Protocol):
    """In which form the parts of a model compute: as modules that are trained, or laid out for stepping."""

    def linear(self, module: Any) -> Function:
        """A matrix product."""

    def apart(self, *modules: Any) -> Callable[[Tensor], Sequence[Tensor]]:
        """Products of one input with several matrices of the same size."""

    def norm(self, module: Any, scale: float = 1.0) -> Function:
        """A norm, and what its result is multiplied with."""

    def dropout(self, module: Any) -> Function:
        """What is left out at random in training."""


class Modules:
    """The form in which a model is trained: its own modules."""

    def linear(self, module: Any) -> Function:
        """The module."""
        return module  # type: ignore[no-any-return]

    def apart(self, *modules: Any) -> Callable[[Tensor], Sequence[Tensor]]:
        """One after the other."""
        return lambda x: [module(x) for module in modules]

    def norm(self, module: Any, scale: float = 1.0) -> Function:
        """The module, scaled."""
        return module if scale == 1.0 else lambda x: module(x) * scale

    def dropout(self, module: Any) -> Function:
        """The module."""
        return module  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Block:
    """One layer of a decoder that looks at a source, as functions; the caller says how attention is computed.

    `qkv` gives query, key and value of the grid's tokens, `source_kv` key and value of the source's states. `drop` is
    applied to what each of the three parts adds; `feed` is the feed-forward part without norm and residual.
    """

    norm: Function
    qkv: Callable[[Tensor], Sequence[Tensor]]
    out: Function
    source_norm: Function
    source_q: Function
    source_kv: Callable[[Tensor], Sequence[Tensor]]
    source_out: Function
    feed_norm: Function
    feed: Function
    drop: Function

    def __call__(
        self, hidden: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor], attend_source: Function
    ) -> Tensor:
        """States [..., d_model] to states: attention over the grid, over the source, then the feed-forward part.

        Args:
            hidden: the states that came from the layer before.
            attend: from query, key and value, [..., heads · d] each, to what the grid's tokens see, in the same shape.
            attend_source: from queries to what they see of the source.
        """
        hidden = hidden + self.drop(self.out(attend(*self.qkv(self.norm(hidden)))))
        hidden = hidden + self.drop(self.source_out(attend_source(self.source_q(self.source_norm(hidden)))))
        return hidden + self.drop(self.feed(self.feed_norm(hidden)))


@dataclass(frozen=True, slots=True)
class Backbone:
    """A family of models, whose parts are found from a model or its config.

    Attributes:
        model_types: what transformers calls its members.
        auto_class: the class of transformers that loads them.
        opener: the id that opens a subsequence, from the config.
        eos: the id that ends a subsequence or a source, from the config.
        encoder: the module from ``input_ids`` and ``attention_mask`` to ``last_hidden_state``.
        embedding: of the decoder's tokens.
        dropout: the one after the embedding, and after the last norm.
        blocks: the decoder's layers in a form, first to last.
        head: from the last layer's states to logits, in a form; the family's output scale is in it.
        biases: each layer's position bias, buckets × heads; layers may share one.
        buckets: the bucket of each distance, int64 [farthest + 1], from the config; the last serves all beyond.
    """

    model_types: tuple[str, ...]
    auto_class: str
    opener: Callable[[Any], int]
    eos: Callable[[Any], int]
    encoder: Callable[[Any], Any]
    embedding: Callable[[Any], nn.Embedding]
    dropout: Callable[[Any], Function]
    blocks: Callable[[Any, Form], list[Block]]
    head: Callable[[Any, Form], Function]
    biases: Callable[[Any], list[nn.Embedding]]
    buckets: Callable[[Any], Tensor]


def backbones() -> tuple[Backbone, ...]:
    """Every family there is."""
    from pipedec_cli.model.t5 import T5

    return (T5,)


def backbone_of(config: Any) -> Backbone:
    """The family of a model, by its config.

    Raises:
        KeyError: there is no such family.
    """
    for backbone in backbones():
        if config.model_type in backbone.model_types:
            return backbone
    raise KeyError(config.model_type)
