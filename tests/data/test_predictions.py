"""Reading predictions: what is needed, what may be missing, and where a mistake is said to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import read_predictions


def written(folder: Path, *lines: object, end: str = "\n") -> Path:
    path = folder / "predictions.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + end, encoding="utf-8")
    return path


def test_what_generate_writes_is_read_back(tmp_path: Path) -> None:
    line = {
        "id": "x1",
        "source": "s",
        "target": "A. B.",
        "target_segments": ["A.", "B."],
        "references": ["C.", "A. B."],
        "mine": {"deep": 1},
        "prediction": "A. D.",
        "segments": ["A.", "D."],
        "steps": 4,
        "tokens": 6,
        "truncated": "sub_max",
        "seconds": 0.5,
    }
    (found,) = read_predictions(written(tmp_path, line))
    assert (found.id, found.text, found.segments) == ("x1", "A. D.", ("A.", "D."))
    assert (found.steps, found.tokens, found.truncated, found.seconds) == (4, 6, "sub_max", 0.5)
    assert found.record.target_segments == ("A.", "B.")
    assert found.record.references == ("A. B.", "C.")
    assert found.record.fields["mine"] == {"deep": 1}
    assert found.record.where.endswith("predictions.jsonl:1")


def test_a_bare_prediction_is_enough_and_its_lines_are_its_segments(tmp_path: Path) -> None:
    first, second, third = read_predictions(
        written(tmp_path, {"prediction": "a\n\nb"}, {"prediction": ["c", "d"], "id": 7}, {"prediction": ""})
    )
    assert (first.id, first.segments) == ("1", ("a", "b"))
    assert (second.id, second.segments, second.text) == ("7", ("c", "d"), "c d")
    assert third.segments == ()


def test_a_list_for_a_target_is_segmented_already_and_an_empty_target_is_one(tmp_path: Path) -> None:
    first, second = read_predictions(
        written(tmp_path, {"prediction": "a", "target": ["a", "b"]}, {"prediction": "a", "target": ""})
    )
    assert (first.record.target, first.record.target_segments) == ("a b", ("a", "b"))
    assert second.record.target == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"id": 1, "text": "x"}, "field 'prediction' is missing; its fields are: id, text"),
        ({"prediction": 3}, "'prediction' is a number, neither a string nor a list of strings"),
        ({"prediction": "ab", "segments": "ab"}, "'segments' is a string, not a list of strings"),
        ({"prediction": ["a", None]}, "'prediction' holds null at place 2, not a string"),
        ({"prediction": "a", "target": 5}, "'target' is a number, neither a string nor a list of strings"),
        ({"prediction": "a", "references": "a"}, "'references' is a string, not a list of strings"),
        ({"prediction": "a", "steps": "4"}, "'steps' is a string, not a number"),
        ([1], "a list where an object belongs"),
        ("{not json}", "not JSON"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, line: object, message: str) -> None:
    path = written(tmp_path, {"prediction": "fine", "id": "first"}, line)
    with pytest.raises(UserError) as error:
        read_predictions(path)
    assert str(error.value).startswith(f"{path}:2: {message}")


def test_a_torn_last_line_is_told_from_a_wrong_one(tmp_path: Path) -> None:
    path = written(tmp_path, {"prediction": "a"}, '{"prediction": "b', end="")
    with pytest.raises(UserError, match=r":2: the last line is cut short.* generate --resume"):
        read_predictions(path)
    wrong = written(tmp_path, '{"prediction": "b', {"prediction": "a"}, end="")
    with pytest.raises(UserError, match=":1: not JSON"):
        read_predictions(wrong)


def test_a_last_line_without_a_line_feed_is_fine_if_it_is_whole(tmp_path: Path) -> None:
    assert len(read_predictions(written(tmp_path, {"prediction": "a"}, end=""))) == 1


def test_an_id_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"id": "a", "prediction": "x"}, {"id": "a", "prediction": "y"})
    with pytest.raises(UserError, match=r":2: id 'a' was already used at .*:1"):
        read_predictions(path)


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is empty"):
        read_predictions(written(tmp_path, end=""))
    with pytest.raises(UserError, match="no such file"):
        read_predictions(tmp_path / "none.jsonl")
