"""The probe reads all of its buffer, and a step's bytes are those of its weights and its cache."""

from __future__ import annotations

import pytest
import torch

from pipedec_cli.evaluate.bandwidth import MemoryProbe, step_bytes
from pipedec_cli.model.native.build import BuildError
from pipedec_cli.model.native.library import VARIABLE, library
from tests.evaluate.decoders import FakeClock
from tests.model.families import KINDS, small_model


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_kernels_read_every_word(threads):
    try:
        kernels = library()
    except BuildError as error:
        pytest.skip(str(error))
    words = torch.arange(3 * 4096, dtype=torch.int32)

    assert kernels.read(words.data_ptr(), 4 * len(words), threads) == int(words.sum())


@pytest.mark.parametrize("native", ["1", "0"])
def test_the_fastest_pass_counts(monkeypatch, native):
    monkeypatch.setenv(VARIABLE, native)
    clock = FakeClock()
    probe = MemoryProbe(clock, size=1 << 16)
    durations = iter([0.5, 0.25, 1.0])
    probe._read = lambda: clock.pass_by(next(durations))

    assert probe.measure() == (1 << 16) / 0.25
    assert probe.readings == [(1 << 16) / 0.25]


def test_without_kernels_it_says_that_its_reading_may_be_too_low(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")

    assert "may be slower" in MemoryProbe(FakeClock(), size=1 << 16).reader


@pytest.mark.parametrize("kind", KINDS)
def test_a_steps_bytes_are_its_matrices_and_one_examples_keys_and_values(kind):
    model = small_model(kind)
    config = model.config
    blocks = [block.layer for block in model.decoder.block]
    matrices = model.lm_head.weight.numel()
    for own, cross, feed in blocks:
        matrices += sum(
            part.weight.numel()
            for part in (
                *(own.SelfAttention.q, own.SelfAttention.k, own.SelfAttention.v, own.SelfAttention.o),
                *(cross.EncDecAttention.q, cross.EncDecAttention.o),
            )
        )
        matrices += sum(p.numel() for p in feed.DenseReluDense.parameters())
    cached = 2 * len(blocks) * config.num_heads * config.d_kv * (10 + 6)

    assert step_bytes(config, item=4, source=10, cached=6) == 4 * (matrices + cached)
