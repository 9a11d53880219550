"""The compiled step: the oracle's tokens, rows that do not depend on one another, and a fallback that says why."""

from __future__ import annotations

import copy
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipedec_cli.model.native.library import BuildError, compiled, is_compiled
from pipedec_cli.model.native.weights import pack_native
from pipedec_cli.model.steps.engine import Engine, lay_out
from pipedec_cli.model.steps.operators import Matrices
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from tests.model.engines import needs_kernels, weights_of
from tests.model.families import KINDS, SOURCES, VOCABULARY, Kind, odd_model, small_model


def grid_rows(sequence: int, count: int, first: int = 0) -> list[Row]:
    """Rows of a grid of four subsequences with Δt = 1, in the order of their times."""
    places = [(n // 4, n % 4 + 1) for n in range(first, first + count)]
    tokens = [(7 * sequence + 3 * n) % (VOCABULARY - 2) + 2 for n in range(first, first + count)]
    return [
        Row(sequence, Slot(subsequence, time + subsequence, token))
        for (time, subsequence), token in zip(places, tokens, strict=True)
    ]


def both_steps(model: Any, calls: list[list[Row]], sources: list[list[int]]) -> tuple[Any, Any]:
    """The logits of the last call, from the compiled step and from torch's operators."""
    results = []
    for weights in (lay_out(model, native=True), lay_out(model, prepack=False)):
        engine = Engine(model, len(sources), weights=weights)
        engine.admit(list(enumerate(sources)))
        results.append([engine.logits(rows) for rows in calls][-1].float())
    return results[0], results[1]


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_nearer_to_float32_than_operators_in_bfloat16_are(kind: Kind) -> None:
    calls = [grid_rows(0, 12), grid_rows(0, 9, first=12)]
    exact, _ = both_steps(small_model(kind), calls, [SOURCES[0]])
    narrow, operators = both_steps(copy.deepcopy(small_model(kind)).bfloat16(), calls, [SOURCES[0]])

    scale = exact.abs().max()
    assert (narrow - exact).abs().max() < 0.05 * scale
    assert (narrow - exact).abs().mean() < (operators - exact).abs().mean()


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 5, 12, 13, 16, 40])
def test_a_row_depends_on_its_own_sequence_alone_bit_for_bit(rows: int, dtype: torch.dtype) -> None:
    model = copy.deepcopy(small_model("gated")).to(dtype)
    weights = lay_out(model, native=True)
    sources = [SOURCES[0], SOURCES[3] * 9, SOURCES[1]]
    together = Engine(model, 3, weights=weights)
    calls: tuple[list[Row], list[Row]] = ([], [])
    for sequence, source in enumerate(sources):
        together.admit([(sequence, source)])
        calls[0].extend(grid_rows(sequence, 17 * sequence + 1))
        calls[1].extend(grid_rows(sequence, rows, 17 * sequence + 1))
    _, crowded = (together.logits(call) for call in calls)

    for sequence, source in enumerate(sources):
        alone = Engine(model, weights=weights)
        alone.admit([(0, source)])
        _, logits = (
            alone.logits([Row(0, row.slot) for row in call if row.sequence == sequence]) for call in calls
        )
        assert torch.equal(logits, crowded[sequence * rows : (sequence + 1) * rows])


