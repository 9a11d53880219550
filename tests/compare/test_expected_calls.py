"""What is counted on the targets before anything is trained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.compare.expected_calls import Estimate, doubt, estimate, suggest
from pipedec_cli.pipeline.grid import Limits
from tests.words import same_words


@pytest.mark.parametrize(
    ("wholes", "parts", "limits", "found"),
    [
        ([5], [[3, 2]], Limits(), (1, 1, 6, 4, 0)),  # the paper's second figure
        (
            [3, 9],
            [[3], [9]],
            Limits(time_max=5),
            (1, 2, 7, 7, 0.5),
        ),  # averaged; the cut ones are counted
        (
            [60],
            [[60]],
            Limits(time_max=5),
            (1, 1, 61, 61, 1),
        ),  # one that would be cut has all its steps
    ],
)
def test_steps_are_estimated_by_replaying_targets(wholes, parts, limits, found):
    entry, other = estimate(wholes, parts, limits, delays=[1, 2])
    assert entry == Estimate(*found)
    assert entry.ratio == entry.sequential_steps / entry.pipelined_steps
    assert other.targets == entry.targets


@given(
    st.lists(
        st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=4
    )
)
def test_a_single_delay_costs_at_least_the_longest_subsequence(parts):
    for entry in estimate([sum(lengths) for lengths in parts], parts, Limits()):
        assert entry.pipelined_steps >= sum(
            max(lengths) + 1 for lengths in parts
        ) / len(parts)


def of_steps(*sequential):
    """Estimates of Δt = 1, 2, …, each of 10 steps."""
    return [
        Estimate(delay, 10, steps, 10, 0)
        for delay, steps in enumerate(sequential, start=1)
    ]


@pytest.mark.parametrize(
    ("subsequences", "ratio"), [(1.4, 1.2), (2.0, 1.9), (6.0, 1.1), (6.0, 3.0)]
)
def test_a_method_that_will_not_help_is_doubted_with_the_number(subsequences, ratio):
    """And one that will, is not."""
    same_words(doubt(subsequences, of_steps(10 * ratio, 10)))


def test_a_delay_with_more_steps_than_the_sequential_decoder_is_named():
    estimates = of_steps(15, 6, 5)
    same_words(suggest(9, estimates))
    same_words(doubt(6.0, estimates))


def test_the_usual_delay_is_advised_first_where_it_keeps_most_of_the_gain():
    same_words(suggest(9, of_steps(40, 36, 33)))


def test_no_targets_save_nothing():
    same_words(doubt(0, estimate([], [], Limits())))
