"""The library of the compiled kernels: found or compiled once, and its functions and structures."""

import hashlib
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int64,
    c_void_p,
    sizeof,
)
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.writing import cache_folder, file_sha256, is_safe
from pipedec_cli.model.engine.native.variants import (
    FLAGS,
    OPENMP,
    SOURCE,
    VARIANTS,
    carried_name,
    compile_kernels,
    find_compiler,
    run,
    variant_flags,
)

#: The environment variable that names a variant, or is 0 for no kernels.
VARIABLE: Final = "PIPEDEC_NATIVE"
OFF: Final = "0"
#: More flags for the compiler, such as ``-g -fsanitize=address``. Each set of flags has
#: a library of its own.
FLAGS_VARIABLE: Final = "PIPEDEC_NATIVE_FLAGS"
#: Flags to try, best first: not every compiler knows the machine it runs on, nor
#: OpenMP.
_NATIVE: Final = (["-march=native"], ["-mcpu=native"])
EXTRAS: Final = (*([*flags, OPENMP] for flags in _NATIVE), *_NATIVE, list[str]())

#: Instructions of CPUs without AVX-512 VNNI that make the kernels faster; a compiler
#: for the CPU itself uses them.
BEYOND_AVX2: Final = {"avx_vnni", "avx512bw"}
NO_COMPILER: Final = "there is no C++ compiler"
#: Bytes that must be free before anything is compiled; the kernels take a quarter.
ROOM: Final = 4_000_000


class BuildError(Exception):
    """The kernels cannot be used here; the text says why, in a few words."""


def asked_variant() -> str:
    """What the environment asks for: a variant, `OFF`, or nothing; a UserError if it is not known, or not for this CPU."""
    asked = os.environ.get(VARIABLE, "")
    if asked in ("", OFF):
        return asked
    if asked not in VARIANTS:
        todo = f"give {OFF}, {', '.join(VARIANTS)}, or leave it out"
        raise UserError(f"{VARIABLE} is {asked!r}", todo=todo)
    if missing := [name for name in VARIANTS[asked] if name not in _cpu_flags()]:
        raise UserError(
            f"{VARIABLE} is {asked}, and this CPU has no {missing[0]}",
            todo="leave it out",
        )
    return asked


def fitting_variants() -> list[str]:
    """The variants that this CPU can run, the best last."""
    return [
        name for name, needed in VARIANTS.items() if _cpu_flags().issuperset(needed)
    ]


def carried(variant: str = "") -> Path | None:
    """The library that came with the package, for a variant or the best for this CPU.

    None if there is none, or if a compiler can use instructions that AVX2's variant
    leaves out.
    """
    best = variant or next(reversed(fitting_variants()), "")
    path = SOURCE.with_name(carried_name(best))
    if _more_flags() or not path.is_file():
        return None
    leaves_out = (
        best == "avx2" and not variant and not _cpu_flags().isdisjoint(BEYOND_AVX2)
    )
    return None if leaves_out and find_compiler() else path


def compiled(variant: str = "") -> Path:
    """The shared library for this source, compiler and CPU, or for a variant, compiled now if need be; else a BuildError.

    A library is code. It is compiled again if another user may have written it, or if
    its bytes are not those that were compiled. It is not kept in a folder where other
    users can write. Several processes may compile at once: each moves its own library
    into place, and its SHA-256 after it.
    """
    if (compiler := find_compiler()) is None:
        raise BuildError(NO_COMPILER)
    flags = variant_flags(variant) if variant else []
    extras = ([*flags, OPENMP], flags) if variant else EXTRAS
    try:
        version = run([compiler, "--version"]) or ""
        place = cache_path(
            ".so", *FLAGS, *map(str, extras), *_more_flags(), compiler, version
        )
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_safe(place.parent):
            raise BuildError(
                f"{place.parent} is another user's, or others can write there (`chmod go-w` it)"
            )
        if _is_whole(place):
            return place
        if shutil.disk_usage(place.parent).free < ROOM:
            raise BuildError(f"{place.parent} has no room for the compiled kernels")
        log.info(
            "compiling encoder and decoder step for this machine; this takes some seconds, once"
        )
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            made = Path(folder) / place.name
            for extra in extras:
                if compile_kernels(compiler, [*extra, *_more_flags()], made):
                    checksum = _checksum(made)
                    checksum.write_text(file_sha256(made), encoding="utf-8")
                    for path in (made, checksum):
                        path.chmod(0o700)
                        with path.open("rb") as file:
                            os.fsync(
                                file.fileno()
                            )  # a power cut must not leave a name without its bytes
                    made.replace(place)
                    checksum.replace(_checksum(place))
                    return place
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        raise BuildError(f"the compiled kernels cannot be kept: {error}") from error
    raise BuildError(f"{Path(compiler).name} cannot compile the kernels")


