"""Weights packed for the compiled kernels: matrices in panels, in the order of reading."""

from collections.abc import Iterator, Sequence
from ctypes import Structure
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.arguments import INT4, STORED
from pipedec_cli.model.engine.native import store
from pipedec_cli.model.engine.native.blocks import Blocks
from pipedec_cli.model.engine.native.describing import ModelSpec, describe, floats
from pipedec_cli.model.engine.native.kinds import (
    INTEGERS,
    KINDS,
    Kind,
    encoder_dtype,
    kind_of,
)
from pipedec_cli.model.engine.native.library import (
    BuildError,
    LayerStruct,
    Library,
    MatrixStruct,
    ModelStruct,
    PartStruct,
    cache_path,
    library,
)
from pipedec_cli.model.mapped import close_holes, release

#: Bytes of a large page, to which packed weights are aligned, and of a word.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4
#: Numbers of a matrix that are packed at once: more of them would be in memory twice.
#: Outputs that a portion is a multiple of, as is every panel.
TOGETHER: Final = 1 << 22
OUTPUTS: Final = 32
#: Matrices that a step reads behind all others: those of the source of a T5.
_OF_SOURCE: Final = "cross_kv"

Weight = nn.Parameter | Blocks


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """A packed encoder or decoder: `struct` points into the tensors that are `kept`.

    The cache has the dtype of the weights. Beside int8 and int4 weights it is in
    bfloat16.
    """

    library: Library
    struct: ModelStruct
    dtype: torch.dtype
    kept: list[object]


def pack_native(
    model: Any, dtype: torch.dtype | None = None, *, consume: bool = False
) -> NativeWeights:
    """Pack the decoder of a model on the CPU, in float32 or bfloat16; a BuildError if the kernels cannot compute it.

    Args:
        model: of transformers, or a `BareModel`.
        dtype: the model's, or int8 or int4: then matrices are rounded to blocks of 32
            inputs, or to super-blocks of 256.
        consume: empty the matrices that are copied, so that they are not in memory
            twice. The model is then unusable.
    """
    spec = describe(model)
    head = spec.head.weight
    embedding = spec.stack.embed_tokens.weight
    if dtype == STORED and not _has_blocks(spec):
        dtype = _exact_dtype(spec)
    if head.device.type != "cpu":
        raise BuildError(f"the device is {head.device.type}")
    files: tuple[Path, ...] = getattr(model, "files", ())
    if not files:
        _require_one_dtype(spec)
    kernels = library()
    if dtype is None:
        dtype = model.dtype
    tied = head.data_ptr() == embedding.data_ptr()
    if (consume or dtype == INT4) and "causal" not in spec.sizes:
        # An encoder in another dtype reads the embedding itself, which must not be
        # emptied then.
        tied = tied and encoder_dtype(kernels, dtype) == dtype
    return pack(spec, kernels, dtype, consume=consume, tied=tied, files=files)


def _has_blocks(spec: ModelSpec) -> bool:
    """Whether a matrix of a model is in blocks, as a GGUF file has them."""
    modules = [spec.head]
    for layer in spec.layers:
        for members in layer.matrices.values():
            modules.extend(members)
    return any(isinstance(module.weight, Blocks) for module in modules)


def _exact_dtype(spec: ModelSpec) -> torch.dtype:
    """The dtype that holds all numbers of a GGUF file without blocks exactly."""
    if _dtypes(spec) == {torch.bfloat16}:
        return torch.bfloat16
    return torch.float32


def _dtypes(spec: ModelSpec) -> set[torch.dtype]:
    """The dtypes of all weights of several dimensions, but for the output matrix."""
    weights = [weight for weight in spec.stack.parameters() if weight.dim() > 1]
    return {weight.dtype for weight in weights}


def _require_one_dtype(spec: ModelSpec) -> None:
    """Raise a BuildError if a model of transformers is neither all float32 nor all bfloat16."""
    dtypes = _dtypes(spec) | {spec.head.weight.dtype}
    if dtypes not in ({torch.float32}, {torch.bfloat16}):
        raise BuildError("the weights are neither all float32 nor all bfloat16")


