"""The kernels of an Arm CPU, in an emulator: their products are those of this machine's, bit for bit."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from pipedec_cli.model.engine.native.kinds import make_kind, packed
from pipedec_cli.model.engine.native.library import library
from pipedec_cli.model.engine.native.variants import SOURCE
from tests.model.engines import needs_int8

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
MISSING = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
KINDS = (torch.float32, torch.bfloat16, torch.int8, torch.int4)
SHAPES = ((1, 64, 16), (3, 100, 37), (8, 576, 50), (20, 130, 9))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"there is no {', '.join(MISSING)}"),
    needs_int8,
]


@pytest.mark.parametrize(("features", "threads"), [("armv8-a", ["-fopenmp"]), ("armv8.2-a+dotprod", [])])
def test_products_are_those_of_this_machine(tmp_path, features, threads):
    """Without OpenMP, as with Apple's compiler, threads wait for work."""
    program, made = Path(__file__).with_name("products.cpp"), tmp_path / "products"
    flags = ["-std=c++17", "-O2", "-static", f"-march={features}", f"-I{SOURCE.parent}", *threads]
    subprocess.run([COMPILER, *flags, program, "-o", made, "-pthread"], check=True)
    draw, asked, wanted = np.random.default_rng(0), b"", []
    kinds = KINDS if "dotprod" in features else KINDS[:2]
    for number, dtype in enumerate(kinds):
        for rows, inputs, outputs in SHAPES:
            x, matrix = (draw.normal(size=(n, inputs)).astype(np.float32) for n in (rows, outputs))
            asked += (
                np.array([number, rows, inputs, outputs], np.int64).tobytes() + x.tobytes() + matrix.tobytes()
            )
            kind = make_kind(dtype, "wide")
            read = torch.from_numpy(matrix).to(torch.bfloat16 if dtype == torch.bfloat16 else torch.float32)
            panels = packed(library(), kind, read)
            product = library().multiply(kind, torch.from_numpy(x), panels.data_ptr(), outputs)
            wanted.append(product[:, :outputs].numpy().ravel())
    found = subprocess.run([EMULATOR, made], input=asked, capture_output=True, check=True).stdout
    assert np.array_equal(np.frombuffer(found, np.float32), np.concatenate(wanted))
