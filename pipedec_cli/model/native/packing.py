"""Matrices laid out in panels, one behind the other, as the compiled kernels read them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.native.library import Library

#: Bytes of a large page, to which packed weights are aligned.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4


class Packing:
    """Matrices that are to lie one behind the other in one piece of memory, in the order in which they are read."""

    def __init__(self, kernels: Library, dtype: torch.dtype) -> None:
        """Begin with none.

        Args:
            kernels: what they are for.
            dtype: float32 or bfloat16, to which matrices in another one are turned.
        """
        self.kernels = kernels
        self.dtype = dtype
        self.bfloat16 = dtype == torch.bfloat16
        self.matrices: list[tuple[Tensor, ...]] = []
        self.offsets = [0]

    def add(self, *matrices: Tensor) -> None:
        """Add [outputs, inputs], or several of one shape whose panels take turns."""
        self.matrices.append(tuple(matrix.detach().contiguous() for matrix in matrices))
        outputs, inputs = matrices[0].shape
        panels = -(-outputs // self.kernels.panel) * len(matrices)
        words = -(-inputs // 2) if self.bfloat16 else inputs
        self.offsets.append(self.offsets[-1] + panels * words * self.kernels.panel * WORD)

    def pack(self) -> tuple[Tensor, Iterator[int]]:
        """Lay them out.

        Returns:
            the memory, and the matrices' addresses in it.
        """
        size = -(-self.offsets[-1] // LARGE_PAGE) * LARGE_PAGE
        arena = torch.empty(size + LARGE_PAGE, dtype=torch.uint8)
        start = -(-arena.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        self.kernels.use_large_pages(start, size)
        addresses = [start + offset for offset, _ in pairwise(self.offsets)]
        threads = torch.get_num_threads()
        for together, address in zip(self.matrices, addresses, strict=True):
            for first, matrix in enumerate(together):
                outputs, inputs = matrix.shape
                turned = matrix.to(self.dtype)
                self.kernels.pack(
                    turned.data_ptr(),
                    (outputs, inputs),
                    address,
                    bfloat16=self.bfloat16,
                    first=first,
                    every=len(together),
                    threads=threads,
                )
        return arena, iter(addresses)


def floats(weight: Any) -> Tensor:
    """A weight in float32, in one piece."""
    values: Tensor = weight.detach().float().contiguous()
    return values