def _checksum(library: Path) -> Path:
    """The file beside a library that holds its SHA-256."""
    return library.with_name(f"{library.name}.sha256")


def _is_whole(library: Path) -> bool:
    """Whether a library is safe to load and has the bytes that were compiled: a torn one ends the process (SIGBUS).

    A link is not taken: others may write where it leads to.
    """
    checksum = _checksum(library)
    if any(path.is_symlink() or not is_safe(path) for path in (library, checksum)):
        return False
    return checksum.read_bytes() == file_sha256(library).encode()


def _more_flags() -> list[str]:
    return shlex.split(os.environ.get(FLAGS_VARIABLE, ""))


def cache_path(ending: str, *facts: str) -> Path:
    """A path in the cache. Its name is a hash of the facts, the source and the CPU; a BuildError if there is no cache."""
    source = b"".join(
        path.read_bytes() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h")))
    )
    name = hashlib.sha256(source + "\n".join((*facts, *_cpu())).encode()).hexdigest()[
        :16
    ]
    try:
        return cache_folder() / f"kernels-{name}{ending}"
    except ValueError as error:
        raise BuildError(str(error)) from error


def _cpu_flags() -> set[str]:
    """The names of the instructions that this CPU has; none where Linux does not say."""
    return {
        name
        for line in _cpu()
        if line.startswith(("flags", "Features"))
        for name in line.split()
    }


@cache
def _cpu() -> list[str]:
    """Lines that differ between CPUs with other instructions: machines may share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return [f"{platform.machine()} {platform.processor()}"]
    wanted = ("model name", "flags", "Features", "CPU part")
    return sorted({line for line in lines if line.startswith(wanted)})


#: The numbers of `Activation` in C++, by the names of transformers.
ACTIVATIONS: Final = {"relu": 0, "gelu_new": 1, "gelu_pytorch_tanh": 1, "silu": 2}


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class PartStruct(Structure):
    """``Part``: panels of one `kind` (see `kinds.Kind`), `stride` words apart, that are a matrix's panels up to `end`."""

    _fields_ = [("panels", c_void_p), *_fields(c_int64, "kind stride end")]


class MatrixStruct(Structure):
    """``Matrix``: its parts, which follow each other; those behind the last have no panels."""

    _fields_ = [("parts", PartStruct * 3)]


class LayerStruct(Structure):
    """``Layer``: addresses of a layer's norms and bias table, its packed matrices, and its flags."""

    _fields_ = [
        *_fields(c_void_p, "self_norm cross_norm feed_norm bias"),
        *_fields(
            MatrixStruct,
            "qkv self_out cross_q cross_kv cross_out feed_in feed_out",
        ),
        *_fields(c_void_p, "self_post feed_post query_norm key_norm qkv_bias"),
        *_fields(c_int64, "rotary windowed"),
    ]


class ModelStruct(Structure):
    """``Model``: sizes and flags of an encoder or a decoder, and its weights."""

    _fields_ = [
        *_fields(
            c_int64,
            "layers heads key_heads head_width width feed_width vocabulary reach",
        ),
        *_fields(
            c_int64,
            "weights activation pairs tiles gated causal window rotaries wide_norms",
        ),
        *_fields(
            c_double, "epsilon scale embedding_scale query_scale residual cap score_cap"
        ),
        *_fields(c_void_p, "embedding final_norm frequencies amplitudes"),
        *_fields(MatrixStruct, "head table"),
        ("layer", POINTER(LayerStruct)),
    ]


class CacheStruct(Structure):
    """``Cache``: its sizes, and addresses of keys, values and places."""

    _fields_ = [
        *_fields(c_int64, "sequences room source_room"),
        *_fields(
            c_void_p,
            "keys values source_keys source_values subsequence time position source_length",
        ),
    ]


class RowStruct(Structure):
    """``Row``: a token and its place. `choices` is 1 if a bit mask has the tokens that may answer; 0: all may; −1: no answer is wanted.

    `subsequence` and `time` say who sees the token; distances are differences of
    positions.
    """

    _fields_ = _fields(
        c_int64, "token sequence column subsequence time choices position end others"
    )


