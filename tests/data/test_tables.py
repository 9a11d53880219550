"""Tables of predictions: columns, types, and cells that a spreadsheet does not compute."""

import csv
import io

import pytest
from pyarrow import parquet

from pipedec_cli.data.predictions import PredictionsFile, lines_path
from pipedec_cli.data.tables import write_table
from tests.running import write_lines

LINES = [
    {
        "id": "a",
        "prediction": "{}",
        "fields": {"name": "=1+1", "stars": 3, "at": {"city": "Bath"}, "tags": ["x"]},
        "confidence": {"name": 0.5, "at": {"city": 0.25}, "tags": [0.75]},
        "spans": {"name": [[0, 4]], "stars": None},
        "violations": ["stars: too many"],
        "truncated": None,
        "steps": 2,
        "source": "-4 °C\nin Zürich",
        "stars": 7,
        "target": {"name": "x"},
    },
    {
        "id": "b",
        "prediction": "{}",
        "fields": {"name": "a\ud800", "open": False, "stars": -2, "price": 1},
        "confidence": {"open": 0.5},
        "truncated": "time_max",
        "steps": 1,
        "source": "@me",
    },
]
KEYS = {
    ("name",): "string",
    ("open",): "boolean",
    ("stars",): "integer",
    ("price",): "number",
    ("at", "city"): "string",
    ("tags",): "list",
    ("never",): "number",
}


@pytest.fixture
def file(tmp_path):
    return PredictionsFile(write_lines(tmp_path / "values.jsonl", *LINES))


def rows_of(path):
    text = path.read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_spreadsheet_reads_utf_8_and_computes_no_text(file, tmp_path):
    out = tmp_path / "values.csv"
    write_table(out, file, KEYS)
    assert out.read_bytes().startswith(b"\xef\xbb\xbf")
    first, second = rows_of(out)
    assert first["name"] == "'=1+1" and first["source"] == "'-4 °C\nin Zürich"
    assert second["source"] == "'@me"
    assert (second["stars"], second["open"], second["price"]) == ("-2", "false", "1")
    assert (first["at.city"], first["tags"]) == ("Bath", '["x"]')


def test_each_key_has_a_column_and_beside_it_what_is_said_of_it(file, tmp_path):
    out = tmp_path / "values.csv"
    write_table(out, file, KEYS)
    first, second = rows_of(out)
    assert [*first][:4] == ["id", "name", "name.confidence", "name.spans"]
    assert first["name.confidence"] == "0.5" and first["name.spans"] == "[[0, 4]]"
    assert first["at.city.confidence"] == "0.25"
    assert first["tags.confidence"] == "[0.75]"
    assert second["open.confidence"] == "0.5" and second["stars.confidence"] == ""
    assert "never" in first and first["violations"] == '["stars: too many"]'
    assert "missing" not in first, "nothing is said there"
    assert first["truncated"] == "" and second["truncated"] == "time_max"


def test_fields_of_the_records_stay_and_never_take_the_name_of_a_key(file, tmp_path):
    out = tmp_path / "values.csv"
    write_table(out, file, KEYS)
    first, second = rows_of(out)
    assert (first["stars"], first["stars_"]) == ("3", "7")
    assert second["stars_"] == "" and first["target"] == '{"name": "x"}'
    assert "steps" not in first and "prediction" not in first


def test_values_keep_their_types_in_parquet(file, tmp_path):
    out = tmp_path / "values.PARQUET"
    write_table(out, file, KEYS)
    table = parquet.read_table(out)
    types = {field.name: str(field.type) for field in table.schema}
    assert types["open"] == "bool" and types["stars"] == "int64"
    assert types["price"] == types["never"] == types["name.confidence"] == "double"
    assert types["stars_"] == "int64" and types["tags"] == types["name"] == "string"
    first, second = table.to_pylist()
    assert first["name"] == "=1+1", "a formula is for spreadsheets alone"
    assert first["stars"] == 3 and second["price"] == 1.0 and second["open"] is False
    assert second["name"] == "a\ufffd" and second["tags"] is None


@pytest.mark.parametrize(
    ("values", "kind", "written"),
    [
        ([2**63, 1], "integer", [str(2**63), "1"]),
        ([2**53 + 1, 0.5], "number", [str(2**53 + 1), "0.5"]),
        ([2**53 + 1, 1], "number", [2**53 + 1, 1]),
        ([1, "one"], "integer", ["1", "one"]),
        ([True, 1], "any", ["true", "1"]),
        ([1, 0.5], "integer", [1.0, 0.5]),
        ([None, {"a": 1}], "any", [None, '{"a": 1}']),
        ([None, None], "boolean", [None, None]),
    ],
)
def test_no_value_is_lost_where_a_type_does_not_hold_it(
    tmp_path, values, kind, written
):
    lines = [{"id": n, "fields": {"a": value}} for n, value in enumerate(values)]
    file = PredictionsFile(write_lines(tmp_path / "lines.jsonl", *lines))
    write_table(tmp_path / "out.parquet", file, {("a",): kind})
    read = parquet.read_table(tmp_path / "out.parquet").column("a").to_pylist()
    assert read == written and [*map(type, read)] == [*map(type, written)]


def test_texts_have_a_column_where_there_are_no_keys(file, tmp_path):
    write_table(tmp_path / "out.csv", file, {})
    assert [row["prediction"] for row in rows_of(tmp_path / "out.csv")] == ["{}", "{}"]


def test_the_lines_of_a_table_stand_beside_it(tmp_path):
    assert lines_path(tmp_path / "a.b.CSV") == tmp_path / "a.b.jsonl"
    assert lines_path(tmp_path / "a.parquet") == tmp_path / "a.jsonl"
    assert lines_path(tmp_path / "a.json") == tmp_path / "a.json"
