"""The grid against the oracle: any script, any schedule, any limits, all exploration rules; and the paper's figure 2."""

from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Limits, Method, Slot, replay
from pipedec_cli.pipeline.schedule import Fixed, RandomStarts, Waiting, Whole
from tests.fakes import (
    BOS,
    EOS,
    NEVER,
    VOCABULARY,
    ask_oracle,
    drive,
    fed_and_made,
    outcome_of,
    scripted_next_logits,
)
from tests.model.engines import KINDS, SOURCES, small_model
from tests.oracle import (
    OracleSchedule,
    Placed,
    next_logits_of,
    oracle_decode,
    oracle_logits,
)

A, B, C, D, E = range(2, 7)
ABC = [A, B, C]
DE = [D, E]
LONG = [A] * 6
PAPER = [[5] * 30, [], [2, 3], [], *[[6] * m for m in range(12, 0, -1)], [], [7] * 60]

# Tokens 2 and up: <eos> is where a text ends. <bos> (0) may be made like any other
# token.
texts = st.lists(
    st.lists(st.sampled_from([BOS, *range(2, VOCABULARY)]), max_size=6), max_size=8
)
lengths = st.lists(st.integers(1, 7), max_size=7)
#: What follows an empty row, and whether a text ends where it repeats itself.
RETRY = ("retry", False)
STOP = ("stop", False)
NO_REPEAT = ("stop", True)
rules = st.tuples(st.sampled_from(["retry", "stop"]), st.booleans())
distances = st.lists(
    st.sampled_from([1, 2, 3, 4, 6, NEVER]), min_size=1, max_size=5
).map(tuple)
usual = st.one_of(st.builds(Fixed, st.integers(1, 9)), st.just(Waiting()))
schedules = st.one_of(usual, st.builds(RandomStarts, distances))
time_limits = st.builds(
    Limits, time_max=st.integers(1, 20), sub_max=st.one_of(st.none(), st.integers(1, 6))
)
token_limits = st.builds(
    Limits, time_max=st.none(), sub_max=st.none(), max_tokens=st.integers(1, 12)
)


def fed(steps):
    """(subsequence, time, token) of what went into each call."""
    return [
        [(slot.subsequence, slot.time, slot.token) for slot in step.fed]
        for step in steps
    ]


def assert_oracles(texts, schedule, limits, *rule):
    """Rows that do not answer are told garbage, which must turn up nowhere."""
    grid, steps = drive(texts, schedule, limits, *rule)
    oracle = ask_oracle(scripted_next_logits(texts), schedule, limits, *rule)
    assert outcome_of(grid) == outcome_of(oracle)
    assert fed_and_made(steps) == [
        (call.time, call.fed, call.made) for call in oracle.calls
    ]


@given(texts, schedules, time_limits, rules)
@example([[2]], Fixed(9), Limits(time_max=5), RETRY)
@example(
    [[A], DE], Fixed(5), Limits(), RETRY
)  # the clock runs on: a short first one does not end the text
@example([], Fixed(1), Limits(), STOP)  # an empty text takes one step
@example(
    [LONG, [], [], [D]], Fixed(1), Limits(), RETRY
)  # explores again after an empty subsequence
@example([LONG, [], [], [D]], Fixed(1), Limits(), STOP)  # and does not
@example([LONG, [D] * 4, []], Fixed(1), Limits(), STOP)  # the live ones finish
@example(
    [[A] * 3, [], DE], Fixed(2), Limits(), RETRY
)  # all are complete before the next is due
@example([[A] * 4, [], DE], Fixed(2), Limits(), RETRY)  # and one token later it is
@example(
    [[A, BOS, B]], Fixed(2), Limits(), RETRY
)  # <bos> made by the model is a token like any other
@example(
    [ABC, DE, [A]], RandomStarts((NEVER,)), Limits(), RETRY
)  # never early: the schedule that waits
@example([LONG], Fixed(1), Limits(time_max=6), RETRY)  # <eos> would stand at time 7
@example([LONG[1:]], Fixed(1), Limits(time_max=6), RETRY)  # <eos> stands at time_max
@example([[A] * 5, ABC], Fixed(3), Limits(time_max=6), RETRY)
@example(
    [LONG, DE, DE], Fixed(3), Limits(time_max=3), RETRY
)  # none is established without room for a token
@example([ABC, DE, [A]], Fixed(1), Limits(sub_max=2), RETRY)  # cut by sub_max
@example(
    [ABC, DE], Fixed(1), Limits(sub_max=3), RETRY
)  # not cut: the last established was empty
@example(
    [LONG, DE], Fixed(1), Limits(time_max=5, sub_max=2), RETRY
)  # time_max rather than sub_max
@example([ABC, DE], Fixed(1), Limits(), RETRY)  # the paper's second figure
@example(PAPER, Fixed(1), Limits(), RETRY)  # under the paper's limits
@example(PAPER, Fixed(2), Limits(), STOP)
@example(PAPER, Fixed(3), Limits(), RETRY)
@example([ABC, DE, DE, [A]], Fixed(1), Limits(), NO_REPEAT)
@example([ABC, DE, [A], ABC, DE, LONG], Fixed(2), Limits(sub_max=5), NO_REPEAT)
@example([DE, LONG, ABC, DE, ABC, DE, [A], LONG], Fixed(1), Limits(), NO_REPEAT)
@example([LONG, DE, DE], Fixed(1), Limits(time_max=5), NO_REPEAT)
def test_the_grid_equals_the_oracle(texts, schedule, limits, rule):
    assert_oracles(texts, schedule, limits, *rule)


