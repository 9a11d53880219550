"""The engine: the tokens of the oracle, whatever the schedule, the rule, the family, the sequences and the kernels."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any, Final

import pytest
import torch

from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.collate import encode
from pipedec_cli.model.steps.engine import Engine
from pipedec_cli.model.steps.weights import can_prepack, lay_out
from pipedec_cli.pipeline.decode import Method
from pipedec_cli.pipeline.grid import Explore, Limits
from pipedec_cli.pipeline.schedule import Fixed
from tests.checkpoints import toy_records
from tests.model.engines import FIXED, SCHEDULES, TIE, ask_oracle, expected_of, outcome_of, run_engine
from tests.model.families import BOS, EOS, KINDS, SOURCES, Kind, small_model

PACKED: Final = [
    pytest.param(False, id="plain"),
    pytest.param(
        True,
        id="packed",
        marks=pytest.mark.skipif(not can_prepack(torch.float32), reason="no oneDNN kernels here"),
    ),
]


@cache
def lay_out_small(kind: Kind, *, packed: bool) -> Any:
    return lay_out(small_model(kind), prepack=packed)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("sequences", [1, 2, 3, 8])
@pytest.mark.parametrize("explore", ["retry", "once"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tokens_are_the_oracles(schedule: str, explore: Explore, sequences: int, packed: bool) -> None:
    """With fewer sequences than sources, examples leave and enter at different times."""
    order = random.Random(f"{schedule} {sequences}").sample(range(len(SOURCES)), len(SOURCES))
    method = Method(SCHEDULES[schedule][0], BOS, EOS, SCHEDULES[schedule][1], explore)
    engine = Engine(small_model("t5"), sequences, weights=lay_out_small("t5", packed=packed))

    outcomes = run_engine(engine, [SOURCES[number] for number in order], method)

    results = [expected_of("t5", schedule, explore, number) for number in order]
    assert [result.gap < TIE for result in results].count(True) == 0
    assert outcomes == [outcome_of(result) for result in results]


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("schedule", ["1", "2", "3", "wait", "whole"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "t5"])
def test_every_family_gets_the_oracles_tokens(kind: Kind, schedule: str, packed: bool) -> None:
    method = Method(SCHEDULES[schedule][0], BOS, EOS, SCHEDULES[schedule][1])
    weights = lay_out_small(kind, packed=packed)

    alone = run_engine(Engine(small_model(kind), 1, weights=weights), SOURCES[:3], method)
    together = run_engine(Engine(small_model(kind), 2, weights=weights), SOURCES[:3], method)

    results = [expected_of(kind, schedule, "retry", number) for number in range(3)]
    assert [result.gap < TIE for result in results].count(True) == 0
    assert alone == together == [outcome_of(result) for result in results]


@pytest.mark.parametrize("kind", KINDS)
def test_the_texts_that_are_compared_are_worth_comparing(kind: Kind) -> None:
    """Many lengths, failed explorations, texts that end and texts that are cut."""
    results = [
        expected_of(kind, "1", "retry", number) for number in range(3 if kind != "t5" else len(SOURCES))
    ]
    lengths = {len(row.tokens) for result in results for row in result.subsequences}

    assert len(lengths) >= 5
    assert any(row.tokens == [EOS] for result in results for row in result.subsequences)
    assert {result.truncated is None for result in results} == {True, False}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("schedule", ["1", "2", "3", "wait"])
@pytest.mark.parametrize("sequences", [1, 3])
def test_a_trained_model_has_no_ties_and_the_oracles_tokens(
    trained: Checkpoint, schedule: str, sequences: int
) -> None:
    sources = [example.source for example in encode(trained, toy_records())][:5]
    chosen, limits = SCHEDULES[schedule][0], Limits(time_max=None, sub_max=6, max_tokens=40)
    limits = limits if schedule == "wait" else Limits(time_max=14, sub_max=6)

    outcomes = run_engine(Engine(trained.model, sequences), sources, Method(chosen, BOS, EOS, limits, "once"))

    results = [ask_oracle(trained.model, source, chosen, limits, "once") for source in sources]
    assert min(result.gap for result in results) > 100 * TIE
    assert outcomes == [outcome_of(result) for result in results]


@pytest.mark.usefixtures("kernels")
def test_bfloat16_says_what_a_trained_model_has_learnt(trained: Checkpoint) -> None:
    sources = [example.source for example in encode(trained, toy_records())]
    method = Method(Fixed(2), BOS, EOS, Limits(time_max=14, sub_max=6), "once")

    exact = run_engine(Engine(trained.model, 3), sources, method)
    rough = run_engine(Engine(copy.deepcopy(trained.model).to(torch.bfloat16), 3), sources, method)

    assert sum(one == other for one, other in zip(exact, rough, strict=True)) >= len(sources) - 1


@pytest.mark.usefixtures("kernels")
def test_an_engine_serves_one_method_after_another() -> None:
    """Nothing of an earlier decoding is left, though the buffers are."""
    engine = Engine(small_model("t5"), 2)
    for schedule in ("1", "whole", "3"):
        chosen, limits = SCHEDULES[schedule]
        outcomes = run_engine(engine, SOURCES, Method(chosen, BOS, EOS, limits))
        assert outcomes == [
            outcome_of(expected_of("t5", schedule, "retry", number)) for number in range(len(SOURCES))
        ]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_gives_the_tokens_of_the_cpu(kind: Kind) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    model = copy.deepcopy(small_model(kind)).to("cuda")
    method = Method(Fixed(2), BOS, EOS, FIXED)

    assert run_engine(Engine(model, 3), SOURCES, method) == [
        outcome_of(expected_of(kind, "2", "retry", number)) for number in range(len(SOURCES))
    ]
