"""Scores: corpus and example values, subsets, counts, and what cannot be scored."""

from typing import ClassVar

import pytest
from msgspec.structs import replace

from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import Measure, right_segments, score_examples
from pipedec_cli.metrics.multispan import MultiSpanQA
from tests.metrics.documents import example

QUESTIONS = [
    example(["cat"], ["cat"], name="a"),
    example(["cat", "dog", "cow"], ["hen"], name="b"),
    example(["cat"], ["cat", "ox"], name="c"),
]


def test_values_are_of_the_corpus_of_each_example_or_of_some_and_all_are_counted():
    calls: list[None] = []
    scores = score_examples(
        QUESTIONS, MultiSpanQA(), on_example=lambda: calls.append(None)
    )
    assert len(calls) == 3
    counts = {"examples": 3, "not_scorable": 0, "predicted_spans": 5, "gold_spans": 4}
    assert scores.counts == counts
    assert [scores.examples[name]["em_p"] for name in "abc"] == [100.0, 0.0, 100.0]
    assert scores.values["em_p"] == pytest.approx(100 * 2 / 5)  # not their mean
    for names in ("a", "bc", "abc"):
        some = [question for question in QUESTIONS if question.id in names]
        alone = score_examples(some, MultiSpanQA()).values
        assert scores.values_of(list(names)) == pytest.approx(alone)
    assert set(scores.values_of([]).values()) == {None}


class Right(Measure):
    """The share of predictions that are equal to the right answer; it counts nothing."""

    name = "right"
    headline: ClassVar = {"right": "right"}
    primary = "right"
    columns = ("right",)
    _settings = ""

    def statistics(self, example: Generated) -> tuple[float, ...]:
        return (float(example.segments == right_segments(example)),)


def test_a_measure_that_counts_nothing_counts_the_examples():
    scores = score_examples(QUESTIONS, Right())
    assert scores.counts == {"examples": 3, "not_scorable": 0}
    assert scores.values == {"right": pytest.approx(100 / 3)}


@pytest.mark.parametrize(
    ("examples", "wrong"),
    [(QUESTIONS[:1] * 2, "the id 'a'"), ([], "nothing to score")],
)
def test_what_cannot_be_scored_is_an_error(examples, wrong):
    with pytest.raises(ValueError, match=wrong):
        score_examples(examples, MultiSpanQA())


@pytest.mark.parametrize("name", ["segments", "target_segments", "references"])
def test_a_string_for_a_list_is_an_error_and_not_a_list_of_letters(name):
    right = example(["cat"], ["cat"])
    letters = replace(right.record, **{name: "cat"}) if name != "segments" else None
    wrong = (
        replace(right, record=letters) if letters else replace(right, segments="cat")
    )
    with pytest.raises(TypeError, match=name):
        score_examples([wrong], MultiSpanQA())
