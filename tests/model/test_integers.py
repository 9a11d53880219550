"""Products of integers: those of a plain reading by torch, in every kind, in every way that this CPU has."""

import os
import subprocess
import sys

import gguf
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gguf import GGMLQuantizationType as Type

from pipedec_cli.model.engine.native import kinds
from pipedec_cli.model.engine.native.blocks import Blocks
from pipedec_cli.model.engine.native.kinds import Kind, Panels
from pipedec_cli.model.engine.native.library import library
from tests.model.engines import missing, needs_int8

pytestmark = needs_int8

WAYS = [] if missing else kinds.ways(library())
GROUP, MOST = 32, 127.0
#: The kinds that floats are rounded to.
ROUNDED = (Kind.EIGHT, Kind.SUPER_FOUR, Kind.SUPER_SIX)
TYPES = (
    Type.Q4_0,
    Type.Q4_1,
    Type.Q5_0,
    Type.Q5_1,
    Type.Q8_0,
    Type.Q4_K,
    Type.Q5_K,
    Type.Q6_K,
)
#: Rows, inputs and outputs: around the sizes of tiles, panels, groups and super-groups.
SIZES = [
    (1, 768, 64),
    (4, 4, 32),
    (13, 100, 71),
    (16, 64, 33),
    (33, 63, 5),
    (70, 2500, 96),
]


def model_of(way="wide"):
    return kinds.make_kind(torch.int8, way)


def packed(matrix, kind, way="wide"):
    return Panels.of(library(), model_of(way), kind, matrix)


def placed(blocks, way="wide"):
    """A matrix in blocks, in panels."""
    kernels = library()
    kind = Kind(kernels.kind_of_blocks(blocks.type))
    outputs, inputs = blocks.shape
    stride = kernels.panel_words(kind, inputs)
    words = torch.empty(kernels.panels(outputs) * stride, dtype=torch.int32)
    kernels.place(blocks.type, blocks.bytes(), inputs, words.data_ptr(), stride)
    return Panels(kernels, model_of(way), kind, words, blocks.shape)


