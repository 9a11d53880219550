"""What the probabilities of choices are worth, against figures computed by hand."""

import pytest

from pipedec_cli.metrics.choices import Decided, calibration_error, choice_scores

SURE = Decided({"a": 0.9, "b": 0.1}, "a")
WRONG = Decided({"a": 0.8, "b": 0.2}, "b")
LACKING = Decided({"a": 0.6, "": 0.4}, "")


def test_figures_are_those_computed_by_hand():
    scores = choice_scores([SURE, SURE, WRONG, LACKING])
    assert (scores.values, scores.accuracy) == (4, 50.0)
    # a: 2 right of 4 said and 2 wanted; b and "": none
    assert scores.macro_f1 == pytest.approx(100 * (2 * 2 / 6) / 3)
    assert scores.ece == pytest.approx(100 * (2 * 0.1 + 0.8 + 0.6) / 4)
    assert scores.brier == pytest.approx((2 * 0.02 + 1.28 + 0.72) / 4)


def test_a_right_answer_that_is_no_option_counts_as_wrong():
    scores = choice_scores([Decided({"a": 1.0}, "c")])
    assert (scores.accuracy, scores.brier) == (0.0, 2.0)


def test_a_temperature_changes_how_sure_the_best_answer_is_and_nothing_else():
    warmer = WRONG.at(2.0)
    assert warmer.best == WRONG.best
    assert warmer.probabilities == pytest.approx({"a": 2 / 3, "b": 1 / 3})
    assert WRONG.at(1.0).probabilities == pytest.approx(WRONG.probabilities)


def test_without_decisions_there_is_no_error():
    assert calibration_error([]) == 0.0
