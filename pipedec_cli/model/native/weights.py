"""A T5's weights packed for the compiled kernels, and the compiled encoder.

Matrices are in panels, one behind the other in the order of reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import Structure
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from pipedec_cli.model.native.kinds import kind_of
from pipedec_cli.model.native.library import BuildError, LayerStruct, Library, ModelStruct, library
from pipedec_cli.model.t5 import distance_buckets, layers, offset_buckets, output_scale

DTYPES: Final = (torch.float32, torch.bfloat16)
ACTIVATIONS: Final = ("relu", "gelu_new")
#: Bytes of a large page, to which packed weights are aligned.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4
#: Tokens that are encoded together, unless a single source has more: enough to use the arithmetic fully, few enough
#: for the buffers to stay small.
TOKENS_TOGETHER: Final = 2048


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """What the compiled kernels need of an encoder or a decoder: `struct` points into the tensors that are `kept`.

    The dtype is that of the weights and, but for int8, of what is cached.
    """

    library: Library
    struct: ModelStruct
    dtype: torch.dtype
    kept: list[object]

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


def pack_native(model: Any, dtype: torch.dtype | None = None, *, consume: bool = False) -> NativeWeights:
    """Pack the decoder of a T5ForConditionalGeneration (or mT5, UMT5), on the CPU; a BuildError where that cannot be.

    The dtype is the model's own, or int8 to have its matrices rounded to that, with a scale for each output.
    Matrices are copied, but for the embedding; `consume` empties what is copied, so that it is not in memory twice. The
    model is of no use afterwards.
    """
    if (reason := _unsuited(model)) is not None:
        raise BuildError(reason)
    kernels = library()
    if torch.get_num_threads() > 1 and "one thread" in kernels.features:
        raise BuildError("the compiler has no OpenMP")
    buckets = distance_buckets(model.config)
    packing = _Packing(kernels, dtype or model.decoder.embed_tokens.weight.dtype, consume=consume)
    tables = _tables(model.decoder, lambda weight: F.pad(weight[buckets].T, (0, 1), value=-torch.inf))
    scale = output_scale(model.config)
    return _pack(model.decoder, packing, tables, len(buckets), head=model.lm_head, scale=scale)


class NativeEncoder(nn.Module):
    """A T5's encoder, in one call of C++ for several sources. A state depends on its own source alone.

    Its matrices are made float32, or what else the dtype says; what it gives is float32.
    """

    def __init__(
        self, encoder: Any, kernels: Library, dtype: torch.dtype = torch.float32, *, consume: bool = False
    ) -> None:
        super().__init__()
        config, packing = encoder.config, _Packing(kernels, dtype, consume=consume)
        buckets = offset_buckets(config)
        tables = _tables(encoder, lambda weight: weight[buckets].T)
        self.weights = _pack(encoder, packing, tables, config.relative_attention_max_distance)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutput:
        """Encode as transformers does: ids and mask int64 [sources, longest], each source's padding behind it.

        ``last_hidden_state`` is float32 [sources, longest, d_model], 0 beyond a source's end.
        """
        longest = input_ids.shape[1]
        lengths = attention_mask.sum(dim=1).tolist()
        sources = [ids[:length] for ids, length in zip(input_ids.tolist(), lengths, strict=True)]
        states = torch.zeros(len(sources), longest, self.weights.struct.width)
        together = max(1, TOKENS_TOGETHER // longest)
        for first in range(0, len(sources), together):
            portion = sources[first : first + together]
            self.weights.library.encode(self.weights.struct, portion, states[first:])
        return BaseModelOutput(last_hidden_state=states)


class _Packing:
    """Matrices that are to lie one behind the other in one piece of memory."""

    def __init__(self, kernels: Library, dtype: torch.dtype, *, consume: bool) -> None:
        self.kernels, self.dtype, self.consume = kernels, dtype, consume
        self.kind = kind_of(kernels, dtype)
        self.narrow = torch.bfloat16 if dtype == torch.int8 else dtype  # what is looked up and not multiplied
        self._added: list[tuple[Structure, str, int, list[list[nn.Parameter]]]] = []
        self._size = 0

    def add(
        self, struct: Structure, name: str, outputs: int, inputs: int, *modules: Any, in_turn: bool = False
    ) -> None:
        """Add modules [outputs, inputs] for a field: one after the other, or panels of each take turns; else a BuildError."""
        parts = [module.weight for module in modules]
        if any(part.shape != (outputs, inputs) for part in parts):
            raise BuildError(f"{name} is not of the size that the config says")
        matrices = [[part] for part in parts] if in_turn else [parts]
        self._added.append((struct, name, self._size, matrices))
        words = self.kernels.words(self.kind, outputs * len(matrices[0]), inputs)
        self._size += len(matrices) * words * WORD

    def fill(self, keep: Tensor) -> Tensor:
        """The memory, to which all fields point now; `keep` is not emptied."""
        size = -(-self._size // LARGE_PAGE) * LARGE_PAGE
        arena = torch.empty(size + LARGE_PAGE, dtype=torch.uint8)
        start = -(-arena.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        self.kernels.use_large_pages(start, size)
        given = torch.float32 if self.dtype == torch.int8 else self.dtype
        for struct, name, offset, matrices in self._added:
            setattr(struct, name, start + offset)
            for number, parts in enumerate(matrices):
                matrix = torch.cat([part.detach().to(given) for part in parts]).contiguous()
                self.kernels.pack(self.kind, matrix, start + offset, number, len(matrices))
                for part in parts:
                    if self.consume and part.data_ptr() != keep.data_ptr():
                        part.data = part.data.new_empty(0)
        return arena


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
    looked_up = stack.embed_tokens.weight
    embedding = looked_up.detach().to(packing.narrow, copy=packing.consume and head is not None)
    last, structs = _floats(stack.final_layer_norm), (LayerStruct * len(found))()
    width, inner, wide = config.d_model, config.num_heads * config.d_kv, config.d_ff
    gated = hasattr(found[0].feed_forward.DenseReluDense, "wi_0")
    whole = ModelStruct(
        layers=len(found),
        heads=config.num_heads,
        head_width=config.d_kv,
        width=width,
        feed_width=wide,
        vocabulary=len(embedding),
        reach=reach,
        weights=packing.kind.weights,
        pairs=packing.kind.pairs,
        tiles=packing.kind.tiles,
        gated=gated,
        gelu=config.dense_act_fn == "gelu_new",
        epsilon=config.layer_norm_epsilon,
        scale=scale,
        embedding=embedding.data_ptr(),
        final_norm=last.data_ptr(),
        layer=structs,
    )
    kept: list[object] = [structs, embedding, last]
    for struct, layer in zip(structs, found, strict=True):
        own, cross, dense = layer.self_attention, layer.cross_attention, layer.feed_forward.DenseReluDense
        norms = {"self_norm": layer.self_norm, "feed_norm": layer.feed_forward.layer_norm}
        add(struct, "qkv", inner, width, own.q, own.k, own.v)
        add(struct, "self_out", width, inner, own.o)
        if head is not None:
            norms["cross_norm"] = layer.cross_norm
            add(struct, "cross_q", inner, width, cross.q)
            add(struct, "cross_out", width, inner, cross.o)
        inward = (dense.wi_0, dense.wi_1) if gated else (dense.wi,)
        add(struct, "feed_in", wide, width, *inward, in_turn=True)
        add(struct, "feed_out", width, wide, dense.wo)
        scales, bias = {name: _floats(norm) for name, norm in norms.items()}, tables[id(layer.bias)]
        if len(bias) != config.num_heads or any(len(scale) != width for scale in scales.values()):
            raise BuildError("norms or position biases are not of the size that the config says")
        tensors = scales | {"bias": bias}
        for name, tensor in tensors.items():
            setattr(struct, name, tensor.data_ptr())
        kept.append(tensors)
    if head is not None:
        add(whole, "head", len(embedding), width, head)
        for struct, layer in zip(structs, found, strict=True):  # not read in a step: behind all that is
            add(struct, "cross_kv", inner, width, layer.cross_attention.k, layer.cross_attention.v)
    kept.append(packing.fill(keep=looked_up))
    if packing.consume:  # what is left of the model holds no part of the file that it was loaded from
        for parameter in {*stack.parameters(), *(head.parameters() if head else ())} - {looked_up}:
            parameter.data = parameter.data.clone()
        looked_up.data = embedding
    return NativeWeights(packing.kernels, whole, packing.dtype, kept)


def _floats(module: Any) -> Tensor:
    """A module's weight in float32, in one piece, and no part of the file that it was loaded from."""
    values: Tensor = module.weight.detach().to(torch.float32, copy=True).contiguous()
    return values
