"""Products of int8, int4 and bfloat16 in every way that this CPU has, an engine with weights in int8, and what chooses."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from pipedec_cli.model.engine.native import kinds
from pipedec_cli.model.engine.native.build import BuildError, cache_path
from pipedec_cli.model.engine.native.encoder import NativeEncoder
from pipedec_cli.model.engine.native.library import library
from tests.model.engines import (
    KINDS,
    SOURCES,
    compiled,
    grid_rows,
    last_logits,
    missing,
    needs_int8,
    needs_kernels,
    odd_model,
    small_model,
)

WAYS = [] if missing else kinds.ways(library())
MOST = 127.0
#: Numbers that share a scale, and the range of weights, where the largest becomes the first.
GROUP, FOUR = 64, 32
RANGES = {torch.int8: (-127, 127), torch.int4: (-8, 7)}
#: Rows, inputs and outputs: around the sizes of tiles, panels and words.
SIZES = [(1, 768, 64), (4, 4, 32), (13, 100, 71), (16, 64, 33), (33, 63, 5), (70, 1100, 96)]


# --- Products ---------------------------------------------------------------------------------------------------------


def grouped(numbers, size):
    """[n, inputs] in groups [n, groups, size], with zeros behind, and the largest number of each by size [n, groups, 1]."""
    groups = F.pad(numbers, (0, -numbers.shape[1] % size)).unflatten(1, (-1, size))
    return groups, groups.gather(-1, groups.abs().argmax(dim=-1, keepdim=True))


def by_torch(x, matrix, dtype=torch.int8):
    """x · matrixᵀ by the definition: integers within a group, whose sums are added by the scales of both sides."""
    size, (low, high) = GROUP if dtype == torch.int8 else FOUR, RANGES[dtype]
    (given, largest), (weights, most) = grouped(x, size), grouped(matrix, size)
    largest = largest.abs()
    scales = (most.abs() / high if dtype == torch.int8 else most / low).bfloat16().float()
    whole = torch.where(largest > 0, given * (MOST / largest), 0.0).round().long()
    narrow = torch.where(most != 0, weights * (1 / scales), 0.0).round().clamp(low, high).long()
    sums = torch.einsum("rgi,ogi->rog", whole, narrow)
    return (sums * (largest / MOST).double()[:, None, :, 0] * scales.double()[None, :, :, 0]).sum(dim=-1)


def multiplied(dtype, way, x, matrix):
    """x · matrixᵀ by the kernels."""
    kind = kinds.make_kind(dtype, way)
    panels = kinds.packed(library(), kind, matrix)
    return library().multiply(kind, x, panels.data_ptr(), len(matrix))[:, : len(matrix)]


@needs_int8
@pytest.mark.parametrize("dtype", [torch.int8, torch.int4])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_every_way_to_multiply_integers_is_the_plain_reading_by_torch_and_a_row_depends_on_itself_alone(
    rows, inputs, outputs, dtype
):
    torch.manual_seed(rows)
    x, matrix = 3 * torch.randn(rows, inputs), torch.randn(outputs, inputs)
    x[0, 0], matrix[0] = 1000.0, 0.0  # an outlier, and an output without weights
    expected = by_torch(x, matrix, dtype)
    for way in WAYS:
        found = multiplied(dtype, way, x, matrix)
        assert ((found - expected).abs().amax(dim=1) < 1e-6 * expected.abs().amax(dim=1)).all()
        for row in range(rows):
            assert torch.equal(multiplied(dtype, way, x[row : row + 1], matrix)[0], found[row])


@needs_int8
@pytest.mark.parametrize("dtype", [torch.int8, torch.int4])
def test_the_largest_sums_of_a_group_are_exact(dtype):
    """All weights of a group but the first, and all numbers of a row, stand at the end of their range."""
    x, matrix = torch.ones(7, 128), torch.full((33, 128), -7.0)
    x[1::2], matrix[:, ::FOUR] = -1.0, 8.0
    expected = by_torch(x, matrix, dtype)
    for way in WAYS:
        assert (multiplied(dtype, way, x, matrix) - expected).abs().max() < 1e-6 * expected.abs().max()


@needs_int8
def test_a_large_channel_costs_the_others_of_a_row_nothing_outside_its_group():
    torch.manual_seed(0)
    x, matrix = torch.randn(4, 640), torch.randn(64, 640)
    x[:, 5] = 2000.0
    matrix[:, 5] = 0.0
    far, weights = x[:, GROUP:].contiguous(), matrix[:, GROUP:].contiguous()
    beside = x[:, :GROUP] @ matrix[:, :GROUP].T  # what rounds to 0 beside the large number
    found, alone = multiplied(torch.int8, WAYS[-1], x, matrix), multiplied(torch.int8, WAYS[-1], far, weights)
    assert (found - alone).abs().max() < 1e-3
    assert (alone + beside - x @ matrix.T).norm() < 0.02 * alone.norm()


@needs_int8
@pytest.mark.parametrize("dtype", [torch.int8, torch.int4])
def test_what_is_no_number_or_infinite_stays_so_in_its_own_row_and_output(dtype):
    x, matrix = torch.randn(5, 40), torch.randn(50, 40)
    x[1, 3], x[2, 4], x[3], matrix[7, 0] = torch.nan, torch.inf, 0.0, torch.nan
    out = multiplied(dtype, WAYS[-1], x, matrix)
    assert not out[1:3].isfinite().any()
    assert not out[:, 7].isfinite().any()
    assert out[[0, 3, 4], :7].isfinite().all()
    assert not out[3, :7].any()


@needs_kernels
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [size for size in SIZES if size[1] % 2 == 0])
def test_every_way_to_multiply_bfloat16_is_as_near_as_its_rounding_allows(rows, inputs, outputs):
    torch.manual_seed(rows)
    x, matrix = torch.randn(rows, inputs), torch.randn(outputs, inputs).bfloat16()
    for way in WAYS:
        given = x if way == "wide" else x.bfloat16()
        exact = given.double() @ matrix.double().T
        found = multiplied(torch.bfloat16, way, x, matrix)
        assert (found - exact).abs().max() < 1e-5 * exact.abs().max()
        for row in range(rows):  # whatever stands beside it
            assert torch.equal(multiplied(torch.bfloat16, way, x[row : row + 1], matrix)[0], found[row])


@needs_int8
@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", ["-mno-avx512f", "-mno-avx512f -mno-avxvnni", "-mno-avx512vnni", "-mno-amx-int8"]
)
def test_cpus_with_fewer_instructions_compute_the_same(flags):
    """Compiled without what they lack, which only older compilers' flags or an older CPU cannot run."""
    if "amx" in flags and "AMX" not in library().features:
        pytest.skip("this CPU has no AMX to leave out")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        [*command, "tests/model/test_native.py"],
        env=os.environ | {"PIPEDEC_NATIVE_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]


@needs_int8
@pytest.mark.parametrize("kind", [*KINDS, "sizes that fill no panel"])
def test_logits_in_int8_are_near_those_of_float32(kind):
    """Within 7 in 100, in the root of the mean square, of random weights, which round worst."""
    model = odd_model() if kind.startswith("sizes") else small_model(kind)
    calls, weights = [grid_rows(0, 12), grid_rows(0, 9, first=12)], compiled(model, torch.int8)
    exact = last_logits(compiled(model, torch.float32), calls, SOURCES[0])
    assert 0 < (last_logits(weights, calls, SOURCES[0]) - exact).norm() < 0.07 * exact.norm()
    assert (weights.dtype, isinstance(weights.encoder, NativeEncoder)) == (torch.int8, True)
    four = compiled(model, torch.int4)
    assert (four.dtype, four.encoder.weights.dtype) == (torch.int4, torch.int8)
    assert 0 < (last_logits(four, calls, SOURCES[0]) - exact).norm() < 0.5 * exact.norm()


# --- What chooses -----------------------------------------------------------------------------------------------------


@needs_kernels
@pytest.mark.parametrize("kept", ["", "tiles of something else", "\udcff"])
def test_a_trial_chooses_among_the_ways_that_there_are_and_is_kept(kept, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels = copy.copy(library())
    kernels.path = Path("kernels-amx.so")
    file = cache_path(".bfloat16", kernels.path.name)
    file.parent.mkdir()
    file.write_bytes(kept.encode(errors="surrogateescape"))
    monkeypatch.setattr(kinds, "fastest", lambda kernels: WAYS[-1])
    assert kinds.bfloat16_way(kernels) == WAYS[-1]
    if len(WAYS) > 1:
        assert file.read_text() == WAYS[-1]
    file.write_text("wide")  # made before
    assert kinds.bfloat16_way.__wrapped__(kernels) == "wide"
    kernels.path = Path("kernels-other.so")
    assert kinds.bfloat16_way.__wrapped__(kernels) == WAYS[-1]
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))  # where nothing can be kept, it is made each time
    assert kinds.bfloat16_way.__wrapped__(kernels) == WAYS[-1]


@needs_kernels
def test_the_trial_names_a_way_that_there_is():
    assert kinds.fastest(library()) in WAYS


@needs_kernels
def test_a_cpu_without_the_instructions_has_no_int8():
    few = copy.copy(library())
    few.kinds, few.features = 0, "NEON"
    with pytest.raises(BuildError, match="int8 needs an x86 with AVX2 or AVX-512, and this is NEON"):
        kinds.kind_of(few, torch.int8)
