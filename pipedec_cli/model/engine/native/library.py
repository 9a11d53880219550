"""``kernels.cpp`` as Python sees it: compiled for this machine, once; its functions."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_int64, c_void_p, sizeof
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.engine.native.structures import CacheStruct, LayerStruct, ModelStruct, RowStruct

#: Set to 0, this environment variable turns the kernels off.
VARIABLE: Final = "PIPEDEC_NATIVE"
#: Flags for the compiler beyond its own, such as ``-g -fsanitize=address``; what they make is kept apart.
FLAGS_VARIABLE: Final = "PIPEDEC_NATIVE_FLAGS"
SOURCE: Final = Path(__file__).with_name("kernels.cpp")
FLAGS: Final = ("-std=c++17", "-O3", "-shared", "-fPIC")
#: What to add, best first: not every compiler knows the machine it runs on, nor OpenMP.
EXTRAS: Final = (("-march=native", "-fopenmp"), ("-mcpu=native", "-fopenmp"), ("-march=native",), ())
#: Seconds after which a compiler is given up.
PATIENCE: Final = 300


class BuildError(Exception):
    """The kernels cannot be had here; the text says why, in a few words."""


def find_compiler() -> str:
    """The path of a C++ compiler: what CXX names, else the system's, else a BuildError."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise BuildError("there is no C++ compiler")


def is_compiled() -> bool:
    """Whether the library for this source, compiler and CPU is there; True as well where it cannot be had at all."""
    try:
        place = _place(find_compiler())
        return _is_safe(place) or (place.parent.exists() and not _is_safe(place.parent))
    except (BuildError, OSError, RuntimeError):
        return True


