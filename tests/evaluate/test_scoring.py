"""Scores: corpus and example values, subsets, counts, the choice of a protocol, and what a metric is given."""

from __future__ import annotations

from typing import Any

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated, record_of
from pipedec_cli.evaluate.metrics.keyphrases import Chan2019, Meng2017
from pipedec_cli.evaluate.metrics.measure import Measure, ScoringItem, score
from pipedec_cli.evaluate.metrics.multispan import MultiSpanQA
from pipedec_cli.evaluate.metrics.rouge import Rouge
from pipedec_cli.evaluate.scoring import make_protocol, scoring_item


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


def test_counts_and_the_callback_see_every_example() -> None:
    calls: list[None] = []
    scores = score(QUESTIONS, MultiSpanQA(), on_example=lambda: calls.append(None))
    assert len(calls) == 3
    assert scores.counts == {"examples": 3, "not_scorable": 0, "predicted_spans": 5, "gold_spans": 4}


@pytest.mark.parametrize(
    ("items", "measure", "wrong"),
    [
        ([QUESTIONS[0], QUESTIONS[0]], MultiSpanQA(), "two items have the id 'a'"),
        ([], MultiSpanQA(), "nothing to score"),
        ([ScoringItem("1", "cat", ("cat",))], MultiSpanQA(), "no answers"),
        ([ScoringItem("1", "cat", ("cat",))], Chan2019(), "no keyphrases"),
        ([ScoringItem("1", "cat", ("cat",))], Rouge(), "no reference"),
    ],
)
def test_what_cannot_be_scored_is_an_error(items: list[ScoringItem], measure: Measure, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        score(items, measure)


@pytest.mark.parametrize("field", ["segments", "gold", "references"])
def test_a_string_for_a_list_is_an_error_and_not_a_list_of_letters(field: str) -> None:
    with pytest.raises(TypeError, match=f"{field} must be a list of strings, not the string 'cat'"):
        ScoringItem(**{"id": "1", "prediction": "cat", "segments": ("cat",), field: "cat"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "name", "settings", "measure"),
    [
        ("summarization", None, {}, Rouge()),
        ("keyphrases", None, {}, Chan2019()),
        ("multispan", None, {}, MultiSpanQA()),
        ("summarization", None, {"stemmer": False}, Rouge(stemmer=False)),
        ("keyphrases", "meng2017", {"hard": True, "stemmer": None}, Meng2017(hard=True)),
    ],
)
def test_a_task_has_its_usual_protocol_and_a_protocol_its_settings(
    task: Any, name: str | None, settings: dict[str, Any], measure: Measure
) -> None:
    assert make_protocol(task, name, **settings) == measure
    assert measure.primary in measure.headline  # what curves and advice are about stands in the tables


@pytest.mark.parametrize(
    ("name", "settings", "wrong"),
    [
        ("rouge", {}, "keyphrases has no protocol 'rouge'; choose from chan2019, meng2017"),
        (None, {"hard": True}, "`hard` does not belong to the protocol chan2019; it has pretokenized"),
    ],
)
def test_a_protocol_or_setting_that_does_not_fit_is_refused_with_those_there_are(
    name: str | None, settings: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(UserError, match=wrong):
        make_protocol("keyphrases", name, **settings)


def item_of(task: Any, *segments: str, **fields: Any) -> ScoringItem:
    """What a task's metrics are given of a prediction and of the record with these fields."""
    record = record_of({"source": "a b c", **fields}, "file:1", 1)
    return scoring_item(Generated(text="", segments=segments, truncated="time_max", record=record), task)


TARGET = {"target": "a b", "target_segments": ["a", "b"]}
MERGED = {"target": "a; b; c", "target_segments": ["a", "b; c"]}


@pytest.mark.parametrize(
    ("fields", "references"), [(TARGET, ("a b",)), ({**TARGET, "references": ["x", "a b"]}, ("a b", "x"))]
)
def test_summaries_are_held_against_the_references_and_else_the_target(
    fields: dict[str, Any], references: tuple[str, ...]
) -> None:
    expected = (references, ("a", "b"), "a b", "time_max")
    item = item_of("summarization", "a", **fields)
    assert (item.references, item.gold, item.target, item.truncated) == expected


@pytest.mark.parametrize(
    ("task", "fields", "gold"),
    [
        # keyphrases: the record's own list, before any merging; else the target's, split again where they were merged
        ("keyphrases", {"keyphrases": ["a", "b", "c"], **MERGED}, ("a", "b", "c")),
        ("keyphrases", MERGED, ("a", "b", "c")),
        ("keyphrases", {"target": ["a", "b;c"]}, ("a", "b", "c")),
        ("keyphrases", {"target": "a;b ; "}, ("a", "b")),
        ("keyphrases", {"target": ""}, ()),
        ("keyphrases", {"target": []}, ()),
        ("keyphrases", {"target_segments": []}, ()),
        # spans: answers, a listed target or its segments; never split
        ("multispan", {"answers": ["x; y", "z"], "target": ["q"]}, ("x; y", "z")),
        ("multispan", {"target": ["x; y"], "target_segments": ["q"]}, ("x; y",)),
        ("multispan", TARGET, ("a", "b")),
    ],
)
def test_the_right_answers_of_a_task_and_its_merged_predictions(
    task: Any, fields: dict[str, Any], gold: tuple[str, ...]
) -> None:
    item = item_of(task, "a", "b; c ;", **fields)
    assert item.gold == gold
    assert item.segments == (("a", "b", "c") if task == "keyphrases" else ("a", "b; c ;"))


NOTHING = "nothing to score against: .* --gold FILE"


@pytest.mark.parametrize(
    ("task", "fields", "wrong"),
    [
        ("keyphrases", {"keyphrases": "big data"}, "list"),
        ("keyphrases", {"keyphrases": ["a", 1]}, "must hold strings, not int"),
        ("keyphrases", {"keyphrases": 5}, "list of strings, not 5"),
        ("multispan", {"answers": "big data"}, "list"),
        ("multispan", {"target": "big data"}, "list"),
        ("summarization", {}, NOTHING),
        ("keyphrases", {}, NOTHING),
        ("multispan", {}, NOTHING),
        ("keyphrases", {"source": "", "keyphrases": ["a"]}, "the record has no `source`"),
    ],
)
def test_a_record_that_nothing_can_be_scored_against_is_an_error_with_its_place(
    task: Any, fields: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(UserError, match=f"^file:1: .*{wrong}"):
        item_of(task, "a", **fields)
