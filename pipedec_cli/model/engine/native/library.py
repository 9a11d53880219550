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
from itertools import chain
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.data.cache import cache_folder, is_own, make_own_folder
from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.writing import file_sha256
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
    """The variant of the kernels that the environment asks for: its name, `OFF` for no kernels, or "" for the best.

    A UserError if it is not known, or not for this CPU.
    """
    variant = os.environ.get(VARIABLE, "")
    if variant in ("", OFF):
        return variant
    if variant not in VARIANTS:
        todo = f"give {OFF}, {', '.join(VARIANTS)}, or leave it out"
        raise UserError(f"{VARIABLE} is {variant!r}", todo=todo)
    missing = [name for name in VARIANTS[variant] if name not in _cpu_flags()]
    if missing:
        what = f"{VARIABLE} is {variant}, and this CPU has no {missing[0]}"
        raise UserError(what, todo="leave it out")
    return variant


def fitting_variants() -> list[str]:
    """The variants that this CPU can run, the best last."""
    return [
        name for name, needed in VARIANTS.items() if _cpu_flags().issuperset(needed)
    ]


def carried(variant: str = "") -> Path | None:
    """The path of the library that came with the package, for a variant or, without one, the best for this CPU.

    None if there is none. None as well if the best would be AVX2's, and a compiler here
    can use instructions of this CPU that AVX2's leaves out.
    """
    best = variant or next(reversed(fitting_variants()), "")
    path = SOURCE.with_name(carried_name(best))
    if _more_flags() or not path.is_file():
        return None
    if best == "avx2" and not variant:
        leaves_out = _cpu_flags() & BEYOND_AVX2
        if leaves_out and find_compiler():
            return None
    return path


def compiled(variant: str = "") -> Path:
    """The path of the library for this source, compiler and CPU, or for a variant, which is compiled now if need be.

    A library is code. It is compiled again if another user may have written it, or if
    its bytes are not those that were compiled. It is not kept in a folder where other
    users can write. A BuildError if it cannot be compiled, or not be kept.
    """
    compiler = find_compiler()
    if compiler is None:
        raise BuildError(NO_COMPILER)
    extras: Sequence[list[str]] = EXTRAS
    if variant:
        flags = variant_flags(variant)
        extras = ([*flags, OPENMP], flags)
    try:
        version = run([compiler, "--version"]) or ""
        place = cache_path(
            ".so", *FLAGS, *map(str, extras), *_more_flags(), compiler, version
        )
        if not make_own_folder(place.parent):
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
        for extra in extras:
            if _compile_to(place, compiler, [*extra, *_more_flags()]):
                return place
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        raise BuildError(f"the compiled kernels cannot be kept: {error}") from error
    raise BuildError(f"{Path(compiler).name} cannot compile the kernels")


def _compile_to(place: Path, compiler: str, flags: Sequence[str]) -> bool:
    """Compile a library with these flags, and move it to its place. Returns whether the compiler can.

    Several processes may compile at once: each moves its own library into place, and
    its SHA-256 after it.
    """
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        library = Path(folder) / place.name
        if not compile_kernels(compiler, flags, library):
            return False
        checksum = _checksum(library)
        checksum.write_text(file_sha256(library), encoding="utf-8")
        for path in (library, checksum):
            path.chmod(0o700)
            # A power cut must not leave a name without its bytes.
            with path.open("rb") as file:
                os.fsync(file.fileno())
        library.replace(place)
        checksum.replace(_checksum(place))
    return True


def _checksum(library: Path) -> Path:
    """The file beside a library that holds its SHA-256."""
    return library.with_name(f"{library.name}.sha256")


def _is_whole(library: Path) -> bool:
    """Whether a library is safe to load and has the bytes that were compiled: a torn one ends the process (SIGBUS)."""
    checksum = _checksum(library)
    if not is_own(library) or not is_own(checksum):
        return False
    return checksum.read_bytes() == file_sha256(library).encode()


def _more_flags() -> list[str]:
    """Flags for the compiler that the environment adds."""
    return shlex.split(os.environ.get(FLAGS_VARIABLE, ""))


