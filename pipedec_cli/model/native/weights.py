"""A T5's weights packed for the compiled kernels: matrices in panels, one behind the other in the order of reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.native.build import BuildError
from pipedec_cli.model.native.library import LayerStruct, Library, ModelStruct, library
from pipedec_cli.model.t5 import distance_buckets, layers, offset_buckets, output_scale

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
    buckets = distance_buckets(model.config)
    return _pack(
        model.decoder,
        _Packing(kernels, model.decoder.embed_tokens.weight.dtype, consume=consume),
        lambda weight: F.pad(weight[buckets].T, (0, 1), value=-torch.inf),
        reach=len(buckets),
        head=model.lm_head,
        scale=output_scale(model.config),
    )


def pack_encoder(encoder: Any, kernels: Library, *, consume: bool = False) -> NativeWeights:
    """Pack transformers' encoder of a T5 (or mT5, UMT5), in float32; see `pack_native`."""
    buckets = offset_buckets(encoder.config)
    return _pack(
        encoder,
        _Packing(kernels, torch.float32, consume=consume),
        lambda weight: weight[buckets].T,
        reach=encoder.config.relative_attention_max_distance,
    )


class _Packing:
    """Matrices that are to lie one behind the other in one piece of memory."""

    def __init__(self, kernels: Library, dtype: torch.dtype, *, consume: bool) -> None:
        self.kernels = kernels
        self.dtype = dtype
        self.consume = consume
        self._matrices: list[list[list[nn.Parameter]]] = []
        self._offsets = [0]

    def add(self, *modules: Any, in_turn: bool = False) -> int:
        """Add modules of the same width: their outputs follow one another, or panels of each take turns."""
        parts = [module.weight for module in modules]
        matrices = [[part] for part in parts] if in_turn else [parts]
        self._matrices.append(matrices)
        outputs, inputs = sum(len(part) for part in matrices[0]), parts[0].shape[1]
        panels = -(-outputs // self.kernels.panel) * len(matrices)
        words = -(-inputs // 2) if self.dtype == torch.bfloat16 else inputs
        self._offsets.append(self._offsets[-1] + panels * words * self.kernels.panel * WORD)
        return self._offsets[-2]

    def fill(self, keep: Tensor) -> tuple[Tensor, int]:
        """The memory, and the address in it from which the offsets count; `keep` is not emptied."""
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


def _pack(
    stack: Any,
    packing: _Packing,
    table: Callable[[Tensor], Tensor],
    *,
    reach: int,
    head: Any = None,
    scale: float = 1.0,
) -> NativeWeights:
    """Pack an encoder or, with its head, a decoder; `table` gives a layer's bias by distance from its embedding."""
    config, found = stack.config, layers(stack)
    vocabulary = 0 if head is None else len(head.weight)  # before it may be emptied
    embedding = stack.embed_tokens.weight.detach().to(packing.dtype)
    gated = hasattr(found[0].feed_forward.DenseReluDense, "wi_0")
    places, tensors, tables = [], [], {}
    for layer in found:
        own, feed = layer.self_attention, layer.feed_forward
        dense = feed.DenseReluDense
        place = {"qkv": packing.add(own.q, own.k, own.v), "self_out": packing.add(own.o)}
        norms = {"self_norm": layer.self_norm, "feed_norm": feed.layer_norm}
        if head is not None:
            norms["cross_norm"] = layer.cross_norm
            place["cross_q"] = packing.add(layer.cross_attention.q)
            place["cross_out"] = packing.add(layer.cross_attention.o)
        inward = (dense.wi_0, dense.wi_1) if gated else (dense.wi,)
        place["feed_in"], place["feed_out"] = packing.add(*inward, in_turn=True), packing.add(dense.wo)
        if id(layer.bias) not in tables:  # layers that share an embedding share the table
            tables[id(layer.bias)] = table(_floats(layer.bias)).contiguous()
        places.append(place)
        tensors.append(
            {**{name: _floats(norm) for name, norm in norms.items()}, "bias": tables[id(layer.bias)]}
        )
    head_place = None if head is None else packing.add(head)
    for layer, place in zip(found, places, strict=True):  # not read in a step: behind all that is
        if head is not None:
            place["cross_kv"] = packing.add(layer.cross_attention.k, layer.cross_attention.v)
    arena, start = packing.fill(keep=embedding)
    structs = (LayerStruct * len(found))(
        *(
            LayerStruct(
                **{name: tensor.data_ptr() for name, tensor in some.items()},
                **{name: start + offset for name, offset in place.items()},
            )
            for some, place in zip(tensors, places, strict=True)
        )
    )
    last = _floats(stack.final_layer_norm)
    struct = ModelStruct(
        layers=len(found),
        heads=config.num_heads,
        head_width=config.d_kv,
        width=config.d_model,
        feed_width=config.d_ff,
        vocabulary=vocabulary,
        reach=reach,
        bfloat16=packing.dtype == torch.bfloat16,
        gated=gated,
        gelu=config.dense_act_fn == "gelu_new",
        epsilon=config.layer_norm_epsilon,
        scale=scale,
        embedding=embedding.data_ptr(),
        final_norm=last.data_ptr(),
        head=None if head_place is None else start + head_place,
        layer=structs,
    )
    return NativeWeights(packing.kernels, struct, packing.dtype, (arena, tensors, structs, embedding, last))


def _floats(module: Any) -> Tensor:
    """A module's weight in float32, in one piece."""
    values: Tensor = module.weight.detach().float().contiguous()
    return values