def pack(
    spec: ModelSpec,
    kernels: Library,
    dtype: torch.dtype,
    *,
    consume: bool = False,
    tied: bool = False,
    beside: NativeWeights | None = None,
    files: tuple[Path, ...] = (),
) -> NativeWeights:
    """Pack an encoder or a decoder for the kernels of a library, in a dtype.

    Args:
        spec: The model.
        kernels: The library.
        dtype: float32, bfloat16, or a form in integers such as int8.
        consume: Empty the matrices that are copied. The model is then unusable.
        tied: Whether the embedding is the output matrix: it is then read from that.
        beside: The packed decoder of an encoder, in the same dtype: if its embedding is
            tied, the encoder reads it.
        files: The files that the weights come from: the packed ones are kept in the
            cache.
    """
    packing = _Packing(spec, kernels, dtype)
    packing.kept.append(beside)
    if beside is not None:
        packing.model.table = beside.struct.table
        packing.model.vocabulary = beside.struct.vocabulary
        tied = not beside.struct.embedding
    looked_up = spec.stack.embed_tokens.weight
    packing.add_layers()
    if not tied:
        packing.add_embedding(consume=consume)
    is_emptied = tied or isinstance(looked_up, Blocks)
    packing.fill(files, consume=consume, keep=None if is_emptied else looked_up)
    if tied and spec.head is not None:
        packing.model.table = packing.model.head
    if consume:
        _let_go(spec, looked_up, packing.embedding)
    return NativeWeights(kernels, packing.model, dtype, packing.kept)


def _let_go(spec: ModelSpec, looked_up: Any, embedding: Tensor | None) -> None:
    """Copy what is left of a model's weights out of the files that they are parts of, so that these can be let go.

    `looked_up` is the embedding, which becomes the copy `embedding` if there is one.
    """
    modules = [spec.stack] if spec.head is None else [spec.stack, spec.head]
    parameters = {weight for module in modules for weight in module.parameters()}
    for parameter in parameters - {looked_up}:
        parameter.data = parameter.data.clone()
    if embedding is not None:
        looked_up.data = embedding


def check_spec(spec: ModelSpec, kernels: Library, dtype: torch.dtype) -> None:
    """Raise a BuildError if matrices, norms or biases are not of the sizes that the config says, or cannot be packed."""
    packing = _Packing(spec, kernels, dtype)
    expected = (packing.model.vocabulary, packing.model.width)
    _require(spec.stack.embed_tokens.weight.shape == expected, "the embedding is")
    packing.add_layers()


def has_more_bits(layer: int, layers: int) -> bool:
    """Whether values and the matrix behind the feed-forward part have 6 bits in a layer of a model in int4.

    Q4_K_M of llama.cpp has them so: in the first and the last eighth of the layers, and
    in every third between them.
    """
    eighth = layers // 8
    is_outer = layer < eighth or layer >= 7 * layers // 8
    return is_outer or (layer - eighth) % 3 == 2


class _Piece(NamedTuple):
    """Some outputs of a weight, and the kind that they have in panels."""

    weight: Weight
    outputs: slice
    kind: Kind

    @property
    def shape(self) -> tuple[int, int]:
        outputs, inputs = self.weight.shape
        return len(range(outputs)[self.outputs]), inputs


class _Filling(NamedTuple):
    """Pieces of one kind that become a part of a matrix, and where its panels begin: an offset in words."""

    part: PartStruct
    pieces: Sequence[_Piece]
    offset: int