@given(texts, st.sampled_from([Whole(), Waiting()]), token_limits, rules)
@example([LONG], Whole(), Limits(None, None, 4), RETRY)
@example(
    [[A], [B], [C, C, C]], Waiting(), Limits(None, None, 4), RETRY
)  # over all, <eos> left out
@example([[A], [B], [C]], Waiting(), Limits(None, None, 4), RETRY)
@example([[5] * 100, [2, 3], [], [7]], Waiting(), SEQUENTIAL_LIMITS, RETRY)
def test_the_sequential_decoders_equal_the_oracle(texts, schedule, limits, rule):
    assert_oracles(texts, schedule, limits, *rule)


def test_a_text_that_repeats_itself_ends_where_it_begins_to_and_is_not_cut():
    round_and_round = [ABC, DE, [A], DE] * 9
    for delay, steps in ((1, 8), (2, 13)):
        grid, _ = drive(round_and_round, Fixed(delay), Limits(sub_max=8), *NO_REPEAT)
        texts = [row.text_tokens for row in grid.subsequences]
        assert texts == [ABC, DE, [A], DE]  # DE by itself may come twice
        assert (grid.truncated, grid.stopped_on_repeat, grid.steps) == (
            None,
            True,
            steps,
        )
        assert (
            drive(round_and_round, Fixed(delay), Limits(sub_max=8), "stop")[0].truncated
            == "sub_max"
        )
    grid, _ = drive(
        [LONG, DE, DE, DE], Fixed(1), Limits(), *NO_REPEAT
    )  # the first one is still live by then
    assert [row.text_tokens for row in grid.subsequences] == [
        LONG,
        DE,
    ] and grid.truncated is None


@given(texts, schedules, time_limits)
def test_a_text_stopped_on_repeat_is_a_beginning_of_the_other_and_the_same_without_repeats(
    texts, schedule, limits
):
    whole, _ = drive(texts, schedule, limits, *STOP)
    stopped, _ = drive(texts, schedule, limits, *NO_REPEAT)
    said = [row.tokens for row in whole.subsequences]
    kept = [row.tokens for row in stopped.subsequences]
    assert kept == said[: len(kept)]
    if len({*map(str, pairwise(said))}) == len(said) - 1 and all(
        one != two for one, two in pairwise(said)
    ):
        assert kept == said and stopped.truncated == whole.truncated


@given(lengths)
def test_the_schedule_that_waits_takes_a_step_for_every_training_prediction(lengths):
    grid, steps = drive([[A] * m for m in lengths], Waiting(), SEQUENTIAL_LIMITS)
    assert grid.steps == sum(m + 1 for m in lengths) + 1
    assert all(len(step.made) == 1 for step in steps)
    assert grid.truncated is None


def test_commit_refuses_another_number_of_answers_than_rows():
    grid = Method(Fixed(1), BOS, EOS).new_grid()
    assert grid.plan() == (Slot(1, 0, BOS),)
    with pytest.raises(ValueError, match=r"\b2\b"):
        grid.commit([A, B])


