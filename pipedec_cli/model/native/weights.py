"""A T5's weights packed for the compiled kernels: matrices in panels, one behind the other in the order of reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.native.build import BuildError
from pipedec_cli.model.native.library import LayerStruct, Library, ModelStruct, library
from pipedec_cli.model.t5 import Layer, distance_buckets, layers, offset_buckets, output_scale

DTYPES: Final = (torch.float32, torch.bfloat16)
ACTIVATIONS: Final = ("relu", "gelu_new")
#: Bytes of a large page, to which packed weights are aligned.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """What the compiled kernels need of an encoder or a decoder.

    Attributes:
        library: the kernels.
        struct: sizes and addresses for them.
        dtype: of the weights and of what is cached.
        kept: the tensors and structures that `struct` points into.
    """

    library: Library
    struct: ModelStruct
    dtype: torch.dtype
    kept: tuple[object, ...]

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        return f"native ({self.library.features})"


def unsuited(model: Any) -> str | None:
    """Why the compiled step cannot run a model, in a few words; None if it can."""
    weights = [parameter for parameter in model.decoder.parameters() if parameter.dim() > 1]
    dtype, device = model.lm_head.weight.dtype, model.lm_head.weight.device
    if device.type != "cpu":
        return f"the device is {device.type}"
    if dtype not in DTYPES or any(weight.dtype != dtype for weight in weights):
        return "the weights are neither all float32 nor all bfloat16"
    if model.config.dense_act_fn not in ACTIVATIONS:
        return f"the activation is {model.config.dense_act_fn}"
    if model.config.d_kv % 2:
        return "the heads' width is odd"
    return None


def pack_native(model: Any, *, consume: bool = False) -> NativeWeights:
    """Pack the decoder of a T5ForConditionalGeneration (or mT5, UMT5), on the CPU. Matrices are copied, but for the embedding.

    Args:
        model: the model.
        consume: empty what is copied, so that it is not in memory twice; the model is of no use afterwards.

    Raises:
        BuildError: the kernels cannot be had, or cannot run this model.
    """
    if (reason := unsuited(model)) is not None:
        raise BuildError(reason)
    kernels = library()
    if torch.get_num_threads() > 1 and "one thread" in kernels.features:
        raise BuildError("the compiler has no OpenMP")
    found, buckets = layers(model.decoder), distance_buckets(model.config)
    tables = _shared(found, lambda weight: F.pad(weight[buckets].T, (0, 1), value=-torch.inf))
    embedding = model.decoder.embed_tokens.weight.detach()
    packing = _Packing(kernels, embedding.dtype, consume=consume)
    return packing.pack(
        model.config,
        found,
        tables,
        embedding,
        model.decoder.final_layer_norm,
        reach=len(buckets),
        head=model.lm_head.weight,
        scale=output_scale(model.config),
    )


def pack_encoder(encoder: Any, kernels: Library, *, consume: bool = False) -> NativeWeights:
    """Pack transformers' encoder of a T5 (or mT5, UMT5), in float32; see `pack_native`."""
    found, buckets = layers(encoder), offset_buckets(encoder.config)
    tables = _shared(found, lambda weight: weight[buckets].T)
    return _Packing(kernels, torch.float32, consume=consume).pack(
        encoder.config,
        found,
        tables,
        _floats(encoder.embed_tokens),
        encoder.final_layer_norm,
        reach=encoder.config.relative_attention_max_distance,
    )


