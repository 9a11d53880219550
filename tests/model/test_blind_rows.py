"""Blind rows on the engine: prompts that begin alike, and who sees whom. Their tokens are in the engine's matrix."""

from dataclasses import replace

import pytest
import torch

from pipedec_cli.model.engine.engine import Engine
from pipedec_cli.pipeline.attention import APART, PROMPT_TIME, apart, visible
from pipedec_cli.pipeline.grid import Method, Opening
from pipedec_cli.pipeline.schedule import Together
from tests import fakes
from tests.model.engines import (
    EOS,
    PROMPTED,
    PROMPTS,
    compiled,
    engines_of,
    in_every_dtype,
    make_engine,
    method_of,
    small_model,
)

BLIND = method_of("blind")


def grids_of(engine, how, sources):
    ends = fakes.finished(engine, sources, how, engine.sequences)
    return [ends[number].grid for number in range(len(sources))]


def tokens_of(grids):
    return [[row.tokens for row in grid.subsequences] for grid in grids]


@engines_of(*PROMPTED)
def test_the_beginning_of_all_prompts_is_read_once(kind, stepping, monkeypatch):
    """The tokens are those without it; other prompts are refused."""
    engine, begun = make_engine(kind, stepping, 3), [9, 3, 30, 5, 11]
    sources = [[*begun, *source] for source in PROMPTS]
    plain = tokens_of(grids_of(engine, BLIND, sources))
    engine.keep(begun)
    read, run = [], engine.stepper.read
    monkeypatch.setattr(engine.stepper, "read", lambda newcomers: read.append(newcomers) or run(newcomers))
    assert tokens_of(grids_of(engine, BLIND, sources)) == plain
    engine.keep(begun)
    assert sum(map(len, read)) == len(sources)
    assert tokens_of(grids_of(engine, BLIND, sources)) == plain
    with pytest.raises(ValueError, match="does not begin as all prompts do"):
        engine.admit([(0, [1, 2, 3])])


@in_every_dtype
def test_batches_and_a_beginning_that_is_kept_do_not_change_a_bit(dtype):
    weights, found = compiled(small_model("llama"), dtype), []
    sources = [[*range(3, 40), *range(30), *source] for source in PROMPTS]
    for sequences, kept in ((1, 0), (4, 0), (4, 61)):
        engine = Engine(weights, sequences)
        engine.keep(sources[0][:kept])
        grids = grids_of(engine, replace(BLIND, confident=True), sources)
        found.append([[(row.tokens, row.confidence) for row in grid.subsequences] for grid in grids])
    assert found[0] == found[1] == found[2]


def test_a_row_sees_the_prompt_and_itself_alone():
    places = [
        (0, PROMPT_TIME + 9),
        *((row, apart(row, token)) for row in (1, 2, 5000) for token in (0, APART - 1)),
    ]
    rows, times = torch.tensor(places).T
    assert visible((rows, times), (rows, times)).int().tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 0, 0, 1, 0, 0, 0],
        [1, 0, 0, 1, 1, 0, 0],
        [1, 0, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 1, 1],
    ]


def test_a_blind_row_needs_a_known_token():
    with pytest.raises(ValueError, match="begins with a known token"):
        Method(Together(), EOS, EOS, openings=(Opening(()),), blind=True)
