"""The step in torch's operators: matrices as the modules', buffers that grow, fixed shapes, graphs on a GPU."""

from __future__ import annotations

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pipedec_cli.model.steps import operators
from pipedec_cli.model.steps.engine import Engine
from pipedec_cli.model.steps.operators import FIRST_ROOM, VARIABLE, Cache, TorchStepper, bucket, wants_graphs
from pipedec_cli.model.steps.weights import Matrices, can_prepack, laid_out, lay_out
from pipedec_cli.model.t5 import distance_buckets, layers
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.decode import Method
from pipedec_cli.pipeline.schedule import Fixed
from tests.model.engines import FIXED, SCHEDULES, TIE, expected_of, outcome_of, run_engine
from tests.model.families import BOS, EOS, KINDS, SOURCES, VOCABULARY, Kind, small_model
from tests.model.test_native import grid_rows

packed_float32 = pytest.mark.skipif(not can_prepack(torch.float32), reason="no oneDNN kernels here")
packed_bfloat16 = pytest.mark.skipif(not can_prepack(torch.bfloat16), reason="no bfloat16 kernels here")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


# --- Matrices ---------------------------------------------------------------------------------------------------------


def module_of(weight: torch.Tensor) -> nn.Module:
    module = nn.Linear(1, 1, bias=False)
    module.weight = nn.Parameter(weight)
    return module


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        pytest.param(torch.float32, 1e-5, marks=packed_float32),
        pytest.param(torch.bfloat16, 2e-2, marks=packed_bfloat16),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 33])
def test_a_packed_matrix_gives_the_plain_product_for_any_number_of_rows(
    dtype: torch.dtype, tolerance: float, rows: int
) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(48, 64, generator=generator).to(dtype)[:, ::2]  # a slice can be packed too
    x = torch.randn(rows, 32, generator=generator).to(dtype)

    with torch.inference_mode():
        product = laid_out(dtype, 1e-6, prepack=True).linear(module_of(weight))(x)

    assert product.dtype == dtype
    torch.testing.assert_close(product, F.linear(x, weight), rtol=tolerance, atol=10 * tolerance)


def test_only_kinds_that_have_kernels_are_packed() -> None:
    assert not can_prepack(torch.float16)
    assert not can_prepack(torch.int8)


def test_a_machine_without_the_kernels_falls_back_to_plain_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)

    assert not can_prepack(torch.float32)
    assert lay_out(small_model("t5"), native=False).kernels == "plain operators"


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=packed_float32)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_matrix_is_the_modules(kind: Kind, packed: bool) -> None:
    model = small_model(kind)
    matrices = Matrices(model, prepack=packed)
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    close = {"rtol": 1e-4, "atol": 1e-5}

    for ours, theirs in zip(matrices.blocks, layers(model.decoder), strict=True):
        own, cross = theirs.self_attention, theirs.cross_attention
        with torch.no_grad():
            for mine, module in [
                (ours.norm, theirs.self_norm),
                (ours.source_norm, theirs.cross_norm),
                (ours.out, own.o),
                (ours.source_q, cross.q),
                (ours.source_out, cross.o),
            ]:
                torch.testing.assert_close(mine(x), module(x), **close)
            torch.testing.assert_close(list(ours.qkv(x)), [own.q(x), own.k(x), own.v(x)], **close)
            torch.testing.assert_close(list(ours.source_kv(x)), [cross.k(x), cross.v(x)], **close)
            torch.testing.assert_close(x + ours.feed(ours.feed_norm(x)), theirs.feed_forward(x), **close)
    assert matrices.embedding.shape == (VOCABULARY, 32)
    assert (matrices.heads, matrices.width, matrices.dtype) == (4, 8, torch.float32)
    assert matrices.kernels == ("oneDNN prepacked" if packed else "plain operators")


@pytest.mark.parametrize("kind", KINDS)
def test_the_bias_table_holds_each_distance_and_hides_the_invisible(kind: Kind) -> None:
    model = small_model(kind)
    tables = Matrices(model, prepack=False).tables

    for ours, theirs in zip(tables, layers(model.decoder), strict=True):
        assert ours.shape == (4, 12 + 2)
        for distance, place in enumerate(distance_buckets(model.config).tolist()):
            assert ours[:, distance].equal(theirs.bias.weight[place])
        assert (ours[:, -1] == torch.finfo(torch.float32).min).all()
    assert (tables[0] is tables[1]) == (kind != "umt5")


