"""The header of a GGUF file: its metadata, and the shape, type and place of each tensor. All that it claims has a bound."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

#: The most bytes of a header, elements of all its arrays together, keys or tensors, and dimensions of a tensor.
_LONGEST, _MOST_ELEMENTS, _MOST_ENTRIES, _MOST_DIMENSIONS = 1 << 26, 1 << 21, 1 << 16, 4
#: The types of numbers, as `struct` names them; beside them are texts and arrays.
_NUMBERS: Final = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class Header:
    """Keys with numbers, texts or, of an array, its length; tensors with shape, type (in ggml's numbers) and first byte."""

    metadata: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], int, int]]


def read_header(path: Path) -> Header:
    """Read the header of a file; a ValueError if it is no GGUF file, claims what cannot be, or lacks some of its tensors."""
    from gguf import GGML_QUANT_SIZES

    with path.open("rb") as file:
        header = _Reader(file.read(_LONGEST)).header()
    for name, (shape, kind, start) in header.tensors.items():
        if kind not in GGML_QUANT_SIZES:
            raise ValueError(f"its tensor {name} is of type {kind}, which the package gguf does not know")
        elements, size = GGML_QUANT_SIZES[kind]  # of a block
        if start + prod(shape) // elements * size > path.stat().st_size:
            raise ValueError("it is cut short")
    return header


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.place, self.elements = content, 0, 0

    def header(self) -> Header:
        if self.take(4) != b"GGUF":
            raise ValueError("it is no GGUF file")
        version, tensors, keys = *self.numbers("I"), *self.numbers("QQ")
        if version not in (2, 3) or max(tensors, keys) > _MOST_ENTRIES:
            raise ValueError(f"it claims version {version}, {tensors:,} tensors and {keys:,} keys")
        metadata = {self.text(): self.value(*self.numbers("I")) for _ in range(keys)}
        found = [self.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"its alignment is {alignment!r}")
        start = -(-self.place // alignment) * alignment
        return Header(metadata, {name: (shape, kind, start + offset) for name, shape, kind, offset in found})

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.place + count
        if end > len(self.content):
            too_long = len(self.content) == _LONGEST
            raise ValueError("its header is too long" if too_long else "it is cut short")
        taken, self.place = self.content[self.place : end], end
        return taken

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{kinds}", self.take(struct.calcsize(f"<{kinds}")))

    def text(self) -> str:
        return self.take(*self.numbers("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind in _NUMBERS:
            return self.numbers(_NUMBERS[kind])[0]
        inner, count = self.numbers("IQ") if kind == _ARRAY else (kind, 0)
        self.elements += count
        if self.elements > _MOST_ELEMENTS or inner not in (_TEXT, *_NUMBERS):
            raise ValueError(f"it claims a value of type {inner}, or one of {count:,} elements")
        if inner == _TEXT:
            for _ in range(count):
                self.take(*self.numbers("Q"))
        else:
            self.take(count * struct.calcsize(f"<{_NUMBERS[inner]}"))
        return count

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """The name, shape, type and offset of a tensor."""
        name, dimensions = self.text(), *self.numbers("I")
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"its tensor {name[:60]!r} has {dimensions} dimensions")
        return name, self.numbers("Q" * dimensions)[::-1], *self.numbers("IQ")