class _Packing:
    """Matrices that are to lie one behind the other in one piece of memory."""

    def __init__(self, kernels: Library, dtype: torch.dtype, *, consume: bool) -> None:
        self.kernels = kernels
        self.dtype = dtype
        self.consume = consume
        self._matrices: list[tuple[list[nn.Parameter], ...]] = []
        self._offsets = [0]

    def pack(
        self,
        config: Any,
        layers: Sequence[Layer],
        tables: Sequence[Tensor],
        embedding: Tensor,
        final_norm: Any,
        *,
        reach: int,
        head: nn.Parameter | None = None,
        scale: float = 1.0,
    ) -> NativeWeights:
        """Lay all of it out; the layers are those of `t5.layers`."""
        vocabulary = 0 if head is None else len(head)  # before it may be emptied
        places = [self._add_layer(layer) for layer in layers]
        head_place = None if head is None else self._add([head])
        for layer, place in zip(layers, places, strict=True):  # not read in a step: behind all that is
            if head is not None:
                place["cross_kv"] = self._add(
                    [layer.cross_attention.k.weight, layer.cross_attention.v.weight]
                )
        arena, start = self._fill(keep=embedding)
        norms = [
            {
                name: _floats(norm)
                for name, norm in (
                    ("self_norm", layer.self_norm),
                    ("feed_norm", layer.feed_forward.layer_norm),
                    *((("cross_norm", layer.cross_norm),) if head is not None else ()),
                )
            }
            for layer in layers
        ]
        structs = (LayerStruct * len(layers))(
            *(
                LayerStruct(
                    bias=table.data_ptr(),
                    **{name: tensor.data_ptr() for name, tensor in norm.items()},
                    **{name: start + offset for name, offset in place.items()},
                )
                for norm, table, place in zip(norms, tables, places, strict=True)
            )
        )
        last = _floats(final_norm)
        struct = ModelStruct(
            layers=len(layers),
            heads=config.num_heads,
            head_width=config.d_kv,
            width=config.d_model,
            feed_width=config.d_ff,
            vocabulary=vocabulary,
            reach=reach,
            bfloat16=self.dtype == torch.bfloat16,
            gated=hasattr(layers[0].feed_forward.DenseReluDense, "wi_0"),
            gelu=config.dense_act_fn == "gelu_new",
            epsilon=config.layer_norm_epsilon,
            scale=scale,
            embedding=embedding.data_ptr(),
            final_norm=last.data_ptr(),
            head=None if head_place is None else start + head_place,
            layer=structs,
        )
        kept = (arena, norms, tables, structs, embedding, last)
        return NativeWeights(self.kernels, struct, self.dtype, kept)

    def _add_layer(self, layer: Layer) -> dict[str, int]:
        """A layer's matrices in the order in which a step reads them; gives their places by name."""
        own, feed, cross = (
            layer.self_attention,
            layer.feed_forward.DenseReluDense,
            layer.cross_attention,
        )
        inward = (feed.wi_0, feed.wi_1) if hasattr(feed, "wi_0") else (feed.wi,)
        return {
            "qkv": self._add([own.q.weight, own.k.weight, own.v.weight]),
            "self_out": self._add([own.o.weight]),
            **(
                {"cross_q": self._add([cross.q.weight]), "cross_out": self._add([cross.o.weight])}
                if cross
                else {}
            ),
            "feed_in": self._add(*([module.weight] for module in inward)),
            "feed_out": self._add([feed.wo.weight]),
        }

    def _add(self, *matrices: list[nn.Parameter]) -> int:
        """Add a matrix in parts whose outputs follow one another, or several of one shape whose panels take turns."""
        self._matrices.append(matrices)
        outputs, inputs = sum(len(part) for part in matrices[0]), matrices[0][0].shape[1]
        panels = -(-outputs // self.kernels.panel) * len(matrices)
        words = -(-inputs // 2) if self.dtype == torch.bfloat16 else inputs
        self._offsets.append(self._offsets[-1] + panels * words * self.kernels.panel * WORD)
        return self._offsets[-2]

    def _fill(self, keep: Tensor) -> tuple[Tensor, int]:
        """The memory, and the address in it at which the offsets begin; `keep` is not emptied."""
        size = -(-self._offsets[-1] // LARGE_PAGE) * LARGE_PAGE
        arena = torch.empty(size + LARGE_PAGE, dtype=torch.uint8)
        start = -(-arena.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        self.kernels.use_large_pages(start, size)
        for matrices, offset in zip(self._matrices, self._offsets, strict=False):
            for number, parts in enumerate(matrices):
                matrix = torch.cat([part.detach().to(self.dtype) for part in parts]).contiguous()
                self.kernels.pack(
                    matrix.data_ptr(),
                    (len(matrix), matrix.shape[1]),
                    start + offset,
                    bfloat16=self.dtype == torch.bfloat16,
                    first=number,
                    every=len(matrices),
                    threads=torch.get_num_threads(),
                )
                for part in parts:
                    if self.consume and part.data_ptr() != keep.data_ptr():
                        part.data = part.data.new_empty(0)
        return arena, start


def _floats(module: Any) -> Tensor:
    """A module's weight in float32, in one piece."""
    values: Tensor = module.weight.detach().float().contiguous()
    return values


def _shared(layers: Sequence[Layer], table: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The position bias of each layer, float32 [heads, distances]; layers that share an embedding share the table."""
    made = {id(layer.bias): layer.bias for layer in layers}
    tables = {key: table(_floats(bias)).contiguous() for key, bias in made.items()}
    return [tables[id(layer.bias)] for layer in layers]