_MODEL, _CACHE, _INT, _ADDRESS = (
    POINTER(ModelStruct),
    POINTER(CacheStruct),
    c_int64,
    c_void_p,
)
#: The result and the arguments of each function.
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "panel": (_INT, ()),
    "features": (c_char_p, ()),
    "size": (_INT, (_INT,)),
    "use_large_pages": (None, (_ADDRESS, _INT)),
    "kinds": (_INT, ()),
    "panel_words": (_INT, (_INT, _INT)),
    "kind_of_blocks": (_INT, (_INT,)),
    "key_words": (_INT, (_MODEL, _INT)),
    "pack": (None, (_MODEL, _INT, _ADDRESS, _INT, _INT, _ADDRESS, _INT, _INT)),
    "place": (None, (_INT, _ADDRESS, _INT, _INT, _ADDRESS, _INT, _INT)),
    "unpack": (None, (_MODEL, _INT, _ADDRESS, _INT, _INT, _INT, _ADDRESS)),
    "multiply": (
        None,
        (_MODEL, _INT, _INT, _ADDRESS, _INT, _ADDRESS, _INT, _INT, _ADDRESS),
    ),
    "remember_source": (_INT, (_MODEL, _CACHE, _INT, _INT, _ADDRESS, _INT)),
    "encode": (_INT, (_MODEL, _INT, _ADDRESS, _ADDRESS, _INT, _ADDRESS, _INT)),
    "step": (
        _INT,
        (_MODEL, _CACHE, _INT, *[_ADDRESS] * 3, _INT, *[_ADDRESS] * 3),
    ),
}


