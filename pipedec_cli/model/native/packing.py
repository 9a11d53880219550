"""Matrices laid out in panels, one behind the other, as the compiled kernels read them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipedec_cli.model.native.library import Library

#: Bytes of a large page, to which packed weights are aligned.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4


class Packing:
    """Matrices that are to lie one behind the other in one piece of memory, in the order in which they are read."""

    def __init__(self, kernels: Library, dtype: torch.dtype, *, consume: bool = False) -> None:
        """Begin with none.

        Args:
            kernels: what they are for.
            dtype: float32 or bfloat16, to which matrices in another one are turned.
            consume: empty each parameter once it is packed, so that a model is never in memory twice.
        """
        self.kernels = kernels
        self.dtype = dtype
        self.consume = consume
        self._panels: list[tuple[list[nn.Parameter], ...]] = []
        self._kept: set[int] = set()
        self._offsets = [0]

    def add(self, *matrices: list[nn.Parameter], keep: bool = False) -> None:
        """Add a matrix, or several of one shape whose panels take turns.

        Args:
            matrices: each in parts, [outputs, inputs], whose outputs come one after the other.
            keep: whether the parameters are needed elsewhere.
        """
        self._panels.append(matrices)
        if keep:
            self._kept.update(id(part) for parts in matrices for part in parts)
        outputs, inputs = sum(len(part) for part in matrices[0]), matrices[0][0].shape[1]
        panels = -(-outputs // self.kernels.panel) * len(matrices)
        words = -(-inputs // 2) if self.dtype == torch.bfloat16 else inputs
        self._offsets.append(self._offsets[-1] + panels * words * self.kernels.panel * WORD)

    def pack(self) -> tuple[Tensor, Iterator[int]]:
        """Lay them out.

        Returns:
            the memory, and the matrices' addresses in it.
        """
        size = -(-self._offsets[-1] // LARGE_PAGE) * LARGE_PAGE
        arena = torch.empty(size + LARGE_PAGE, dtype=torch.uint8)
        start = -(-arena.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        self.kernels.use_large_pages(start, size)
        addresses = [start + offset for offset, _ in pairwise(self._offsets)]
        for matrices, address in zip(self._panels, addresses, strict=True):
            for number, parts in enumerate(matrices):
                self._pack(parts, address, number, len(matrices))
        return arena, iter(addresses)

    def _pack(self, parts: list[nn.Parameter], address: int, first: int, every: int) -> None:
        matrix = torch.cat([part.detach().to(self.dtype) for part in parts]).contiguous()
        self.kernels.pack(
            matrix.data_ptr(),
            (len(matrix), matrix.shape[1]),
            address,
            bfloat16=self.dtype == torch.bfloat16,
            first=first,
            every=every,
            threads=torch.get_num_threads(),
        )
        for part in parts:
            if self.consume and id(part) not in self._kept:
                part.data = part.data.new_empty(0)


def floats(weight: Any) -> Tensor:
    """A weight in float32, in one piece."""
    values: Tensor = weight.detach().float().contiguous()
    return values
