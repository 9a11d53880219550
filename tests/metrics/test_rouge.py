"""ROUGE: hand-computed values, and equality with the package it is said to be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import Scores, score_examples
from pipedec_cli.metrics.rouge import Rouge, is_scorable
from tests.metrics.documents import example


def item(prediction: str, *references: str, **more: Any) -> Generated:
    segments = more.pop("segments", prediction.split("\n"))
    return example(segments, text=prediction, references=references, **more)


def scored(*items: Generated, stemmer: bool = True) -> Scores:
    return score_examples(items, Rouge(stemmer=stemmer))


SWAPPED = {"segments": ("c d", "a b")}


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        # "the cat sat" against "the cat ran fast": ROUGE-1: 2 words in common, P = 2/3,
        # R = 2/4, F1 = 2 · 2/3 · 1/2 / (7/6) = 4/7 ROUGE-2: "the cat" of 2 and 3 pairs,
        # P = 1/2, R = 1/3, F1 = 2 · 1/2 · 1/3 / (5/6) = 2/5 ROUGE-L: "the cat" is the
        # longest common subsequence, as ROUGE-1
        (
            item("the cat sat", "the cat ran fast"),
            {
                "rouge1": 400 / 7,
                "rouge2": 40.0,
                "rougeL": 400 / 7,
                "rougeLsum": 400 / 7,
            },
        ),
        # Stemming touches tokens of four characters and more only
        (item("networks", "network"), {"rouge1": 100.0}),
        (item("ads", "ad"), {"rouge1": 0.0}),
        # ROUGE-L ignores newlines and segments: the longest common subsequence of "c d
        # a b" and "a b c d" has 2 of 4 words. ROUGE-Lsum goes by segments: line by line
        # all 4 are found
        (
            item(
                "c d a b", "a b c d", target="a b c d", gold=("a b", "c d"), **SWAPPED
            ),
            {"rougeL": 50.0, "rougeLsum": 100.0},
        ),
        (item("a b\nc d", "a b c d"), {"rougeL": 100.0}),
        # A reference without known segments is taken by its own lines, here two, and
        # one, in which each segment finds its half; with the prediction as one line,
        # too, it is ROUGE-L
        (item("c d a b", "a b\nc d", **SWAPPED), {"rougeLsum": 100.0}),
        (
            item("c d a b", "a b c d", target="other", gold=("other",), **SWAPPED),
            {"rougeLsum": 100.0},
        ),
        (item("c d a b", "a b c d"), {"rougeLsum": 50.0}),
        # Of several references the best counts for each type by itself. "a b c d e f"
        # against its reverse: ROUGE-1 = 100, ROUGE-2 = 0. Against "a b": ROUGE-1 = 1/2;
        # ROUGE-2 P = 1/5, R = 1, F1 = 1/3
        (
            item("a b c d e f", "f e d c b a", "a b"),
            {"rouge1": 100.0, "rouge2": 100 / 3},
        ),
        # An empty prediction or reference scores zero
        (item("", "a b", segments=()), dict.fromkeys(Rouge.columns, 0.0)),
        (item("a b", ""), dict.fromkeys(Rouge.columns, 0.0)),
    ],
)
def test_values_are_as_computed_by_hand(example, expected):
    values = scored(example).values
    assert {metric: values[metric] for metric in expected} == pytest.approx(expected)


def test_corpus_score_is_the_mean_of_the_examples_f1():
    scores = scored(
        item("red", "red", name="a"), item("red", "blue", "green", name="b")
    )
    assert {name: values["rouge1"] for name, values in scores.examples.items()} == {
        "a": 100.0,
        "b": 0.0,
    }
    assert (scores.values["rouge1"], scores.counts["references"], scores.notes) == (
        50.0,
        3,
        [],
    )


def test_a_newline_inside_a_segment_does_not_make_two_lines():
    broken = item("c\nd a b", "x", segments=("c\nd a b",), target="x", gold=("x",))
    whole = item("c d a b", "x", segments=("c d a b",), target="x", gold=("x",))
    assert scored(broken).values == scored(whole).values


def test_a_text_that_the_tokenizer_drops_is_not_scorable_rather_than_zero_and_in_no_mean():
    cat, red = item("猫が座った", "猫が座った", name="b"), item("red", "red", name="a")
    scores = scored(cat)
    assert set(scores.values.values()) == {None}
    assert scores.counts == {"examples": 1, "not_scorable": 1, "references": 0}
    assert "1 of 1 examples are not scorable" in scores.notes[0]
    scores = scored(red, cat)
    assert scores.values["rouge1"] == 100.0
    assert (scores.examples["b"], scores.not_scorable) == (
        dict.fromkeys(Rouge.columns),
        ("b",),
    )


@pytest.mark.parametrize(
    ("text", "scorable"),
    [
        ("Ünïcode in a sentence", True),
        ("2021年に東京で", False),
        ("кот", False),
        ("", True),
        ("…!", True),
    ],
)
def test_a_text_is_scorable_if_half_of_its_letters_and_digits_are_kept(text, scorable):
    assert is_scorable(text) is scorable


def test_the_signature_names_settings_and_versions():
    begun = "rouge|score:f1|stem:yes|refs:best-per-type|lsum:segments|corpus:mean|rouge-score:"
    assert Rouge().signature.startswith(begun)
    assert "|stem:no|" in Rouge(stemmer=False).signature
    assert scored(item("networks", "network"), stemmer=False).values["rouge1"] == 0.0
    assert "|pipedec:" in Rouge().signature


_words = st.lists(
    st.sampled_from(
        ["running", "runs", "ran", "Ties", "the", "état", "x9", "-", "<b>"]
    ),
    max_size=9,
).map(" ".join)


@given(prediction=_words, reference=_words, stemmer=st.booleans())
def test_equals_the_package_called_plainly(prediction, reference, stemmer):
    from rouge_score import rouge_scorer

    ours = scored(item(prediction, reference), stemmer=stemmer).values
    package = rouge_scorer.RougeScorer(list(Rouge.columns), use_stemmer=stemmer)
    theirs = package.score(reference, prediction)
    assert ours == pytest.approx(
        {name: 100 * theirs[name].fmeasure for name in Rouge.columns}
    )
