"""Rows that start together, each behind its key, on the engine: the oracle's tokens, whatever computes the steps."""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch

from pipedec_cli.model.engine import engine as engines
from pipedec_cli.pipeline.decode import Finished, decode
from pipedec_cli.pipeline.grid import Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Together
from tests.model.engines import (
    BOS,
    EOS,
    FAMILIES,
    KINDS,
    SOURCES,
    STEPPINGS,
    TIE,
    VOCABULARY,
    Recorder,
    bos_of,
    engines_of,
    make_engine,
    model_of,
    outcome_of,
    run_engine,
    small_model,
    sources_of,
)
from tests.oracle import next_logits_of, oracle_together

KEYS = ((7, 3), (12,), (30, 8, 3, 9), (), (7, 3))
LIMITS = Limits(time_max=9, sub_max=2)


def narrowed(row, made):
    """Of every second row the first tokens are some of many, and the later ones of few, the end among them."""
    some = random.Random(f"{row} {len(made)}").sample(range(2, VOCABULARY), 3 if made else 30)
    return () if row % 2 else sorted([EOS, *some])


def free(row, made):
    """Any token may follow."""
    return ()


def method(keys=KEYS, allowed=free, limits=LIMITS, bos=BOS):
    openings = [Opening(key, lambda made, row=row: allowed(row, made)) for row, key in enumerate(keys)]
    return Method(Together(), bos, EOS, limits, openings=tuple(openings))


@cache
def expected(kind, allowed):
    """The oracle's answers to the sources, kept for the steppings."""
    bounds = {"bos": bos_of(kind), "eos": EOS, "time_max": LIMITS.time_max, "allowed": allowed}
    asked = [
        oracle_together(next_logits_of(model_of(kind), source), KEYS, **bounds) for source in sources_of(kind)
    ]
    assert min(result.gap for result in asked) >= TIE
    confidences = [[row.confidence for row in result.subsequences] for result in asked]
    return [outcome_of(result) for result in asked], confidences


@engines_of(*KINDS, *FAMILIES)
def test_tokens_are_the_oracles(kind, stepping, monkeypatch):
    """One at a time; three that leave and enter at different times; and calls that are taken in parts."""
    for allowed in (free, narrowed) if kind in KINDS else (free,):
        told, _ = expected(kind, allowed)
        assert len({len(tokens) for rows, _, _ in told for _, tokens in rows}) >= (3 if kind in KINDS else 2)
        for sequences, most in ((1, 1024), (3, 1024), (3, 4)):
            monkeypatch.setattr(engines, "MOST_ROWS", most)
            engine = make_engine(kind, stepping, sequences)
            assert run_engine(engine, sources_of(kind), method(allowed=allowed, bos=bos_of(kind))) == told


@engines_of(*KINDS, *FAMILIES)
def test_the_confidence_of_a_row_is_the_product_of_its_tokens_probabilities(kind, stepping):
    """Among the tokens that were allowed."""
    engine = make_engine(kind, stepping, 3)
    how = replace(method(allowed=narrowed, bos=bos_of(kind)), confident=True)
    ended = [
        event for event in decode(engine, enumerate(sources_of(kind)), how, 3) if isinstance(event, Finished)
    ]
    grids = [event.grid for event in sorted(ended, key=lambda event: event.example)]
    found = [[row.confidence for row in grid.subsequences] for grid in grids]
    _, told = expected(kind, narrowed)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(told), rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", KINDS)
def test_cached_steps_give_the_logits_of_the_full_pass(kind):
    """All tokens of a key in one call, at times before 0."""
    recorder = Recorder(make_engine(kind, "plain", 2), SOURCES[:2], method())
    for sequence in (0, 1):
        torch.testing.assert_close(*recorder.both(small_model(kind), sequence), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_many_rows_are_fed_in_parts(stepping, monkeypatch):
    """Whose places are within keys as well as between them; with two examples in flight, 500 keys where that is quick."""
    rng, count = random.Random(3), 500 if stepping == "native" else 40
    keys = tuple(tuple(rng.choices(range(2, VOCABULARY), k=rng.randrange(5))) for _ in range(count))
    how, found, calls = method(keys, narrowed, Limits(3)), [], []
    for most in (engines.MOST_ROWS if count == 500 else 50, 10_000):
        monkeypatch.setattr(engines, "MOST_ROWS", most)
        engine = make_engine("t5", stepping, 2)
        step, sizes = engine.stepper.step, []
        monkeypatch.setattr(engine.stepper, "step", lambda rows: sizes.append(len(rows)) or step(rows))  # noqa: B023
        found.append(run_engine(engine, SOURCES[:2], how))
        calls.append(sizes)
    assert max(calls[0]) < max(calls[1]) == 2 * sum(1 + len(key) for key in keys)
    assert found[0] == found[1]
    assert [len(rows) for rows, _, _ in found[0]] == [count, count]