def cache_path(ending: str, *facts: str) -> Path:
    """A path in the cache, with this ending. Its name is a hash of the facts, of the kernels' source and of the CPU.

    A BuildError if there is no cache.
    """
    digest = hashlib.sha256()
    for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))):
        digest.update(path.read_bytes())
    digest.update("\n".join((*facts, *_cpu())).encode())
    name = digest.hexdigest()[:16]
    try:
        return cache_folder() / f"kernels-{name}{ending}"
    except ValueError as error:
        raise BuildError(str(error)) from error


def _cpu_flags() -> set[str]:
    """The names of the instructions that this CPU has; none where Linux does not say."""
    names = set[str]()
    for line in _cpu():
        if line.startswith(("flags", "Features")):
            names.update(line.split())
    return names


@cache
def _cpu() -> list[str]:
    """What tells this CPU from others with other instructions, in lines: machines may share a home folder."""
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


_MODEL = POINTER(ModelStruct)
_CACHE = POINTER(CacheStruct)
_INT = c_int64
_ADDRESS = c_void_p
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
    "are_finite": (_INT, (_INT, _ADDRESS, _INT, _INT)),
    "pack": (None, (_MODEL, _INT, _INT, _ADDRESS, _INT, _INT, _ADDRESS, _INT, _INT)),
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