def compiled() -> Path:
    """The shared library for this source, compiler and CPU, compiled now if it is not there yet; else a BuildError.

    It is code: one that somebody else may have put there is compiled anew, and nothing is kept where others can write.
    Several processes may do so at once: each compiles to a file of its own and moves it to its place.
    """
    compiler = find_compiler()
    try:
        place = _place(compiler)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_safe(place.parent):
            raise BuildError(f"{place.parent} is another user's, or others can write there (`chmod go-w` it)")
        if _is_safe(place):
            return place
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            made = Path(folder) / place.name
            for extra in EXTRAS:
                if _run([compiler, *FLAGS, *extra, *_more(), str(SOURCE), "-o", str(made)]) is not None:
                    made.chmod(0o700)
                    return made.replace(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        raise BuildError(f"the compiled kernels cannot be kept: {error}") from error
    raise BuildError(f"{Path(compiler).name} cannot compile the kernels")


def _is_safe(path: Path) -> bool:
    """Whether a file or folder is there and, by owner and mode, only the user and root can have written it."""
    with suppress(FileNotFoundError):
        state = path.stat()
        return state.st_uid in (0, os.geteuid()) and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return False


def _more() -> list[str]:
    return shlex.split(os.environ.get(FLAGS_VARIABLE, ""))


def _place(compiler: str) -> Path:
    """Where the library lies, or will, in the user's cache folder: its name tells source, flags, compiler and CPU."""
    facts = (*FLAGS, *map(str, EXTRAS), *_more(), compiler, _run([compiler, "--version"]) or "", _cpu())
    source = b"".join(path.read_bytes() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))))
    name = hashlib.sha256(source + "\n".join(facts).encode()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not root.is_absolute():
        raise BuildError(f"XDG_CACHE_HOME is {str(root)!r}, not an absolute path")
    return root / "pipedec" / f"kernels-{name}.so"


def _run(command: list[str]) -> str | None:
    """What a command prints; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _cpu() -> str:
    """What tells one CPU from another, as far as compiled code is concerned: a home folder may serve several."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


_MODEL, _CACHE, _INT, _ADDRESS = POINTER(ModelStruct), POINTER(CacheStruct), c_int64, c_void_p
#: What each function gives and takes.
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "panel": (_INT, ()),
    "features": (c_char_p, ()),
    "size": (_INT, (_INT,)),
    "use_large_pages": (None, (_ADDRESS, _INT)),
    "read": (_INT, (_ADDRESS, _INT, _INT)),
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
    """The compiled kernels, with the instructions that they were compiled for as `features`.

    A `panel` is as many outputs side by side in a packed matrix, and columns side by side in the cache. The `kinds` of
    products that there are: 1 for int8, 2 for bfloat16 in pairs, 4 for tile registers, or a sum of these.
    """

    def __init__(self, path: str) -> None:
        """Load them; an OSError or AttributeError if they are not as they should be."""
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

    def use_large_pages(self, address: int, size: int) -> None:
        """Ask the system to back some memory, a whole number of pages, with large ones."""
        self._library.pipedec_use_large_pages(address, size)

    def read(self, address: int, size: int, threads: int) -> int:
        """Read memory from front to back with all threads, for the measure of its speed; gives a sum of its words."""
        total: int = self._library.pipedec_read(address, size, threads)
        return total

    def words(self, kind: ModelStruct, outputs: int, inputs: int) -> int:
        """How many words a packed matrix takes."""
        count: int = self._library.pipedec_words(byref(kind), outputs, inputs)
        return count

    def key_words(self, kind: ModelStruct) -> int:
        """How many words a head's key takes in the cache."""
        count: int = self._library.pipedec_key_words(byref(kind), kind.head_width)
        return count

    def pack(self, kind: ModelStruct, matrix: Tensor, panels: int, first: int = 0, every: int = 1) -> None:
        """Lay a matrix [outputs, inputs] out in panels, which become number first, first + every and so on.

        It is bfloat16 for weights of that dtype, else float32.
        """
        threads = torch.get_num_threads()
        self._library.pipedec_pack(
            byref(kind), matrix.data_ptr(), *matrix.shape, panels, first, every, threads
        )

    def multiply(self, kind: ModelStruct, x: Tensor, panels: int, outputs: int) -> Tensor:
        """float32 [rows, inputs] times a packed matrix, by this thread: float32 [rows, outputs in whole panels]."""
        out = torch.empty(len(x), -(-outputs // self.panel) * self.panel)
        self._library.pipedec_multiply(
            byref(kind), *(len(x), x.data_ptr(), x.shape[1]), panels, outputs, out.data_ptr()
        )
        return out

    def remember_source(
        self, decoder: ModelStruct, cache: CacheStruct, sequence: int, states: Tensor
    ) -> None:
        """Keep the keys and values of an encoded source, float32 [length, d_model] in one piece, in a sequence."""
        address, threads = states.data_ptr(), torch.get_num_threads()
        self._call("remember_source", decoder, cache, sequence, len(states), address, threads)

    def encode(self, encoder: ModelStruct, sources: Sequence[Sequence[int]], states: Tensor) -> None:
        """Encode sources of token ids, none of them empty, to float32 [sources, longest, d_model].

        What is beyond a source's end is left as it is.
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
        """One decoder call: a token id for each row, which is added to the cache; 0 for those that want none.

        Rows are the fields of a `RowStruct` each, one row behind the other, ordered by sequence and column; their choices stand
        in `allowed`, row by row. If wanted, logits go to float32 [rows that want an answer, vocabulary in whole panels], and the softmax of
        each answer to float32 [rows]; then logits are spoilt.
        """
        count, threads = len(rows) // len(RowStruct._fields_), torch.get_num_threads()
        answers, given = (c_int64 * count)(), (c_int64 * len(rows))(*rows)
        choices = (c_int64 * len(allowed))(*allowed)
        wanted = [None if tensor is None else tensor.data_ptr() for tensor in (logits, probabilities)]
        self._call("step", decoder, cache, count, given, choices, threads, answers, *wanted)
        return list(answers)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function that gives 0, 1 where there is no memory, 2 for what is out of bounds; structures by reference."""
        given = (byref(each) if isinstance(each, Structure) else each for each in arguments)
        status = getattr(self._library, f"pipedec_{name}")(*given)
        if status == 1:
            raise MemoryError("no memory for the compiled kernels' buffers")
        if status:
            raise IndexError(f"{name}: a token or a place is out of bounds")


def library() -> Library:
    """The kernels, compiled if need be; a BuildError if they cannot be had or are switched off by the environment."""
    found = f"{VARIABLE} is 0" if os.environ.get(VARIABLE) == "0" else _library()
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
