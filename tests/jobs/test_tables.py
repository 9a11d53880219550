"""`pipedec generate --out` with the name of a table: the table, its lines beside it, stops, and going on."""

import csv
import io
import json
from typing import Any

import pytest
from pyarrow import parquet

from pipedec_cli.data.writing import JsonLinesAppender
from pipedec_cli.jobs import run as predicting
from tests.model.chats import foreign
from tests.running import lines_of, refused, run, write_lines

KEYS = "name, stars int, at.area: river|city"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A chat model that knows nothing."""
    return foreign(tmp_path_factory.mktemp("tables") / "model")


@pytest.fixture
def command(model, tmp_path, monkeypatch):
    """The command that writes a table, without its --out."""
    monkeypatch.chdir(tmp_path)
    docs = [{"source": f"Aromi {n} has {n} stars.", "of": n} for n in range(5)]
    write_lines(tmp_path / "docs.jsonl", *docs)
    return ("generate", "docs.jsonl", "--model", model, "--fields", KEYS)


def rows_of(path):
    text = path.read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_table_holds_what_the_lines_beside_it_hold(command, tmp_path):
    told = run(*command, "--out", "values.csv", "--confidence").stderr
    assert "values.csv" in told and "pipedec score values.jsonl" not in told
    lines = lines_of(tmp_path / "values.jsonl")
    rows = rows_of(tmp_path / "values.csv")
    heads = ["name", "name.confidence", "stars", "stars.confidence"]
    assert [*rows[0]][1:5] == heads and len(rows) == 5
    for row, line in zip(rows, lines, strict=True):
        assert row["name"] == line["fields"]["name"]
        assert row["at.area"] == line["fields"].get("at", {}).get("area", "")
        assert float(row["name.confidence"]) == line["confidence"]["name"]
        assert (row["source"], row["of"]) == (line["source"], str(line["of"]))


def test_lines_that_are_there_become_a_table_of_the_other_kind(command, tmp_path):
    run(*command, "--out", "values.csv")
    told = run(*command, "--out", "values.parquet", "--resume").stderr
    assert "is whole already" in told
    table = parquet.read_table(tmp_path / "values.parquet")
    assert str(table.schema.field("stars").type) == "int64"
    names = [line["fields"]["name"] for line in lines_of(tmp_path / "values.jsonl")]
    assert table.column("name").to_pylist() == names


def test_ctrl_c_leaves_a_table_of_what_is_there_and_resume_makes_it_whole(
    command, tmp_path, monkeypatch
):
    run(*command, "--out", "whole.csv")

    class Interrupted(JsonLinesAppender):
        def write(self, item: Any) -> None:
            super().write(item)
            if item["of"] == 2:
                raise KeyboardInterrupt

    out = tmp_path / "values.csv"
    with monkeypatch.context() as patch:
        patch.setattr(predicting, "JsonLinesAppender", Interrupted)
        run(*command, "--out", out, "--quiet", exit_code=130)
    whole = (tmp_path / "whole.csv").read_bytes()
    assert len(rows_of(out)) == 3 and whole.startswith(out.read_bytes())
    run(*command, "--out", out, "--resume")
    assert out.read_bytes() == whole


def test_what_stood_in_the_table_is_kept(command, tmp_path):
    out = tmp_path / "values.csv"
    out.write_text("mine", encoding="utf-8")
    run(*command, "--out", out)
    assert (tmp_path / "values.csv.bak").read_text(encoding="utf-8") == "mine"
    out.write_text("edited", encoding="utf-8")
    run(*command, "--out", out, "--resume")
    assert (tmp_path / "values.csv.bak2").read_text(encoding="utf-8") == "edited"
    whole = out.read_bytes()
    run(*command, "--out", out)
    assert (tmp_path / "values.csv.bak3").read_bytes() == whole == out.read_bytes()
    assert (tmp_path / "values.jsonl.bak").exists()


def test_a_table_is_refused_where_it_would_cover_data_or_lines_of_others(
    command, tmp_path
):
    (tmp_path / "docs.csv").write_text("source\nAromi\n", encoding="utf-8")
    again = ("generate", "docs.csv", *command[2:])
    assert "would be written over" in refused(*again, "--out", "docs.csv")
    assert "would be written over" in refused(*command, "--out", "docs.csv")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    told = refused(*command, "--out", "other.csv")
    for named in ("other.csv", "other.jsonl was not written by"):
        assert named in told
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in refused(*command, "--out", "folder.csv")
    assert ".csv or .parquet" in refused(*command, "--out", "values.xlsx")


def test_a_new_table_does_not_take_the_lines_of_one_of_the_other_kind(
    command, tmp_path
):
    run(*command, "--out", "values.csv")
    kept = (tmp_path / "values.jsonl").read_bytes()
    assert "values.csv" in refused(*command, "--out", "values.parquet")
    assert (tmp_path / "values.jsonl").read_bytes() == kept


def test_what_has_no_columns_of_its_own_is_json_in_a_cell(command, tmp_path):
    number = {"type": "integer"}
    items = {"type": "array", "items": {"properties": {"stars": number}}}
    menu = {"properties": {"menu": items}, "required": ["menu"]}
    counts = {"additionalProperties": number}
    for schema, name in ((menu, "menu"), (counts, "prediction")):
        (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
        run(*command[:-2], "--schema", "schema.json", "--out", "values.csv")
        for row, line in zip(
            rows_of(tmp_path / "values.csv"),
            lines_of(tmp_path / "values.jsonl"),
            strict=True,
        ):
            assert json.loads(row[name]) == line["fields"].get(name, line["fields"])
