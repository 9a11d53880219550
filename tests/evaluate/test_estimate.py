import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.evaluate.advice import Estimate, doubt, estimate
from pipedec_cli.pipeline.grid import Limits


def test_steps_are_those_of_the_papers_second_figure():
    (entry,) = estimate([5], [[3, 2]], Limits(), delays=[1])
    assert (entry.pipelined_steps, entry.sequential_steps) == (4, 6)
    assert entry.ratio == 1.5
    assert entry.truncated == 0


def test_steps_are_averaged_and_cut_targets_are_counted():
    first, second = estimate([3, 9], [[3], [9]], Limits(time_max=5), delays=[1, 2])
    assert first.targets == second.targets == 2
    assert first.sequential_steps == 7
    assert first.truncated == 0.5


def test_a_target_that_would_be_cut_counts_with_all_its_steps():
    (entry,) = estimate([60], [[60]], Limits(time_max=5), delays=[1])
    assert entry.pipelined_steps == 61
    assert entry.truncated == 1


@given(st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_single_delay_costs_at_least_the_longest_subsequence(parts):
    for entry in estimate([sum(lengths) for lengths in parts], parts, Limits()):
        assert entry.pipelined_steps >= sum(max(lengths) + 1 for lengths in parts) / len(parts)


@pytest.mark.parametrize(
    ("subsequences", "ratio", "doubtful"),
    [(1.4, 1.2, True), (2.0, 1.9, True), (6.0, 1.1, True), (6.0, 3.0, False)],
)
def test_a_method_that_will_not_help_is_doubted_with_the_number(subsequences, ratio, doubtful):
    why = doubt(subsequences, [Estimate(1, 10, 10 * ratio, 10, 0), Estimate(2, 10, 10, 10, 0)])
    assert (why is not None) == doubtful
    if why:
        assert f"{subsequences:.1f} subsequences" in why
        assert f"{ratio:.1f}" in why


def test_no_targets_save_nothing():
    assert doubt(0, estimate([], [], Limits())) is not None
