"""Products of integers: those of a plain reading by torch, in every kind, in every way that this CPU has."""

import hashlib
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from pipedec_cli.model.engine.native import kinds
from pipedec_cli.model.engine.native.kinds import Kind, Panels
from pipedec_cli.model.engine.native.library import library
from tests.model.engines import SIZES, WAYS, needs_int8

pytestmark = needs_int8

GROUP = 32
MOST = 127.0
#: The kinds that floats are rounded to.
ROUNDED = (Kind.EIGHT, Kind.SUPER_FOUR, Kind.SUPER_SIX)


def model_of(way="wide"):
    return kinds.make_kind(torch.int8, way)


def packed(matrix, kind, way="wide"):
    return Panels.of(library(), model_of(way), kind, matrix)


def rounded(x):
    """Rows as the kernels take them: 8 bits in groups, the largest number of each ±127; float64."""
    width = x.shape[1]
    padded = F.pad(x, (0, -width % GROUP))
    groups = padded.double().unflatten(1, (-1, GROUP))
    largest = groups.abs().amax(dim=-1, keepdim=True)
    scales = (largest / MOST).float()
    scales = scales.double()
    whole = groups / scales
    whole = whole.where(scales > 0, 0.0).round()
    rows = (whole * scales).flatten(1)
    return rows[:, :width]


def assert_products(panels, x):
    """Of the weights as they are, and of each row whatever stands beside it."""
    expected = rounded(x) @ panels.unpack().double().T
    found = panels.multiply(x)
    largest = expected.abs().amax(dim=1)
    apart = (found - expected).abs()
    apart = apart.amax(dim=1)
    assert (apart <= 3e-6 * largest).all()
    for number in range(len(x)):
        alone = panels.multiply(x[number : number + 1])
        assert torch.equal(alone[0], found[number])


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_products_of_rounded_weights_are_a_plain_reading_in_every_way(
    rows, inputs, outputs, kind
):
    torch.manual_seed(rows)
    x = 3 * torch.randn(rows, inputs)
    x[0, 0] = 1000.0  # an outlier
    matrix = torch.randn(outputs, inputs)
    matrix[0] = 0.0  # an output without weights
    for way in WAYS:
        assert_products(packed(matrix, kind, way), x)


