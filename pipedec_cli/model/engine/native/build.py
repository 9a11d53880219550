"""The library of the kernels: the one that came with the package, or ``kernels.cpp`` compiled once into the cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from pipedec_cli.data.cache import cache_folder, is_safe
from pipedec_cli.data.errors import UserError
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
#: More flags for the compiler, such as ``-g -fsanitize=address``. Each set of flags has a library of its own.
FLAGS_VARIABLE: Final = "PIPEDEC_NATIVE_FLAGS"
#: Flags to try, best first: not every compiler knows the machine it runs on, nor OpenMP.
EXTRAS: Final[tuple[list[str], ...]] = (
    ["-march=native", OPENMP],
    ["-mcpu=native", OPENMP],
    ["-march=native"],
    [],
)

#: Instructions of CPUs without AVX-512 VNNI that make the kernels faster; a compiler for the CPU itself uses them.
BEYOND_AVX2: Final = {"avx_vnni", "avx512bw"}
NO_COMPILER: Final = "there is no C++ compiler"


class BuildError(Exception):
    """The kernels cannot be used here; the text says why, in a few words."""


def asked_variant() -> str:
    """What the environment asks for: a variant, `OFF`, or nothing; a UserError if it is not known, or not for this CPU."""
    asked = os.environ.get(VARIABLE, "")
    if asked in ("", OFF):
        return asked
    if asked not in VARIANTS:
        raise UserError(
            f"{VARIABLE} is {asked!r}", todo=f"give {OFF}, {', '.join(VARIANTS)}, or leave it out"
        )
    if missing := [name for name in VARIANTS[asked] if name not in _cpu_flags()]:
        raise UserError(f"{VARIABLE} is {asked}, and this CPU has no {missing[0]}", todo="leave it out")
    return asked


def fitting_variants() -> list[str]:
    """The variants that this CPU can run, the best last."""
    return [name for name, needed in VARIANTS.items() if _cpu_flags().issuperset(needed)]


def carried(variant: str = "") -> Path | None:
    """The library that came with the package, for a variant or the best for this CPU.

    None if there is none, or if a compiler can use instructions that AVX2's variant leaves out.
    """
    best = variant or next(reversed(fitting_variants()), "")
    path = SOURCE.with_name(carried_name(best))
    if _more_flags() or not path.is_file():
        return None
    leaves_out = best == "avx2" and not variant and not _cpu_flags().isdisjoint(BEYOND_AVX2)
    return None if leaves_out and find_compiler() else path


def is_compiled(variant: str = "") -> bool:
    """Whether nothing will be compiled: the library is there, or it cannot be made at all."""
    if (compiler := find_compiler()) is None:
        return True
    try:
        place = _library_place(compiler, variant)
        return _is_whole(place) or (place.parent.exists() and not is_safe(place.parent))
    except (BuildError, OSError, RuntimeError):
        return True


def compiled(variant: str = "") -> Path:
    """The shared library for this source, compiler and CPU, or for a variant, compiled now if it is not there; else a BuildError.

    A library is code. It is compiled again if another user may have written it, or if its bytes are not those that were
    compiled. It is not kept in a folder where other users can write. Several processes may compile at once: each moves
    its own library into place, and its SHA-256 after it.
    """
    if (compiler := find_compiler()) is None:
        raise BuildError(NO_COMPILER)
    try:
        place = _library_place(compiler, variant)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_safe(place.parent):
            raise BuildError(f"{place.parent} is another user's, or others can write there (`chmod go-w` it)")
        if _is_whole(place):
            return place
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            made = Path(folder) / place.name
            for extra in _extras(variant):
                if compile_kernels(compiler, [*extra, *_more_flags()], made):
                    checksum = _checksum(made)
                    checksum.write_text(file_sha256(made), encoding="utf-8")
                    for path in (made, checksum):
                        path.chmod(0o700)
                        with path.open("rb") as file:
                            os.fsync(file.fileno())  # a power cut must not leave a name without its bytes
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
    for path in (library, checksum):
        if path.is_symlink() or not is_safe(path):
            return False
    return checksum.read_bytes() == file_sha256(library).encode()


def _more_flags() -> list[str]:
    return shlex.split(os.environ.get(FLAGS_VARIABLE, ""))


def _extras(variant: str) -> list[list[str]]:
    """As `EXTRAS`, or those for a variant."""
    flags = variant_flags(variant) if variant else []
    return [[*flags, OPENMP], flags] if variant else [*EXTRAS]


def _library_place(compiler: str, variant: str) -> Path:
    """The path of a library that is compiled here, by flags and compiler."""
    extras, version = map(str, _extras(variant)), run([compiler, "--version"]) or ""
    return cache_path(".so", *FLAGS, *extras, *_more_flags(), compiler, version)


def cache_path(ending: str, *facts: str) -> Path:
    """A path in the cache. Its name is a hash of the facts, the source and the CPU; a BuildError if there is no cache."""
    source = b"".join(path.read_bytes() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))))
    name = hashlib.sha256(source + "\n".join((*facts, *_cpu())).encode()).hexdigest()[:16]
    try:
        return cache_folder() / f"kernels-{name}{ending}"
    except ValueError as error:
        raise BuildError(str(error)) from error


def _cpu_flags() -> set[str]:
    """The names of the instructions that this CPU has; none where Linux does not say."""
    return {name for line in _cpu() if line.startswith("flags") for name in line.split()}


@cache
def _cpu() -> list[str]:
    """Lines that differ between CPUs with other instructions: machines may share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return [f"{platform.machine()} {platform.processor()}"]
    wanted = ("model name", "flags", "Features", "CPU part")
    return sorted({line for line in lines if line.startswith(wanted)})
