"""Steps are timed around a full grid, beside a probe of the memory, in every dtype and at every number of rows."""

import copy
import time
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from pipedec_cli.evaluate.steps import CACHED, STEPS, MemoryProbe, step_bytes, time_steps
from pipedec_cli.model.engine.engine import Engine
from pipedec_cli.model.engine.native.build import BuildError
from pipedec_cli.model.engine.native.library import VARIABLE, library
from tests.evaluate.decoders import FakeClock
from tests.model.engines import KINDS, SOURCES, VOCABULARY, small_model


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_kernels_read_every_word(threads):
    try:
        kernels = library()
    except BuildError as error:
        pytest.skip(str(error))
    words = torch.arange(3 * 4096, dtype=torch.int32)
    assert kernels.read(words.data_ptr(), 4 * len(words), threads) == int(words.sum())


@pytest.mark.parametrize("native", ["", "0"])
def test_the_fastest_pass_counts_and_without_kernels_it_may_be_too_low(monkeypatch, native):
    monkeypatch.setenv(VARIABLE, native)
    clock = FakeClock()
    probe = MemoryProbe(clock, size=1 << 16)
    durations = iter([0.5, 0.25, 1.0])
    probe._read = lambda: clock.pass_by(next(durations))
    assert probe.measure() == (1 << 16) / 0.25
    assert probe.readings == [(1 << 16) / 0.25]
    assert "may be slower" in probe.reader or not native


@pytest.mark.parametrize("kind", KINDS)
def test_a_steps_bytes_are_its_matrices_and_one_examples_keys_and_values(kind):
    model = small_model(kind)
    config = model.config
    blocks = [block.layer for block in model.decoder.block]
    matrices = model.lm_head.weight.numel()
    for own, cross, feed in blocks:
        attention = own.SelfAttention
        asked = (attention.q, attention.k, attention.v, attention.o, cross.EncDecAttention.q)
        matrices += sum(part.weight.numel() for part in (*asked, cross.EncDecAttention.o))
        matrices += sum(p.numel() for p in feed.DenseReluDense.parameters())
    cached = 2 * len(blocks) * config.num_heads * config.d_kv * (10 + 6)
    assert step_bytes(model, item=4, source=10, cached=6) == 4 * (matrices + cached)


def test_a_decoder_only_models_bytes_know_grouped_queries_swiglu_and_windows():
    model = small_model("gemma3_text, windows")
    width, heads, shared, each, wide, windowed, whole = 24, 4, 2, 10, 37, 2, 1
    layer = 2 * width * heads * each + 2 * width * shared * each + 3 * width * wide
    matrices = (windowed + whole) * layer + 43 * width  # the head, which is the embedding, once
    cached = 2 * shared * each * (windowed * 11 + whole * (10 + 6))
    assert step_bytes(model, item=4, source=10, cached=6) == 4 * (matrices + cached)
    assert step_bytes(model, item=1, source=10, cached=6) == matrices + 2 * cached


@pytest.mark.parametrize(
    ("kind", "layer", "seen"),
    [
        # q and o, grouped k and v, those of the source's that a step computes, three of the feed-forward part
        ("t5gemma", 2 * 32 * 32 + 2 * 32 * 16 + 2 * 32 * 32 + 3 * 32 * 48, (4 + 6) * 16 + 2 * 10 * 16),
        ("bart", 4 * 32 * 32 + 2 * 32 * 32 + 2 * 32 * 48, 2 * (6 + 10) * 32),
    ],
)
def test_other_encoder_decoders_bytes_leave_out_what_made_a_sources_keys_and_values(kind, layer, seen):
    matrices = 2 * layer + VOCABULARY * 32
    assert step_bytes(small_model(kind), item=4, source=10, cached=6) == 4 * (matrices + 2 * seen)


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


def timed(models, rows, readings, *, repeats=1, clock=time.perf_counter):
    """Steps of these models on the first source, beside a probe that reads so many bytes a second, one after the other."""
    probe = SimpleNamespace(measure=iter(readings).__next__)
    engines = [(Engine(one), one) for one in models]
    told = {"repeats": repeats, "clock": clock, "rest": lambda: None}
    return time_steps(engines, rows, SOURCES[0], probe, **told)


def test_a_step_takes_the_median_and_its_limit_the_probe_beside_it_and_its_own_bytes(clocked):
    clock, _ = clocked
    model = small_model("t5")
    narrow = copy.deepcopy(model).bfloat16()
    wide, half = timed([model, narrow], [1], [1.0] * 4, clock=clock)
    assert (wide.dtype, half.dtype) == ("float32", "bfloat16")
    needed = wide.bytes
    assert needed == 2 * half.bytes
    # the first of each warms up; then limits of 0.5 and 2 s for one row, of 1 and 2 s for four
    readings = [1, 1, needed / 0.5, needed / 1.0, needed / 2.0, needed / 2.0]
    one, four = timed([model], [1, 4], readings, repeats=2, clock=clock)
    assert (one.rows, one.seconds, one.limit_seconds, one.fraction) == (1, 1.0, 1.25, 1.25)
    assert (four.rows, four.seconds, four.limit_seconds, four.fraction) == (4, 4.0, 1.5, 0.375)


@pytest.mark.parametrize("make", [partial(small_model, "t5"), partial(small_model, "llama, no panel")])
@pytest.mark.parametrize("rows", [1, 4, 16, 50])
def test_the_grid_holds_about_as_many_tokens_as_said(clocked, rows, make):
    clock, seen = clocked
    timed([make()], [rows], [1.0] * 2, clock=clock)
    one_pass = seen[: len(seen) // 2]
    assert one_pass[-STEPS:] == [rows] * STEPS
    middle = sum(one_pass) - rows * STEPS / 2
    assert middle == pytest.approx(CACHED, abs=rows) or rows * STEPS / 2 > CACHED
