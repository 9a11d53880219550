"""Weights packed for the compiled kernels: matrices in panels, one behind the other in the order of reading."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipedec_cli.model.engine.native.kinds import kind_of
from pipedec_cli.model.engine.native.library import BuildError, Library, library
from pipedec_cli.model.engine.native.structures import ModelStruct

DTYPES: Final = (torch.float32, torch.bfloat16)
#: Bytes of a large page, to which packed weights are aligned.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4
#: Outputs of a matrix that are brought into another dtype at once, a multiple of every panel.
TOGETHER: Final = 8192


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


def require_suited(decoder: nn.Module, head: nn.Linear) -> None:
    """Refuse, in a BuildError, what the kernels have no dtype or device for."""
    weights = [parameter for parameter in decoder.parameters() if parameter.dim() > 1]
    dtype, device = head.weight.dtype, head.weight.device
    if device.type != "cpu":
        raise BuildError(f"the device is {device.type}")
    if dtype not in DTYPES or any(weight.dtype != dtype for weight in weights):
        raise BuildError("the weights are neither all float32 nor all bfloat16")


def team_library() -> Library:
    """The kernels, as `library` gives them, if they have threads where torch has several; else a BuildError."""
    kernels = library()
    if torch.get_num_threads() > 1 and "one thread" in kernels.features:
        raise BuildError("the compiler has no OpenMP")
    return kernels


class Packing:
    """Matrices that are to lie one behind the other in one piece of memory."""

    def __init__(self, kernels: Library, dtype: torch.dtype, *, consume: bool) -> None:
        """For a dtype of the matrices; `consume` empties what is packed, so that it is not in memory twice."""
        self.kernels, self.dtype, self.consume = kernels, dtype, consume
        self.kind = kind_of(kernels, dtype)
        self.narrow = torch.bfloat16 if dtype == torch.int8 else dtype  # what is looked up and not multiplied
        self._added: list[tuple[Structure, str, int, list[list[nn.Parameter]]]] = []
        self._size = 0

    def add(
        self,
        struct: Structure,
        name: str,
        outputs: int | Sequence[int],
        inputs: int,
        *modules: Any,
        in_turn: bool = False,
    ) -> None:
        """Add modules [outputs, inputs] for a field: one after the other, or panels of each take turns; else a BuildError.

        A number of outputs is that of every module.
        """
        parts, counts = (
            [module.weight for module in modules],
            [outputs] * len(modules) if isinstance(outputs, int) else outputs,
        )
        if any(part.shape != (count, inputs) for part, count in zip(parts, counts, strict=True)):
            raise BuildError(f"{name} is not of the size that the config says")
        matrices = [[part] for part in parts] if in_turn else [parts]
        self._added.append((struct, name, self._size, matrices))
        words = self.kernels.words(self.kind, counts[0] if in_turn else sum(counts), inputs)
        self._size += len(matrices) * words * WORD

    def fill(self, keep: Tensor | None) -> Tensor:
        """The memory, to which all fields point now; `keep` is not emptied."""
        size = -(-self._size // LARGE_PAGE) * LARGE_PAGE
        arena = torch.empty(size + LARGE_PAGE, dtype=torch.uint8)
        start = -(-arena.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        self.kernels.use_large_pages(start, size)
        given = torch.float32 if self.dtype == torch.int8 else self.dtype
        for struct, name, offset, matrices in self._added:
            setattr(struct, name, start + offset)
            for number, parts in enumerate(matrices):
                self._pack(parts, start + offset, number, len(matrices), given)
                for part in parts:
                    if self.consume and (keep is None or part.data_ptr() != keep.data_ptr()):
                        part.data = part.data.new_empty(0)
        return arena

    def _pack(
        self, parts: list[nn.Parameter], panels: int, number: int, every: int, given: torch.dtype
    ) -> None:
        """Pack one matrix of some parts, a portion of its outputs at a time."""
        matrix = torch.cat([part.detach() for part in parts]) if len(parts) > 1 else parts[0].detach()
        for first in range(0, len(matrix), TOGETHER):
            portion = matrix[first : first + TOGETHER].to(given).contiguous()
            place = number + first // self.kernels.panel * every
            self.kernels.pack(self.kind, portion, panels, place, every)


def floats(module: Any) -> Tensor:
    """A module's weight in float32, in one piece, and no part of the file that it was loaded from."""
    values: Tensor = module.weight.detach().to(torch.float32, copy=True).contiguous()
    return values
