"""How weights of a dtype are multiplied on this CPU: by what it has and, for bfloat16, by a short trial, once.

bfloat16 can be widened to float32 (``wide``), or multiplied two at a time with rows rounded to bfloat16 (``pairs``), also in
AMX's tile registers (``tiles``). One CPU does pairs at twice the rate of float32, another at half of it. The choice bears
on the last bits of what is computed: so it is made once for each library, and kept beside it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Literal

import torch
from torch import Tensor

from pipedec_cli.model.engine.native.library import BuildError, Library
from pipedec_cli.model.engine.native.structures import ModelStruct

Way = Literal["wide", "pairs", "tiles"]
WEIGHTS: Final = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
_INT8, _PAIRS, _TILES = 1, 2, 4
#: Rows, inputs and outputs of the trial's product, and how often it is made: some milliseconds in all.
_TRIAL, _ROUNDS = (32, 768, 512), 5


def kind_of(kernels: Library, dtype: torch.dtype) -> ModelStruct:
    """How weights of a dtype are multiplied here; a BuildError where there are no instructions for int8."""
    if dtype == torch.int8 and not kernels.kinds & _INT8:
        raise BuildError(f"int8 needs an x86 with AVX2 or AVX-512, and this is {kernels.features}")
    way: Way = "wide" if dtype == torch.float32 else bfloat16_way(kernels)
    return _kind(dtype, way)


def _kind(dtype: torch.dtype, way: Way) -> ModelStruct:
    return ModelStruct(weights=WEIGHTS[dtype], pairs=way != "wide", tiles=way == "tiles")


def ways(kernels: Library) -> list[Way]:
    """The ways to multiply bfloat16 that there are."""
    found: list[Way] = ["wide"]
    if kernels.kinds & _PAIRS:
        found.append("pairs")
    if kernels.kinds & _TILES:
        found.append("tiles")
    return found


@cache
def bfloat16_way(kernels: Library) -> Way:
    """The way that was fastest in the trial that was made with this library, which is made now if there was none."""
    there, kept = ways(kernels), kernels.path.with_suffix(".bfloat16")
    with suppress(OSError, UnicodeDecodeError):
        for way in there:
            if kept.read_text(encoding="utf-8") == way:
                return way
    best = fastest(kernels) if len(there) > 1 else there[0]
    with suppress(OSError), NamedTemporaryFile("w", encoding="utf-8", dir=kept.parent, delete=False) as file:
        file.write(best)
        Path(file.name).replace(kept)
    return best


def fastest(kernels: Library) -> Way:
    """Multiply the same matrix in each way, in turn: the fastest by the shortest time of each."""
    rows, inputs, outputs = _TRIAL
    x, matrix = torch.ones(rows, inputs), torch.ones(outputs, inputs, dtype=torch.bfloat16)
    kept = list[Tensor]()
    works = {}
    for way in ways(kernels):
        kind = _kind(torch.bfloat16, way)
        panels = packed(kernels, kind, matrix)
        kept.append(panels)  # of which the call knows no more than the address
        works[way] = partial(kernels.multiply, kind, x, panels.data_ptr(), outputs)
    seconds = dict.fromkeys(works, float("inf"))
    for _ in range(_ROUNDS):
        for way, work in works.items():
            start = time.perf_counter()
            work()
            seconds[way] = min(seconds[way], time.perf_counter() - start)
    return min(seconds, key=lambda way: seconds[way])


def packed(kernels: Library, kind: ModelStruct, matrix: Tensor) -> Tensor:
    """A matrix [outputs, inputs], of the dtype that `Library.pack` takes, in panels."""
    panels = torch.empty(kernels.words(kind, *matrix.shape), dtype=torch.int32)
    kernels.pack(kind, matrix, panels.data_ptr())
    return panels
