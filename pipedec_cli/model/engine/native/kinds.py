"""How weights of a dtype are multiplied on this CPU.

bfloat16 is widened to float32 (``wide``), or multiplied two at a time with rows that
are rounded to bfloat16 (``pairs``), or so in AMX's tile registers (``tiles``). Some
CPUs do pairs at twice the rate of float32, others at half of it, so a short trial
chooses. The choice changes the last bits of results: it is made once, and kept in the
cache.
"""

import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final, Literal, Self

import torch
from torch import Tensor

from pipedec_cli.data.writing import write_text
from pipedec_cli.model.arguments import INT4, STORED
from pipedec_cli.model.engine.native.library import (
    BuildError,
    Library,
    ModelStruct,
    cache_path,
)
from pipedec_cli.model.engine.native.variants import IS_ARM

Way = Literal["wide", "pairs", "tiles"]


class Kind(IntEnum):
    """``Kind``: the numbers in the panels of a matrix. All but the first two are integers; groups.h says what they are."""

    FLOAT32 = 0
    BFLOAT16 = 1
    EIGHT = 2
    EIGHT_FROM = 3
    FOUR = 4
    FOUR_FROM = 5
    SUPER_FOUR = 6
    SUPER_FIVE = 7
    SUPER_SIX = 8


#: The kind that most matrices have in a dtype.
KINDS: Final = {
    torch.float32: Kind.FLOAT32,
    torch.bfloat16: Kind.BFLOAT16,
    torch.int8: Kind.EIGHT,
    INT4: Kind.SUPER_FOUR,
    STORED: Kind.EIGHT,  # of the floats beside the blocks of a file
}
#: The dtypes whose matrices are integers.
INTEGERS: Final = frozenset({torch.int8, INT4, STORED})
#: The number in `Library.kinds` of integers, and of each way to multiply bfloat16.
_INT8: Final = 1
_WAYS: Final[dict[Way, int]] = {"wide": 0, "pairs": 2, "tiles": 4}
#: Rows, inputs and outputs of the trial's product, and how often it is made: some
#: milliseconds in all.
_TRIAL: Final = (32, 768, 512)
_ROUNDS: Final = 5


def kind_of(kernels: Library, dtype: torch.dtype) -> ModelStruct:
    """How these kernels multiply weights of a dtype: a structure that has `weights`, `pairs` and `tiles` alone.

    A BuildError if the CPU has no instructions for int8, which int4 needs as well.
    """
    if dtype in INTEGERS and not kernels.kinds & _INT8:
        raise BuildError(
            f"int8 needs AVX2, AVX-512 or an Arm's dot products, and this is {kernels.features}"
        )
    return make_kind(dtype, "wide" if dtype == torch.float32 else bfloat16_way(kernels))


def make_kind(dtype: torch.dtype, way: Way) -> ModelStruct:
    """The structure of `kind_of` for a dtype and a way to multiply bfloat16."""
    weights = min(KINDS[dtype], Kind.EIGHT)
    return ModelStruct(weights=weights, pairs=way != "wide", tiles=way == "tiles")


def ways(kernels: Library) -> list[Way]:
    """The ways to multiply bfloat16 that these kernels have."""
    return [way for way, number in _WAYS.items() if kernels.kinds & number == number]


@cache
def bfloat16_way(kernels: Library) -> Way:
    """The fastest way to multiply bfloat16 on this CPU, by a trial of these kernels.

    The trial is made now, unless its result is in the cache.
    """
    there = ways(kernels)
    if len(there) == 1:
        return there[0]
    # Without a cache the trial is made each time.
    with suppress(BuildError, OSError, RuntimeError):
        path = cache_path(".bfloat16", kernels.path.name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = path.read_bytes() if path.is_file() else b""
        for way in there:
            if text == way.encode():
                return way
        way = fastest(kernels)
        write_text(path, way)
        return way
    return fastest(kernels)


def fastest(kernels: Library) -> Way:
    """Multiply a matrix in each way that these kernels have, in turn; gives the way with the shortest time."""
    rows, inputs, outputs = _TRIAL
    x = torch.ones(rows, inputs)
    matrix = torch.ones(outputs, inputs, dtype=torch.bfloat16)
    panels = dict[Way, Panels]()
    for way in ways(kernels):
        model = make_kind(torch.bfloat16, way)
        panels[way] = Panels.of(kernels, model, Kind.BFLOAT16, matrix)
    seconds = dict.fromkeys(panels, float("inf"))
    for _ in range(_ROUNDS):
        for way, packed in panels.items():
            start = time.perf_counter()
            packed.multiply(x)
            seconds[way] = min(seconds[way], time.perf_counter() - start)
    return min(seconds, key=lambda way: seconds[way])


@dataclass(frozen=True)
class Panels:
    """A matrix by itself, packed: to try a product."""

    kernels: Library
    model: ModelStruct
    kind: Kind
    words: Tensor  # int32
    shape: tuple[int, int]  # outputs and inputs

    @classmethod
    def of(
        cls, kernels: Library, model: ModelStruct, kind: Kind, matrix: Tensor
    ) -> Self:
        """Pack a matrix [outputs, inputs] as this kind: bfloat16 for the kind of bfloat16, else float32."""
        outputs, inputs = matrix.shape
        stride = kernels.panel_words(kind, inputs)
        # A panel may be higher than this way needs: then some words are not written.
        words = torch.zeros(kernels.panels(outputs) * stride, dtype=torch.int32)
        kernels.pack(model, kind, matrix, words.data_ptr(), stride)
        return cls(kernels, model, kind, words, (outputs, inputs))

    @property
    def stride(self) -> int:
        """The words of a panel."""
        return self.kernels.panel_words(self.kind, self.shape[1])

    def multiply(self, x: Tensor) -> Tensor:
        """The product of float32 [rows, inputs] and the matrix: float32 [rows, outputs]."""
        outputs, _ = self.shape
        address = self.words.data_ptr()
        product = self.kernels.multiply(
            self.model, self.kind, x, address, self.stride, outputs
        )
        return product[:, :outputs]

    def unpack(self) -> Tensor:
        """The weights as they are multiplied: float32 [outputs, inputs]."""
        return self.kernels.unpack(
            self.model, self.kind, self.words.data_ptr(), self.stride, self.shape
        )


def has_slow_products() -> bool:
    """Whether torch's float32 products are slower than the compiled ones on this CPU: on x86, but not on Arm."""
    return platform.machine().lower() in ("x86_64", "amd64")


def has_bfloat16_products() -> bool:
    """Whether torch multiplies faster in bfloat16 than in float32 on this CPU: with AMX, or on Arm."""
    if IS_ARM:
        return True
    has_tiles: Callable[[], bool] | None = getattr(
        torch.cpu, "_is_amx_tile_supported", None
    )
    return has_tiles is not None and has_tiles()


def encoder_dtype(kernels: Library, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype in which an encoder is compiled beside a decoder in `dtype`; None if torch's encoder is faster.

    Beside int4 it is int8: arithmetic bounds an encoder, which gains nothing from fewer
    bytes. bfloat16 is float32 where these kernels have no fast products of it.
    """
    if dtype in (torch.int8, INT4):
        return torch.int8
    if not has_slow_products():
        return None
    # Torch's products are not taken even where the CPU has AMX and these kernels do
    # not: their rows depend on the batch.
    if dtype == torch.bfloat16 and not kind_of(kernels, dtype).pairs:
        return torch.float32
    return dtype