class Library:
    """The loaded kernels.

    Attributes:
        features: the instructions that they were compiled for, for tables and logs.
        panel: outputs side by side in a packed matrix, and columns side by side in the
            cache.
        kinds: which products they have: 1 for int8, 2 for bfloat16 in pairs, 4 for tile
            registers, or a sum of these.
        use_large_pages: ask the system to back memory, given as address and size, with
            large pages.
        panel_words: the words of a panel, by a number of `kinds.Kind` and the inputs.
        kind_of_blocks: the kind that holds all numbers of one of ggml's types; −1 for a
            type that is not read.
        key_words: the words that a key of a width takes in the cache.
    """

    def __init__(self, path: Path) -> None:
        """Load a library; an OSError or AttributeError if it does not fit this code."""
        self.path, self._library = path, CDLL(str(path))
        library = self._library
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"pipedec_{name}")
            function.restype, function.argtypes = result, arguments
        for number, kind in enumerate(
            (LayerStruct, ModelStruct, CacheStruct, RowStruct)
        ):
            if library.pipedec_size(number) != sizeof(kind):
                raise OSError(f"{kind.__name__} is laid out in another way")
        self.panel: int = library.pipedec_panel()
        self.kinds: int = library.pipedec_kinds()
        self.features: str = library.pipedec_features().decode()
        self.use_large_pages: Callable[[int, int], None] = (
            library.pipedec_use_large_pages
        )
        self.panel_words: Callable[[int, int], int] = library.pipedec_panel_words
        self.kind_of_blocks: Callable[[int], int] = library.pipedec_kind_of_blocks
        self.key_words: Callable[[ModelStruct, int], int] = library.pipedec_key_words

    def panels(self, outputs: int) -> int:
        """How many panels a matrix has."""
        return -(-outputs // self.panel)

    def pack(
        self, model: ModelStruct, kind: int, matrix: Tensor, panels: int, stride: int
    ) -> None:
        """Pack a matrix [outputs, inputs] into panels of a kind at an address, `stride` words apart.

        The matrix is bfloat16 for the kind of bfloat16, else float32.
        """
        threads, address = torch.get_num_threads(), matrix.data_ptr()
        self._library.pipedec_pack(
            model, kind, address, *matrix.shape, panels, stride, threads
        )

    def place(
        self, type_: int, blocks: Tensor, inputs: int, panels: int, stride: int
    ) -> None:
        """Put a matrix in blocks of one of ggml's types into panels of the kind that holds them.

        The blocks are bytes, uint8 [outputs, bytes of a row].
        """
        threads, address = torch.get_num_threads(), blocks.data_ptr()
        self._library.pipedec_place(
            type_, address, len(blocks), inputs, panels, stride, threads
        )

    def unpack(
        self,
        model: ModelStruct,
        kind: int,
        panels: int,
        stride: int,
        shape: tuple[int, int],
    ) -> Tensor:
        """The weights of a packed matrix as they are multiplied: float32 [outputs, inputs]."""
        outputs, inputs = shape
        out = torch.empty(self.panels(outputs) * self.panel, inputs)
        self._library.pipedec_unpack(
            model, kind, panels, stride, outputs, inputs, out.data_ptr()
        )
        return out[:outputs]

    def multiply(
        self,
        model: ModelStruct,
        kind: int,
        x: Tensor,
        panels: int,
        stride: int,
        outputs: int,
    ) -> Tensor:
        """Multiply float32 [rows, inputs] and a packed matrix, in this thread: float32 [rows, outputs in whole panels]."""
        out = torch.empty(len(x), self.panels(outputs) * self.panel)
        (rows, inputs), address = x.shape, x.data_ptr()
        self._library.pipedec_multiply(
            model, kind, rows, address, inputs, panels, stride, outputs, out.data_ptr()
        )
        return out

    def remember_source(
        self, decoder: ModelStruct, cache: CacheStruct, sequence: int, states: Tensor
    ) -> None:
        """Keep the keys and values of an encoded source in a sequence. The states are float32 [length, d_model]."""
        address, threads = states.data_ptr(), torch.get_num_threads()
        self._call(
            "remember_source", decoder, cache, sequence, len(states), address, threads
        )

    def encode(
        self, encoder: ModelStruct, sources: Sequence[Sequence[int]], states: Tensor
    ) -> None:
        """Encode sources of token ids, none of them empty, into `states`, float32 [sources, longest, d_model].

        Numbers behind the end of a source stay as they are.
        """
        lengths = (c_int64 * len(sources))(*map(len, sources))
        tokens = (c_int64 * sum(lengths))(
            *(token for source in sources for token in source)
        )
        threads, padded = torch.get_num_threads(), states.shape[1]
        self._call(
            "encode",
            encoder,
            len(sources),
            lengths,
            tokens,
            threads,
            states.data_ptr(),
            padded,
        )

    def step(
        self,
        decoder: ModelStruct,
        cache: CacheStruct,
        rows: Sequence[int],
        allowed: bytes = b"",
        others: Sequence[int] = (),
        logits: Tensor | None = None,
        odds: Tensor | None = None,
    ) -> list[int]:
        """One decoder call, which adds the rows to the cache: the most probable token of each.

        It is 0 for a row that wants no answer, −1 if a logit is NaN.

        Args:
            decoder: the model.
            cache: of all sequences.
            rows: for each row the fields of a `RowStruct`; rows are ordered by sequence
                and column.
            allowed: the bit masks of those rows that have one, each (vocabulary + 7) /
                8 bytes, row after row.
            others: the other tokens whose probabilities rows ask for, row after row.
            logits: to be filled; float32 [rows that want an answer, vocabulary in whole
                panels]. Not with `odds`.
            odds: to be filled with the `Odds` of each row and then with the
                probabilities of the `others`; float32 [3 rows + others].
        """
        count, threads = len(rows) // len(RowStruct._fields_), torch.get_num_threads()
        answers, given = (c_int64 * count)(), (c_int64 * len(rows))(*rows)
        tokens = (c_int64 * len(others))(*others)
        wanted = [
            None if tensor is None else tensor.data_ptr() for tensor in (logits, odds)
        ]
        self._call(
            "step",
            decoder,
            cache,
            count,
            given,
            allowed,
            tokens,
            threads,
            answers,
            *wanted,
        )
        return list(answers)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function whose result is 0, 1 for too little memory, or 2 for a token or a place out of bounds."""
        status = getattr(self._library, f"pipedec_{name}")(*arguments)
        if status == 1:
            raise MemoryError("no memory for the compiled kernels' buffers")
        if status:
            raise IndexError(f"{name}: a token or a place is out of bounds")


def library() -> Library:
    """The kernels, compiled if need be; a BuildError if there are none, a UserError as of `asked_variant`."""
    asked = asked_variant()
    found = (
        f"{VARIABLE} is {OFF}"
        if asked == OFF
        else carried_library(asked) or _compiled_library(asked)
    )
    if isinstance(found, Library):
        return found
    raise BuildError(found)


@cache
def carried_library(asked: str) -> Library | None:
    """The kernels that came with the package; None if there are none, or this system cannot load them."""
    with suppress(OSError, AttributeError):
        return Library(path) if (path := carried(asked)) else None
    return None


@cache
def _compiled_library(asked: str) -> Library | str:
    """The kernels that are compiled here, or the reason why there are none. A process tries once."""
    try:
        return Library(compiled(asked))
    except BuildError as error:
        return str(error)
    except (OSError, AttributeError) as error:
        return f"the compiled kernels cannot be loaded: {error}"
