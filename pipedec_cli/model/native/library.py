"""``kernels.cpp`` as Python sees it: its structures and its functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_double, c_int64, c_void_p
from functools import cache
from typing import Final

from pipedec_cli.model.native.build import BuildError, compiled

#: Set to 0, this environment variable turns the kernels off.
VARIABLE: Final = "PIPEDEC_NATIVE"


class LayerStruct(Structure):
    """``Layer``: where one layer's norms, bias table and packed matrices lie."""

    _fields_ = [
        (name, c_void_p)
        for name in (
            *("self_norm", "cross_norm", "feed_norm", "bias"),
            *("qkv", "self_out", "cross_q", "cross_out", "feed_in", "feed_out"),
        )
    ]


class DecoderStruct(Structure):
    """``Decoder``: sizes, flags, and where the weights lie."""

    _fields_ = [
        *((name, c_int64) for name in ("layers", "heads", "head_width", "width", "feed_width", "vocabulary")),
        *((name, c_int64) for name in ("hidden", "bfloat16", "gated", "gelu")),
        *((name, c_double) for name in ("epsilon", "scale")),
        *((name, c_void_p) for name in ("embedding", "final_norm", "head")),
        ("layer", POINTER(LayerStruct)),
    ]


class EncoderLayerStruct(Structure):
    """``EncoderLayer``: where one layer's norms, bias table and packed matrices lie."""

    _fields_ = [
        (name, c_void_p)
        for name in ("self_norm", "feed_norm", "bias", "qkv", "self_out", "feed_in", "feed_out")
    ]


class EncoderStruct(Structure):
    """``Encoder``: sizes, flags, and where the weights lie."""

    _fields_ = [
        *((name, c_int64) for name in ("layers", "heads", "head_width", "width", "feed_width", "reach")),
        *((name, c_int64) for name in ("gated", "gelu")),
        ("epsilon", c_double),
        *((name, c_void_p) for name in ("embedding", "final_norm")),
        ("layer", POINTER(EncoderLayerStruct)),
    ]


class CacheStruct(Structure):
    """``Cache``: sizes of the sequences, and where keys, values and places lie."""

    _fields_ = [
        *((name, c_int64) for name in ("sequences", "room", "source_room")),
        *((name, c_void_p) for name in ("keys", "values", "source_keys", "source_values")),
        *((name, c_void_p) for name in ("subsequence", "time", "source_length")),
    ]


class RowStruct(Structure):
    """``Row``: a token, and where it stands."""

    _fields_ = [(name, c_int64) for name in ("token", "sequence", "column", "subsequence", "time")]


