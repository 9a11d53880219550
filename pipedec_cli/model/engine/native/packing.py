"""Weights packed for the compiled kernels: matrices in panels, one behind the other in the order of reading."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.arguments import INT4
from pipedec_cli.model.engine.native.build import BuildError
from pipedec_cli.model.engine.native.kinds import INTEGERS, encoder_dtype, kind_of
from pipedec_cli.model.engine.native.library import Library, team_library
from pipedec_cli.model.engine.native.specs import ModelSpec, describe, floats
from pipedec_cli.model.engine.native.structures import LayerStruct, ModelStruct

#: Bytes of a large page, to which packed weights are aligned, and of a word.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4
#: Outputs of a matrix that are converted to another dtype at once, a multiple of every panel.
TOGETHER: Final = 8192


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """A packed encoder or decoder: `struct` points into the tensors that are `kept`.

    The cache has the dtype of the weights. Beside int8 and int4 weights it is in bfloat16.
    """

    library: Library
    struct: ModelStruct
    dtype: torch.dtype
    kept: list[object]

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        return f"native ({self.library.features})"


def pack_native(model: Any, dtype: torch.dtype | None = None, *, consume: bool = False) -> NativeWeights:
    """Pack the decoder of a model on the CPU; a BuildError if the kernels cannot compute it.

    Args:
        model: in float32 or bfloat16; of transformers, or a `BareModel`.
        dtype: the model's, or int8 or int4: then matrices are rounded, with a scale for each output and 64 or 32 inputs.
        consume: empty the matrices that are copied, so that they are not in memory twice. The model is then unusable.
    """
    spec = describe(model)
    head, embedding = spec.head.weight, spec.stack.embed_tokens.weight
    if head.device.type != "cpu":
        raise BuildError(f"the device is {head.device.type}")
    dtypes = {head.dtype, *(weight.dtype for weight in spec.stack.parameters() if weight.dim() > 1)}
    if dtypes not in ({torch.float32}, {torch.bfloat16}):
        raise BuildError("the weights are neither all float32 nor all bfloat16")
    kernels, dtype = team_library(), dtype or embedding.dtype
    tied = head.data_ptr() == embedding.data_ptr()
    if (consume or dtype == INT4) and "causal" not in spec.sizes:
        # An encoder in another dtype reads the embedding itself, which must not be emptied then.
        tied = tied and encoder_dtype(kernels, dtype) == dtype
    return pack(spec, kernels, dtype, consume=consume, tied=tied)


def pack(
    spec: ModelSpec,
    kernels: Library,
    dtype: torch.dtype,
    *,
    consume: bool = False,
    tied: bool = False,
    beside: NativeWeights | None = None,
) -> NativeWeights:
    """Pack an encoder or a decoder; see `pack_native`.

    Args:
        spec: what to pack.
        kernels: the library that is to use the weights.
        dtype: of the packed matrices.
        consume: empty what is copied.
        tied: embeddings are read from the packed output matrix, which is the same matrix.
        beside: the decoder of the encoder `spec`, in the same dtype. If its embeddings are tied, the encoder reads them.
    """
    packing, looked_up = _Packing(spec, kernels, dtype), spec.stack.embed_tokens.weight
    packing.kept.append(beside)
    if beside is not None:
        packing.model.head, packing.model.vocabulary = beside.struct.head, beside.struct.vocabulary
        tied = not beside.struct.embedding
    embedding = None
    if not tied:
        narrow = torch.bfloat16 if dtype in INTEGERS else dtype
        embedding = looked_up.detach().to(narrow, copy=consume and spec.head is not None).contiguous()
        packing.point(packing.model, "embedding", embedding)
    packing.add_layers()
    packing.fill(consume=consume, keep=None if tied else looked_up)
    if consume:  # nothing that is left of the model is part of the file that it was loaded from
        modules = [spec.stack] if spec.head is None else [spec.stack, spec.head]
        for parameter in {weight for module in modules for weight in module.parameters()} - {looked_up}:
            parameter.data = parameter.data.clone()
        if embedding is not None:
            looked_up.data = embedding
    return NativeWeights(kernels, packing.model, dtype, packing.kept)


def check_spec(spec: ModelSpec, kernels: Library, dtype: torch.dtype) -> None:
    """Raise a BuildError if matrices, norms or biases are not of the sizes that the config says."""
    packing, shape = _Packing(spec, kernels, dtype), spec.stack.embed_tokens.weight.shape
    _require(shape == (packing.model.vocabulary, packing.model.width), "the embedding is")
    packing.add_layers()


class _Packing:
    """A model in the making: its structure, the tensors that it points to, and the matrices that are to be packed."""

    def __init__(self, spec: ModelSpec, kernels: Library, dtype: torch.dtype) -> None:
        self.spec, self.kernels, self.kind = spec, kernels, kind_of(kernels, dtype)
        # Of all matrices the output matrix suffers most in 4 bits: `HeadOf` in C++.
        self.head_kind = kind_of(kernels, torch.int8 if dtype == INT4 else dtype)
        self.given = torch.float32 if dtype in INTEGERS else dtype  # the dtype that the library packs
        self.layers = (LayerStruct * len(spec.layers))()
        ways = {name: getattr(self.kind, name) for name in ("weights", "pairs", "tiles")}
        vocabulary = len(spec.stack.embed_tokens.weight)
        self.model = ModelStruct(
            layers=len(self.layers), layer=self.layers, vocabulary=vocabulary, **ways, **spec.sizes
        )
        self.kept: list[object] = [self.layers]
        self._added: list[tuple[Structure, str, int, list[list[nn.Parameter]]]] = []  # with their offsets
        self._size = 0

    def point(self, struct: Structure, name: str, tensor: Tensor) -> None:
        """Have a field point to a tensor."""
        self.kept.append(tensor)
        setattr(struct, name, tensor.data_ptr())

    def add_layers(self) -> None:
        """Add all norms and matrices; a BuildError if they are not of the size that the config says."""
        spec, model = self.spec, self.model
        for struct, layer in zip(self.layers, spec.layers, strict=True):
            struct.rotary, struct.windowed = layer.rotary, layer.window > 0
            for name, modules in layer.matrices.items():
                if name != "cross_kv":
                    self._add(struct, name, modules)
            biases = [
                module.bias for module in layer.matrices["qkv"] if getattr(module, "bias", None) is not None
            ]
            if biases:
                bias = torch.cat([bias.detach().float() for bias in biases])
                fits = bias.shape == ((model.heads + 2 * model.key_heads) * model.head_width,)
                _require(fits, "the biases of the queries, keys and values are")
                self.point(struct, "qkv_bias", F.pad(bias, (0, -len(bias) % self.kernels.panel)))
            for name, module in layer.norms.items():
                width = model.head_width if name in ("query_norm", "key_norm") else model.width
                self._point_to_norm(struct, name, module, width)
            if layer.bias is not None:
                _require(len(layer.bias) == model.heads, "the position biases are")
                self.point(struct, "bias", layer.bias)
        self._point_to_norm(model, "final_norm", spec.final_norm, model.width)
        if spec.frequencies is not None and spec.amplitudes is not None:
            self.point(model, "frequencies", spec.frequencies)
            self.point(model, "amplitudes", spec.amplitudes)
        if spec.head is not None:
            self._add(model, "head", [spec.head])
        for struct, layer in zip(self.layers, spec.layers, strict=True):
            if "cross_kv" in layer.matrices:  # behind all that a step reads
                self._add(struct, "cross_kv", layer.matrices["cross_kv"])

    def _point_to_norm(self, struct: Structure, name: str, module: Any, width: int) -> None:
        norm = floats(module) + self.spec.norm_offset
        _require(norm.shape == (width,), f"{name} is")
        self.point(struct, name, norm)

    def _add(self, struct: Structure, name: str, modules: Sequence[Any]) -> None:
        """Add a matrix: its modules follow each other. Panels of the two of a gated `feed_in` take turns instead."""
        m, weights = self.model, [module.weight for module in modules]
        inner, inner_kv = m.heads * m.head_width, m.key_heads * m.head_width
        outputs, inputs = {
            "qkv": (inner + 2 * inner_kv, m.width),
            "self_out": (m.width, inner),
            "cross_q": (inner, m.width),
            "cross_kv": (2 * inner, m.width),
            "cross_out": (m.width, inner),
            "feed_in": (m.feed_width, m.width),
            "feed_out": (m.width, m.feed_width),
            "head": (m.vocabulary, m.width),
        }[name]
        matrices = [[weight] for weight in weights] if name == "feed_in" else [weights]
        for parts in matrices:
            fits = sum(map(len, parts)) == outputs and {part.shape[1] for part in parts} == {inputs}
            _require(fits, f"{name} is")
        self._added.append((struct, name, self._size, matrices))
        self._size += len(matrices) * self.kernels.words(self._kind_of(name), outputs, inputs) * WORD

    def fill(self, *, consume: bool, keep: Tensor | None) -> None:
        """Pack all matrices into one piece of memory. `consume` empties each one that is packed, except `keep`."""
        size = -(-self._size // LARGE_PAGE) * LARGE_PAGE
        arena = torch.empty(size + LARGE_PAGE, dtype=torch.uint8)
        self.kept.append(arena)
        start = -(-arena.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        self.kernels.use_large_pages(start, size)
        for struct, name, offset, matrices in self._added:
            setattr(struct, name, start + offset)
            for number, parts in enumerate(matrices):
                self._pack(self._kind_of(name), parts, start + offset, number, len(matrices))
                for part in parts:
                    if consume and (keep is None or part.data_ptr() != keep.data_ptr()):
                        part.data = part.data.new_empty(0)

    def _kind_of(self, name: str) -> ModelStruct:
        return self.head_kind if name == "head" else self.kind

    def _pack(
        self, kind: ModelStruct, parts: list[nn.Parameter], panels: int, number: int, every: int
    ) -> None:
        """Pack a matrix, some of its outputs at a time. Its first panel becomes panel `number`, the next `every` later."""
        matrix = torch.cat([part.detach() for part in parts]) if len(parts) > 1 else parts[0].detach()
        for first in range(0, len(matrix), TOGETHER):
            portion = matrix[first : first + TOGETHER].to(self.given).contiguous()
            place = number + first // self.kernels.panel * every
            self.kernels.pack(kind, portion, panels, place, every)


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise BuildError(f"{what} not of the size that the config says")