def some_blocks(type_, outputs, inputs):
    """Blocks of random bytes, but for their factors, which are small numbers."""
    draw = np.random.default_rng(type_)
    elements, size = gguf.GGML_QUANT_SIZES[type_]
    blocks = draw.integers(0, 256, (outputs * inputs // elements, size), np.uint8)
    at = {Type.Q6_K: (208,)}.get(type_, (0,))
    if type_ in (Type.Q4_1, Type.Q5_1, Type.Q4_K, Type.Q5_K):
        at = (0, 2)
    for place in at:
        factors = draw.normal(size=(len(blocks), 1)).astype(np.float16)
        blocks[:, place : place + 2] = factors.view(np.uint8)
    return Blocks(torch.from_numpy(blocks.reshape(outputs, -1)), type_, inputs)


def floats_of(blocks):
    rows = gguf.dequantize(blocks.data.numpy(), Type(blocks.type))
    return torch.from_numpy(rows)


def rounded(x):
    """Rows as the kernels take them: 8 bits in groups, the largest number of each ±127; float64."""
    groups = F.pad(x, (0, -x.shape[1] % GROUP)).unflatten(1, (-1, GROUP)).double()
    scales = (groups.abs().amax(dim=-1, keepdim=True) / MOST).float().double()
    whole = torch.where(scales > 0, groups / scales, 0.0).round()
    return (whole * scales).flatten(1)[:, : x.shape[1]]


def assert_products(panels, x):
    """Of the weights as they are, and of each row whatever stands beside it."""
    expected = rounded(x) @ panels.unpack().double().T
    found = panels.multiply(x)
    largest = expected.abs().amax(dim=1)
    assert ((found - expected).abs().amax(dim=1) <= 3e-6 * largest).all()
    for number in range(len(x)):
        alone = panels.multiply(x[number : number + 1])
        assert torch.equal(alone[0], found[number])


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_products_of_rounded_weights_are_a_plain_reading_in_every_way(
    rows, inputs, outputs, kind
):
    torch.manual_seed(rows)
    x, matrix = 3 * torch.randn(rows, inputs), torch.randn(outputs, inputs)
    x[0, 0], matrix[0] = 1000.0, 0.0  # an outlier, and an output without weights
    for way in WAYS:
        assert_products(packed(matrix, kind, way), x)


@pytest.mark.parametrize("type_", TYPES)
def test_blocks_of_a_file_are_multiplied_as_they_are(type_):
    """Their numbers are those that the package gguf reads."""
    blocks = some_blocks(type_, 71, 768)
    x = 3 * torch.randn(13, 768, generator=torch.Generator().manual_seed(0))
    exact = floats_of(blocks)
    for way in WAYS:
        panels = placed(blocks, way)
        apart = (panels.unpack() - exact).abs().max()
        assert apart <= 1e-6 * exact.abs().max()
        assert_products(panels, x)


def test_eight_bits_are_as_near_as_the_blocks_of_a_gguf_file():
    matrix = torch.randn(40, 256, generator=torch.Generator().manual_seed(0))
    theirs = gguf.quantize(matrix.numpy(), Type.Q8_0)
    blocks = Blocks(torch.from_numpy(theirs), Type.Q8_0, 256)
    ours = packed(matrix, Kind.EIGHT).unpack() - matrix
    assert ours.norm() <= 1.001 * (floats_of(blocks) - matrix).norm()


@pytest.mark.parametrize(
    ("kind", "most"),
    [(Kind.EIGHT, 0.006), (Kind.SUPER_SIX, 0.019), (Kind.SUPER_FOUR, 0.073)],
)
def test_rounding_changes_normal_weights_by_so_much(kind, most):
    """GGUF's Q4_0 has 0.088, and its Q4_K 0.072."""
    matrix = torch.randn(64, 576, generator=torch.Generator().manual_seed(0))
    changed = packed(matrix, kind).unpack() - matrix
    assert changed.norm() < most * matrix.norm()


@pytest.mark.parametrize("type_", [Type.Q4_1, Type.Q5_1, Type.Q8_0])
def test_the_largest_sums_of_a_group_are_exact(type_):
    """All integers of the rows and of the weights stand at one end of their range."""
    blocks = some_blocks(type_, 33, 128)
    _, size = gguf.GGML_QUANT_SIZES[type_]
    numbers = blocks.data.view(-1, size)
    first = 2 if type_ == Type.Q8_0 else 4
    numbers[:, first:] = 0x81 if type_ == Type.Q8_0 else 0xFF
    x = torch.ones(7, 128)
    x[1::2] = -1.0
    for way in WAYS:
        assert_products(placed(blocks, way), x)


def test_a_large_channel_costs_the_others_of_a_row_nothing_outside_its_group():
    torch.manual_seed(0)
    x, matrix = torch.randn(4, 640), torch.randn(64, 640)
    x[:, 5] = 2000.0
    matrix[:, 5] = 0.0
    far = packed(matrix[:, GROUP:].contiguous(), Kind.EIGHT, WAYS[-1])
    alone = far.multiply(x[:, GROUP:].contiguous())
    found = packed(matrix, Kind.EIGHT, WAYS[-1]).multiply(x)
    # What stands beside the large number rounds to 0.
    beside = x[:, :GROUP] @ matrix[:, :GROUP].T
    assert (found - alone).abs().max() < 1e-3
    assert (alone + beside - x @ matrix.T).norm() < 0.02 * alone.norm()


@pytest.mark.parametrize("kind", ROUNDED)
def test_what_is_no_number_or_infinite_stays_so_in_its_own_row_and_output(kind):
    x, matrix = torch.randn(5, 40), torch.randn(50, 40)
    x[1, 3], x[2, 4], x[3], matrix[7, 0] = torch.nan, torch.inf, 0.0, torch.nan
    matrix[8, 1] = torch.inf
    out = packed(matrix, kind, WAYS[-1]).multiply(x)
    assert not out[1:3].isfinite().any()
    assert not out[:, 7:9].isfinite().any()
    assert out[[0, 3, 4], :7].isfinite().all()
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
