"""The grid against the oracle: any script, any schedule, any limits, both exploration rules."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Explore, Limits
from pipedec_cli.pipeline.schedule import Drawn, Fixed, Schedule, Waiting, Whole
from tests.fakes import VOCABULARY, Texts
from tests.pipeline.driving import NEVER, ask_oracle, drive, fed_and_made, rows_of, scripted_next_logits

# Tokens 2 and up: <eos> is where a text ends. <bos> (0) may be made like any other token.
texts = st.lists(st.lists(st.sampled_from([0, *range(2, VOCABULARY)]), max_size=6), max_size=8)
explorations = st.sampled_from(["retry", "once"])
schedules = st.one_of(
    st.builds(Fixed, st.integers(1, 9)),
    st.just(Waiting()),
    st.builds(Drawn, st.lists(st.sampled_from([1, 2, 3, 4, 6, NEVER]), min_size=1, max_size=5).map(tuple)),
)
time_limits = st.builds(Limits, time_max=st.integers(1, 20), sub_max=st.one_of(st.none(), st.integers(1, 6)))
token_limits = st.builds(Limits, time_max=st.none(), sub_max=st.none(), max_tokens=st.integers(1, 12))


def assert_equal(texts: Texts, schedule: Schedule, limits: Limits, explore: Explore) -> None:
    grid, steps = drive(texts, schedule, limits, explore)
    oracle = ask_oracle(scripted_next_logits(texts), schedule, limits, explore)

    assert rows_of(grid) == oracle.rows
    assert fed_and_made(steps) == [(call.time, call.fed, call.made) for call in oracle.calls]
    assert grid.steps == oracle.steps
    assert grid.truncated == oracle.truncated


@given(texts, schedules, time_limits, explorations)
@example([[2]], Fixed(9), Limits(time_max=5), "retry")
def test_the_grid_equals_the_oracle(
    texts: Texts, schedule: Schedule, limits: Limits, explore: Explore
) -> None:
    assert_equal(texts, schedule, limits, explore)


@given(texts, st.sampled_from([Whole(), Waiting()]), token_limits, explorations)
def test_the_sequential_decoders_equal_the_oracle(
    texts: Texts, schedule: Schedule, limits: Limits, explore: Explore
) -> None:
    assert_equal(texts, schedule, limits, explore)


@pytest.mark.parametrize("explore", ["retry", "once"])
@pytest.mark.parametrize("delay", [1, 2, 3])
def test_the_grid_equals_the_oracle_under_the_papers_limits(delay: int, explore: Explore) -> None:
    texts = [[5] * 30, [], [2, 3], [], *[[6] * m for m in range(12, 0, -1)], [], [7] * 60]

    assert_equal(texts, Fixed(delay), Limits(), explore)


def test_the_sequential_schedule_equals_the_oracle_under_its_usual_limits() -> None:
    assert_equal([[5] * 100, [2, 3], [], [7]], Waiting(), SEQUENTIAL_LIMITS, "retry")


@given(texts, schedules, time_limits, explorations)
def test_every_token_is_fed_before_any_that_sees_it_answers_and_only_once(
    texts: Texts, schedule: Schedule, limits: Limits, explore: Explore
) -> None:
    _, steps = drive(texts, schedule, limits, explore)

    fed: list[tuple[int, int]] = []
    for step in steps:
        fed += [(slot.subsequence, slot.time) for slot in step.fed]
        made_before = {
            (slot.subsequence, slot.time)
            for earlier in steps
            for slot in earlier.made
            if slot.time < step.time
        }
        assert made_before <= set(fed)
        assert all(slot.time < step.time for slot in step.fed)
    assert len(set(fed)) == len(fed)
