"""EM and PM of several spans: every value here was computed by hand; the computation stands beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.evaluate.metrics.measure import Scores, ScoringItem, score
from pipedec_cli.evaluate.metrics.multispan import MultiSpanQA, normalise_answer, partial_match


def question(predicted: list[str], right: list[str], identifier: str = "1") -> ScoringItem:
    return ScoringItem(identifier, "; ".join(predicted), tuple(predicted), gold=tuple(right))


def scored(*items: ScoringItem, autojunk: bool = True) -> Scores:
    return score(items, MultiSpanQA(autojunk=autojunk))


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("The Penis", "penis"),
        ("An  apple, a pear\tand the plum!", "apple pear and plum"),
        ("well - known", "well known"),
        ("well-known", "wellknown"),
        ("U.S.A.", "usa"),
        ("Theatre", "theatre"),
        ("l’été «cher»", "l’été «cher»"),
        ("the", ""),
        ("...", ""),
    ],
)
def test_answers_are_normalised_as_squad_does(text: str, normalised: str) -> None:
    assert normalise_answer(text) == normalised


def test_exact_match_is_micro_over_all_questions() -> None:
    # Question 1: {a1, b1} against {a1, c1}: 1 hit of 2 and 2. Question 2: nothing predicted for 1 answer: 0 of 1 and 1.
    # P = 1/3, R = 1/3, F1 = 1/3 (the mean of the questions' own would be 1/4)
    values = scored(question(["a1", "c1"], ["a1", "b1"], "1"), question([], ["d1"], "2")).values
    assert values["em_p"] == pytest.approx(100 / 3)
    assert values["em_r"] == pytest.approx(100 / 3)
    assert values["em_f1"] == pytest.approx(100 / 3)


def test_answers_of_a_question_are_sets() -> None:
    # "The cat" and "cat." are one answer: P = R = 1
    values = scored(question(["The cat", "cat."], ["cat", "CAT"])).values
    assert values["em_f1"] == 100.0
    assert values["pm_f1"] == 100.0


def test_both_empty_is_one_correct_and_one_side_empty_none() -> None:
    assert set(scored(question([], [])).values.values()) == {100.0}
    assert set(scored(question([], ["x"])).values.values()) == {0.0}
    assert set(scored(question(["x"], [])).values.values()) == {0.0}
    # with both: 1 of max(0, 1) + max(1, 1) = 2 on either side
    both = scored(question([], [], "1"), question(["x"], [], "2")).values
    assert both["em_f1"] == pytest.approx(50.0)
    assert both["pm_f1"] == pytest.approx(50.0)


def test_partial_match_takes_the_longest_common_run_of_characters() -> None:
    # "abcd" in "abcd ef": ℓ = 4, p = 4/4, r = 4/7, F1 = 2 · 4/7 / (11/7) = 8/11
    values = scored(question(["abcd"], ["abcd ef"])).values
    assert values["pm_p"] == 100.0
    assert values["pm_r"] == pytest.approx(400 / 7)
    assert values["pm_f1"] == pytest.approx(800 / 11)
    assert values["em_f1"] == 0.0


def test_a_run_is_contiguous_and_may_cross_words() -> None:
    # "xred carx" holds "red car" (7) of 9; "r e d" shares one letter or "d" alone with it, no more than " " + 1
    assert partial_match({"red car"}, {"xred carx"}) == pytest.approx((7 / 9, 1.0))
    assert partial_match({"red car"}, {"r-e-d"}) == pytest.approx((1 / 5, 1 / 7))


def test_each_prediction_counts_with_its_best_precision_and_each_answer_with_its_best_recall() -> None:
    # One prediction "red", answers "red car" and "blue bike":
    # p: 3/3 with "red car". r: 3/7 for "red car"; "e" alone in "blue bike": 1/9.
    # P = 1/1, R = (3/7 + 1/9) / 2 = 17/63, F1 = 2 · 17/63 / (80/63) = 17/40
    values = scored(question(["red"], ["red car", "blue bike"])).values
    assert values["pm_p"] == 100.0
    assert values["pm_r"] == pytest.approx(100 * 17 / 63)
    assert values["pm_f1"] == pytest.approx(100 * 17 / 40)


def test_partial_match_sums_have_the_denominators_of_exact_match() -> None:
    # Question 1: "ab" for "abcd": p = 1, r = 1/2. Question 2: nothing for "x1" and "y1": 0 of max(0, 1) and of 2.
    # P = 1/(1 + 1), R = (1/2)/(1 + 2), F1 = 2 · 1/2 · 1/6 / (4/6) = 1/4
    values = scored(question(["ab"], ["abcd"], "1"), question([], ["x1", "y1"], "2")).values
    assert values["pm_p"] == pytest.approx(50.0)
    assert values["pm_r"] == pytest.approx(100 / 6)
    assert values["pm_f1"] == pytest.approx(25.0)


def test_gold_spans_are_kept_tokenised_so_a_detokenised_prediction_is_no_exact_match() -> None:
    # "well - known" is "well known" once punctuation is deleted, "well-known" is "wellknown"
    values = scored(question(["well-known"], ["well - known"])).values
    assert values["em_f1"] == 0.0
    # ℓ = 5 ("known"): p = 5/9, r = 5/10
    assert values["pm_p"] == pytest.approx(500 / 9)
    assert values["pm_r"] == pytest.approx(50.0)


def test_a_prediction_that_normalises_to_nothing_stays_and_costs_precision() -> None:
    # {"x1", ""} against {"x1"}: 1 hit of 2 predictions, of 1 answer
    values = scored(question(["x1", "the"], ["x1"])).values
    assert values["em_p"] == 50.0
    assert values["em_r"] == 100.0
    assert values["pm_p"] == 50.0
    assert values["pm_r"] == 100.0
    # alone it is as good as no answer, and still 1 in the denominator of precision
    assert set(scored(question(["the"], ["x1"])).values.values()) == {0.0}
    # a question without an answer, predicted as "": no exact match; a partial one, as the published script has it
    assert partial_match(set(), {""}) == (1.0, 1.0)
    assert scored(question(["the"], [])).values["em_f1"] == 0.0


def test_difflibs_autojunk_hides_runs_in_predictions_of_200_characters_as_published() -> None:
    # "abab…": each of the two characters makes up far more than 1 % of 200, so none may start a match. (But for one
    # that begins both strings: difflib extends even an empty match. So the answer begins with the other one.)
    answer, long, short = "ba" * 10, "ab" * 100, "ab" * 99 + "a"
    assert partial_match({answer}, {long}) == (0.0, 0.0)
    assert partial_match({answer}, {long}, autojunk=False) == (20 / 200, 1.0)
    assert partial_match({answer}, {short}) == (20 / 199, 1.0)
    assert partial_match({long[:20]}, {long}) == (20 / 200, 1.0)


def test_the_flag_that_turns_autojunk_off_reaches_the_score_and_the_signature() -> None:
    hidden = question(["ab" * 100], ["ba" * 10])
    assert scored(hidden).values["pm_r"] == 0.0
    assert scored(hidden, autojunk=False).values["pm_r"] == 100.0
    assert "|autojunk:yes|" in MultiSpanQA().signature
    assert "|autojunk:no|" in MultiSpanQA(autojunk=False).signature


def test_a_string_for_a_list_is_an_error_and_not_a_list_of_letters() -> None:
    with pytest.raises(TypeError, match="segments must be a list of strings, not the string 'cat'"):
        ScoringItem("1", "cat", "cat", gold=("c", "a", "t"))  # type: ignore[arg-type]


def test_unknown_answers_are_an_error_and_not_an_empty_set() -> None:
    with pytest.raises(ValueError, match="no answers"):
        scored(ScoringItem("1", "cat", ("cat",)))


_answers = st.lists(st.sampled_from(["cat", "the cat", "cat dog", "The", "a.", "dog!"]), max_size=4)


@given(st.lists(st.tuples(_answers, _answers), min_size=1, max_size=4))
def test_values_are_per_cents_and_partial_match_is_no_lower_than_exact_match(
    questions: list[tuple[list[str], list[str]]],
) -> None:
    values = scored(*(question(*pair, str(place)) for place, pair in enumerate(questions))).values
    assert all(value is not None and 0.0 <= value <= 100.0 + 1e-9 for value in values.values())
    if not any(
        "" in map(normalise_answer, guesses) or "" in map(normalise_answer, right)
        for guesses, right in questions
    ):
        assert values["pm_p"] >= values["em_p"] - 1e-9  # type: ignore[operator]
        assert values["pm_r"] >= values["em_r"] - 1e-9  # type: ignore[operator]