class Library:
    """The compiled kernels.

    Attributes:
        panel: outputs side by side in a packed matrix, and columns side by side in the cache.
        features: the instructions that they were compiled for.
    """

    def __init__(self, path: str) -> None:
        """Load them.

        Raises:
            OSError: the file cannot be loaded.
            AttributeError: it lacks a function.
        """
        self._library = CDLL(path)
        self._library.pipedec_panel.restype = c_int64
        self._library.pipedec_features.restype = c_char_p
        self._library.pipedec_step.restype = c_int64
        self._library.pipedec_use_large_pages.argtypes = (c_void_p, c_int64)
        self._library.pipedec_pack.argtypes = (c_int64, c_void_p, c_int64, c_int64, c_void_p, *[c_int64] * 3)
        self._library.pipedec_remember_source.argtypes = (
            POINTER(DecoderStruct),
            POINTER(CacheStruct),
            *[c_int64] * 3,
            c_void_p,
            c_void_p,
            c_int64,
        )
        self._library.pipedec_step.argtypes = (
            POINTER(DecoderStruct),
            POINTER(CacheStruct),
            c_int64,
            c_void_p,
            c_int64,
            c_void_p,
            c_void_p,
        )
        self._library.pipedec_encode.restype = c_int64
        self._library.pipedec_encode.argtypes = (
            POINTER(EncoderStruct),
            c_int64,
            c_void_p,
            c_void_p,
            c_int64,
            c_void_p,
            c_int64,
        )
        self._library.pipedec_read.restype = c_int64
        self._library.pipedec_read.argtypes = (c_void_p, c_int64, c_int64)
        self.panel: int = self._library.pipedec_panel()
        self.features: str = self._library.pipedec_features().decode()

    def use_large_pages(self, address: int, size: int) -> None:
        """Ask the system to back some memory, a whole number of pages, with large ones."""
        self._library.pipedec_use_large_pages(address, size)

    def read(self, address: int, size: int, threads: int) -> int:
        """Read memory from front to back with all threads, for the measure of its speed.

        Args:
            address: where.
            size: bytes; what is left over after a whole number of vectors for each thread is not read.
            threads: how many take part.

        Returns:
            The sum of its 32-bit words, wrapped here and there.
        """
        total: int = self._library.pipedec_read(address, size, threads)
        return total

    def pack(
        self,
        matrix: int,
        shape: tuple[int, int],
        panels: int,
        *,
        bfloat16: bool,
        first: int,
        every: int,
        threads: int,
    ) -> None:
        """Lay a matrix out in panels.

        Args:
            matrix: address of [outputs, inputs].
            shape: (outputs, inputs).
            panels: address of the panels.
            bfloat16: the dtype, else float32.
            first: the number of its first panel.
            every: from one of its panels to the next.
            threads: how many take part.
        """
        self._library.pipedec_pack(bfloat16, matrix, *shape, panels, first, every, threads)

    def remember_source(
        self,
        decoder: DecoderStruct,
        cache: CacheStruct,
        layer: int,
        sequence: int,
        length: int,
        both: tuple[int, int],
        threads: int,
    ) -> None:
        """Put a source's keys and values, at the addresses `both`, float32 [length, heads · d], into a sequence."""
        self._library.pipedec_remember_source(
            byref(decoder), byref(cache), layer, sequence, length, *both, threads
        )

    def encode(
        self,
        encoder: EncoderStruct,
        sources: Sequence[Sequence[int]],
        threads: int,
        states: int,
        padded: int,
    ) -> None:
        """Encode sources.

        Args:
            encoder: the weights.
            sources: token ids, none empty.
            threads: how many take part.
            states: address of float32 [sources, padded, d_model]; what is beyond a source's end is left as it is.
            padded: the longest source's length, or more.

        Raises:
            MemoryError: there is none for its buffers.
        """
        lengths = (c_int64 * len(sources))(*map(len, sources))
        tokens = (c_int64 * sum(lengths))(*(token for source in sources for token in source))
        if self._library.pipedec_encode(
            byref(encoder), len(sources), lengths, tokens, threads, states, padded
        ):
            raise MemoryError("no memory for encoding")

    def step(
        self,
        decoder: DecoderStruct,
        cache: CacheStruct,
        rows: Sequence[tuple[int, ...]],
        threads: int,
        logits: int | None = None,
    ) -> list[int]:
        """One decoder call: a token id for each row.

        Args:
            decoder: the weights.
            cache: what is remembered; the rows are added to it.
            rows: the fields of `RowStruct`, ordered by sequence and column.
            threads: how many take part.
            logits: address of float32 [rows, vocabulary], if they are wanted.

        Raises:
            MemoryError: there is none for its buffers.
        """
        count = len(rows)
        answers = (c_int64 * count)()
        given = (RowStruct * count)(*(RowStruct(*row) for row in rows))
        if self._library.pipedec_step(byref(decoder), byref(cache), count, given, threads, answers, logits):
            raise MemoryError("no memory for a decoder call")
        return list(answers)


def library() -> Library:
    """The kernels, compiled if need be.

    Raises:
        BuildError: they cannot be had, or are switched off by the environment.
    """
    if os.environ.get(VARIABLE) == "0":
        raise BuildError(f"{VARIABLE} is 0")
    found = _library()
    if isinstance(found, Library):
        return found
    raise BuildError(found)


@cache
def _library() -> Library | str:
    """The kernels, or why there are none: tried once a process."""
    try:
        return Library(str(compiled()))
    except BuildError as error:
        return str(error)
    except (OSError, AttributeError) as error:
        return f"the compiled kernels cannot be loaded: {error}"