#: The bits of the exponent, which are all set in NaN and in infinite numbers, in each
#: number of a 32-bit word.
_EXPONENTS: Final = {
    torch.float32: 0x7F800000,
    torch.bfloat16: 0x7F807F80,
    torch.float16: 0x7C007C00,
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
        self.path = path
        self._library = CDLL(str(path))
        library = self._library
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"pipedec_{name}")
            function.restype = result
            function.argtypes = arguments
        structs = (LayerStruct, ModelStruct, CacheStruct, RowStruct)
        for number, struct in enumerate(structs):
            if library.pipedec_size(number) != sizeof(struct):
                raise OSError(f"{struct.__name__} is laid out in another way")
        self.panel: int = library.pipedec_panel()
        self.kinds: int = library.pipedec_kinds()
        self.features: str = library.pipedec_features().decode()
        self.use_large_pages: Callable[[int, int], None] = (
            library.pipedec_use_large_pages
        )
        self.panel_words: Callable[[int, int], int] = library.pipedec_panel_words
        self.kind_of_blocks: Callable[[int], int] = library.pipedec_kind_of_blocks
        self.key_words: Callable[[ModelStruct, int], int] = library.pipedec_key_words

    def are_finite(self, numbers: Tensor) -> bool:
        """Whether no number of a contiguous tensor is NaN or infinite."""
        if numbers.dtype not in _EXPONENTS:
            return bool(torch.isfinite(numbers).all())
        mask, threads = _EXPONENTS[numbers.dtype], torch.get_num_threads()
        size = numbers.numel() * numbers.itemsize
        return bool(
            self._library.pipedec_are_finite(mask, numbers.data_ptr(), size, threads)
        )

    def panels(self, outputs: int) -> int:
        """How many panels a matrix has."""
        return -(-outputs // self.panel)

    def pack(
        self, model: ModelStruct, kind: int, matrix: Tensor, panels: int, stride: int
    ) -> None:
        """Pack a matrix [outputs, inputs] into panels of a kind at the address `panels`, `stride` words apart.

        The matrix is float32 or bfloat16.
        """
        threads, address = torch.get_num_threads(), matrix.data_ptr()
        is_narrow = matrix.dtype == torch.bfloat16
        self._library.pipedec_pack(
            model, kind, is_narrow, address, *matrix.shape, panels, stride, threads
        )

    def place(
        self, type_: int, blocks: Tensor, inputs: int, panels: int, stride: int
    ) -> None:
        """Put a matrix in blocks of one of ggml's types into panels of the kind that holds them.

        The blocks are bytes, uint8 [outputs, bytes of a row]; a row has so many
        `inputs`. The panels are at the address `panels`, `stride` words apart.
        """
        threads = torch.get_num_threads()
        self._library.pipedec_place(
            type_, blocks.data_ptr(), len(blocks), inputs, panels, stride, threads
        )

    def unpack(
        self,
        model: ModelStruct,
        kind: int,
        panels: int,
        stride: int,
        shape: tuple[int, int],
    ) -> Tensor:
        """The weights of a packed matrix as they are multiplied: float32 of its `shape`, [outputs, inputs].

        Its panels of this kind are at the address `panels`, `stride` words apart.
        """
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
        """Multiply `x`, float32 [rows, inputs], and a packed matrix: float32 [rows, outputs in whole panels].

        The matrix has so many outputs. Its panels of this kind are at the address
        `panels`, `stride` words apart. One thread computes.
        """
        rows, inputs = x.shape
        out = torch.empty(rows, self.panels(outputs) * self.panel)
        self._library.pipedec_multiply(
            model,
            kind,
            rows,
            x.data_ptr(),
            inputs,
            panels,
            stride,
            outputs,
            out.data_ptr(),
        )
        return out

    def remember_source(
        self, decoder: ModelStruct, cache: CacheStruct, sequence: int, states: Tensor
    ) -> None:
        """Compute the keys and values of an encoded source, and keep them in a sequence of the cache.

        `states` are the encoder's, float32 [length, d_model].
        """
        self._call(
            "remember_source",
            decoder,
            cache,
            sequence,
            len(states),
            states.data_ptr(),
            torch.get_num_threads(),
        )

    def encode(
        self, encoder: ModelStruct, sources: Sequence[Sequence[int]], states: Tensor
    ) -> None:
        """Encode sources of token ids, none of them empty, into `states`, float32 [sources, longest, d_model].

        Numbers behind the end of a source stay as they are.
        """
        lengths = (c_int64 * len(sources))(*map(len, sources))
        tokens = (c_int64 * sum(lengths))(*chain.from_iterable(sources))
        self._call(
            "encode",
            encoder,
            len(sources),
            lengths,
            tokens,
            torch.get_num_threads(),
            states.data_ptr(),
            states.shape[1],
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
        count = len(rows) // len(RowStruct._fields_)
        answers = (c_int64 * count)()
        tokens = (c_int64 * len(others))(*others)
        self._call(
            "step",
            decoder,
            cache,
            count,
            (c_int64 * len(rows))(*rows),
            allowed,
            tokens,
            torch.get_num_threads(),
            answers,
            None if logits is None else logits.data_ptr(),
            None if odds is None else odds.data_ptr(),
        )
        return list(answers)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library by its name, and raise an error for what its result says.

        It is 0, or 1 for too little memory, or 2 for a token or a place out of bounds.
        """
        status = getattr(self._library, f"pipedec_{name}")(*arguments)
        if status == 1:
            raise MemoryError("no memory for the compiled kernels' buffers")
        if status:
            raise IndexError(f"{name}: a token or a place is out of bounds")


def library() -> Library:
    """The kernels: those that came with the package, else those that are compiled here, if need be now.

    A BuildError if there are none, a UserError if the environment asks for what cannot
    be.
    """
    variant = asked_variant()
    if variant == OFF:
        raise BuildError(f"{VARIABLE} is {OFF}")
    kernels = carried_library(variant) or _compiled_library(variant)
    if isinstance(kernels, Library):
        return kernels
    raise BuildError(kernels)


@cache
def carried_library(variant: str) -> Library | None:
    """The kernels that came with the package, of a variant or, if that is "", the best for this CPU.

    None if there are none, or this system cannot load them.
    """
    with suppress(OSError, AttributeError):
        path = carried(variant)
        return Library(path) if path else None
    return None


@cache
def _compiled_library(variant: str) -> Library | str:
    """The kernels that are compiled here, of a variant or, if that is "", for this CPU; else the reason why there are none.

    A process tries once for each variant.
    """
    try:
        return Library(compiled(variant))
    except BuildError as error:
        return str(error)
    except (OSError, AttributeError) as error:
        return f"the compiled kernels cannot be loaded: {error}"
