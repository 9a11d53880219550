"""A T5's weights packed for the compiled kernels: matrices in panels, one behind the other in the order of reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.native.library import BuildError, LayerStruct, Library, ModelStruct, library
from pipedec_cli.model.t5 import distance_buckets, layers, offset_buckets, output_scale

DTYPES: Final = (torch.float32, torch.bfloat16)
ACTIVATIONS: Final = ("relu", "gelu_new")
#: Bytes of a large page, to which packed weights are aligned.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """What the compiled kernels need of an encoder or a decoder: `struct` points into the tensors that are `kept`.

    The dtype is that of the weights and of what is cached.
    """

    library: Library
    struct: ModelStruct
    dtype: torch.dtype
    kept: tuple[object, ...]

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        return f"native ({self.library.features})"


def _unsuited(model: Any) -> str | None:
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
    """Pack the decoder of a T5ForConditionalGeneration (or mT5, UMT5), on the CPU; a BuildError where that cannot be.

    Matrices are copied, but for the embedding; `consume` empties what is copied, so that it is not in memory twice. The
    model is of no use afterwards.
    """
    if (reason := _unsuited(model)) is not None:
        raise BuildError(reason)
    kernels = library()
    if torch.get_num_threads() > 1 and "one thread" in kernels.features:
        raise BuildError("the compiler has no OpenMP")
    buckets = distance_buckets(model.config)
    packing = _Packing(kernels, model.decoder.embed_tokens.weight.dtype, consume=consume)
    tables = _tables(model.decoder, lambda weight: F.pad(weight[buckets].T, (0, 1), value=-torch.inf))
    return _pack(
        model.decoder, packing, tables, len(buckets), head=model.lm_head, scale=output_scale(model.config)
    )


def pack_encoder(encoder: Any, kernels: Library, *, consume: bool = False) -> NativeWeights:
    """Pack transformers' encoder of a T5 (or mT5, UMT5), in float32; see `pack_native`."""
    buckets, reach = offset_buckets(encoder.config), encoder.config.relative_attention_max_distance
    tables = _tables(encoder, lambda weight: weight[buckets].T)
    return _pack(encoder, _Packing(kernels, torch.float32, consume=consume), tables, reach)


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
                self.kernels.pack(matrix, start + offset, number, len(matrices))
                for part in parts:
                    if self.consume and part.data_ptr() != keep.data_ptr():
                        part.data = part.data.new_empty(0)
        return arena, start


def _tables(stack: Any, table: Callable[[Tensor], Tensor]) -> dict[int, Tensor]:
    """The bias by distance for each embedding's id: layers that share an embedding share the table."""
    embeddings = {id(layer.bias): layer.bias for layer in layers(stack)}
    return {key: table(_floats(embedding)).contiguous() for key, embedding in embeddings.items()}


def _pack(
    stack: Any,
    packing: _Packing,
    tables: Mapping[int, Tensor],
    reach: int,
    *,
    head: Any = None,
    scale: float = 1.0,
) -> NativeWeights:
    """Pack an encoder or, with its head, a decoder."""
    config, found, add = stack.config, layers(stack), packing.add
    vocabulary = 0 if head is None else len(head.weight)  # before it may be emptied
    embedding = stack.embed_tokens.weight.detach().to(packing.dtype)
    places, tensors = [], []
    for layer in found:
        own, cross, dense = layer.self_attention, layer.cross_attention, layer.feed_forward.DenseReluDense
        norms = {"self_norm": layer.self_norm, "feed_norm": layer.feed_forward.layer_norm}
        place = {"qkv": add(own.q, own.k, own.v), "self_out": add(own.o)}
        if head is not None:
            norms["cross_norm"] = layer.cross_norm
            place |= {"cross_q": add(cross.q), "cross_out": add(cross.o)}
        gated = hasattr(dense, "wi_0")
        place["feed_in"] = add(dense.wi_0, dense.wi_1, in_turn=True) if gated else add(dense.wi)
        place["feed_out"] = add(dense.wo)
        places.append(place)
        floats = {name: _floats(norm) for name, norm in norms.items()}
        tensors.append({**floats, "bias": tables[id(layer.bias)]})
    head_place = None if head is None else add(head)
    for layer, place in zip(found, places, strict=True):  # not read in a step: behind all that is
        if head is not None:
            place["cross_kv"] = add(layer.cross_attention.k, layer.cross_attention.v)
    arena, start = packing.fill(keep=embedding)
    structs = (LayerStruct * len(found))()
    for struct, some, place in zip(structs, tensors, places, strict=True):
        for name, tensor in some.items():
            setattr(struct, name, tensor.data_ptr())
        for name, offset in place.items():
            setattr(struct, name, start + offset)
    last = _floats(stack.final_layer_norm)
    whole = ModelStruct(
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
    return NativeWeights(packing.kernels, whole, packing.dtype, (arena, tensors, structs, embedding, last))


def _floats(module: Any) -> Tensor:
    """A module's weight in float32, in one piece."""
    values: Tensor = module.weight.detach().float().contiguous()
    return values