class _Rows(NamedTuple):
    """Embeddings that are looked up, which stand behind the matrices in another dtype."""

    weight: Tensor
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return int(self.weight.numel() * self.dtype.itemsize)

    def within(self, stored: Tensor) -> Tensor:
        """The packed embeddings: the last bytes of all that is stored."""
        rows = stored[len(stored) - self.bytes :].view(self.dtype)
        return rows.view(self.weight.shape)

    def copy_into(self, stored: Tensor) -> None:
        """Copy the embeddings, some at a time."""
        packed = self.within(stored)
        size = max(1, TOGETHER // self.weight.shape[1])
        for first in range(0, len(self.weight), size):
            some = self.weight[first : first + size]
            packed[first : first + size] = some
            release(some)


class _Packing:
    """A model in the making: its structure, the tensors that it points to, and the matrices that are to be packed."""

    def __init__(self, spec: ModelSpec, kernels: Library, dtype: torch.dtype) -> None:
        self.spec = spec
        self.kernels = kernels
        self.dtype = dtype
        kind = kind_of(kernels, dtype)
        self.layers = (LayerStruct * len(spec.layers))()
        self.model = ModelStruct(
            layer=self.layers,
            layers=len(self.layers),
            vocabulary=len(spec.stack.embed_tokens.weight),
            weights=kind.weights,
            pairs=kind.pairs,
            tiles=kind.tiles,
            **{"residual": 1.0, **spec.sizes},
        )
        self.kept: list[object] = [self.layers]
        self._fillings = list[_Filling]()
        self._words = 0
        self.embedding: Tensor | None = None
        self._rows: _Rows | None = None

    def point(self, struct: Structure, name: str, tensor: Tensor) -> None:
        """Have a field of a structure point to a tensor, which is kept alive."""
        self.kept.append(tensor)
        setattr(struct, name, tensor.data_ptr())

    def add_layers(self) -> None:
        """Add all norms and matrices; a BuildError if they are not of the size that the config says."""
        spec = self.spec
        for number, layer in enumerate(spec.layers):
            struct = self.layers[number]
            struct.rotary = layer.rotary
            struct.windowed = layer.window > 0
            for name, modules in layer.matrices.items():
                if name != _OF_SOURCE:
                    self._add(getattr(struct, name), name, number, modules)
            self._point_to_biases(struct, layer.matrices["qkv"])
            for name, module in layer.norms.items():
                self._point_to_norm(struct, name, module, self._norm_width(name))
            if layer.bias is not None:
                _require(len(layer.bias) == self.model.heads, "the position biases are")
                self.point(struct, "bias", layer.bias)
        self._point_to_norm(self.model, "final_norm", spec.final_norm, self.model.width)
        if spec.frequencies is not None and spec.amplitudes is not None:
            self.point(self.model, "frequencies", spec.frequencies)
            self.point(self.model, "amplitudes", spec.amplitudes)
        if spec.head is not None:
            self._add(self.model.head, "head", 0, [spec.head])
        for number, layer in enumerate(spec.layers):
            if _OF_SOURCE in layer.matrices:  # behind all that a step reads
                modules = layer.matrices[_OF_SOURCE]
                self._add(self.layers[number].cross_kv, _OF_SOURCE, number, modules)

    def add_embedding(self, *, consume: bool) -> None:
        """Add the embeddings that are looked up, where they are not the output matrix.

        Those of a decoder are packed as well if the model is consumed, and its encoder
        reads them. In blocks they are a matrix whose columns are embeddings.
        """
        module = self.spec.stack.embed_tokens
        if isinstance(module.weight, Blocks):
            self._add(self.model.table, "head", 0, [module])
            return
        weight = module.weight.detach()
        narrow = torch.bfloat16 if self.dtype in INTEGERS else self.dtype
        if consume and self.spec.head is not None:
            self._rows = _Rows(weight, narrow)
        else:
            self._point_to_embedding(weight.to(narrow).contiguous())

    def _point_to_embedding(self, embedding: Tensor) -> None:
        self.embedding = embedding
        self.point(self.model, "embedding", embedding)

    def _point_to_biases(self, struct: LayerStruct, modules: Sequence[Any]) -> None:
        """Add the biases of queries, keys and values, if they have some."""
        biases = []
        for module in modules:
            if getattr(module, "bias", None) is not None:
                biases.append(module.bias.detach().float())
        if not biases:
            return
        bias = torch.cat(biases)
        heads = self.model.heads + 2 * self.model.key_heads
        width = heads * self.model.head_width
        fits = bias.shape == (width,)
        _require(fits, "the biases of the queries, keys and values are")
        missing = -len(bias) % self.kernels.panel
        padded = F.pad(bias, (0, missing))
        self.point(struct, "qkv_bias", padded)

    def _norm_width(self, name: str) -> int:
        """How many weights a norm has."""
        model = self.model
        heads = {"query_norm": model.heads, "key_norm": model.key_heads}
        if name not in heads:
            return int(model.width)
        if model.wide_norms:
            return int(model.head_width * heads[name])
        return int(model.head_width)

    def _point_to_norm(
        self, struct: Structure, name: str, module: Any, width: int
    ) -> None:
        """Have a field of a structure point to a norm's weights; a BuildError if they are not `width` of them."""
        norm = floats(module) + self.spec.norm_offset
        _require(norm.shape == (width,), f"{name} is")
        self.point(struct, name, norm)

    def _shape(self, name: str) -> tuple[int, int]:
        """The outputs and inputs of a matrix; of a gated `feed_in` those of each of the two."""
        model = self.model
        inner = model.heads * model.head_width
        inner_kv = model.key_heads * model.head_width
        return {
            "qkv": (inner + 2 * inner_kv, model.width),
            "self_out": (model.width, inner),
            "cross_q": (inner, model.width),
            "cross_kv": (2 * inner, model.width),
            "cross_out": (model.width, inner),
            "feed_in": (model.feed_width, model.width),
            "feed_out": (model.width, model.feed_width),
            "head": (model.vocabulary, model.width),
        }[name]

    def _kind(self, name: str, layer: int, weight: Weight, place: int) -> Kind:
        """The kind of numbers that a weight gets in its panels.

        It is number `place` of the weights of the matrix `name` in a layer.
        """
        if isinstance(weight, Blocks) and self.dtype == STORED:
            return Kind(self.kernels.kind_of_blocks(weight.type))
        is_value = name == "qkv" and place == 2
        if self.dtype != INT4:
            return KINDS[self.dtype]
        # Of all matrices the output matrix suffers most.
        is_finer = name == "head"
        if is_value or name == "feed_out":
            is_finer = has_more_bits(layer, len(self.layers))
        return Kind.SUPER_SIX if is_finer else KINDS[INT4]

    def _add(
        self, matrix: MatrixStruct, name: str, layer: int, modules: Sequence[Any]
    ) -> None:
        """Add the matrix `name` of a layer to those that are to be packed.

        The outputs of its modules follow each other; the two of a gated `feed_in` take
        turns. A BuildError if they are not of the size that the config says.
        """
        outputs, inputs = self._shape(name)
        pieces = list[_Piece]()
        for place, module in enumerate(modules):
            kind = self._kind(name, layer, module.weight, place)
            pieces.append(_Piece(module.weight, slice(None), kind))
        is_gated = name == "feed_in" and bool(self.model.gated)
        if is_gated and len(pieces) == 1:  # both in one
            both = pieces[0]
            pieces = [
                both._replace(outputs=slice(outputs)),
                both._replace(outputs=slice(outputs, None)),
            ]
        counts = [piece.shape[0] for piece in pieces]
        is_whole = set(counts) == {outputs} if is_gated else sum(counts) == outputs
        widths = {piece.shape[1] for piece in pieces}
        _require(is_whole and widths == {inputs}, f"{name} is")
        if is_gated:
            self._add_in_turns(matrix, pieces)
        else:
            self._add_in_order(matrix, pieces)

    def _add_in_turns(self, matrix: MatrixStruct, pieces: Sequence[_Piece]) -> None:
        """Lay out two weights whose panels take turns in the memory, since a step reads them together."""
        outputs, inputs = pieces[0].shape
        kernels = self.kernels
        sizes = [kernels.panel_words(piece.kind, inputs) for piece in pieces]
        stride = sum(sizes)
        panels = kernels.panels(outputs)
        offset = self._words
        for part, piece, size in zip(matrix.parts, pieces, sizes, strict=False):
            part.kind = piece.kind
            part.stride = stride
            part.end = panels
            self._fillings.append(_Filling(part, [piece], offset))
            offset += size
        self._words += panels * stride

    def _add_in_order(self, matrix: MatrixStruct, pieces: Sequence[_Piece]) -> None:
        """Lay out weights that follow each other in the memory: neighbours of one kind become a part of the matrix."""
        parts = self._in_parts(pieces)
        end = 0
        for number, members in enumerate(parts):
            kind = members[0].kind
            _, inputs = members[0].shape
            outputs = sum(piece.shape[0] for piece in members)
            panels = self.kernels.panels(outputs)
            end += panels
            part = matrix.parts[number]
            part.kind = kind
            part.end = end
            part.stride = self.kernels.panel_words(kind, inputs)
            self._fillings.append(_Filling(part, members, self._words))
            self._words += panels * part.stride

    def _in_parts(self, pieces: Sequence[_Piece]) -> list[list[_Piece]]:
        """Group the weights of a matrix: neighbours of one kind together.

        Where a part would end within a panel, all weights are one part and have the
        finest of their kinds. A BuildError if blocks of a file would have to change
        their kind.
        """
        parts = list[list[_Piece]]()
        for piece in pieces:
            if parts and parts[-1][0].kind == piece.kind:
                parts[-1].append(piece)
            else:
                parts.append([piece])
        outputs = [sum(piece.shape[0] for piece in part) for part in parts[:-1]]
        if all(count % self.kernels.panel == 0 for count in outputs):
            return parts
        if self.dtype == STORED:
            raise BuildError("weights of several types meet within a panel")
        return [[piece._replace(kind=Kind.SUPER_SIX) for piece in pieces]]

    def fill(
        self, files: tuple[Path, ...], *, consume: bool, keep: Tensor | None
    ) -> None:
        """Pack all matrices into one piece of memory, or take it from the cache.

        The packed weights of `files`, if there are any, are kept there. `consume`
        empties each matrix that is packed, except `keep`.
        """
        size = self._words * WORD + (self._rows.bytes if self._rows else 0)
        size = -(-size // LARGE_PAGE) * LARGE_PAGE
        packed = None
        stored = None
        if files and size >= store.FEWEST_BYTES:
            packed = store.Packed(files, self._facts(), size)
            stored = packed.find()
        kept = None if keep is None else keep.data_ptr()
        if stored is None:
            stored = self._fill_anew(size, consume=consume, kept=kept)
            if packed:
                packed.keep(stored)
        else:
            self._point_into(stored)
            for filling in self._fillings if consume else ():
                _empty(filling, kept)
        self.kept.append(stored)
        if self._rows:
            self._point_to_embedding(self._rows.within(stored))

    def _facts(self) -> str:
        """All that decides what the packed bytes are, but for the files."""
        source = cache_path("", self.kernels.features).name
        kinds = [(each.part.kind, each.offset) for each in self._fillings]
        rows = self._rows.dtype if self._rows else None
        return f"{source} {self.kernels.panel} {self.dtype} {kinds} {rows}"

    def _fill_anew(self, size: int, *, consume: bool, kept: int | None) -> Tensor:
        """Pack all matrices one after the other, so that no two are in memory twice at a time: uint8 [size].

        `consume` empties each that is packed, but for the one at the address `kept`.
        """
        arena = torch.empty(size + LARGE_PAGE, dtype=torch.uint8)
        start = -arena.data_ptr() % LARGE_PAGE
        stored = arena[start : start + size]
        self.kernels.use_large_pages(stored.data_ptr(), size)
        self._point_into(stored)
        for filling, later in zip_longest(self._fillings, self._fillings[1:]):
            self._pack(filling)
            close_holes()
            # Both halves of a weight follow each other.
            last = filling.pieces[-1].weight
            is_shared = later is not None and later.pieces[0].weight is last
            if consume and not is_shared:
                _empty(filling, kept)
        if self._rows:
            self._rows.copy_into(stored)
        return stored

    def _point_into(self, stored: Tensor) -> None:
        """Have all parts of matrices point to their panels in the packed weights, uint8 [bytes]."""
        for filling in self._fillings:
            filling.part.panels = stored.data_ptr() + filling.offset * WORD

    def _pack(self, filling: _Filling) -> None:
        """Pack a part of a matrix to where it points, some of its outputs at a time."""
        kernels = self.kernels
        part = filling.part
        taken = [piece.weight[piece.outputs] for piece in filling.pieces]
        blocks = [each for each in taken if isinstance(each, Blocks)]
        first = 0
        for portion in _portions(taken):
            place = part.panels + first // kernels.panel * part.stride * WORD
            if self.dtype == STORED and blocks:
                assert isinstance(portion, Blocks)
                data = portion.bytes()
                kernels.place(portion.type, data, portion.inputs, place, part.stride)
            else:
                matrix = _numbers(portion)
                kernels.pack(self.model, part.kind, matrix, place, part.stride)
            _release(portion)
            first += len(portion)
        for weight in taken:  # of several, which were copied into one
            _release(weight)


def _release(weight: Tensor | Blocks) -> None:
    """Give the memory of a mapped weight back."""
    release(weight.data if isinstance(weight, Blocks) else weight)


def _numbers(portion: Tensor | Blocks) -> Tensor:
    """The numbers of a weight, in a dtype from which they are packed."""
    if isinstance(portion, Blocks):
        return portion.floats()
    dtype = torch.float32
    if portion.dtype == torch.bfloat16:
        dtype = torch.bfloat16
    return portion.detach().to(dtype).contiguous()


def _portions(weights: Sequence[Tensor | Blocks]) -> Iterator[Tensor | Blocks]:
    """The outputs of some weights, one weight behind the other, as many at a time as are converted at once."""
    first = weights[0]
    whole = first
    if len(weights) > 1 and isinstance(first, Blocks):
        joined = [each for each in weights if isinstance(each, Blocks)]
        whole = Blocks.joined(joined)
    elif len(weights) > 1:
        whole = torch.cat([each for each in weights if isinstance(each, Tensor)])
    multiple = TOGETHER // whole.shape[1] // OUTPUTS
    size = max(1, multiple) * OUTPUTS
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def _empty(filling: _Filling, kept: int | None) -> None:
    """Empty the weights of a part, but for the one at the address `kept`; None keeps none."""
    for piece in filling.pieces:
        weight = piece.weight
        if weight.data_ptr() != kept:
            weight.data = weight.data.new_empty(0)


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise BuildError(f"{what} not of the size that the config says")
