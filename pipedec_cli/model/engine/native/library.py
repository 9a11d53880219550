"""The functions of the compiled kernels, as ``kernels.cpp`` exports them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import CDLL, POINTER, c_char_p, c_int64, c_void_p, sizeof
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.engine.native.build import OFF, VARIABLE, BuildError, asked_variant, carried, compiled
from pipedec_cli.model.engine.native.structures import CacheStruct, LayerStruct, ModelStruct, RowStruct

_MODEL, _CACHE, _INT, _ADDRESS = POINTER(ModelStruct), POINTER(CacheStruct), c_int64, c_void_p
#: The result and the arguments of each function.
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "panel": (_INT, ()),
    "features": (c_char_p, ()),
    "size": (_INT, (_INT,)),
    "use_large_pages": (None, (_ADDRESS, _INT)),
    "kinds": (_INT, ()),
    "words": (_INT, (_MODEL, _INT, _INT)),
    "key_words": (_INT, (_MODEL, _INT)),
    "pack": (None, (_MODEL, _ADDRESS, _INT, _INT, _ADDRESS, _INT, _INT, _INT)),
    "multiply": (None, (_MODEL, _INT, _ADDRESS, _INT, _ADDRESS, _INT, _ADDRESS)),
    "remember_source": (_INT, (_MODEL, _CACHE, _INT, _INT, _ADDRESS, _INT)),
    "encode": (_INT, (_MODEL, _INT, _ADDRESS, _ADDRESS, _INT, _ADDRESS, _INT)),
    "step": (_INT, (_MODEL, _CACHE, _INT, _ADDRESS, _ADDRESS, _INT, _ADDRESS, _ADDRESS, _ADDRESS)),
}


class Library:
    """The loaded kernels.

    Attributes:
        features: the instructions that they were compiled for, for tables and logs.
        panel: outputs side by side in a packed matrix, and columns side by side in the cache.
        kinds: which products they have: 1 for int8, 2 for bfloat16 in pairs, 4 for tile registers, or a sum of these.
        use_large_pages: ask the system to back memory, given as address and size, with large pages.
        words: the words that a packed matrix of a kind takes, by its outputs and inputs.
        key_words: the words that a key of a width takes in the cache.
    """

    def __init__(self, path: str) -> None:
        """Load a library; an OSError or AttributeError if it does not fit this code."""
        self.path = Path(path)
        self._library = library = CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"pipedec_{name}")
            function.restype, function.argtypes = result, arguments
        for number, kind in enumerate((LayerStruct, ModelStruct, CacheStruct, RowStruct)):
            if library.pipedec_size(number) != sizeof(kind):
                raise OSError(f"{kind.__name__} is laid out in another way")
        self.panel: int = library.pipedec_panel()
        self.kinds: int = library.pipedec_kinds()
        self.features: str = library.pipedec_features().decode()
        self.use_large_pages: Callable[[int, int], None] = library.pipedec_use_large_pages
        self.words: Callable[[ModelStruct, int, int], int] = library.pipedec_words
        self.key_words: Callable[[ModelStruct, int], int] = library.pipedec_key_words

    def pack(self, kind: ModelStruct, matrix: Tensor, panels: int, first: int = 0, every: int = 1) -> None:
        """Pack a matrix [outputs, inputs] into panels number first, first + every and so on at an address.

        The matrix is bfloat16 for weights in bfloat16, else float32.
        """
        threads = torch.get_num_threads()
        address, (outputs, inputs) = matrix.data_ptr(), matrix.shape
        self._library.pipedec_pack(kind, address, outputs, inputs, panels, first, every, threads)

    def multiply(self, kind: ModelStruct, x: Tensor, panels: int, outputs: int) -> Tensor:
        """Multiply float32 [rows, inputs] and a packed matrix, in this thread: float32 [rows, outputs in whole panels]."""
        out = torch.empty(len(x), -(-outputs // self.panel) * self.panel)
        (rows, inputs), address = x.shape, x.data_ptr()
        self._library.pipedec_multiply(kind, rows, address, inputs, panels, outputs, out.data_ptr())
        return out

    def remember_source(
        self, decoder: ModelStruct, cache: CacheStruct, sequence: int, states: Tensor
    ) -> None:
        """Keep the keys and values of an encoded source in a sequence. The states are float32 [length, d_model]."""
        address, threads = states.data_ptr(), torch.get_num_threads()
        self._call("remember_source", decoder, cache, sequence, len(states), address, threads)

    def encode(self, encoder: ModelStruct, sources: Sequence[Sequence[int]], states: Tensor) -> None:
        """Encode sources of token ids, none of them empty, into `states`, float32 [sources, longest, d_model].

        Numbers behind the end of a source stay as they are.
        """
        lengths = (c_int64 * len(sources))(*map(len, sources))
        tokens = (c_int64 * sum(lengths))(*(token for source in sources for token in source))
        threads, padded = torch.get_num_threads(), states.shape[1]
        self._call("encode", encoder, len(sources), lengths, tokens, threads, states.data_ptr(), padded)

    def step(
        self,
        decoder: ModelStruct,
        cache: CacheStruct,
        rows: Sequence[int],
        allowed: Sequence[int] = (),
        logits: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> list[int]:
        """One decoder call. It adds the rows to the cache.

        Args:
            decoder: the model.
            cache: of all sequences.
            rows: for each row the fields of a `RowStruct`; rows are ordered by sequence and column.
            allowed: the tokens that may answer, of those rows that have choices, row after row.
            logits: to be filled; float32 [rows that want an answer, vocabulary in whole panels]. Not with `probabilities`.
            probabilities: to be filled with the softmax of each answer; float32 [rows].

        Returns:
            The most probable token of each row; 0 for a row that wants no answer, −1 if a logit is NaN.
        """
        count, threads = len(rows) // len(RowStruct._fields_), torch.get_num_threads()
        answers, given = (c_int64 * count)(), (c_int64 * len(rows))(*rows)
        choices = (c_int64 * len(allowed))(*allowed)
        wanted = [None if tensor is None else tensor.data_ptr() for tensor in (logits, probabilities)]
        self._call("step", decoder, cache, count, given, choices, threads, answers, *wanted)
        return list(answers)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function whose result is 0, 1 for too little memory, or 2 for a token or a place out of bounds."""
        status = getattr(self._library, f"pipedec_{name}")(*arguments)
        if status == 1:
            raise MemoryError("no memory for the compiled kernels' buffers")
        if status:
            raise IndexError(f"{name}: a token or a place is out of bounds")


def library() -> Library:
    """The kernels, compiled if need be; a BuildError if there are none or the environment turns them off.

    A UserError if the environment asks for a variant that is not known, or not for this CPU.
    """
    asked = asked_variant()
    found = f"{VARIABLE} is {OFF}" if asked == OFF else carried_library(asked) or _compiled_library(asked)
    if isinstance(found, Library):
        return found
    raise BuildError(found)


def team_library() -> Library:
    """The kernels; a BuildError as well if they have one thread where torch has several."""
    kernels = library()
    if torch.get_num_threads() > 1 and "one thread" in kernels.features:
        raise BuildError("the compiler has no OpenMP")
    return kernels


@cache
def carried_library(asked: str) -> Library | None:
    """The kernels that came with the package; None if there are none, or they cannot be loaded beside this system's libraries."""
    with suppress(OSError, AttributeError):
        return Library(str(path)) if (path := carried(asked)) else None
    return None


@cache
def _compiled_library(asked: str) -> Library | str:
    """The kernels that are compiled here, or the reason why there are none. A process tries once."""
    try:
        return Library(str(compiled(asked)))
    except BuildError as error:
        return str(error)
    except (OSError, AttributeError) as error:
        return f"the compiled kernels cannot be loaded: {error}"
