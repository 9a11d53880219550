"""Blind rows on the engine: prompts that begin alike, and who sees whom. Their tokens are in the engine's matrix."""

import random
import sys
from dataclasses import replace

import psutil
import pytest
import torch

from pipedec_cli.model.engine.engine import Engine
from pipedec_cli.model.engine.prompt_cache import Kept
from pipedec_cli.pipeline.attention import APART, PROMPT_TIME, apart, visible
from pipedec_cli.pipeline.grid import Method, Opening
from pipedec_cli.pipeline.schedule import Together
from tests import fakes
from tests.model.engines import (
    EOS,
    PROMPTED,
    compiled,
    engines_of,
    in_every_dtype,
    is_prompted,
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


def shared_sources(chance, count):
    """Prompts that begin with other prompts, or are such beginnings, or repeat."""
    made = [chance.choices(range(3, 40), k=90) for _ in range(3)]
    for _ in range(count):
        begun = chance.choice(made)
        made.append(
            begun[: chance.randint(1, len(begun))]
            + chance.choices(range(3, 40), k=chance.choice((0, 1, 9, 40)))
        )
    return made


@engines_of("t5", "bart", *PROMPTED)
@pytest.mark.parametrize("room", [0, 10**5])
def test_what_was_read_before_changes_no_token(kind, stepping, room):
    engine, chance, how = (
        make_engine(kind, stepping, 3),
        random.Random(1),
        BLIND if is_prompted(kind) else method_of("together", kind),
    )
    engine.stepper.kept.most = room
    longest = 130 if is_prompted(kind) else 20
    for whole in (shared_sources(chance, 5), shared_sources(chance, 5)[:2] * 4):
        sources = [source[:longest] for source in whole]
        plain = [
            tokens_of(grids_of(make_engine(kind, stepping, 1), how, [one]))[0]
            for one in sources
        ]
        assert tokens_of(grids_of(engine, how, sources)) == plain
    assert engine.stepper.kept.hits > 90


@in_every_dtype
@pytest.mark.parametrize("room", [0, 40_000, 10**6])
def test_batches_and_prompts_that_are_kept_do_not_change_a_bit(dtype, room):
    weights, how = compiled(small_model("llama"), dtype), replace(BLIND, confident=True)
    sources, engine = shared_sources(random.Random(2), 30), Engine(weights, 4)
    kept = engine.stepper.kept
    kept.most = room
    alone = [grids_of(Engine(weights, 1), how, [source])[0] for source in sources]
    said = (
        [[(row.tokens, row.confidence) for row in grid.subsequences] for grid in grids]
        for grids in (alone, grids_of(engine, how, sources))
    )
    assert next(said) == next(said)
    assert (
        kept.bytes <= room
        and (kept.evictions > 0) == (room == 40_000)
        and kept.hits > 250
    )


def test_of_kept_texts_the_longest_common_beginning_is_found_and_the_oldest_go():
    kept = Kept(100)
    for ids in ((1, 2, 3), (1, 2, 4, 4), (5,)):
        kept.add(ids, [torch.zeros(len(ids), dtype=torch.int32)])
    for ids, nearest in (
        ((1, 2, 4, 9), (1, 2, 4, 4)),
        ((5, 5), (5,)),
        ((1, 2), (1, 2, 3)),
    ):
        assert kept.find(ids) == nearest
    kept.take((1, 2, 3))
    kept.add(
        (1, 2, 3, 7), [torch.ones(4, dtype=torch.int32)]
    )  # in the place of its beginning
    kept.add((1, 2), [torch.zeros(2, dtype=torch.int32)])  # which is there
    assert (kept.bytes, kept.evictions) == (36, 0)
    kept.add((9, 9), [torch.zeros(17, dtype=torch.int32)])
    assert (kept.bytes, kept.evictions, kept.find((1, 2, 4))) == (88, 1, (1, 2, 3, 7))
    kept.add((8,), [torch.zeros(99)])  # more than there is room for
    assert kept.bytes == 88


@pytest.mark.skipif(
    sys.platform != "linux", reason="how a heap keeps memory differs by system"
)
def test_texts_that_go_give_their_memory_back_whatever_stands_between():
    kept, between = Kept(64 << 20), []
    short, long = torch.ones(1 << 18), torch.ones(15 << 20)
    torch.ones(4 << 20)  # glibc's heap takes copies up to this size from now on
    before = psutil.Process().memory_info().rss
    for number in range(64):
        kept.add((number,), [short])
        between.append(torch.ones(10_000))
    kept.add((64,), [long])
    assert kept.evictions == 60
    assert psutil.Process().memory_info().rss - before < kept.bytes + (16 << 20)


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
