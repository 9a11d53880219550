"""Steps are timed around a full grid, beside a probe, in every dtype and at every number of rows."""

from __future__ import annotations

import copy
import time

import pytest

from pipedec_cli.evaluate.step_speed import CACHED, STEPS, time_steps
from pipedec_cli.model.steps.engine import Engine, lay_out
from tests.evaluate.decoders import FakeClock
from tests.model.families import SOURCES, small_model


class FakeProbe:
    """Reads so many bytes a second, one after the other."""

    def __init__(self, readings):
        self.readings = iter(readings)

    def measure(self):
        return next(self.readings)


@pytest.fixture
def clocked(monkeypatch):
    """A clock that a step moves by a second for each of its rows; every step's rows and filling."""
    clock, seen = FakeClock(), []
    real = Engine.step

    def step(self, rows):
        clock.pass_by(len(rows))
        seen.append(len(rows))
        return real(self, rows)

    monkeypatch.setattr(Engine, "step", step)
    return clock, seen


def test_a_step_takes_the_median_and_its_limit_the_probe_beside_it(clocked):
    clock, _ = clocked
    model = small_model("t5")
    needed = time_steps(
        [(model, lay_out(model))],
        [1],
        SOURCES[0],
        FakeProbe([1.0] * 2),
        repeats=1,
        clock=clock,
        rest=lambda: None,
    )[0].bytes

    (one, four) = time_steps(
        [(model, lay_out(model))],
        [1, 4],
        SOURCES[0],
        # the first of each warms up; then limits of 0.5 and 2 s for one row, of 1 and 2 s for four
        FakeProbe([1, 1, needed / 0.5, needed / 1.0, needed / 2.0, needed / 2.0]),
        repeats=2,
        clock=clock,
        rest=lambda: None,
    )

    assert (one.rows, one.seconds, one.limit_seconds, one.fraction) == (1, 1.0, 1.25, 1.25)
    assert (four.rows, four.seconds, four.limit_seconds, four.fraction) == (4, 4.0, 1.5, 0.375)


@pytest.mark.parametrize("rows", [1, 4, 16, 50])
def test_the_grid_holds_about_as_many_tokens_as_said(clocked, rows):
    clock, seen = clocked
    model = small_model("t5")

    time_steps(
        [(model, lay_out(model))],
        [rows],
        SOURCES[0],
        FakeProbe([1.0] * 2),
        repeats=1,
        clock=clock,
        rest=lambda: None,
    )

    one_pass = seen[: len(seen) // 2]
    assert one_pass[-STEPS:] == [rows] * STEPS
    middle = sum(one_pass) - rows * STEPS / 2
    assert middle == pytest.approx(CACHED, abs=rows) or rows * STEPS / 2 > CACHED


def test_each_dtype_reads_its_own_bytes():
    model, narrow = small_model("t5"), copy.deepcopy(small_model("t5")).bfloat16()

    wide, half = time_steps(
        [(model, lay_out(model)), (narrow, lay_out(narrow))],
        [2],
        SOURCES[0],
        FakeProbe([1.0] * 4),
        repeats=1,
        clock=time.perf_counter,
        rest=lambda: None,
    )

    assert (wide.dtype, half.dtype) == ("float32", "bfloat16")
    assert wide.bytes == 2 * half.bytes
