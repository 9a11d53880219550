"""What a task's metrics are given of a prediction and its record."""

import pytest

from pipedec_cli.data.records import Generated, generated_of, record_of
from pipedec_cli.metrics.answers import for_task
from pipedec_cli.metrics.fields import Fields
from pipedec_cli.metrics.measure import score_examples
from tests.words import refusing

TARGET = {"target": "a b", "target_segments": ["a", "b"]}
MERGED = {"target": "a; b; c", "target_segments": ["a", "b; c"]}


def given(task, *segments, **fields):
    """What a task's metrics are given of a prediction, and of a record with these fields."""
    record = record_of({"source": "a b c", **fields}, "file:1", 1)
    return for_task(Generated(text="", segments=segments, record=record), task)


def test_summaries_are_held_against_the_references_and_else_the_target():
    record = given("summarization", "a", **TARGET).record
    assert (record.references, record.target_segments) == (("a b",), ("a", "b"))
    record = given("summarization", "a", **TARGET, references=["x", "a b"]).record
    assert record.references == ("a b", "x")


@pytest.mark.parametrize(
    ("task", "fields", "right"),
    [
        # Keyphrases: the record's own list, before any merging; else the target's,
        # split again where they were merged.
        ("keyphrases", {"keyphrases": ["a", "b", "c"], **MERGED}, ("a", "b", "c")),
        ("keyphrases", MERGED, ("a", "b", "c")),
        ("keyphrases", {"target": ["a", "b;c"]}, ("a", "b", "c")),
        ("keyphrases", {"target": "a;b ; "}, ("a", "b")),
        ("keyphrases", {"target": ""}, ()),
        ("keyphrases", {"target": []}, ()),
        ("keyphrases", {"target_segments": []}, ()),
        # Spans: answers, a listed target or its segments; never split.
        ("multispan", {"answers": ["x; y", "z"], "target": ["q"]}, ("x; y", "z")),
        ("multispan", {"target": ["x; y"], "target_segments": ["q"]}, ("x; y",)),
        ("multispan", TARGET, ("a", "b")),
    ],
)
def test_the_right_answers_of_a_task_and_its_merged_predictions(task, fields, right):
    prediction = given(task, "a", "b; c ;", **fields)
    split = ("a", "b", "c") if task == "keyphrases" else ("a", "b; c ;")
    assert (prediction.record.target_segments, prediction.segments) == (right, split)


NOTHING = "nothing to score against: .* --gold FILE"


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        ("keyphrases", {"keyphrases": "big data"}),
        ("keyphrases", {"keyphrases": ["a", 1]}),
        ("keyphrases", {"keyphrases": 5}),
        ("multispan", {"answers": "big data"}),
        ("multispan", {"target": "big data"}),
        ("summarization", {}),
        ("keyphrases", {}),
        ("multispan", {}),
        ("fields", TARGET),
        ("keyphrases", {"source": "", "keyphrases": ["a"]}),
    ],
)
def test_a_record_that_nothing_can_be_scored_against_is_an_error_with_its_place(
    task, fields
):
    with refusing():
        given(task, "a", **fields)


def test_an_object_is_predicted_as_fields_as_json_text_or_not_at_all():
    target = {"a: b": ["x", "y"], "n": 2.0, "t": True}
    ways = [
        {"prediction": "…", "fields": target},
        {"prediction": '{"a: b": ["x", "y"], "n": 2, "t": true}'},
        {"prediction": target, "segments": []},
        {"prediction": "no object"},
        {"prediction": '["x"]'},
        {"prediction": '{"a: b": {"x": [1]}, "n": null}'},
    ]
    lines = [{"id": i, "target": target, **way} for i, way in enumerate(ways)]
    examples = [for_task(generated_of(line, "x:1", 1), "fields") for line in lines]
    right = ("a:: b: x", "a:: b: y", "n: 2", "t: true")
    assert {example.record.target_segments for example in examples} == {right}
    assert [example.segments for example in examples] == [
        *[right] * 3,
        (),
        (),
        ("a:: b.x: 1",),
    ]
    assert score_examples(examples, Fields()).counts["predicted_pairs"] == 13
