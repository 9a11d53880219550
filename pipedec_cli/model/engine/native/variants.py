"""The instruction sets that the kernels are compiled for, and how. It imports nothing else: the build of a wheel reads it."""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("kernels.cpp")
FLAGS: Final = ("-std=c++17", "-O3", "-shared", "-fPIC")
OPENMP: Final = "-fopenmp"
#: Seconds after which the compiler is stopped.
PATIENCE: Final = 600

_AVX2: Final = ("avx2", "fma", "f16c")
_AVX512: Final = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni")
_BF16: Final = (*_AVX512, "avx512_bf16")
_DOTS: Final = ("asimd", "asimddp")
#: What each variant needs of a CPU, in Linux's words; the best variant last.
X86: Final = {
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_bf16": _BF16,
    "amx": (*_BF16, "amx_tile", "amx_int8", "amx_bf16"),
}
ARM: Final = {"neon": _DOTS[:1], "dotprod": _DOTS, "i8mm": (*_DOTS, "i8mm", "bf16")}
IS_ARM: Final = platform.machine().lower() in ("arm64", "aarch64")
VARIANTS: Final = ARM if IS_ARM else X86
#: The compiler's word for what Linux calls otherwise.
_ARM_FLAGS: Final = {"asimd": "simd", "asimddp": "dotprod"}


def find_compiler() -> str | None:
    """The path of the C++ compiler that CXX names, or else of the system's; None without a compiler."""
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        path = shutil.which(name)
        if path:
            return path
    return None


def compile_kernels(compiler: str, flags: Sequence[str], library: Path) -> bool:
    """Compile the kernels with these flags into a library. Returns whether the compiler can."""
    return run([compiler, *FLAGS, *flags, str(SOURCE), "-o", str(library)]) is not None


def variant_flags(variant: str) -> list[str]:
    """The compiler's flags for a variant: which instructions it may use."""
    if variant in ARM:
        words = [_ARM_FLAGS.get(name, name) for name in ARM[variant]]
        return ["-march=armv8.2-a+" + "+".join(words)]
    words = [name.replace("avx512_", "avx512") for name in X86[variant]]
    return ["-m" + word.replace("_", "-") for word in words]


def carried_name(variant: str) -> str:
    """The file name of a variant that comes with the package."""
    return f"kernels-{variant}.so"


def compile_variants(folder: Path) -> list[Path]:
    """Compile all variants into a folder, several at once; gives those that the compiler can make, none without one."""
    compiler = find_compiler()
    if compiler is None:
        return []

    def compile_variant(variant: str) -> Path | None:
        library = folder / carried_name(variant)
        flags = [*variant_flags(variant), OPENMP]
        return library if compile_kernels(compiler, flags, library) else None

    with ThreadPoolExecutor(os.cpu_count()) as team:
        return [*filter(None, team.map(compile_variant, reversed(VARIANTS)))]


def run(command: list[str]) -> str | None:
    """The output of a command; None if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
