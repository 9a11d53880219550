"""Compile ``kernels.cpp`` for this machine, once: the result is kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("kernels.cpp")
FLAGS: Final = ("-std=c++17", "-O3", "-shared", "-fPIC")
#: What to add, best first: not every compiler knows the machine it runs on, nor OpenMP.
EXTRAS: Final = (("-march=native", "-fopenmp"), ("-mcpu=native", "-fopenmp"), ("-march=native",), ())
#: Seconds after which a compiler is given up.
PATIENCE: Final = 300


class BuildError(Exception):
    """The kernels cannot be had here; the text says why, in a few words."""


def find_compiler() -> str:
    """The path of a C++ compiler: what CXX names, else the system's.

    Raises:
        BuildError: there is none.
    """
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise BuildError("there is no C++ compiler")


def cache_folder() -> Path:
    """Where compiled kernels are kept: ``pipedec`` in XDG_CACHE_HOME, by default ``~/.cache``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "pipedec"


def is_compiled() -> bool:
    """Whether the library for this source, compiler and CPU is there; True as well where it cannot be had at all."""
    try:
        return _place(find_compiler()).exists()
    except (BuildError, OSError, RuntimeError):
        return True


def compiled() -> Path:
    """The shared library for this source, compiler and CPU; compiled now if it is not there yet.

    Several processes may do so at once: each compiles to a file of its own and moves it to its place.

    Raises:
        BuildError: it cannot be compiled or kept.
    """
    compiler = find_compiler()
    try:
        place = _place(compiler)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _compile(compiler, place)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        raise BuildError(f"the compiled kernels cannot be kept: {error}") from error
    return place


def _place(compiler: str) -> Path:
    """Where the library lies, or will: its name tells source, compiler and CPU."""
    facts = (*FLAGS, *map(str, EXTRAS), compiler, _run([compiler, "--version"]) or "", _cpu())
    source = b"".join(path.read_bytes() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))))
    name = hashlib.sha256(source + "\n".join(facts).encode()).hexdigest()[:16]
    return cache_folder() / f"kernels-{name}.so"


def _compile(compiler: str, place: Path) -> None:
    """Compile to a temporary file beside `place`, and move it there once it is whole."""
    handle, temporary = tempfile.mkstemp(suffix=".so", dir=place.parent)
    os.close(handle)
    try:
        for extra in EXTRAS:
            if _run([compiler, *FLAGS, *extra, str(SOURCE), "-o", temporary]) is not None:
                Path(temporary).replace(place)
                return
        raise BuildError(f"{Path(compiler).name} cannot compile the kernels")
    finally:
        Path(temporary).unlink(missing_ok=True)


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
