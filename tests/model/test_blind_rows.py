"""Blind rows on the engine: each row is what the model writes if it alone follows the prompt, whatever computes the steps."""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch

from pipedec_cli.model.engine import engine as engines
from pipedec_cli.model.engine.engine import Engine
from pipedec_cli.pipeline.attention import APART, PROMPT_TIME, apart, visible
from pipedec_cli.pipeline.grid import Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Together
from tests import fakes
from tests.model.engines import (
    EOS,
    PROMPTED,
    TIE,
    VOCABULARY,
    compiled,
    engines_of,
    in_every_dtype,
    make_engine,
    small_model,
)
from tests.model.engines import PROMPTS as SOURCES
from tests.oracle import oracle_blind

KEYS = ((7, 3), (12,), (30, 8, 3, 9), (7, 3, 20, 21, 22))
ENDS = frozenset({4, 6})
LONGEST = 9


def narrowed(row, made):
    """Of every second row the tokens are some of many, the end among them."""
    some = random.Random(f"{row} {len(made)}").sample(range(2, VOCABULARY), 12)
    return () if row % 2 else sorted({EOS, *some})


def method(**more):
    openings = [Opening(key, lambda made, row=row: narrowed(row, made)) for row, key in enumerate(KEYS)]
    how = Method(Together(), EOS, EOS, Limits(LONGEST, None), openings=tuple(openings), blind=True, ends=ENDS)
    return replace(how, **more)


@cache
def expected(kind):
    bounds = {"eos": EOS, "ends": ENDS, "allowed": narrowed, "time_max": LONGEST}
    found = [oracle_blind(small_model(kind), source, KEYS, **bounds) for source in SOURCES]
    assert min(gap for _, _, gap in found) >= TIE
    return [texts for texts, _, _ in found], [confidences for _, confidences, _ in found]


def grids_of(engine, how, sources=SOURCES):
    ends = fakes.finished(engine, sources, how, engine.sequences)
    return [ends[number].grid for number in range(len(sources))]


def tokens_of(grids):
    return [[row.tokens for row in grid.subsequences] for grid in grids]


@engines_of(*PROMPTED)
def test_each_row_is_what_the_model_writes_if_it_alone_follows_the_prompt(kind, stepping, monkeypatch):
    """One at a time; three that leave and enter at different times; and calls that are taken in parts."""
    texts, confidences = expected(kind)
    assert len({len(row) for rows in texts for row in rows}) >= 3
    for sequences, most in ((1, 1024), (3, 1024), (3, 4)):
        monkeypatch.setattr(engines, "MOST_ROWS", most)
        grids = grids_of(make_engine(kind, stepping, sequences), method(confident=True))
        assert tokens_of(grids) == texts
        assert [grid.steps for grid in grids] == [max(map(len, rows)) for rows in texts]
        found = [[row.confidence for row in grid.subsequences] for grid in grids]
        torch.testing.assert_close(torch.tensor(found), torch.tensor(confidences), rtol=1e-3, atol=1e-4)
        assert tokens_of(grids_of(make_engine(kind, stepping, sequences), method())) == texts


@engines_of(*PROMPTED)
def test_the_beginning_of_all_prompts_is_read_once(kind, stepping, monkeypatch):
    """The tokens are those without it; other prompts are refused."""
    engine, begun = make_engine(kind, stepping, 3), [9, 3, 30, 5, 11]
    sources = [[*begun, *source] for source in SOURCES]
    plain = tokens_of(grids_of(engine, method(), sources))
    engine.keep(begun)
    read, run = [], engine.stepper.read
    monkeypatch.setattr(engine.stepper, "read", lambda newcomers: read.append(newcomers) or run(newcomers))
    assert tokens_of(grids_of(engine, method(), sources)) == plain
    engine.keep(begun)
    assert sum(map(len, read)) == len(sources)
    assert tokens_of(grids_of(engine, method(), sources)) == plain
    with pytest.raises(ValueError, match="does not begin as all prompts do"):
        engine.admit([(0, [1, 2, 3])])


@in_every_dtype
def test_batches_and_a_beginning_that_is_kept_do_not_change_a_bit(dtype):
    weights, found = compiled(small_model("llama"), dtype), []
    sources = [[*range(3, 40), *range(30), *source] for source in SOURCES]
    for sequences, kept in ((1, 0), (4, 0), (4, 61)):
        engine = Engine(None, sequences, weights=weights)
        engine.keep(sources[0][:kept])
        grids = grids_of(engine, method(confident=True), sources)
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
