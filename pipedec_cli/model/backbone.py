"""What loading, the training pass and the engine ask of a family of models. T5 is the first; another is another file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, nn

#: From states to states: [..., in] → [..., out].
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Form:
    """In which form the parts of a model compute: as its modules, which are trained, or laid out for stepping.

    Attributes:
        linear: a matrix product.
        apart: the products of one input with several matrices of the same size.
        norm: a norm, and a factor for its result.
        dropout: what is left out at random in training.
    """

    linear: Callable[[Any], Function]
    apart: Callable[..., Callable[[Tensor], Sequence[Tensor]]]
    norm: Callable[[Any, float], Function]
    dropout: Callable[[Any], Function]


MODULES: Final = Form(
    linear=lambda module: module,
    apart=lambda *modules: lambda x: [module(x) for module in modules],
    norm=lambda module, scale: module if scale == 1 else lambda x: module(x) * scale,
    dropout=lambda module: module,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One layer of a decoder that looks at a source, as functions; the caller says how attention is computed.

    Attributes:
        qkv: query, key and value of the grid's tokens; `source_kv`: key and value of the source's states.
        feed: the feed-forward part, without norm and residual.
        drop: applied to what each of the three parts adds.
        bias: position bias, buckets × heads; layers may share one.
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
    bias: nn.Embedding

    def __call__(
        self, hidden: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor], attend_source: Function
    ) -> Tensor:
        """From the states of the layer before, [..., d_model], to this one's.

        `attend` takes query, key and value, [..., heads · d] each, to what the grid's tokens see; `attend_source` takes
        queries to what they see of the source.
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
        dropout: the one after the embedding.
        blocks: the decoder's layers in a form, first to last.
        head: from the last layer's states to logits, in a form; the family's output scale is in it.
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
    buckets: Callable[[Any], Tensor]


def backbones() -> dict[str, Backbone]:
    """Every family there is, by what transformers calls its members."""
    from pipedec_cli.model.t5 import T5

    return {name: family for family in (T5,) for name in family.model_types}


def backbone_of(config: Any) -> Backbone:
    """The family of a model, by its config."""
    return backbones()[config.model_type]
