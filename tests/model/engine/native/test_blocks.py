"""Blocks of GGUF files are multiplied as they are."""

import numpy as np
import pytest
import torch

from pipedec_cli.model.engine.native.blocks import Blocks
from pipedec_cli.model.engine.native.kinds import Kind, Panels
from pipedec_cli.model.engine.native.library import library
from tests.model.engines import needs_int8
from tests.model.test_integers import WAYS, assert_products, model_of, packed

gguf = pytest.importorskip("gguf")
pytestmark = [pytest.mark.extra("gguf"), needs_int8]

Type = gguf.GGMLQuantizationType
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


@pytest.mark.parametrize("type_", TYPES)
def test_blocks_of_a_file_are_multiplied_as_they_are(type_):
    """Their numbers are those that the package gguf reads."""
    blocks = some_blocks(type_, 71, 768)
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(13, 768, generator=generator)
    exact = floats_of(blocks)
    for way in WAYS:
        panels = placed(blocks, way)
        apart = panels.unpack() - exact
        largest = exact.abs().max()
        assert apart.abs().max() <= 1e-6 * largest
        assert_products(panels, x)


def test_eight_bits_are_as_near_as_the_blocks_of_a_gguf_file():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(40, 256, generator=generator)
    theirs = gguf.quantize(matrix.numpy(), Type.Q8_0)
    blocks = Blocks(torch.from_numpy(theirs), Type.Q8_0, 256)
    ours = packed(matrix, Kind.EIGHT).unpack() - matrix
    lost = floats_of(blocks) - matrix
    assert ours.norm() <= 1.001 * lost.norm()


#: The bytes of a block that hold its integers, and what they are at the end of their range.
LARGEST = {
    Type.Q4_1: (slice(4, None), 0xFF),
    Type.Q5_1: (slice(4, None), 0xFF),
    Type.Q8_0: (slice(2, None), 0x81),
    Type.Q4_K: (slice(16, None), 0xFF),
    Type.Q5_K: (slice(16, None), 0xFF),
    Type.Q6_K: (slice(192), 0xFF),
}


@pytest.mark.parametrize("type_", LARGEST)
def test_the_largest_sums_of_a_group_are_exact(type_):
    """All integers of the rows and of the weights stand at one end of their range."""
    blocks = some_blocks(type_, 33, 512)
    _, size = gguf.GGML_QUANT_SIZES[type_]
    place, largest = LARGEST[type_]
    blocks.data.view(-1, size)[:, place] = largest
    x = torch.ones(7, 512)
    x[1::2] = -1.0
    for way in WAYS:
        panels = placed(blocks, way)
        assert_products(panels, x)
