"""Matrices in the blocks of GGUF files, as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class Blocks:
    """A matrix in blocks of one of ggml's types. It takes the place of a parameter of a model that computes nothing.

    Attributes:
        data: the blocks of each row, uint8 [outputs, bytes].
        type: ggml's number of the type.
        inputs: how many numbers a row has.
    """

    data: Tensor
    type: int
    inputs: int

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return len(self.data), self.inputs

    @property
    def device(self) -> torch.device:
        """Where the blocks are."""
        return self.data.device

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, outputs: slice | Tensor) -> Blocks:
        return Blocks(self.data[outputs], self.type, self.inputs)

    def data_ptr(self) -> int:
        """The address, by which two names of one matrix are known."""
        return self.data.data_ptr()

    def bytes(self) -> Tensor:
        """The blocks one behind the other, uint8 [outputs, bytes]."""
        return self.data.contiguous()

    @classmethod
    def joined(cls, matrices: Sequence[Blocks]) -> Blocks:
        """Matrices of one type, one behind the other."""
        first = matrices[0]
        if len(matrices) == 1:
            return first
        data = torch.cat([matrix.data for matrix in matrices])
        return cls(data, first.type, first.inputs)
