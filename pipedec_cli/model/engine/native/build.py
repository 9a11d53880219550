"""Compiles ``kernels.cpp`` for this machine, once, into the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from pipedec_cli.data.cache import cache_folder, is_safe
from pipedec_cli.data.writing import file_sha256

#: More flags for the compiler, such as ``-g -fsanitize=address``. Each set of flags has a library of its own.
FLAGS_VARIABLE: Final = "PIPEDEC_NATIVE_FLAGS"
SOURCE: Final = Path(__file__).with_name("kernels.cpp")
FLAGS: Final = ("-std=c++17", "-O3", "-shared", "-fPIC")
#: Flags to try, best first: not every compiler knows the machine it runs on, nor OpenMP.
EXTRAS: Final = (("-march=native", "-fopenmp"), ("-mcpu=native", "-fopenmp"), ("-march=native",), ())
#: Seconds after which the compiler is stopped.
PATIENCE: Final = 300


class BuildError(Exception):
    """The kernels cannot be used here; the text says why, in a few words."""


def find_compiler() -> str:
    """The path of a C++ compiler: the one that CXX names, or the system's; else a BuildError."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise BuildError("there is no C++ compiler")


def is_compiled() -> bool:
    """Whether nothing will be compiled: the library is there, or it cannot be made at all."""
    try:
        place = _place(find_compiler())
        return _is_whole(place) or (place.parent.exists() and not is_safe(place.parent))
    except (BuildError, OSError, RuntimeError):
        return True


def compiled() -> Path:
    """The shared library for this source, compiler and CPU, compiled now if it is not there; else a BuildError.

    A library is code. It is compiled again if another user may have written it, or if its bytes are not those that were
    compiled. It is not kept in a folder where other users can write. Several processes may compile at once: each moves
    its own library into place, and its SHA-256 after it.
    """
    compiler = find_compiler()
    try:
        place = _place(compiler)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_safe(place.parent):
            raise BuildError(f"{place.parent} is another user's, or others can write there (`chmod go-w` it)")
        if _is_whole(place):
            return place
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            made = Path(folder) / place.name
            for extra in EXTRAS:
                if _run([compiler, *FLAGS, *extra, *_more_flags(), str(SOURCE), "-o", str(made)]) is not None:
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


def _place(compiler: str) -> Path:
    """The path of the library. Its name is a hash of source, flags, compiler and CPU."""
    facts = (*FLAGS, *map(str, EXTRAS), *_more_flags(), compiler, _run([compiler, "--version"]) or "", _cpu())
    source = b"".join(path.read_bytes() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))))
    name = hashlib.sha256(source + "\n".join(facts).encode()).hexdigest()[:16]
    try:
        return cache_folder() / f"kernels-{name}.so"
    except ValueError as error:
        raise BuildError(str(error)) from error


def _run(command: list[str]) -> str | None:
    """The output of a command; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _cpu() -> str:
    """A text that differs between CPUs with other instructions: machines may share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