@needs_kernels
def test_a_row_does_not_depend_on_the_number_of_threads() -> None:
    threads = torch.get_num_threads()
    logits = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            engine = Engine(small_model("umt5"), weights=weights_of("umt5", "native"))
            engine.stepper.remember(torch.ones(1, 5, 32), [(0, [0] * 5)])
            logits.append(engine.logits(grid_rows(0, 9)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sizes_that_fill_no_panel_and_grids_beyond_the_first_room(dtype: torch.dtype) -> None:
    model = odd_model().to(dtype)
    calls = [grid_rows(0, 100), grid_rows(1, 3), grid_rows(0, 61, 100) + grid_rows(1, 2, 3)]
    native, operators = both_steps(model, calls, [SOURCES[1], SOURCES[3] * 20])

    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    assert (native - operators).abs().max() < tolerance * operators.abs().max()


@needs_kernels
def test_the_step_answers_with_the_first_best_token() -> None:
    model = copy.deepcopy(small_model("gated"))
    with torch.no_grad():
        model.lm_head.weight[5:] = model.lm_head.weight[4]  # all of them tie
    engine = Engine(model, weights=lay_out(model, native=True))
    engine.admit([(0, SOURCES[0])])
    rows = grid_rows(0, 6)
    logits = engine.logits(rows)
    engine.release(0)
    engine.admit([(0, SOURCES[0])])

    assert engine.step(rows) == [int((row == row.max()).nonzero()[0]) for row in logits]


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_consumed_gives_the_same_logits_and_is_not_in_memory_twice(kind: Kind) -> None:
    model = copy.deepcopy(small_model(kind))
    whole = sum(parameter.nbytes for parameter in model.parameters())
    logits = []
    for weights in (weights_of(kind, "native"), lay_out(model, consume=True)):
        engine = Engine(model, weights=weights)
        engine.admit([(0, SOURCES[0])])
        logits.append(engine.logits(grid_rows(0, 6)))

    assert torch.equal(*logits)
    assert sum(parameter.nbytes for parameter in model.parameters()) < whole / 2
    again = Engine(small_model(kind), weights=weights_of(kind, "native"))
    again.admit([(0, SOURCES[0])])  # what was not given away still serves
    assert again.kernels.startswith("native (")


def test_the_environment_and_an_argument_switch_the_kernels_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(lay_out(small_model("t5"), native=False).stepping, Matrices)
    monkeypatch.setenv("PIPEDEC_NATIVE", "0")
    weights = lay_out(small_model("t5"))
    assert isinstance(weights.stepping, Matrices)
    assert "PIPEDEC_NATIVE is 0" in weights.kernels
    with pytest.raises(BuildError, match="PIPEDEC_NATIVE"):  # asked for, and not to be had
        lay_out(small_model("t5"), native=True)


def with_setting(model: Any, name: str, value: Any) -> Any:
    setattr(model.config, name, value)
    return model


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: model.half(), "neither all float32 nor all bfloat16"),
        (lambda model: with_setting(model, "dense_act_fn", "silu"), "activation is silu"),
        (lambda model: with_setting(model, "d_kv", 7), "width is odd"),
    ],
)
def test_a_model_that_the_kernels_cannot_run_is_left_to_operators(change: Any, reason: str) -> None:
    model = change(copy.deepcopy(small_model("t5")))
    with pytest.raises(BuildError, match=reason):
        pack_native(model)
    assert reason in lay_out(model).kernels


def test_without_a_compiler_there_are_none_and_nothing_to_compile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert is_compiled()
    with pytest.raises(BuildError, match=r"no C\+\+ compiler"):
        compiled()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts a script in a compiler's place, the last of whose arguments is the file to make; caches in ``cache``."""

    def stand_in(script: str) -> None:
        path = tmp_path / "fake-cc"
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo fake 1.0 && exit 0\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(path))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    return stand_in


def test_a_compiler_that_fails_leaves_nothing_behind(compiler: Callable[[str], None], tmp_path: Path) -> None:
    compiler("exit 1")
    with pytest.raises(BuildError, match="fake-cc cannot compile"):
        compiled()
    assert not list((tmp_path / "cache" / "pipedec").iterdir())


def test_an_unwritable_cache_is_a_reason_and_no_crash(
    compiler: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    compiler("exit 0")
    with pytest.raises(BuildError, match="cannot be kept"):
        compiled()


def test_what_is_compiled_once_is_found_again(compiler: Callable[[str], None], tmp_path: Path) -> None:
    compiler(f'for made; do :; done; echo once >> "{tmp_path}/count"; echo library > "$made"')
    assert not is_compiled()
    assert compiled() == compiled()
    assert is_compiled()
    assert compiled().read_text() == "library\n"
    assert (tmp_path / "count").read_text() == "once\n"


def test_older_compilers_get_fewer_flags(compiler: Callable[[str], None]) -> None:
    compiler('for made; do [ "$made" = -fopenmp ] && exit 1; done; echo library > "$made"')
    assert compiled().exists()