def test_limits_that_make_no_sense_are_refused():
    for name in ("time_max", "sub_max", "max_tokens"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            Limits(**{name: 0})
    with pytest.raises(ValueError, match="needs a bound"):
        Limits(time_max=None)


@pytest.mark.parametrize(
    ("texts", "sub_max", "schedule", "empty_rows", "expected"),
    [
        (
            ([A] * 25, *[[]] * 19, DE),
            20,
            Fixed(1),
            "retry",
            True,
        ),  # one long first sentence uses up all 20
        (
            (LONG, [], []),
            3,
            Fixed(1),
            "retry",
            True,
        ),  # the first is still being written when a fourth is due
        ((LONG, [], LONG), 3, Fixed(1), "retry", True),
        ((LONG, LONG, LONG), 3, Fixed(1), "retry", False),  # full, but with texts
        ((LONG, []), 20, Fixed(1), "retry", False),  # places were left
        (
            ([A], [A], []),
            3,
            Fixed(1),
            "retry",
            False,
        ),  # all had ended before another was due
        ((LONG, [], []), None, Fixed(1), "retry", False),
        ((LONG, [], []), 2, Fixed(1), "stop", False),
        ((LONG, [], []), 2, Waiting(), "retry", False),
        ((LONG, [], []), 1, Whole(), "retry", False),
    ],
)
def test_places_are_used_up_when_empty_ones_took_them_and_another_was_due(
    texts, sub_max, schedule, empty_rows, expected
):
    grid, _ = drive(texts, schedule, Limits(50, sub_max), empty_rows)
    assert grid.row_budget_exhausted is expected


@given(lengths, schedules, time_limits)
@example([3, 2], Fixed(1), Limits())
def test_replay_does_what_the_grid_does_without_a_model(lengths, schedule, limits):
    grid, _ = drive([[2] * m for m in lengths], schedule, limits)
    assert replay(lengths, schedule, limits) == grid


def test_the_sequential_decoder_is_not_cut_by_sub_max_and_replay_takes_its_text_as_one():
    grid, _ = drive([ABC], Whole(), Limits(sub_max=1))
    assert (grid.tokens, grid.truncated) == (3, None)
    grid = replay([4, 2], Whole(), SEQUENTIAL_LIMITS)
    assert (grid.steps, grid.tokens, grid.truncated) == (7, 6, None)


# --- The oracle itself, held to transformers where the two must agree
# ---------------------------------------------------


def test_the_oracle_draws_figure_2():
    result = ask_oracle(scripted_next_logits([ABC, DE]), Fixed(1))
    assert result.rows == [
        (0, [A, B, C, EOS]),
        (1, [D, E, EOS]),
        (2, [EOS]),
        (3, [EOS]),
    ]
    made = [[placed.token for placed in call.made] for call in result.calls]
    assert made == [[A], [B, D], [C, E, EOS], [EOS, EOS, EOS]]
    assert (result.steps, result.truncated, result.gap) == (4, None, 1.0)


def test_the_gap_is_that_of_the_closest_call():
    answers = iter([[0.0, 1.0, 5.0], [0.0, 4.0, 3.75]])
    result = oracle_decode(
        lambda grid, wanted: [next(answers)], OracleSchedule("whole"), bos=BOS, eos=EOS
    )
    assert result.rows == [(0, [A, EOS])]
    assert result.gap == 0.25


@pytest.mark.parametrize("kind", KINDS)
def test_one_subsequence_gets_the_logits_and_the_greedy_tokens_of_transformers(kind):
    model = small_model(kind)
    source = torch.tensor([SOURCES[0]])
    ids = torch.tensor([[0, 7, 7, 3, 20, 4, 9, 12, 30, 2, 0, 5, 6, 17, 39]])
    with torch.no_grad():
        expected = model(input_ids=source, decoder_input_ids=ids).logits[0]
    logits = oracle_logits(
        model,
        SOURCES[0],
        [Placed(1, time, int(token)) for time, token in enumerate(ids[0])],
    )
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    greedy = model.generate(source, do_sample=False, num_beams=1, max_new_tokens=12)
    result = ask_oracle(
        next_logits_of(model, SOURCES[0]), Whole(), Limits(None, None, 12)
    )
    assert [BOS, *result.subsequences[0].tokens] == greedy[0].tolist()
