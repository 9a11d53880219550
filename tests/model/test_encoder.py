"""The compiled encoder: transformers' states, whatever stands beside a source; and which encoder is taken where."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from pipedec_cli.model.native.library import library
from pipedec_cli.model.native.weights import TOKENS_TOGETHER, NativeEncoder
from pipedec_cli.model.steps.engine import lay_out, make_encoder
from tests.model.engines import needs_kernels
from tests.model.families import KINDS, SOURCES, odd_model, small_model

#: Around the sizes of panels and blocks, and beyond the distance at which T5's bias ends.
LENGTHS = (1, 2, 31, 32, 33, 50, 127, 300)


def source_of(length: int) -> list[int]:
    return (SOURCES[3] * (length // len(SOURCES[3]) + 1))[:length]


def encode(encoder: Any, sources: list[list[int]]) -> list[Tensor]:
    """The states of each source, without padding."""
    longest = max(map(len, sources))
    ids = torch.tensor([[*source, *[0] * (longest - len(source))] for source in sources])
    mask = torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in sources])
    with torch.inference_mode():
        states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    assert states.shape[:2] == ids.shape
    return [rows[: len(source)] for rows, source in zip(states, sources, strict=True)]


def assert_close(mine: Tensor, theirs: Tensor) -> None:
    assert (mine - theirs).abs().max() < 1e-5 * theirs.abs().max()


@needs_kernels
@pytest.mark.parametrize("kind", [*KINDS, "sizes that fill no panel"])
def test_the_states_are_those_of_transformers(kind: Any) -> None:
    model = small_model(kind) if kind in KINDS else odd_model()
    sources = [source_of(length) for length in LENGTHS]

    mine = encode(NativeEncoder(model.encoder, library()), sources)

    for states, source in zip(mine, sources, strict=True):
        assert_close(states, encode(model.encoder, [source])[0])


@needs_kernels
@pytest.mark.parametrize("threads", [1, 3])
def test_a_state_depends_on_its_own_source_alone_bit_for_bit(threads: int) -> None:
    encoder = NativeEncoder(small_model("gated").encoder, library())
    sources = [source_of(length) for length in (*LENGTHS, TOKENS_TOGETHER // 4, 5)]
    alone = [encode(encoder, [source])[0] for source in sources]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        together = encode(encoder, sources)
    finally:
        torch.set_num_threads(before)

    for mine, theirs in zip(together, alone, strict=True):
        assert torch.equal(mine, theirs)


@needs_kernels
def test_what_is_beyond_a_sources_end_is_zero() -> None:
    encoder = NativeEncoder(small_model("t5").encoder, library())
    ids = torch.tensor([[5, 6, 7], [5, 0, 0]])
    states = encoder(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1], [1, 0, 0]])).last_hidden_state

    assert not states[1, 1:].any()
    assert states[1, 0].any()


@needs_kernels
@pytest.mark.parametrize(
    ("dtype", "slow", "narrow", "compiled"),
    [
        (torch.float32, True, False, True),
        (torch.float32, True, True, True),
        (torch.float32, False, False, False),
        (torch.bfloat16, True, False, True),
        (torch.bfloat16, True, True, False),
    ],
)
def test_the_compiled_encoder_is_taken_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, slow: bool, narrow: bool, compiled: bool
) -> None:
    """`slow`: torch's float32 products leave speed unused; `narrow`: its bfloat16 products are fast."""
    monkeypatch.setattr("pipedec_cli.model.steps.engine.has_slow_products", lambda: slow)
    monkeypatch.setattr("pipedec_cli.model.steps.engine.has_bfloat16_products", lambda: narrow)
    model = copy.deepcopy(small_model("t5")).to(dtype)

    assert isinstance(lay_out(model).encoder, NativeEncoder) is compiled
    assert not isinstance(lay_out(model, native=False).encoder, NativeEncoder)


@needs_kernels
def test_a_bfloat16_model_is_encoded_in_float32_with_its_own_weights() -> None:
    model = copy.deepcopy(small_model("t5")).bfloat16()
    exact = copy.deepcopy(model.encoder).float()

    mine = encode(NativeEncoder(model.encoder, library()), [source_of(50)])[0]

    assert_close(mine, encode(exact, [source_of(50)])[0])


@pytest.mark.parametrize("products", [False, True])
def test_without_kernels_the_encoder_of_a_bfloat16_model_is_in_the_faster_dtype_with_the_same_weights(
    monkeypatch: pytest.MonkeyPatch, products: bool
) -> None:
    monkeypatch.setattr("pipedec_cli.model.steps.engine.has_bfloat16_products", lambda: products)
    model = copy.deepcopy(small_model("t5")).bfloat16()

    encoder = make_encoder(model)

    assert (encoder is model.encoder) is products
    for mine, theirs in zip(encoder.parameters(), model.encoder.parameters(), strict=True):
        assert mine.dtype == (torch.bfloat16 if products else torch.float32)
        assert torch.equal(mine, theirs.to(mine.dtype))
    assert make_encoder(small_model("t5")) is small_model("t5").encoder
