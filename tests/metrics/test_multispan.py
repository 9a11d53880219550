"""EM and PM of several spans: every value here was computed by hand; the computation stands beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.metrics.multispan import (
    MultiSpanQA,
    normalise_answer,
    partial_match,
)
from tests.metrics.documents import scored, told

PUBLISHED = MultiSpanQA()


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
def test_answers_are_normalised_as_squad_does(text, normalised):
    assert normalise_answer(text) == normalised


@pytest.mark.parametrize(
    ("questions", "expected"),
    [
        # Micro over all questions. {a1, c1} for {a1, b1}: 1 hit of 2 and 2. Nothing
        # predicted for 1 answer: 0 of 1 and 1. P = R = F1 = 1/3 (the mean of the
        # questions' own would be 1/4)
        (
            ["a1; c1 | a1; b1", "| d1"],
            {"em_p": 100 / 3, "em_r": 100 / 3, "em_f1": 100 / 3},
        ),
        # Answers of a question are sets: "The cat" and "cat." are one, P = R = 1
        (["The cat; cat. | cat; CAT"], {"em_f1": 100.0, "pm_f1": 100.0}),
        # Both empty is one correct, one side empty is not; of both: 1 of max(0, 1) +
        # max(1, 1) = 2 on either side
        (["|"], dict.fromkeys(PUBLISHED.columns, 100.0)),
        (["| x"], dict.fromkeys(PUBLISHED.columns, 0.0)),
        (["x |"], dict.fromkeys(PUBLISHED.columns, 0.0)),
        (["|", "x |"], {"em_f1": 50.0, "pm_f1": 50.0}),
        # The longest common run of "abcd" and "abcd ef": ℓ = 4, p = 4/4, r = 4/7, F1 =
        # 2 · 4/7 / (11/7) = 8/11
        (
            ["abcd | abcd ef"],
            {"pm_p": 100.0, "pm_r": 400 / 7, "pm_f1": 800 / 11, "em_f1": 0.0},
        ),
        # Each prediction counts with its best precision, each answer with its best
        # recall. "red" for "red car" and "blue bike": p = 3/3; r = 3/7, and 1/9 for
        # "e". P = 1, R = (3/7 + 1/9) / 2 = 17/63, F1 = 17/40
        (
            ["red | red car; blue bike"],
            {"pm_p": 100.0, "pm_r": 1700 / 63, "pm_f1": 1700 / 40},
        ),
        # Partial match has the denominators of exact match. "ab" for "abcd": p = 1, r =
        # 1/2. Nothing for two answers: 0 of max(0, 1) and of 2. P = 1/(1 + 1), R =
        # (1/2)/(1 + 2), F1 = 2 · 1/2 · 1/6 / (4/6) = 1/4
        (["ab | abcd", "| x1; y1"], {"pm_p": 50.0, "pm_r": 100 / 6, "pm_f1": 25.0}),
        # Gold spans stay tokenised: "well known" against "wellknown". ℓ = 5 ("known"):
        # p = 5/9, r = 5/10
        (["well-known | well - known"], {"em_f1": 0.0, "pm_p": 500 / 9, "pm_r": 50.0}),
        # A prediction that normalises to nothing stays and costs precision: 1 hit of 2
        # predictions, of 1 answer. Alone it is as good as no answer, but no exact match
        # where there is none
        (["x1; the | x1"], {"em_p": 50.0, "em_r": 100.0, "pm_p": 50.0, "pm_r": 100.0}),
        (["the | x1"], dict.fromkeys(PUBLISHED.columns, 0.0)),
        (["the |"], {"em_f1": 0.0}),
    ],
)
def test_values_are_as_computed_by_hand(questions, expected):
    assert told(scored(PUBLISHED, *questions), expected) == pytest.approx(expected)


def test_a_run_is_contiguous_and_may_cross_words():
    # "xred carx" holds "red car" (7) of 9; "r e d" shares one letter or "d" alone with
    # it, no more than " " + 1
    assert partial_match({"red car"}, {"xred carx"}) == pytest.approx((7 / 9, 1.0))
    assert partial_match({"red car"}, {"r-e-d"}) == pytest.approx((1 / 5, 1 / 7))
    # a partial match where nothing is right and "" was predicted, as the published
    # script has it
    assert partial_match(set(), {""}) == (1.0, 1.0)


def test_difflibs_autojunk_hides_runs_in_predictions_of_200_characters_as_published():
    # "abab…": each of the two characters makes up far more than 1 % of 200, so none may
    # start a match. (But for one that begins both strings: difflib extends even an
    # empty match. So the answer begins with the other one.)
    answer, long, short = "ba" * 10, "ab" * 100, "ab" * 99 + "a"
    assert partial_match({answer}, {long}) == (0.0, 0.0)
    assert partial_match({answer}, {long}, autojunk=False) == (20 / 200, 1.0)
    assert partial_match({answer}, {short}) == (20 / 199, 1.0)
    assert partial_match({long[:20]}, {long}) == (20 / 200, 1.0)


@pytest.mark.parametrize(
    ("autojunk", "recall", "word"), [(True, 0.0, "yes"), (False, 100.0, "no")]
)
def test_the_flag_that_turns_autojunk_off_reaches_the_score_and_the_signature(
    autojunk, recall, word
):
    scores = scored(MultiSpanQA(autojunk=autojunk), f"{'ab' * 100} | {'ba' * 10}")
    assert scores.values["pm_r"] == recall
    assert (
        f"multispanqa|norm:squad|avg:micro|autojunk:{word}|python:"
        in scores.measure.signature
    )


_answers = st.lists(
    st.sampled_from(["cat", "the cat", "cat dog", "The", "a.", "dog!"]), max_size=4
)
_question = st.tuples(_answers, _answers).map(
    lambda pair: " | ".join(map("; ".join, pair))
)


@given(st.lists(_question, min_size=1, max_size=4))
def test_values_are_per_cents_and_partial_match_is_no_lower_than_exact_match(questions):
    values = scored(PUBLISHED, *questions).values
    assert all(
        value is not None and 0.0 <= value <= 100.0 + 1e-9 for value in values.values()
    )
    if not any(nothing in "; ".join(questions) for nothing in ("The", "a.")):
        assert values["pm_p"] >= values["em_p"] - 1e-9  # type: ignore[operator]
        assert values["pm_r"] >= values["em_r"] - 1e-9  # type: ignore[operator]
