"""Weights in files that are mapped: what is read of them can be given back to the system."""

import ctypes
import json
import mmap
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import torch
from safetensors import safe_open
from torch import Tensor

#: The dtypes of weights, as safetensors names them. Others hold codes of numbers.
DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
#: The most bytes of a header.
_LONGEST: Final = 1 << 27


class Mapping:
    """A file in memory. Its tensors are parts of it. While the mapping lives, their memory can be given back."""

    def __init__(self, path: Path) -> None:
        """Map a file, which must not be empty. Nothing is read yet."""
        self.path = path
        with path.open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        _MAPPINGS.add(self)

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...], first: int) -> Tensor:
        """A tensor of this dtype and shape whose numbers begin at the byte `first` of the file: a part of it, no copy.

        Where the numbers do not begin at a multiple of their size, it is a copy.
        """
        if not prod(shape):
            return torch.empty(shape, dtype=dtype)
        if first % dtype.itemsize:  # torch would read them all the same, but slowly
            size = prod(shape) * dtype.itemsize
            return self._bytes[first : first + size].clone().view(dtype).view(shape)
        numbers = torch.frombuffer(
            self._memory, dtype=dtype, count=prod(shape), offset=first
        )
        return numbers.view(shape)

    def release(self, address: int, size: int) -> bool:
        """Give the memory of `size` bytes from an address on back to the system, in whole pages, if they are of this file.

        They are read again when they are needed. Returns whether they are of this file.
        """
        first = address - self._bytes.data_ptr()
        if not 0 <= first < len(self._bytes):
            return False
        begin = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (first + size) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > begin and hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED, begin, end - begin)
        return True


_MAPPINGS: Final = WeakSet[Mapping]()


def close_holes() -> None:
    """Give memory back to the system that was freed between pieces that are in use. glibc keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def release(tensor: Tensor) -> None:
    """Give the memory of a tensor back that is a part of a mapped file. Any other tensor is left as it is."""
    size = tensor.numel() * tensor.itemsize
    for mapping in [*_MAPPINGS]:
        if mapping.release(tensor.data_ptr(), size):
            return


class SafetensorsHeader(NamedTuple):
    """What a safetensors file says of its tensors, by their names, and the byte where it ends: there the numbers begin."""

    end: int
    tensors: dict[str, Any]


def read_safetensors_header(path: Path) -> SafetensorsHeader:
    """The header of a safetensors file, unchecked: whatever a damaged file raises.

    It is read by itself: safetensors maps the file, which fails where memory is
    smaller.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        tensors = json.loads(file.read(min(size, _LONGEST)))
    tensors.pop("__metadata__", None)
    return SafetensorsHeader(8 + size, tensors)


def read_safetensors(mapping: Mapping) -> Iterator[tuple[str, Tensor]]:
    """The weights of a mapped safetensors file, each with its name and a part of the file; a ValueError if some are codes.

    An error of safetensors' own for a damaged file.
    """
    with safe_open(mapping.path, "pt") as file:  # refuses what is damaged
        names = [*file.keys()]  # it is no dict
    header = read_safetensors_header(mapping.path)
    for name in names:
        entry = header.tensors[name]
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{name} holds codes of numbers")
        first = header.end + entry["data_offsets"][0]
        shape = tuple(entry["shape"])
        yield name, mapping.tensor(DTYPES[entry["dtype"]], shape, first)