def test_wo_in_a_wider_dtype_is_computed_there() -> None:
    """As transformers loads float16: the sum is not rounded to the narrow dtype, and wo not packed as if it were."""
    model = copy.deepcopy(small_model("t5")).to(torch.bfloat16)
    dense = layers(model.decoder)[0].feed_forward.DenseReluDense
    dense.wo.float()

    with torch.inference_mode():
        assert Matrices(model).blocks[0].feed(torch.randn(2, 32, dtype=torch.bfloat16)).dtype == torch.float32


# --- Buffers ----------------------------------------------------------------------------------------------------------


def make_cache(dtype: torch.dtype = torch.float32) -> Cache:
    return Cache(Matrices(copy.deepcopy(small_model("t5")).to(dtype)), 2)


def fill(cache: Cache, sequence: int, column: int, number: int) -> None:
    for both in cache.grid:
        both[:, sequence, :, column] = number
    cache.places[:, sequence, column] = number


def test_a_new_cache_has_room_and_nothing_in_it() -> None:
    cache = make_cache(dtype=torch.bfloat16)

    assert cache.room == FIRST_ROOM
    assert cache.filled == [0, 0]
    assert [both.shape for both in cache.grid] == [(2, 2, 4, FIRST_ROOM, 8)] * 2
    assert all(both.dtype == torch.bfloat16 for both in cache.grid)
    assert (cache.places == PADDING).all()


@pytest.mark.parametrize(("wanted", "room"), [(1, 1), (FIRST_ROOM + 1, 2), (5 * FIRST_ROOM, 5)])
def test_growing_keeps_what_is_there_and_opens_empty_columns(wanted: int, room: int) -> None:
    """By doubling, or at once where that is not enough; room that is there is not made anew."""
    cache = make_cache()
    fill(cache, sequence=1, column=FIRST_ROOM - 1, number=5)
    before = cache.grid[0]

    cache.reserve(wanted)

    assert cache.room == room * FIRST_ROOM
    assert (cache.grid[0] is before) == (room == 1)
    for both in cache.grid:
        assert (both[:, 1, :, FIRST_ROOM - 1] == 5).all()
        assert (
            both[..., FIRST_ROOM:, :].isfinite().all()
        )  # what no token has written is multiplied by a weight of 0
    assert (cache.places[:, 1, FIRST_ROOM - 1] == 5).all()
    assert (cache.places[..., FIRST_ROOM:] == PADDING).all()


def test_sources_grow_to_the_longest_and_new_places_are_hidden() -> None:
    cache = make_cache()
    cache.reserve_source(3)
    cache.source_hidden[0, :3] = False
    cache.sources[1][:, 0] = 7

    cache.reserve_source(5)
    cache.reserve_source(2)

    assert cache.source_hidden.tolist() == [[False] * 3 + [True] * 2, [True] * 5]
    assert cache.sources[1].shape == (2, 2, 4, 5, 8)
    assert (cache.sources[1][:, 0, :, :3] == 7).all()
    assert cache.sources[1].isfinite().all()


def test_a_cleared_sequence_is_empty_and_the_others_are_as_they_were() -> None:
    cache = make_cache()
    cache.reserve_source(2)
    for sequence in (0, 1):
        fill(cache, sequence, 0, 1)
        cache.filled[sequence] = 1
        cache.source_length[sequence] = 2
        cache.source_hidden[sequence] = False

    cache.clear(0)

    assert (cache.filled, cache.source_length) == ([0, 1], [0, 2])
    assert (cache.places[:, 0] == PADDING).all()
    assert (cache.places[:, 1, 0] == 1).all()
    assert cache.source_hidden.tolist() == [[True, True], [False, False]]


# --- Fixed shapes -----------------------------------------------------------------------------------------------------


def fixed_engine(kind: Kind, sequences: int) -> tuple[Engine, TorchStepper]:
    engine = Engine(small_model(kind), sequences, weights=lay_out(small_model(kind), prepack=False))
    assert isinstance(engine.weights.stepping, Matrices)
    engine.stepper = stepper = TorchStepper(engine.weights.stepping, sequences, fixed=True)
    return engine, stepper


