"""Scores: corpus and example values, subsets, counts, and the choice of a protocol."""

from __future__ import annotations

from typing import Any

import pytest
from pipedec_cli.evaluate.breakdown import ids_by_size

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.metrics.keyphrases import Meng2017
from pipedec_cli.evaluate.metrics.measure import ScoringItem, score
from pipedec_cli.evaluate.metrics.multispan import MultiSpanQA
from pipedec_cli.evaluate.metrics.rouge import Rouge
from pipedec_cli.evaluate.scoring import make_protocol, settle_metrics


def spans(identifier: str, predicted: tuple[str, ...], right: tuple[str, ...]) -> ScoringItem:
    return ScoringItem(identifier, "", predicted, gold=right)


QUESTIONS = [
    spans("a", ("cat",), ("cat",)),
    spans("b", ("cat", "dog", "cow"), ("hen",)),
    spans("c", ("cat",), ("cat", "ox")),
]


def test_example_values_are_each_examples_own_and_the_corpus_is_not_their_mean() -> None:
    scores = score(QUESTIONS, MultiSpanQA())
    assert [scores.examples[name]["em_p"] for name in "abc"] == [100.0, 0.0, 100.0]
    assert scores.values["em_p"] == pytest.approx(100 * 2 / 5)


def test_values_of_some_examples_are_those_of_a_corpus_of_them_alone() -> None:
    scores = score(QUESTIONS, MultiSpanQA())
    for names in ("a", "bc", "abc"):
        alone = score([item for item in QUESTIONS if item.id in names], MultiSpanQA())
        assert scores.values_of(list(names)) == pytest.approx(alone.values)
    assert set(scores.values_of([]).values()) == {None}


def test_examples_are_grouped_by_the_number_of_their_target_subsequences() -> None:
    unknown = ScoringItem("d", "", ())
    assert ids_by_size([*reversed(QUESTIONS), unknown]) == {1: ["b", "a"], 2: ["c"]}


def test_counts_and_the_callback_see_every_example() -> None:
    calls: list[None] = []
    scores = score(QUESTIONS, MultiSpanQA(), on_example=lambda: calls.append(None))
    assert len(calls) == 3
    assert scores.counts == {"examples": 3, "not_scorable": 0, "predicted_spans": 5, "gold_spans": 4}


def test_two_items_with_one_id_are_an_error() -> None:
    with pytest.raises(ValueError, match="two items have the id 'a'"):
        score([QUESTIONS[0], QUESTIONS[0]], MultiSpanQA())


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to score"):
        score([], MultiSpanQA())


def test_the_usual_protocol_of_each_task() -> None:
    assert make_protocol("summarization").name == "rouge"
    assert make_protocol("keyphrases").name == "chan2019"
    assert make_protocol("multispan").name == "multispanqa"


def test_settings_reach_the_protocol_and_none_stands_for_the_usual() -> None:
    assert make_protocol("summarization", stemmer=False) == Rouge(stemmer=False)
    assert make_protocol("keyphrases", "meng2017", hard=True, stemmer=None) == Meng2017(hard=True)


def test_a_protocol_of_another_task_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match="keyphrases has no protocol 'rouge'; choose from chan2019, meng2017"):
        make_protocol("keyphrases", "rouge")


def test_a_setting_that_the_protocol_does_not_have_is_refused() -> None:
    with pytest.raises(
        UserError, match="`hard` does not belong to the protocol chan2019; it has pretokenized"
    ):
        make_protocol("keyphrases", hard=True)


@pytest.mark.parametrize(
    ("task", "protocol", "typed", "settled"),
    [
        (None, "meng2017", "", ("keyphrases", "meng2017")),
        ("multispan", None, "task", ("multispan", None)),
        ("keyphrases", "meng2017", "task", ("keyphrases", "meng2017")),
        ("keyphrases", "rouge", "protocol", ("summarization", "rouge")),
        ("keyphrases", "rouge", "task", ("keyphrases", None)),
        ("keyphrases", "rouge", "", ("keyphrases", "rouge")),
        ("keyphrases", "rouge", "task protocol", ("keyphrases", "rouge")),
    ],
)
def test_a_protocol_tells_its_task_and_what_was_typed_wins(
    task: Any, protocol: Any, typed: str, settled: tuple[Any, Any]
) -> None:
    assert settle_metrics(task, protocol, typed.split()) == settled
