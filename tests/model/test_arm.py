"""The kernels of an Arm CPU, in an emulator: their products are those of this machine's, bit for bit."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from pipedec_cli.model.engine.native import variants
from pipedec_cli.model.engine.native.kinds import Kind, Panels, make_kind
from pipedec_cli.model.engine.native.library import library
from pipedec_cli.model.engine.native.variants import SOURCE
from tests.model.engines import needs_int8

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
MISSING = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
ARM_MACHINE = 183  # in the head of an ELF file
#: Each kind that floats are packed to, and a dtype whose model has it.
KINDS = {
    Kind.FLOAT32: torch.float32,
    Kind.BFLOAT16: torch.bfloat16,
    Kind.EIGHT: torch.int8,
    Kind.SUPER_FOUR: torch.int4,
    Kind.SUPER_SIX: torch.int4,
}
SHAPES = ((1, 64, 16), (3, 100, 37), (8, 576, 50), (20, 130, 9))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"there is no {', '.join(MISSING)}"),
    needs_int8,
]


def products_of(folder, flags, cases):
    """The products of cases, each a way, rows and a matrix, in kernels for an Arm with these flags."""
    program, made = Path(__file__).with_name("products.cpp"), folder / "products"
    every = ["-std=c++17", "-O2", "-static", f"-I{SOURCE.parent}", "-pthread"]
    subprocess.run([COMPILER, *every, *flags, program, "-o", made], check=True)
    asked = b""
    for kind, way, x, matrix in cases:
        sizes = np.array([kind, way == "pairs", *x.shape, len(matrix)], np.int64)
        asked += sizes.tobytes() + x.tobytes() + matrix.tobytes()
    found = subprocess.run(
        [EMULATOR, made], input=asked, capture_output=True, check=True
    ).stdout
    return np.frombuffer(found, np.float32)


def drawn(kinds, way):
    """A product for each kind and shape, of rows and a matrix of random numbers."""
    draw = np.random.default_rng(0)
    for kind in kinds:
        for rows, inputs, outputs in SHAPES:
            x = draw.normal(size=(rows, inputs)).astype(np.float32)
            matrix = draw.normal(size=(outputs, inputs)).astype(np.float32)
            yield kind, way, x, matrix


@pytest.mark.parametrize(
    ("features", "threads"),
    [
        ("armv8-a", ["-fopenmp"]),
        ("armv8.2-a+dotprod", []),
        ("armv8.2-a+dotprod+i8mm", []),
    ],
)
def test_products_are_those_of_this_machine(tmp_path, features, threads):
    """Without OpenMP, as with Apple's compiler, threads wait for work."""
    has_integers = "dotprod" in features
    here = [kind for kind in KINDS if has_integers or kind < Kind.EIGHT]
    cases, wanted = [*drawn(here, "wide")], []
    for kind, way, x, matrix in cases:
        given = torch.bfloat16 if kind == Kind.BFLOAT16 else torch.float32
        weights = torch.from_numpy(matrix).to(given)
        panels = Panels.of(library(), make_kind(KINDS[kind], way), kind, weights)
        wanted.append(panels.multiply(torch.from_numpy(x)).numpy().ravel())
    found = products_of(tmp_path, [f"-march={features}", *threads], cases)
    assert np.array_equal(found, np.concatenate(wanted))


def test_pairs_of_bfloat16_are_the_products_of_rounded_rows(tmp_path):
    cases = [*drawn([Kind.BFLOAT16], "pairs")]
    found = products_of(tmp_path, ["-march=armv8.2-a+bf16"], cases)
    rounded = [
        [torch.from_numpy(part).bfloat16().float() for part in case[2:]]
        for case in cases
    ]
    wanted = torch.cat([(x @ matrix.T).ravel() for x, matrix in rounded])
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_wheel_for_arm_carries_its_variants(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", COMPILER)
    monkeypatch.setattr(variants, "VARIANTS", variants.ARM)
    monkeypatch.setattr(
        variants, "FLAGS", ["-O0" if flag == "-O3" else flag for flag in variants.FLAGS]
    )
    made = variants.compile_variants(tmp_path)
    assert {path.name for path in made} == {
        f"kernels-{name}.so" for name in variants.ARM
    }
    assert all(path.read_bytes()[18] == ARM_MACHINE for path in made)
