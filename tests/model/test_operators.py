"""The step in torch's operators: T5 as transformers has it, matrices as the modules', buffers that grow, fixed shapes, graphs on a GPU."""

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pipedec_cli.model.engine.engine import Engine, lay_out
from pipedec_cli.model.engine.torch import stepper as context
from pipedec_cli.model.engine.torch import stepper as operators
from pipedec_cli.model.engine.torch.parts import (
    can_prepack,
    distance_buckets,
    layers,
    output_scale,
    step_form,
)
from pipedec_cli.model.engine.torch.stepper import VARIABLE, BlockLayers, bucket, wants_graphs
from tests.model.engines import (
    SOURCES,
    grid_rows,
    make_engine,
    method_of,
    needs_gpu,
    run_engine,
    small_model,
)


def packed(dtype, tolerance):
    missing = pytest.mark.skipif(not can_prepack(dtype), reason=f"no kernels for {dtype} here")
    return pytest.param(dtype, tolerance, marks=missing)


@pytest.mark.parametrize(("dtype", "tolerance"), [packed(torch.float32, 1e-5), packed(torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 33])
def test_a_packed_matrix_gives_the_plain_product_for_any_number_of_rows(dtype, tolerance, rows):
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(48, 64, generator=generator).to(dtype)[:, ::2]  # a slice can be packed too
    x = torch.randn(rows, 32, generator=generator).to(dtype)
    module = nn.Linear(1, 1, bias=False)
    module.weight = nn.Parameter(weight)
    with torch.inference_mode():
        product = step_form(dtype, 1e-6, prepack=True).linear(module)(x)
    assert product.dtype == dtype
    torch.testing.assert_close(product, F.linear(x, weight), rtol=tolerance, atol=10 * tolerance)


def test_what_has_no_kernels_falls_back_to_plain_operators(monkeypatch):
    assert not can_prepack(torch.float16)
    assert not can_prepack(torch.int8)
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)
    assert not can_prepack(torch.float32)
    assert lay_out(small_model("t5"), native=False).kernels == "plain operators"


def test_wo_in_a_wider_dtype_is_computed_there():
    """As transformers loads float16: the sum is not rounded to the narrow dtype, and wo not packed as if it were."""
    model = copy.deepcopy(small_model("t5")).to(torch.bfloat16)
    dense = model.decoder.block[0].layer[-1].DenseReluDense
    dense.wo.float()
    with torch.inference_mode():
        assert (
            BlockLayers(model).blocks[0].feed(torch.randn(2, 32, dtype=torch.bfloat16)).dtype == torch.float32
        )


# --- What is T5's -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 12), (16, 20), (32, 1000), (7, 40)])
def test_buckets_are_those_of_transformers_at_every_distance(buckets, farthest):
    from transformers.models.t5.modeling_t5 import T5Attention
    from transformers.models.umt5.modeling_umt5 import UMT5Attention

    sizes = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": farthest}
    config, distances = SimpleNamespace(**sizes, is_decoder=True), torch.arange(2 * farthest)
    table = distance_buckets(config)
    ours = table[distances.clamp(max=len(table) - 1)].tolist()
    assert ours == T5Attention._relative_position_bucket(-distances, False, buckets, farthest).tolist()
    assert ours == UMT5Attention._relative_position_bucket(config, -distances).tolist()


@pytest.mark.parametrize(
    ("kind", "scale"), [("t5", 32**-0.5), ("gated", 1.0), ("mt5", 1.0), ("umt5", 32**-0.5)]
)
def test_the_output_scale_is_the_familys_and_only_umt5_has_a_bias_in_every_layer(kind, scale):
    model = small_model(kind)
    assert output_scale(model.config) == pytest.approx(scale)
    for stack in (model.encoder, model.decoder):
        first, second = layers(stack)
        assert (first.bias is not second.bias) == (kind == "umt5")
    first, second = BlockLayers(model).tables  # one column for each distance, and one for what is not visible
    assert (first is not second) == (kind == "umt5")
    assert first.shape == (4, 12 + 2)


# --- Fixed shapes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stepping", ["fixed", pytest.param("graphs", marks=needs_gpu)])
def test_buffers_that_grow_on_the_way_change_nothing(stepping, monkeypatch):
    usual = run_engine(make_engine("t5", stepping, 2), SOURCES, method_of("1"))
    monkeypatch.setattr(context, "FIRST_ROOM", 2)
    for name, value in (("COLUMNS", 3), ("SOURCE_TOKENS", 2)):
        monkeypatch.setattr(operators, name, value)
    assert run_engine(make_engine("t5", stepping, 2), SOURCES, method_of("1")) == usual


def test_a_shape_is_made_once_and_serves_all_calls_that_fit():
    engine = make_engine("t5", "fixed", 1)
    engine.admit([(0, SOURCES[0])])
    for first, count in ((0, 3), (3, 4), (7, 4), (11, 1)):
        engine.step(grid_rows(0, count, first))
    assert list(engine.stepper._calls) == [(4, operators.COLUMNS), (1, operators.COLUMNS)]


def test_what_stands_in_the_spare_column_is_never_looked_at():
    """Rows that fill up a bucket put their keys there: they may be anything."""
    logits = []
    for filling in (0.0, float("nan")):
        engine = make_engine("t5", "fixed", 2)
        engine.admit(list(enumerate(SOURCES[:2])))
        engine.step(grid_rows(1, 2))
        for both in engine.stepper.cache.grid:
            both[..., -1, :] = filling
        logits.append([engine.logits(rows) for rows in (grid_rows(0, 3), grid_rows(0, 3, first=3))])
    torch.testing.assert_close(*logits, rtol=0, atol=0)


def test_buckets_hold_what_they_are_for():
    for count in range(1, 400):
        assert bucket(count) >= count
        assert bucket(bucket(count)) == bucket(count)
    assert [bucket(count) for count in (1, 3, 9, 17, 21, 33)] == [1, 4, 12, 20, 32, 64]


# --- Graphs -----------------------------------------------------------------------------------------------------------


def test_graphs_are_for_gpus_and_can_be_turned_off(monkeypatch):
    assert wants_graphs(torch.device("cuda:1"))
    assert not wants_graphs(torch.device("cpu"))
    monkeypatch.setenv(VARIABLE, "0")
    assert not wants_graphs(torch.device("cuda:1"))


def test_tables_name_graphs_where_these_compute_the_steps(monkeypatch):
    monkeypatch.setattr("pipedec_cli.model.engine.engine.wants_graphs", lambda device: True)
    assert lay_out(small_model("t5"), native=False).kernels == "CUDA graphs"


def test_forgotten_graphs_take_their_memory_along():
    """torch frees a pool with its last graph, and refuses to record into it again."""
    stepper = make_engine("t5", "fixed", 1).stepper
    stepper._pool = "of graphs"
    stepper._grow(1_000)
    assert stepper._pool is None


@pytest.mark.parametrize(
    "dtype", [pytest.param(kind, marks=needs_gpu) for kind in (torch.bfloat16, torch.float16)]
)
def test_narrow_dtypes_replay_what_they_compute(dtype):
    engine = Engine(copy.deepcopy(small_model("t5")).to("cuda", dtype), 2)
    assert engine.kernels == "CUDA graphs"
    method = method_of("2")
    recorded = run_engine(engine, SOURCES, method)
    assert run_engine(engine, SOURCES, method) == recorded
