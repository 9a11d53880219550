"""Lines of predictions: what they hold, what is needed to read them, and where a mistake is said to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import line, read_predictions
from pipedec_cli.data.records import OUTPUT_FIELDS, FieldNames, Generated, Record
from pipedec_cli.data.writing import to_json

NAMES = FieldNames()
#: Whatever a field of the input may hold.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def generated(**fields: Any) -> Generated:
    """What came of a record with these fields."""
    given_fields = {"source": "where to?", **fields}
    return Generated(
        text="A. B.",
        segments=("A.", "B."),
        steps=4,
        tokens=6,
        seconds=0.1234567,
        grid=((0, (5, 6, 1)), (2, (1,))),
        source_ids=(9, 8, 1),
        record=Record(str(fields.get("id") or 1), "where to?", None, None, (), "data.jsonl:1", given_fields),
    )


def written(folder: Path, *lines: object, end: str = "\n") -> Path:
    path = folder / "predictions.jsonl"
    texts = [line if isinstance(line, str) else to_json(line) for line in lines]
    path.write_text("\n".join(texts) + end, encoding="utf-8")
    return path


def test_a_line_holds_what_was_generated_and_every_field_of_the_input() -> None:
    assert line(generated(id=7, title="T", nested={"a": [1, None]}), NAMES) == {
        "id": 7,
        "prediction": "A. B.",
        "segments": ["A.", "B."],
        "steps": 4,
        "tokens": 6,
        "truncated": None,
        "seconds": 0.123457,
        "source": "where to?",
        "title": "T",
        "nested": {"a": [1, None]},
    }
    with_grid = line(generated(), NAMES, trace=True)
    assert with_grid["grid"] == [{"start": 0, "tokens": [5, 6, 1]}, {"start": 2, "tokens": [1]}]
    assert with_grid["source_token_ids"] == [9, 8, 1]


@pytest.mark.parametrize(
    ("given_id", "stays"), [(5, 5), ("five", "five"), (1.5, 1.5), (10**20, 10**20), (None, "1"), ("", "1")]
)
def test_an_id_stays_what_it_was_unless_it_was_nothing(given_id: Any, stays: Any) -> None:
    found = line(generated(id=given_id), NAMES)["id"]
    assert (found, type(found)) == (stays, type(stays))


def test_other_names_for_source_target_and_id_are_kept_and_the_plain_ones_added() -> None:
    fields = {"key": "k1", "body": "text", "keywords": ["t"]}
    of = replace(generated(), record=Record("k1", "text", "t", None, (), "", fields))
    assert line(of, FieldNames("body", "keywords", "key")).items() >= {
        **fields, "id": "k1", "source": "text", "target": ["t"]
    }.items()  # fmt: skip


@given(st.dictionaries(st.text().filter(lambda name: name not in {*OUTPUT_FIELDS, "id", "source"}), JSON))
def test_whatever_the_input_holds_comes_back_from_the_file(fields: dict[str, Any]) -> None:
    assert json.loads(json.dumps(line(generated(**fields), NAMES))).items() >= fields.items()


def test_what_generate_writes_is_read_back(tmp_path: Path) -> None:
    answers = {"target": "A. C.", "target_segments": ["A.", "C."], "references": ["D.", "A. C."]}
    of = generated(id="x1", mine={"a": 1}, **answers)
    path = written(tmp_path, line(of, NAMES, trace=True))
    (found,) = read_predictions(path)
    assert replace(found, record=None) == replace(of, seconds=0.123457, record=None)
    record = found.record
    assert record is not None
    assert (found.id, record.source, record.target_segments) == ("x1", "where to?", ("A.", "C."))
    assert (record.references, record.where) == (("A. C.", "D."), f"{path}:1")
    assert record.fields["mine"] == {"a": 1}


def test_a_bare_prediction_is_enough_and_its_lines_are_its_segments(tmp_path: Path) -> None:
    lines = ({"prediction": "a\n\nb"}, {"prediction": ["c", "d"], "id": 7}, {"prediction": ""})
    first, second, third = read_predictions(written(tmp_path, *lines, end=""))
    assert (first.id, first.segments, first.steps) == ("1", ("a", "b"), 0)
    assert (second.id, second.segments, second.text) == ("7", ("c", "d"), "c d")
    assert third.segments == ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"id": 1, "text": "x"}, "field 'prediction' is missing; its fields are: id, text"),
        ({"prediction": None}, "field 'prediction' is null"),
        ({"prediction": 3}, "'prediction' is a number, neither a string nor a list of strings"),
        ({"prediction": "ab", "segments": "ab"}, "'segments' is a string, not a list of strings"),
        ({"prediction": ["a", None]}, "'prediction' holds null at place 2, not a string"),
        ({"prediction": "a", "steps": "4"}, "'steps' is a string, not a number"),
        ({"prediction": "a", "seconds": True}, "'seconds' is true or false, not a number"),
        ({"prediction": "a", "truncated": {}}, "'truncated' is an object, not a string"),
        ({"prediction": "a", "id": "first"}, "id 'first' was already used at "),
        ([1], "a list where an object belongs; write {"),
        ("{not json}", "not JSON"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, wrong: object, message: str) -> None:
    path = written(tmp_path, {"prediction": "fine", "id": "first"}, wrong)
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


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is empty"):
        read_predictions(written(tmp_path, end=""))
    with pytest.raises(UserError, match="no such file"):
        read_predictions(tmp_path / "none.jsonl")
