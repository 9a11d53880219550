"""The grid by example: figure 2, both exploration rules, and the mend."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Explore, Grid, Limits, Slot, Step, replay
from pipedec_cli.pipeline.schedule import Drawn, Fixed, Schedule, Subsequence, Waiting, Whole
from tests.fakes import BOS, EOS
from tests.pipeline.driving import GARBAGE, NEVER, drive, rows_of

A, B, C, D, E, SEP = range(2, 8)
ABC, DE = [A, B, C], [D, E]


def made(steps: list[Step]) -> list[list[tuple[int, int]]]:
    """(subsequence, token) of what each call made."""
    return [[(slot.subsequence, slot.token) for slot in step.made] for step in steps]


def fed(steps: list[Step]) -> list[list[tuple[int, int, int]]]:
    """(subsequence, time, token) of what went into each call."""
    return [[(slot.subsequence, slot.time, slot.token) for slot in step.fed] for step in steps]


# --- Figure 2 ---------------------------------------------------------------------------------------------------------


def test_figure_2_takes_4_steps_and_makes_1_2_2_tokens_at_the_first_three() -> None:
    grid, steps = drive([ABC, DE], Fixed(1))

    assert made(steps) == [
        [(1, A)],
        [(1, B), (2, D)],
        [(1, C), (2, E), (3, EOS)],
        [(1, EOS), (2, EOS), (4, EOS)],
    ]
    assert [sum(slot.token != EOS for slot in step.made) for step in steps] == [1, 2, 2, 0]
    assert (grid.steps, grid.tokens, grid.truncated) == (4, 5, None)


def test_figure_2_feeds_every_token_once_the_eos_of_the_failed_exploration_too() -> None:
    _, steps = drive([ABC, DE], Fixed(1))

    assert fed(steps) == [
        [(1, 0, BOS)],
        [(1, 1, A), (2, 1, BOS)],
        [(1, 2, B), (2, 2, D), (3, 2, BOS)],
        [(1, 3, C), (2, 3, E), (3, 3, EOS), (4, 3, BOS)],
    ]
    assert [slot.answers for slot in steps[3].fed] == [True, True, False, True]


def test_figure_2_takes_the_sequential_decoder_7_steps() -> None:
    grid, steps = drive([[*ABC, SEP, *DE]], Whole(), SEQUENTIAL_LIMITS)

    assert grid.steps == len(steps) == 7
    assert rows_of(grid) == [(0, [*ABC, SEP, *DE, EOS])]
    assert grid.truncated is None


def test_steps_and_times_are_counted_from_1() -> None:
    _, steps = drive([ABC, DE], Fixed(1))

    assert [(step.number, step.time) for step in steps] == [(1, 1), (2, 2), (3, 3), (4, 4)]


# --- Places -----------------------------------------------------------------------------------------------------------


@given(st.sampled_from([1, 2, 3]), st.lists(st.integers(0, 7), max_size=6))
def test_slot_and_time_are_a_bijection(delay: int, lengths: list[int]) -> None:
    grid, steps = drive([[A] * m for m in lengths], Fixed(delay))

    slots = [(slot.subsequence, slot.time) for step in steps for slot in step.made]
    tokens = [(i, j) for i, row in enumerate(grid.subsequences, 1) for j in range(1, len(row.tokens) + 1)]

    assert sorted(slots) == sorted((i, (i - 1) * delay + j) for i, j in tokens)
    assert sorted(tokens) == sorted((i, t - (i - 1) * delay) for i, t in slots)
    assert len(set(slots)) == len(slots)


class Pairs:
    """Two subsequences at a time, every three time-steps: a schedule that is none of the usual ones."""

    name = "pairs"

    def next_start(self, rows: Sequence[Subsequence]) -> int:
        return rows[-1].start if len(rows) % 2 else rows[-1].start + 3


def test_subsequences_may_start_at_the_same_time() -> None:
    grid, steps = drive([ABC, DE, [A]], Pairs())

    assert rows_of(grid) == [(0, [*ABC, EOS]), (0, [*DE, EOS]), (3, [A, EOS]), (3, [EOS])]
    assert fed(steps)[0] == [(1, 0, BOS), (2, 0, BOS)]
    assert fed(steps)[3] == [(1, 3, C), (2, 3, EOS), (3, 3, BOS), (4, 3, BOS)]


# --- Exploration ------------------------------------------------------------------------------------------------------

LONG = [A] * 6


@pytest.mark.parametrize(
    ("explore", "rows"),
    [
        (
            "retry",
            [(0, [*LONG, EOS]), (1, [EOS]), (2, [EOS]), (3, [D, EOS]), (4, [EOS]), (5, [EOS]), (6, [EOS])],
        ),
        ("once", [(0, [*LONG, EOS]), (1, [EOS])]),
    ],
)
def test_retry_explores_again_after_an_empty_subsequence_and_once_does_not(
    explore: Explore, rows: list[tuple[int, list[int]]]
) -> None:
    grid, _ = drive([LONG, [], [], [D]], Fixed(1), explore=explore)

    assert rows_of(grid) == rows
    assert (grid.steps, grid.truncated) == (7, None)


def test_once_lets_the_live_ones_finish() -> None:
    grid, _ = drive([LONG, [D, D, D, D], []], Fixed(1), explore="once")

    assert rows_of(grid) == [(0, [*LONG, EOS]), (1, [D, D, D, D, EOS]), (2, [EOS])]


@pytest.mark.parametrize("explore", ["retry", "once"])
def test_an_empty_text_takes_one_step(explore: Explore) -> None:
    grid, _ = drive([], Fixed(1), explore=explore)

    assert rows_of(grid) == [(0, [EOS])]
    assert (grid.steps, grid.tokens, grid.truncated) == (1, 0, None)


def test_retry_at_delay_1_lets_one_long_first_sentence_use_up_all_20() -> None:
    long = [A] * 25

    grid, _ = drive([long, *[[]] * 19, DE], Fixed(1))

    assert len(grid.subsequences) == 20
    assert [row.empty for row in grid.subsequences] == [False] + [True] * 19
    assert grid.steps == 26
    assert (
        grid.truncated is None
    )  # the last established was empty, so that the method's text counts nothing as cut


def test_an_empty_newest_one_does_not_end_the_decoding_while_another_is_live() -> None:
    grid, _ = drive([[A] * 3, [], DE], Fixed(2))

    # Subsequence 1 ends at time 4, subsequence 2 came out empty at time 3: all complete and the newest empty.
    assert rows_of(grid) == [(0, [A, A, A, EOS]), (2, [EOS])]
    grid, _ = drive([[A] * 4, [], DE], Fixed(2))
    # One token more, and an exploration falls due while subsequence 1 is live.
    assert rows_of(grid) == [(0, [A, A, A, A, EOS]), (2, [EOS]), (4, [D, E, EOS]), (6, [EOS])]


# --- The mend ---------------------------------------------------------------------------------------------------------


def test_a_short_first_subsequence_does_not_end_the_text_and_the_clock_runs_on_without_a_call() -> None:
    grid, steps = drive([[A], DE], Fixed(5))

    assert rows_of(grid) == [(0, [A, EOS]), (5, [D, E, EOS]), (10, [EOS])]
    assert [step.time for step in steps] == [1, 2, 6, 7, 8, 11]
    assert grid.steps == 6


def test_the_eos_before_a_pause_is_fed_once_with_the_next_call() -> None:
    _, steps = drive([[A], DE], Fixed(5))

    assert fed(steps)[2] == [(1, 2, EOS), (2, 5, BOS)]
    assert [slot.answers for slot in steps[2].fed] == [False, True]
    assert fed(steps)[3] == [(2, 6, D)]


def test_what_the_model_says_to_an_ended_row_turns_up_nowhere() -> None:
    grid, steps = drive([[A], [B], [C, C]], Fixed(2))

    assert GARBAGE not in [token for row in grid.subsequences for token in row.tokens]
    assert GARBAGE not in [slot.token for step in steps for slot in (*step.fed, *step.made)]


def test_the_last_eos_before_the_end_is_not_fed() -> None:
    _, steps = drive([[A]], Fixed(1))

    # t = 1: A.  t = 2: <eos>, and an exploration that fails: all is complete, and nobody is left to see them.
    assert fed(steps) == [[(1, 0, BOS)], [(1, 1, A), (2, 1, BOS)]]


# --- The sequential schedule ------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 7), max_size=6))
def test_the_sequential_schedule_takes_a_step_for_every_training_prediction(lengths: list[int]) -> None:
    grid, steps = drive([[A] * m for m in lengths], Waiting(), SEQUENTIAL_LIMITS)

    assert grid.steps == sum(m + 1 for m in lengths) + 1
    assert all(len(step.made) == 1 for step in steps)
    assert grid.truncated is None


def test_the_sequential_schedule_feeds_an_eos_together_with_the_next_bos() -> None:
    _, steps = drive([[A], [B]], Waiting(), SEQUENTIAL_LIMITS)

    assert fed(steps) == [
        [(1, 0, BOS)],
        [(1, 1, A)],
        [(1, 2, EOS), (2, 2, BOS)],
        [(2, 3, B)],
        [(2, 4, EOS), (3, 4, BOS)],
    ]


def test_a_drawn_schedule_that_never_starts_early_is_the_sequential_one() -> None:
    texts = [ABC, DE, [A]]

    drawn, drawn_steps = drive(texts, Drawn((NEVER,)))
    sequential, sequential_steps = drive(texts, Waiting())

    assert rows_of(drawn) == rows_of(sequential)
    assert drawn_steps == sequential_steps


# --- Rows as ids ------------------------------------------------------------------------------------------------------


def test_bos_made_by_the_model_is_a_token_like_any_other() -> None:
    # <bos> is T5's pad; only the place of a token says what it is.
    grid, _ = drive([[A, BOS, B]], Fixed(2))

    assert rows_of(grid) == [(0, [A, BOS, B, EOS]), (2, [EOS])]
    assert grid.subsequences[0].text_tokens == [A, BOS, B]
    assert grid.tokens == 3


def test_a_row_knows_its_end_its_text_and_whether_it_is_empty() -> None:
    grid, _ = drive([LONG, DE], Fixed(1), Limits(time_max=5))

    long, short, empty = grid.subsequences[:3]
    assert (long.end, long.text_tokens, long.empty) == (None, LONG[:5], False)
    assert (short.end, short.text_tokens, short.empty) == (4, DE, False)
    assert (empty.end, empty.text_tokens, empty.empty) == (3, [], True)


def test_commit_refuses_another_number_of_answers_than_rows() -> None:
    grid = Grid(Fixed(1), Limits(), "retry", bos=BOS, eos=EOS)
    assert grid.plan() == (Slot(1, 0, BOS),)

    with pytest.raises(ValueError, match=r"\b2\b"):
        grid.commit([A, B])


# --- Replay -----------------------------------------------------------------------------------------------------------


def test_replay_counts_figure_2_without_a_model() -> None:
    result = replay([3, 2], Fixed(1))

    assert (result.steps, result.tokens, result.truncated) == (4, 5, None)


schedules = st.one_of(
    st.builds(Fixed, st.integers(1, 4)),
    st.just(Waiting()),
    st.builds(Drawn, st.lists(st.sampled_from([1, 2, 5, NEVER]), min_size=1, max_size=4).map(tuple)),
)


@given(
    st.lists(st.integers(1, 8), max_size=7),
    schedules,
    st.builds(Limits, time_max=st.integers(1, 30), sub_max=st.integers(1, 8)),
    st.sampled_from(["retry", "once"]),
)
def test_replay_counts_what_the_grid_does(
    lengths: list[int], schedule: Schedule, limits: Limits, explore: Explore
) -> None:
    grid, _ = drive([[A] * m for m in lengths], schedule, limits, explore)

    result = replay(lengths, schedule, limits, explore)

    assert (result.steps, result.tokens, result.truncated) == (grid.steps, grid.tokens, grid.truncated)


def test_replay_takes_the_text_as_one_for_the_sequential_decoder() -> None:
    result = replay([4, 2], Whole(), SEQUENTIAL_LIMITS)

    assert (result.steps, result.tokens, result.truncated) == (7, 6, None)
