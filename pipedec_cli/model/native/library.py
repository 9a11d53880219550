"""``kernels.cpp`` as Python sees it: its structures and its functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_double, c_int64, c_void_p, sizeof
from functools import cache
from typing import Any, Final

from pipedec_cli.model.native.build import BuildError, compiled

#: Set to 0, this environment variable turns the kernels off.
VARIABLE: Final = "PIPEDEC_NATIVE"


class LayerStruct(Structure):
    """``Layer``: where one layer's norms, bias table and packed matrices lie; an encoder's has no cross parts."""

    _fields_ = [
        (name, c_void_p)
        for name in (
            *("self_norm", "cross_norm", "feed_norm", "bias", "qkv", "self_out"),
            *("cross_q", "cross_kv", "cross_out", "feed_in", "feed_out"),
        )
    ]


class ModelStruct(Structure):
    """``Model``: an encoder's or a decoder's sizes and flags, and where its weights lie."""

    _fields_ = [
        *((name, c_int64) for name in ("layers", "heads", "head_width", "width", "feed_width", "vocabulary")),
        *((name, c_int64) for name in ("reach", "bfloat16", "gated", "gelu")),
        *((name, c_double) for name in ("epsilon", "scale")),
        *((name, c_void_p) for name in ("embedding", "final_norm", "head")),
        ("layer", POINTER(LayerStruct)),
    ]


class CacheStruct(Structure):
    """``Cache``: its sizes, and where keys, values and places lie."""

    _fields_ = [
        *((name, c_int64) for name in ("sequences", "room", "source_room")),
        *((name, c_void_p) for name in ("keys", "values", "source_keys", "source_values")),
        *((name, c_void_p) for name in ("subsequence", "time", "source_length")),
    ]


class RowStruct(Structure):
    """``Row``: a token, and where it stands."""

    _fields_ = [(name, c_int64) for name in ("token", "sequence", "column", "subsequence", "time")]


_MODEL, _CACHE, _INT, _ADDRESS = POINTER(ModelStruct), POINTER(CacheStruct), c_int64, c_void_p
#: What each function gives and takes.
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "panel": (_INT, ()),
    "features": (c_char_p, ()),
    "size": (_INT, (_INT,)),
    "use_large_pages": (None, (_ADDRESS, _INT)),
    "read": (_INT, (_ADDRESS, _INT, _INT)),
    "pack": (None, (_INT, _ADDRESS, _INT, _INT, _ADDRESS, _INT, _INT, _INT)),
    "remember_source": (_INT, (_MODEL, _CACHE, _INT, _INT, _ADDRESS, _INT)),
    "encode": (_INT, (_MODEL, _INT, _ADDRESS, _ADDRESS, _INT, _ADDRESS, _INT)),
    "step": (_INT, (_MODEL, _CACHE, _INT, _ADDRESS, _INT, _ADDRESS, _ADDRESS, _ADDRESS)),
}


class Library:
    """The compiled kernels.

    Attributes:
        panel: outputs side by side in a packed matrix, and columns side by side in the cache.
        features: the instructions that they were compiled for.
    """

    def __init__(self, path: str) -> None:
        """Load them.

        Raises:
            OSError: the file cannot be loaded, or lays its structures out in another way than Python.
            AttributeError: it lacks a function.
        """
        library = CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"pipedec_{name}")
            function.restype, function.argtypes = result, arguments
        self._library = library
        for number, kind in enumerate((LayerStruct, ModelStruct, CacheStruct, RowStruct)):
            if library.pipedec_size(number) != sizeof(kind):
                raise OSError(f"{kind.__name__} is laid out in another way")
        self.panel: int = library.pipedec_panel()
        self.features: str = library.pipedec_features().decode()

    def use_large_pages(self, address: int, size: int) -> None:
        """Ask the system to back some memory, a whole number of pages, with large ones."""
        self._library.pipedec_use_large_pages(address, size)

    def read(self, address: int, size: int, threads: int) -> int:
        """Read memory from front to back with all threads, for the measure of its speed; gives a sum of its words."""
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
        """Lay a matrix [outputs, inputs] out in panels, which become number first, first + every and so on."""
        self._library.pipedec_pack(bfloat16, matrix, *shape, panels, first, every, threads)

    def remember_source(
        self, decoder: ModelStruct, cache: CacheStruct, sequence: int, length: int, states: int, threads: int
    ) -> None:
        """Keep the keys and values of an encoded source, float32 [length, d_model] at `states`, in a sequence."""
        self._check(
            self._library.pipedec_remember_source(
                byref(decoder), byref(cache), sequence, length, states, threads
            )
        )

    def encode(
        self, encoder: ModelStruct, sources: Sequence[Sequence[int]], threads: int, states: int, padded: int
    ) -> None:
        """Encode sources, none of them empty.

        Args:
            encoder: the weights.
            sources: token ids.
            threads: how many take part.
            states: address of float32 [sources, padded, d_model]; what is beyond a source's end is left as it is.
            padded: the longest source's length, or more.
        """
        lengths = (c_int64 * len(sources))(*map(len, sources))
        tokens = (c_int64 * sum(lengths))(*(token for source in sources for token in source))
        self._check(
            self._library.pipedec_encode(
                byref(encoder), len(sources), lengths, tokens, threads, states, padded
            )
        )

    def step(
        self,
        decoder: ModelStruct,
        cache: CacheStruct,
        rows: Sequence[tuple[int, ...]],
        threads: int,
        logits: int | None = None,
        probabilities: int | None = None,
    ) -> list[int]:
        """One decoder call: a token id for each row.

        Args:
            decoder: the weights.
            cache: what is remembered; the rows are added to it.
            rows: the fields of `RowStruct`, ordered by sequence and column.
            threads: how many take part.
            logits: address of float32 [rows, vocabulary in whole panels], if they are wanted.
            probabilities: address of float32 [rows] for the softmax of each answer; then the logits are spoilt.
        """
        count = len(rows)
        answers = (c_int64 * count)()
        given = (RowStruct * count)(*(RowStruct(*row) for row in rows))
        self._check(
            self._library.pipedec_step(
                byref(decoder), byref(cache), count, given, threads, answers, logits, probabilities
            )
        )
        return list(answers)

    @staticmethod
    def _check(failed: int) -> None:
        if failed:
            raise MemoryError("no memory for the compiled kernels' buffers")


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
