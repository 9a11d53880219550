"""ROUGE: hand-computed values, and equality with the package it is said to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.evaluate.metrics.measure import Scores, ScoringItem, score
from pipedec_cli.evaluate.metrics.rouge import Rouge, is_scorable


def item(prediction: str, *references: str, **more: object) -> ScoringItem:
    segments = more.pop("segments", tuple(prediction.split("\n")))
    return ScoringItem("1", prediction, segments, references=references, **more)  # type: ignore[arg-type]


def values(*items: ScoringItem, stemmer: bool = True) -> Scores:
    return score(items, Rouge(stemmer=stemmer))


def test_f1_of_each_type_is_as_computed_by_hand() -> None:
    # "the cat sat" against "the cat ran fast":
    # ROUGE-1: 2 words in common, P = 2/3, R = 2/4, F1 = 2 · 2/3 · 1/2 / (7/6) = 4/7
    # ROUGE-2: "the cat" of 2 and 3 pairs, P = 1/2, R = 1/3, F1 = 2 · 1/2 · 1/3 / (5/6) = 2/5
    # ROUGE-L: "the cat" is the longest common subsequence, as ROUGE-1
    scores = values(item("the cat sat", "the cat ran fast"))
    assert scores.values == pytest.approx(
        {"rouge1": 400 / 7, "rouge2": 40.0, "rougeL": 400 / 7, "rougeLsum": 400 / 7}
    )


def test_corpus_score_is_the_mean_of_the_examples_f1() -> None:
    one = ScoringItem("a", "red", ("red",), references=("red",))
    two = ScoringItem("b", "red", ("red",), references=("blue",))
    scores = values(one, two)
    assert scores.values["rouge1"] == 50.0
    assert scores.examples["a"]["rouge1"] == 100.0
    assert scores.examples["b"]["rouge1"] == 0.0


def test_stemming_is_a_setting_and_touches_tokens_of_four_characters_and_more_only() -> None:
    assert values(item("networks", "network")).values["rouge1"] == 100.0
    assert values(item("networks", "network"), stemmer=False).values["rouge1"] == 0.0
    assert values(item("ads", "ad")).values["rouge1"] == 0.0


def test_rouge_l_ignores_newlines_and_lsum_goes_by_segments() -> None:
    # "c d a b" against "a b c d": the longest common subsequence has 2 of 4 words; line by line all 4 are found.
    swapped = item(
        "c d a b",
        "a b c d",
        segments=("c d", "a b"),
        target="a b c d",
        gold=("a b", "c d"),
    )
    assert values(swapped).values["rougeL"] == 50.0
    assert values(swapped).values["rougeLsum"] == 100.0
    assert values(item("a b\nc d", "a b c d")).values["rougeL"] == 100.0


def test_a_reference_without_known_segments_is_taken_by_its_own_lines() -> None:
    one_line = item("c d a b", "a b c d", segments=("c d", "a b"), target="other", gold=("other",))
    two_lines = item("c d a b", "a b\nc d", segments=("c d", "a b"))
    assert values(two_lines).values["rougeLsum"] == 100.0
    # one line "a b c d" against "c d" and "a b": each finds its half, the union is the whole line
    assert values(one_line).values["rougeLsum"] == 100.0
    # with the prediction as one line, too, it is ROUGE-L
    assert values(item("c d a b", "a b c d")).values["rougeLsum"] == 50.0


def test_a_newline_inside_a_segment_does_not_make_two_lines() -> None:
    broken = item("c\nd a b", "x", segments=("c\nd a b",), target="x", gold=("x",))
    whole = item("c d a b", "x", segments=("c d a b",), target="x", gold=("x",))
    assert values(broken).values == values(whole).values


def test_of_several_references_the_best_counts_for_each_type_by_itself() -> None:
    # "a b c d e f" against its reverse: ROUGE-1 = 100, ROUGE-2 = 0.
    # Against "a b": ROUGE-1 P = 2/6, R = 1, F1 = 1/2; ROUGE-2 P = 1/5, R = 1, F1 = 1/3.
    scores = values(item("a b c d e f", "f e d c b a", "a b"))
    assert scores.values["rouge1"] == 100.0
    assert scores.values["rouge2"] == pytest.approx(100 / 3)
    assert scores.counts["references"] == 2


def test_a_text_that_the_tokenizer_drops_is_not_scorable_rather_than_zero() -> None:
    scores = values(item("猫が座った", "猫が座った"))
    assert set(scores.values.values()) == {None}
    assert scores.counts == {"examples": 1, "not_scorable": 1, "references": 0}
    assert "1 of 1 examples are not scorable" in scores.notes[0]


def test_what_is_not_scorable_is_left_out_of_the_mean_and_said() -> None:
    latin = ScoringItem("a", "red", ("red",), references=("red",))
    greek = ScoringItem("b", "γάτα", ("γάτα",), references=("γάτα",))
    scores = values(latin, greek)
    assert scores.values["rouge1"] == 100.0
    assert scores.examples["b"] == dict.fromkeys(scores.measure.metrics)
    assert scores.not_scorable == ("b",)
    assert values(latin).notes == ()


@pytest.mark.parametrize(
    ("text", "scorable"),
    [("Ünïcode in a sentence", True), ("2021年に東京で", False), ("кот", False), ("", True), ("…!", True)],
)
def test_a_text_is_scorable_if_half_of_its_letters_and_digits_are_kept(text: str, scorable: bool) -> None:
    assert is_scorable(text) is scorable


def test_an_empty_prediction_or_reference_scores_zero() -> None:
    assert set(values(item("", "a b", segments=())).values.values()) == {0.0}
    assert set(values(item("a b", "")).values.values()) == {0.0}


def test_an_item_without_a_reference_is_an_error() -> None:
    with pytest.raises(ValueError, match="no reference"):
        values(item("a"))


def test_the_signature_names_settings_and_versions() -> None:
    assert Rouge().signature.startswith(
        "rouge|score:f1|stem:yes|refs:best-per-type|lsum:segments|corpus:mean|rouge-score:"
    )
    assert "|stem:no|" in Rouge(stemmer=False).signature
    assert "|pipedec:" in Rouge().signature


_words = st.lists(
    st.sampled_from(["running", "runs", "ran", "Ties", "the", "état", "x9", "-", "<b>"]), max_size=9
)


@given(prediction=_words, reference=_words, stemmer=st.booleans())
def test_equals_the_package_called_plainly(
    prediction: list[str], reference: list[str], stemmer: bool
) -> None:
    from rouge_score import rouge_scorer

    ours = values(item(" ".join(prediction), " ".join(reference)), stemmer=stemmer).values
    types = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    theirs = rouge_scorer.RougeScorer(types, use_stemmer=stemmer).score(
        " ".join(reference), " ".join(prediction)
    )
    assert ours == pytest.approx({name: 100 * theirs[name].fmeasure for name in types})
