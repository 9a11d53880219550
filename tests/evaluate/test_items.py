"""From a prediction and its record to what a metric is given."""

from __future__ import annotations

from typing import Any

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated, record_of
from pipedec_cli.evaluate.scoring import scoring_item


def predicted(segments: tuple[str, ...] = ("a", "b"), **fields: Any) -> Generated:
    record = record_of({"source": "a b c", **fields}, "file:1", 1)
    return Generated(text=" ".join(segments), segments=segments, truncated="time_max", record=record)


def test_summaries_are_held_against_the_references_and_else_the_target() -> None:
    given = {"target": "a b", "target_segments": ["a", "b"]}
    item = scoring_item(predicted(**given), "summarization")
    assert (item.references, item.gold, item.target) == (("a b",), ("a", "b"), "a b")
    several = scoring_item(predicted(**given, references=["x", "a b"]), "summarization")
    assert several.references == ("a b", "x")
    assert several.truncated == "time_max"


def test_keyphrases_come_from_the_records_own_list_before_any_merging() -> None:
    item = scoring_item(
        predicted(keyphrases=["a", "b", "c"], target="a; b; c", target_segments=["a", "b; c"]), "keyphrases"
    )
    assert item.gold == ("a", "b", "c")


def test_merged_phrases_are_split_again_predicted_and_right() -> None:
    item = scoring_item(
        predicted(("a", "b; c ;"), target="a; b; c", target_segments=["a", "b; c"]), "keyphrases"
    )
    assert item.segments == ("a", "b", "c")
    assert item.gold == ("a", "b", "c")


@pytest.mark.parametrize(
    ("fields", "gold"),
    [
        ({"target": ["a", "b;c"]}, ("a", "b", "c")),
        ({"target": "a;b ; "}, ("a", "b")),
        ({"target": ""}, ()),
        ({"target": []}, ()),
        ({"target_segments": []}, ()),
    ],
)
def test_keyphrases_else_come_from_the_target(fields: dict[str, Any], gold: tuple[str, ...]) -> None:
    assert scoring_item(predicted(**fields), "keyphrases").gold == gold


@pytest.mark.parametrize(
    ("fields", "gold"),
    [
        ({"answers": ["x; y", "z"], "target": ["q"]}, ("x; y", "z")),
        ({"target": ["x; y"], "target_segments": ["q"]}, ("x; y",)),
        ({"target": "x y", "target_segments": ["x", "y"]}, ("x", "y")),
    ],
)
def test_spans_come_from_answers_a_listed_target_or_its_segments_and_are_never_split(
    fields: dict[str, Any], gold: tuple[str, ...]
) -> None:
    assert scoring_item(predicted(("x; y",), **fields), "multispan").gold == gold
    assert scoring_item(predicted(("x; y",), **fields), "multispan").segments == ("x; y",)


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        ("keyphrases", {"keyphrases": "big data"}),
        ("keyphrases", {"keyphrases": ["a", 1]}),
        ("keyphrases", {"keyphrases": 5}),
        ("multispan", {"answers": "big data"}),
        ("multispan", {"target": "big data"}),
    ],
)
def test_a_string_where_a_list_of_answers_belongs_is_an_error_with_its_place(
    task: Any, fields: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=r"^file:1: .*(list|strings)"):
        scoring_item(predicted(**fields), task)


@pytest.mark.parametrize("task", ["summarization", "keyphrases", "multispan"])
def test_a_record_without_right_answers_is_an_error_that_says_what_to_do(task: Any) -> None:
    with pytest.raises(UserError, match=r"file:1: nothing to score against: .* --gold FILE"):
        scoring_item(predicted(), task)


def test_keyphrases_without_a_source_are_an_error_for_all_would_count_as_absent() -> None:
    with pytest.raises(UserError, match="file:1: the record has no `source`"):
        scoring_item(predicted(source="", keyphrases=["a"]), "keyphrases")
