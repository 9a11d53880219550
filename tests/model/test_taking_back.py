"""What every stepper can do beyond plain steps: take rows back, feed known tokens together, give probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipedec_cli.model.steps.engine import Engine
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from tests.model.engines import STEPPINGS, Stepping, make_engine
from tests.model.families import SOURCES, VOCABULARY, Kind

#: A call: for some of two sequences, which of their subsequences get how many tokens.
Call = dict[int, dict[int, int]]
#: Calls, and between them how many rows of each sequence are taken back (as far as it has that many).
Script = list[tuple[Call, tuple[int, int]]]


@cache
def engine_of(kind: Kind, stepping: Stepping) -> Engine:
    return make_engine(kind, stepping, 2)


def fresh(kind: Kind, stepping: Stepping) -> Engine:
    """An engine with two sources and nothing of what was decoded before."""
    engine = engine_of(kind, stepping)
    for sequence in (0, 1):
        engine.release(sequence)
    engine.admit(list(enumerate(SOURCES[:2])))
    return engine


def rows_of(call: Call, fed: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of a call, given those that each sequence has been fed: tokens at successive times, subsequence i from i on."""
    rows = []
    for sequence, wanted in sorted(call.items()):
        for subsequence, count in sorted(wanted.items()):
            before = sum(row.slot.subsequence == subsequence for row in fed[sequence])
            for time in range(subsequence + before, subsequence + before + count):
                token = (7 * sequence + 5 * subsequence + 3 * time) % (VOCABULARY - 2) + 2
                rows.append(Row(sequence, Slot(subsequence, time, token)))
    return rows


def assert_same(one: torch.Tensor, other: torch.Tensor, stepping: Stepping) -> None:
    """Bit for bit, where the steps are compiled."""
    exact = 0 if stepping == "native" else 1e-5
    torch.testing.assert_close(one, other, rtol=exact, atol=exact)


calls = st.dictionaries(
    st.sampled_from([0, 1]),
    st.dictionaries(st.integers(1, 4), st.integers(1, 3), min_size=1, max_size=3),
    min_size=1,
)
scripts = st.lists(st.tuples(calls, st.tuples(st.integers(0, 4), st.integers(0, 4))), min_size=1, max_size=5)


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("kind", ["t5", "umt5"])
@settings(max_examples=25)
@given(script=scripts, last=calls)
def test_steps_take_back_and_steps_again_equal_the_run_that_never_took_them(
    kind: Kind, stepping: Stepping, script: Script, last: Call
) -> None:
    engine = fresh(kind, stepping)
    fed: tuple[list[Row], list[Row]] = ([], [])
    kept: list[list[Row]] = []  # what is left of each call
    for call, taken in script:
        rows = rows_of(call, fed)
        engine.step(rows)
        kept.append(rows)
        for row in rows:
            fed[row.sequence].append(row)
        for sequence, wanted in enumerate(taken):
            count = min(wanted, len(fed[sequence]))
            engine.take_back(sequence, count)
            gone = [fed[sequence].pop() for _ in range(count)]
            kept = [[row for row in rows if row not in gone] for rows in kept]
    rows = rows_of(last, fed)
    logits = engine.logits(rows)

    straight = fresh(kind, stepping)
    for call_rows in filter(None, kept):
        straight.step(call_rows)
    expected = straight.logits(rows)

    assert_same(logits, expected, stepping)


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("kind", ["gated", "umt5"])
def test_several_rows_of_one_subsequence_at_once_equal_one_by_one_feeding(
    kind: Kind, stepping: Stepping
) -> None:
    """Beside another subsequence that runs at the same time, and beside another sequence."""
    known = [Row(0, Slot(2, 3 + place, 9 + place)) for place in range(5)]
    logits = []
    for calls in ([known], [[row] for row in known]):
        engine = fresh(kind, stepping)
        engine.step(rows_of({0: {1: 2, 2: 1}, 1: {1: 3}}, ([], [])))
        logits.append(torch.cat([engine.logits(rows) for rows in calls]))

    assert_same(*logits, stepping)


def taken_back(engine: Engine, step: Any, rows: list[Row]) -> Any:
    result = step(rows)
    for sequence in (0, 1):
        engine.take_back(sequence, sum(row.sequence == sequence for row in rows))
    return result


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("kind", ["t5", "gated"])
def test_probabilities_are_the_softmax_of_the_logits_and_tokens_those_of_a_plain_step(
    kind: Kind, stepping: Stepping
) -> None:
    engine = fresh(kind, stepping)
    engine.step(rows_of({0: {1: 2}, 1: {1: 1}}, ([], [])))
    rows = rows_of({0: {1: 1, 2: 2}, 1: {1: 1}}, ([Row(0, Slot(1, 0, 0))] * 2, [Row(1, Slot(1, 0, 0))]))

    logits, (tokens, probabilities), plain = (
        taken_back(engine, step, rows)
        for step in (engine.logits, engine.step_with_probabilities, engine.step)
    )

    assert tokens == plain == logits.float().argmax(dim=-1).tolist()
    assert probabilities == pytest.approx(logits.float().softmax(dim=-1).amax(dim=-1).tolist(), rel=1e-5)


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_more_rows_than_a_sequence_has_cannot_be_taken_back(stepping: Stepping) -> None:
    engine = fresh("t5", stepping)
    engine.step(rows_of({0: {1: 2}}, ([], [])))

    with pytest.raises(ValueError, match="3 rows"):
        engine.take_back(0, 3)
