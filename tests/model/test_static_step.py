"""The step of fixed shapes: the oracle's tokens, whatever is filled up; on a GPU as recorded graphs."""

from __future__ import annotations

import copy
import random

import pytest
import torch

from pipedec_cli.model import static_step
from pipedec_cli.model.engine import Engine
from pipedec_cli.model.static_step import VARIABLE, StaticStepper, bucket, wants_graphs
from pipedec_cli.model.weights import lay_out
from pipedec_cli.pipeline.decode import Method
from pipedec_cli.pipeline.schedule import Fixed
from tests.model.engines import FIXED, SCHEDULES, TIE, expected_of, outcome_of, run_engine
from tests.model.families import BOS, EOS, KINDS, SOURCES, Kind, small_model
from tests.model.test_native import grid_rows


def static_engine(kind: Kind, sequences: int) -> Engine:
    model = small_model(kind)
    engine = Engine(model, sequences, weights=lay_out(model, prepack=False))
    engine.stepper = StaticStepper(engine.weights, sequences, model.config.d_kv)
    return engine


@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_the_oracles(kind: Kind, schedule: str, sequences: int) -> None:
    chosen, limits = SCHEDULES[schedule]
    outcomes = run_engine(static_engine(kind, sequences), SOURCES, Method(chosen, BOS, EOS, limits))

    for number, outcome in enumerate(outcomes):
        expected = expected_of(kind, schedule, "retry", number)
        if expected.gap >= TIE:
            assert outcome == outcome_of(expected)


def test_buffers_that_grow_on_the_way_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = run_engine(static_engine("t5", 2), SOURCES, Method(Fixed(1), BOS, EOS, FIXED))
    monkeypatch.setattr("pipedec_cli.model.cache.FIRST_ROOM", 2)
    monkeypatch.setattr(static_step, "COLUMNS", 3)
    monkeypatch.setattr(static_step, "SOURCE_TOKENS", 2)

    assert run_engine(static_engine("t5", 2), SOURCES, Method(Fixed(1), BOS, EOS, FIXED)) == usual


def test_logits_are_those_of_the_operators() -> None:
    model = small_model("gated")
    static, plain = static_engine("gated", 2), Engine(model, 2, weights=lay_out(model, prepack=False))
    calls = [
        [*grid_rows(0, 4), *grid_rows(1, 2)],
        grid_rows(0, 3, first=4),
        [*grid_rows(0, 1, first=7), *grid_rows(1, 5, first=2)],
    ]
    for engine in (static, plain):
        engine.admit(list(enumerate(SOURCES[:2])))

    for rows in calls:
        torch.testing.assert_close(static.logits(rows), plain.logits(rows), rtol=1e-5, atol=1e-5)


def test_a_shape_is_made_once_and_serves_all_calls_that_fit() -> None:
    engine = static_engine("t5", 1)
    engine.admit([(0, SOURCES[0])])
    stepper = engine.stepper
    assert isinstance(stepper, StaticStepper)

    for first, count in ((0, 3), (3, 4), (7, 4), (11, 1)):
        engine.step(grid_rows(0, count, first))

    assert list(stepper._calls) == [(4, static_step.COLUMNS), (1, static_step.COLUMNS)]


def test_what_stands_in_the_spare_column_is_never_looked_at() -> None:
    """Rows that fill up a bucket put their keys there: they may be anything."""
    calls = [grid_rows(0, 3), grid_rows(0, 3, first=3)]
    logits = []
    for filling in (0.0, float("nan")):
        engine = static_engine("t5", 2)
        engine.admit(list(enumerate(SOURCES[:2])))
        engine.step(grid_rows(1, 2))
        assert isinstance(engine.stepper, StaticStepper)
        for layer in engine.stepper.cache.layers:
            layer.keys[:, :, -1] = layer.values[:, :, -1] = filling
        logits.append([engine.logits(rows) for rows in calls])

    for clean, strange in zip(*logits, strict=True):
        assert torch.equal(clean, strange)


def test_buckets_hold_what_they_are_for() -> None:
    rng = random.Random(0)
    for count in (1, 2, 3, 12, 13, 20, 21, 32, 33, *(rng.randrange(1, 400) for _ in range(20))):
        assert bucket(count) >= count
        assert bucket(bucket(count)) == bucket(count)
    assert [bucket(count) for count in (1, 3, 9, 17, 21, 33)] == [1, 4, 12, 20, 32, 64]


def test_graphs_are_for_gpus_and_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wants_graphs(torch.device("cuda:1"))
    assert not wants_graphs(torch.device("cpu"))
    monkeypatch.setenv(VARIABLE, "0")
    assert not wants_graphs(torch.device("cuda:1"))


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_give_the_oracles_tokens(kind: Kind, schedule: str, sequences: int) -> None:
    model = copy.deepcopy(small_model(kind)).to("cuda")
    engine = Engine(model, sequences)
    assert engine.kernels == "CUDA graphs"
    chosen, limits = SCHEDULES[schedule]

    outcomes = run_engine(engine, SOURCES, Method(chosen, BOS, EOS, limits))

    for number, outcome in enumerate(outcomes):
        expected = expected_of(kind, schedule, "retry", number)
        if expected.gap >= TIE:
            assert outcome == outcome_of(expected)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_dtypes_replay_what_they_compute(dtype: torch.dtype) -> None:
    model = copy.deepcopy(small_model("t5")).to("cuda", dtype)
    method = Method(Fixed(2), BOS, EOS, FIXED)
    engine = Engine(model, 2)

    recorded = run_engine(engine, SOURCES, method)

    assert run_engine(engine, SOURCES, method) == recorded