def assert_tokens_are_the_oracles(engine: Engine, kind: Kind, schedule: str) -> None:
    chosen, limits = SCHEDULES[schedule]
    outcomes = run_engine(engine, SOURCES, Method(chosen, BOS, EOS, limits))
    for number, outcome in enumerate(outcomes):
        expected = expected_of(kind, schedule, "retry", number)
        if expected.gap >= TIE:
            assert outcome == outcome_of(expected)


@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_fixed_shapes_give_the_oracles_tokens(kind: Kind, schedule: str, sequences: int) -> None:
    assert_tokens_are_the_oracles(fixed_engine(kind, sequences)[0], kind, schedule)


def test_buffers_that_grow_on_the_way_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = run_engine(fixed_engine("t5", 2)[0], SOURCES, Method(Fixed(1), BOS, EOS, FIXED))
    for name, value in (("FIRST_ROOM", 2), ("COLUMNS", 3), ("SOURCE_TOKENS", 2)):
        monkeypatch.setattr(operators, name, value)

    assert run_engine(fixed_engine("t5", 2)[0], SOURCES, Method(Fixed(1), BOS, EOS, FIXED)) == usual


def test_logits_are_those_of_rows_that_are_not_filled_up() -> None:
    model = small_model("gated")
    fixed, plain = fixed_engine("gated", 2)[0], Engine(model, 2, weights=lay_out(model, prepack=False))
    calls = [
        [*grid_rows(0, 4), *grid_rows(1, 2)],
        grid_rows(0, 3, first=4),
        [*grid_rows(0, 1, first=7), *grid_rows(1, 5, first=2)],
    ]
    for engine in (fixed, plain):
        engine.admit(list(enumerate(SOURCES[:2])))

    for rows in calls:
        torch.testing.assert_close(fixed.logits(rows), plain.logits(rows), rtol=1e-5, atol=1e-5)


def test_a_shape_is_made_once_and_serves_all_calls_that_fit() -> None:
    engine, stepper = fixed_engine("t5", 1)
    engine.admit([(0, SOURCES[0])])

    for first, count in ((0, 3), (3, 4), (7, 4), (11, 1)):
        engine.step(grid_rows(0, count, first))

    assert list(stepper._calls) == [(4, operators.COLUMNS), (1, operators.COLUMNS)]


def test_what_stands_in_the_spare_column_is_never_looked_at() -> None:
    """Rows that fill up a bucket put their keys there: they may be anything."""
    logits = []
    for filling in (0.0, float("nan")):
        engine, stepper = fixed_engine("t5", 2)
        engine.admit(list(enumerate(SOURCES[:2])))
        engine.step(grid_rows(1, 2))
        for both in stepper.cache.grid:
            both[..., -1, :] = filling
        logits.append([engine.logits(rows) for rows in (grid_rows(0, 3), grid_rows(0, 3, first=3))])

    for clean, strange in zip(*logits, strict=True):
        assert torch.equal(clean, strange)


def test_buckets_hold_what_they_are_for() -> None:
    rng = random.Random(0)
    for count in (1, 2, 3, 12, 13, 20, 21, 32, 33, *(rng.randrange(1, 400) for _ in range(20))):
        assert bucket(count) >= count
        assert bucket(bucket(count)) == bucket(count)
    assert [bucket(count) for count in (1, 3, 9, 17, 21, 33)] == [1, 4, 12, 20, 32, 64]


# --- Graphs -----------------------------------------------------------------------------------------------------------


def test_graphs_are_for_gpus_and_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wants_graphs(torch.device("cuda:1"))
    assert not wants_graphs(torch.device("cpu"))
    monkeypatch.setenv(VARIABLE, "0")
    assert not wants_graphs(torch.device("cuda:1"))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_give_the_oracles_tokens(kind: Kind, schedule: str, sequences: int) -> None:
    engine = Engine(copy.deepcopy(small_model(kind)).to("cuda"), sequences)

    assert engine.kernels == "CUDA graphs"
    assert_tokens_are_the_oracles(engine, kind, schedule)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_dtypes_replay_what_they_compute(dtype: torch.dtype) -> None:
    engine = Engine(copy.deepcopy(small_model("t5")).to("cuda", dtype), 2)
    method = Method(Fixed(2), BOS, EOS, FIXED)

    recorded = run_engine(engine, SOURCES, method)

    assert run_engine(engine, SOURCES, method) == recorded
