"""The formats of the field: answers by id, phrases by line, and the right answers that belong to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipedec_cli.data.answers import load_predictions, read_answers
from pipedec_cli.data.errors import UserError

QUESTION = {
    "id": "q1",
    "type": "ENTY",
    "question": ["which", "animals"],
    "context": ["A", "well", "-", "known", "cat", "and", "dogs"],
    "num_span": 2,
    "label": ["O", "B", "I", "I", "I", "O", "B"],
}


SECOND = {**QUESTION, "id": "q2"}


def file(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_multispanqa_predictions_and_gold_are_joined_by_id_with_spans_as_tokenised(tmp_path: Path) -> None:
    gold = file(tmp_path, "valid.json", {"version": 1, "data": [QUESTION, SECOND]})
    answers = file(tmp_path, "answers.json", {"q2": [], "q1": ["dogs", "cat; x"]})
    predictions, form = load_predictions(answers, gold=gold)
    assert form == "answers"
    assert [(found.id, found.segments) for found in predictions] == [("q2", ()), ("q1", ("dogs", "cat; x"))]
    assert predictions[1].record.fields["target"] == ["well - known cat", "dogs"]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"q1": "cat"}, "id 'q1': 'answers' is a string, not a list of strings"),
        ({"q1": ["cat", 1]}, "id 'q1': 'answers' holds a number at place 2"),
        ({"q1": None}, "id 'q1': null where a list of answers belongs"),
    ],
)
def test_a_string_for_a_list_of_answers_is_an_error_that_names_the_question(
    tmp_path: Path, answers: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read_answers(file(tmp_path, "answers.json", answers))


def test_an_id_that_is_there_twice_is_an_error_and_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'q1' is there twice"):
        read_answers(file(tmp_path, "answers.json", '{"q1": ["a"], "q1": ["b"]}'))
    gold = file(tmp_path, "gold.jsonl", '{"id": "q1", "target": "a"}\n' * 2)
    with pytest.raises(UserError, match=r"gold\.jsonl:1: id 'q1' is there twice"):
        load_predictions(file(tmp_path, "answers.json", {"q1": ["a"]}), gold=gold)


def test_every_right_answer_needs_a_prediction_and_every_prediction_a_right_answer(tmp_path: Path) -> None:
    gold = file(tmp_path, "valid.json", {"data": [QUESTION, SECOND]})
    with pytest.raises(UserError, match="no prediction for id 'q2', and for 1 of 2 in all"):
        load_predictions(file(tmp_path, "few.json", {"q1": ["cat"]}), gold=gold)
    with pytest.raises(UserError, match="id 'q3' is not in the right answers"):
        load_predictions(file(tmp_path, "many.json", {"q1": [], "q2": [], "q3": []}), gold=gold)


def test_answers_without_right_ones_and_targets_without_sources_cannot_be_scored(tmp_path: Path) -> None:
    answers = file(tmp_path, "answers.json", {"q1": ["cat"]})
    with pytest.raises(UserError, match=r"holds answers only.* --gold FILE"):
        load_predictions(answers)
    with pytest.raises(UserError, match="name them with --sources FILE"):
        load_predictions(file(tmp_path, "out.txt", "a\n"), gold=file(tmp_path, "trg.txt", "a\n"))
    bare = {key: QUESTION[key] for key in ("id", "question", "context")}
    with pytest.raises(UserError, match="has no labels"):
        load_predictions(answers, gold=file(tmp_path, "test.json", {"data": [bare]}))
    for missing in ({"path": tmp_path / "none.txt"}, {"path": answers, "gold": tmp_path / "none.json"}):
        with pytest.raises(UserError, match="no such file"):
            load_predictions(**missing)


def test_lines_of_phrases_go_with_source_and_target_lines(tmp_path: Path) -> None:
    predictions, form = load_predictions(
        file(tmp_path, "out.txt", "big data;<peos>;deep nets\n\n"),
        gold=file(tmp_path, "test_trg.txt", "data;trees\nnets\n"),
        sources=file(tmp_path, "test_src.txt", "on data <eos> of trees\nnets <eos> nets\n"),
    )
    assert form == "lines"
    assert [found.segments for found in predictions] == [("big data", "deep nets"), ()]
    assert [found.record.fields["target"] for found in predictions] == [["data", "trees"], ["nets"]]
    assert predictions[0].record.source == "on data of trees"


def test_lines_of_phrases_go_with_records_in_their_order_and_number(tmp_path: Path) -> None:
    gold = file(tmp_path, "test.jsonl", '{"id": "d7", "source": "s", "keyphrases": ["a"]}\n')
    predictions, _ = load_predictions(file(tmp_path, "out.txt", "a; b\n"), gold=gold)
    assert [(found.id, found.segments) for found in predictions] == [("d7", ("a", "b"))]
    with pytest.raises(UserError, match="has 2 lines for 1 right answers"):
        load_predictions(file(tmp_path, "out.txt", "a\nb\n"), gold=gold)


def test_gold_records_replace_what_the_predictions_hold(tmp_path: Path) -> None:
    predictions, form = load_predictions(
        file(tmp_path, "out.jsonl", '{"id": "a", "prediction": "x", "target": "old"}\n'),
        gold=file(tmp_path, "gold.jsonl", '{"id": "a", "source": "s", "target": "new"}\n'),
    )
    assert form == "records"
    assert predictions[0].record.target == "new"


def test_json_lines_in_a_file_called_json_are_told_from_a_broken_file_of_answers(tmp_path: Path) -> None:
    lines = '{"prediction": "x", "target": "y"}\n'
    assert load_predictions(file(tmp_path, "one.json", lines))[1] == "records"
    assert load_predictions(file(tmp_path, "two.json", lines * 2))[1] == "records"
    with pytest.raises(UserError, match=r"wrong\.json:2: not JSON: .* at column 8"):
        load_predictions(file(tmp_path, "wrong.json", '{"q1": ["a"],\n "q2": }'))
