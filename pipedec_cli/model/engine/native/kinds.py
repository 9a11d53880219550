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
from functools import cache
from typing import Final, Literal

import torch
from torch import Tensor

from pipedec_cli.data.writing import write_text
from pipedec_cli.model.arguments import INT4
from pipedec_cli.model.engine.native.library import (
    BuildError,
    Library,
    ModelStruct,
    cache_path,
)
from pipedec_cli.model.engine.native.variants import IS_ARM

Way = Literal["wide", "pairs", "tiles"]
WEIGHTS: Final = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2, INT4: 3}
#: Integers with a scale for a group of inputs, and the bytes of a weight with its share
#: of the scale.
INTEGERS: Final = {torch.int8: 1 + 2 / 64, INT4: 1 / 2 + 2 / 32}
#: The number in `Library.kinds` of integers, and of each way to multiply bfloat16.
_INT8: Final = 1
_WAYS: Final[dict[Way, int]] = {"wide": 0, "pairs": 2, "tiles": 4}
#: Rows, inputs and outputs of the trial's product, and how often it is made: some
#: milliseconds in all.
_TRIAL, _ROUNDS = (32, 768, 512), 5


def kind_of(kernels: Library, dtype: torch.dtype) -> ModelStruct:
    """How weights of a dtype are multiplied: a structure with `weights`, `pairs` and `tiles`.

    A BuildError if the CPU has no instructions for int8, which int4 needs as well.
    """
    if dtype in INTEGERS and not kernels.kinds & _INT8:
        raise BuildError(
            f"int8 needs AVX2, AVX-512 or an Arm's dot products, and this is {kernels.features}"
        )
    return make_kind(dtype, "wide" if dtype == torch.float32 else bfloat16_way(kernels))


def make_kind(dtype: torch.dtype, way: Way) -> ModelStruct:
    """The structure for a dtype and a way."""
    return ModelStruct(
        weights=WEIGHTS[dtype], pairs=way != "wide", tiles=way == "tiles"
    )


def ways(kernels: Library) -> list[Way]:
    """The ways to multiply bfloat16 that these kernels have."""
    return [way for way, number in _WAYS.items() if kernels.kinds & number == number]


@cache
def bfloat16_way(kernels: Library) -> Way:
    """The fastest way by the trial of this library, which is made now if it was not made before."""
    there = ways(kernels)
    if len(there) == 1:
        return there[0]
    with suppress(
        BuildError, OSError, RuntimeError
    ):  # without a cache the trial is made each time
        kept = cache_path(".bfloat16", kernels.path.name)
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = kept.read_bytes() if kept.is_file() else b""
        for way in there:
            if text == way.encode():
                return way
        write_text(kept, way := fastest(kernels))
        return way
    return fastest(kernels)


def fastest(kernels: Library) -> Way:
    """Multiply a matrix in each way, in turn; gives the way with the shortest time."""
    rows, inputs, outputs = _TRIAL
    x, matrix = (
        torch.ones(rows, inputs),
        torch.ones(outputs, inputs, dtype=torch.bfloat16),
    )
    kinds = {way: make_kind(torch.bfloat16, way) for way in ways(kernels)}
    panels = {way: packed(kernels, kind, matrix) for way, kind in kinds.items()}
    seconds = dict.fromkeys(kinds, float("inf"))
    for _ in range(_ROUNDS):
        for way, kind in kinds.items():
            start = time.perf_counter()
            kernels.multiply(kind, x, panels[way].data_ptr(), outputs)
            seconds[way] = min(seconds[way], time.perf_counter() - start)
    return min(seconds, key=lambda way: seconds[way])


def packed(kernels: Library, kind: ModelStruct, matrix: Tensor) -> Tensor:
    """Pack a matrix [outputs, inputs], in the dtype that `Library.pack` takes: words, int32."""
    panels = torch.empty(kernels.words(kind, *matrix.shape), dtype=torch.int32)
    kernels.pack(kind, matrix, panels.data_ptr())
    return panels


def has_slow_products() -> bool:
    """Whether the compiled float32 products are faster than torch's: on x86, but not on Arm."""
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
    """The dtype of the compiled encoder beside a decoder in `dtype`; None if torch's encoder is faster.

    Beside int4 it is int8: arithmetic bounds an encoder, which gains nothing from fewer
    bytes.
    """
    if dtype == INT4:
        return torch.int8
    if dtype != torch.int8 and not has_slow_products():
        return None
    # Not torch's products, even where the CPU has AMX and these kernels do not: their
    # rows depend on the batch.
    return (
        dtype
        if dtype != torch.bfloat16 or kind_of(kernels, dtype).pairs
        else torch.float32
    )