@pytest.mark.parametrize(
    ("kind", "most"),
    [(Kind.EIGHT, 0.006), (Kind.SUPER_SIX, 0.018), (Kind.SUPER_FOUR, 0.072)],
)
def test_rounding_changes_normal_weights_by_so_much(kind, most):
    """GGUF's Q4_0 has 0.088, and its Q4_K 0.072."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(64, 576, generator=generator)
    unpacked = packed(matrix, kind).unpack()
    changed = unpacked - matrix
    assert changed.norm() < most * matrix.norm()


def sum_of(numbers):
    """The sum of each group."""
    return numbers.sum(dim=1, keepdim=True)


def weighed(numbers):
    """Groups of numbers, and how much the error of each counts: [groups, 32] each."""
    rows = numbers.double()
    groups = rows.reshape(-1, GROUP)
    usual = sum_of(groups.square()) / GROUP
    weights = usual.sqrt() + groups.abs()
    return groups, weights


def lines_of(groups, weights, whole):
    """Scale and minimum for integers by weighted least squares; the minimum is at least 0."""
    ones = sum_of(weights)
    x = sum_of(weights * groups)
    weighted = weights * whole
    q = sum_of(weighted)
    qq = sum_of(weighted * whole)
    qx = sum_of(weighted * groups)
    determinant = ones * qq - q * q
    scale = (ones * qx - x * q) / determinant
    minimum = (q * qx - qq * x) / determinant
    scale = torch.where(minimum < 0, qx / qq, scale)
    return scale, minimum.clamp(min=0)


def searched_loss(numbers):
    """What numbers lose in 4 bits with a scale and a minimum of any size for each group, in a plain search."""
    groups, weights = weighed(numbers)
    least = groups.amin(dim=1, keepdim=True)
    above = groups - least.clamp(max=0)
    largest = above.amax(dim=1, keepdim=True)
    fewest = torch.full_like(least, torch.inf)
    for steps in torch.linspace(14, 16, 11):
        whole = (above * steps / largest).round()
        whole = whole.clamp(max=15)
        scale, minimum = lines_of(groups, weights, whole)
        nearest = (groups + minimum) / scale
        nearest = nearest.round()
        nearest = nearest.clamp(0, 15)
        apart = scale * nearest - minimum - groups
        lost = sum_of(weights * apart.square())
        fewest = torch.minimum(fewest, lost)
    return fewest.sum()


@pytest.mark.parametrize(("power", "most"), [(1, 1.04), (3, 1.06)])
def test_four_bits_lose_little_more_than_a_plain_search_with_free_scales(power, most):
    """Scales and minima of 6 bits cost so much; the numbers are normal, or far from it."""
    generator = torch.Generator().manual_seed(power)
    matrix = torch.randn(64, 512, generator=generator) ** power
    unpacked = packed(matrix, Kind.SUPER_FOUR).unpack()
    _, weights = weighed(matrix)
    apart, _ = weighed(unpacked - matrix)
    lost = weights * apart.square()
    least = searched_loss(matrix)
    assert lost.sum() < most * least


#: The first digits of the SHA-256 of what rounded numbers are.
DIGESTS = {
    Kind.EIGHT: "ae0063d848802a6c",
    Kind.SUPER_FOUR: "c45fae2ed4587350",
    Kind.SUPER_SIX: "c3701ce844054e2c",
}


def even_numbers(outputs, inputs):
    """A matrix of numbers between -1 and 1, the same on every machine: bfloat16."""
    counted = torch.arange(outputs * inputs, dtype=torch.int64)
    bits = counted * 2654435761 % (1 << 32)
    numbers = bits.double() / (1 << 31) - 1
    return numbers.view(outputs, inputs).bfloat16()


@pytest.mark.parametrize("kind", ROUNDED)
def test_a_matrix_is_rounded_to_the_same_integers_on_every_cpu(kind):
    matrix = even_numbers(40, 600)
    unpacked = packed(matrix.float(), kind).unpack()
    content = unpacked.numpy().tobytes()
    found = hashlib.sha256(content).hexdigest()
    assert found[:16] == DIGESTS[kind]


@pytest.mark.parametrize("kind", [Kind.FLOAT32, Kind.BFLOAT16, *ROUNDED])
def test_a_matrix_of_bfloat16_is_packed_as_its_float32_is(kind):
    matrix = even_numbers(40, 600)
    dtype = {Kind.FLOAT32: torch.float32, Kind.BFLOAT16: torch.bfloat16}
    model = kinds.make_kind(dtype.get(kind, torch.int8), "wide")
    narrow = Panels.of(library(), model, kind, matrix)
    wide = Panels.of(library(), model, kind, matrix.float())
    assert torch.equal(narrow.words, wide.words)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fault", [torch.nan, torch.inf, -torch.inf])
def test_one_number_that_is_not_finite_is_found_wherever_it_stands(dtype, fault):
    limits = torch.finfo(dtype)
    numbers = torch.full((300_001,), limits.max, dtype=dtype)
    numbers[1::2] = limits.min
    assert library().are_finite(numbers)
    for place in (0, 131_072, 200_001, 300_000):
        faulty = numbers.clone()
        faulty[place] = fault
        assert not library().are_finite(faulty)


def test_a_large_channel_costs_the_others_of_a_row_nothing_outside_its_group():
    torch.manual_seed(0)
    x = torch.randn(4, 640)
    matrix = torch.randn(64, 640)
    x[:, 5] = 2000.0
    matrix[:, 5] = 0.0
    far = packed(matrix[:, GROUP:].contiguous(), Kind.EIGHT, WAYS[-1])
    alone = far.multiply(x[:, GROUP:].contiguous())
    whole = packed(matrix, Kind.EIGHT, WAYS[-1])
    found = whole.multiply(x)
    # What stands beside the large number rounds to 0.
    beside = x[:, :GROUP] @ matrix[:, :GROUP].T
    exact = x @ matrix.T
    apart = alone + beside - exact
    assert (found - alone).abs().max() < 1e-3
    assert apart.norm() < 0.02 * alone.norm()


@pytest.mark.parametrize("kind", ROUNDED)
def test_what_is_no_number_or_infinite_stays_so_in_its_own_row_and_output(kind):
    x = torch.randn(5, 40)
    x[1, 3] = torch.nan
    x[2, 4] = torch.inf
    x[3] = 0.0
    matrix = torch.randn(50, 40)
    matrix[7, 0] = torch.nan
    matrix[8, 1] = torch.inf
    out = packed(matrix, kind, WAYS[-1]).multiply(x)
    finite = out.isfinite()
    assert not finite[1:3].any()
    assert not finite[:, 7:9].any()
    assert finite[[0, 3, 4], :7].all()
    assert not out[3, :7].any()


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["-mno-avx512f", "-mno-avx512vnni"])
def test_cpus_with_fewer_instructions_compute_the_same(flags):
    """The kernels are compiled without these instructions. -O1 takes a third of the time of -O3."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        __file__,
    ]
    done = subprocess.run(
        [*command, "-k", "not fewer_instructions"],
        env=os.environ | {"PIPEDEC_NATIVE_FLAGS": f"-O1 {flags}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
