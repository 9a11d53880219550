"""Matrices in the blocks of GGUF files, as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class Blocks:
    """A matrix in blocks of one of ggml's types (the library that made the GGUF format).

    It takes the place of a parameter of a model that computes nothing.

    Attributes:
        data: the blocks of each row, uint8 [outputs, bytes].
        type: ggml's number of the type.
        inputs: how many numbers a row has.
        order: which row of the data each output is, int64 [outputs]; None: as they are.
    """

    data: Tensor
    type: int
    inputs: int
    order: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return len(self), self.inputs

    @property
    def device(self) -> torch.device:
        """Where the blocks are."""
        return self.data.device

    def __len__(self) -> int:
        return len(self.data if self.order is None else self.order)

    def __getitem__(self, outputs: slice) -> Blocks:
        if self.order is None:
            return Blocks(self.data[outputs], self.type, self.inputs)
        return Blocks(self.data, self.type, self.inputs, self.order[outputs])

    def data_ptr(self) -> int:
        """The address, by which two names of one matrix are known."""
        return self.data.data_ptr()

    def bytes(self) -> Tensor:
        """The blocks of the outputs one behind the other, uint8 [outputs, bytes]."""
        if self.order is None:
            return self.data.contiguous()
        return self.data[self.order]

    def floats(self) -> Tensor:
        """The numbers: float32 [outputs, inputs]."""
        from gguf import GGMLQuantizationType, dequantize

        rows = dequantize(self.bytes().numpy(), GGMLQuantizationType(self.type))
        return torch.from_numpy(rows)

    @classmethod
    def joined(cls, matrices: Sequence[Blocks]) -> Blocks:
        """Matrices of one type, one behind the other."""
        first = matrices[0]
        if len(matrices) == 1:
            return first
        data = torch.cat([matrix.bytes() for matrix in matrices])
        return cls(data, first.type, first.inputs)
