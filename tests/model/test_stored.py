"""GGUF files whose weights are computed as they are stored."""

from dataclasses import replace

import pytest
import torch

from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.bare import BareModel
from pipedec_cli.model.engine.native.blocks import Blocks
from pipedec_cli.model.scratch import make_model
from tests.model.engines import grid_rows, logits_of, needs_int8
from tests.model.test_gguf import SHAPE, made_checkpoint, written
from tests.words import refusing

pytestmark = [pytest.mark.extra("gguf"), needs_int8]

#: Of super-blocks of 256 inputs.
WIDE = replace(SHAPE, family="llama", d_model=256, d_ff=768, heads=4, d_kv=64)


def wide():
    return make_model(WIDE, 300)


def logits(decoder):
    rows = grid_rows(0, 7)
    return logits_of(decoder.weights, [rows], list(range(3, 40)))


@pytest.mark.parametrize(
    "dtype",
    ["int8", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"],
)
def test_blocks_are_computed_without_a_second_rounding(tmp_path, dtype):
    """What differs from the weights of the same file in float32 are rows of 8 bits alone."""
    make = wide if dtype.endswith("K") else None
    path = str(written(tmp_path, made_checkpoint(make=make), dtype))
    stored = load(path, device="cpu")
    model = stored.checkpoint.model
    assert stored.dtype == "stored"
    assert isinstance(model, BareModel)
    assert isinstance(model.model.layers[0].mlp.up_proj.weight, Blocks)
    exact = logits(load(path, dtype="float32", device="cpu"))
    assert (logits(stored) - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize(
    ("dtype", "computed"),
    [("float32", "float32"), ("float16", "float32"), ("bfloat16", "bfloat16")],
)
def test_a_file_of_floats_is_computed_in_the_dtype_that_holds_them(
    tmp_path, dtype, computed
):
    path = str(written(tmp_path, dtype=dtype))
    stored = load(path, device="cpu")
    assert stored.weights.stepping.dtype == getattr(torch, computed)
    exact = logits(load(path, dtype=computed, device="cpu"))
    # The norms of a file are float32 in any case.
    assert (logits(stored) - exact).norm() <= 0.01 * exact.norm()


def test_a_file_starts_alike_when_it_is_read_again(tmp_path):
    path = str(written(tmp_path, dtype="int8"))
    assert logits(load(path, device="cpu")).equal(logits(load(path, device="cpu")))


def test_without_kernels_blocks_are_refused_where_they_are_asked_for(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PIPEDEC_NATIVE", "0")
    with refusing():
        load(written(tmp_path, dtype="int8"), dtype="stored")


def test_only_gguf_files_are_stored_in_blocks(tmp_path):
    with refusing():
        load(tmp_path, dtype="stored", device="cpu")


def test_floats_of_a_file_of_blocks_that_are_no_numbers_are_refused_at_each_start(
    tmp_path,
):
    def without_numbers():
        model = wide()
        with torch.no_grad():
            model.model.norm.weight[3] = torch.nan
        return model

    path = str(written(tmp_path, made_checkpoint(make=without_numbers), "Q4_K"))
    for _ in range(2):
        with refusing():
            load(path, device="cpu")
