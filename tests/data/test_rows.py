import gzip
import json

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.rows import given_splits, read_records, read_rows

ROWS = [{"source": 'a, "b"', "target": "007"}, {"source": "NA", "target": "2020-01-01\nnull"}]


def test_a_json_array_and_json_lines_in_a_json_file_give_the_same(tmp_path):
    array, one_a_line = tmp_path / "array.json", tmp_path / "lines.json"
    array.write_text(json.dumps(ROWS, indent=2))
    one_a_line.write_text("\n".join(map(json.dumps, ROWS)))
    assert [row.value for row in read_rows(array)] == [row.value for row in read_rows(one_a_line)] == ROWS
    assert [row.where for row in read_rows(array)] == [f"{array} item 1", f"{array} item 2"]


def test_a_broken_array_names_line_and_column(tmp_path):
    path = tmp_path / "data.json"
    path.write_text('[{"source": "a"},\n {"source": b}]')
    with pytest.raises(UserError, match=r"data\.json: not JSON: Expecting value at line 2, column 13"):
        list(read_rows(path))


@pytest.mark.parametrize(("name", "separator"), [("data.csv", ","), ("data.tsv", "\t"), ("data.csv.gz", ",")])
def test_csv_cells_stay_the_text_they_are(tmp_path, name, separator):
    import csv

    path = tmp_path / name
    with (gzip.open if name.endswith(".gz") else open)(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(["source", "target"])
        writer.writerows(row.values() for row in ROWS)
    rows = list(read_rows(path))
    assert [row.value for row in rows] == ROWS
    assert rows[1].where == f"{path}:3"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"source,source\na,b\n", "column 'source' is there twice"),
        (b"source,target\na,b,c\n", "data.csv:2: 3 cells under 2 columns"),
        (b"source,target\n\na\n", "data.csv:3: 1 cells under 2 columns"),
        (b"sour\xffce,target\na,b\n", "not UTF-8"),
        (b"source,target\na,\xff\n", "not UTF-8"),
        (b'source,target\na,b\n"a,b\n', "data.csv:3: not a table: unexpected end of data"),
    ],
)
def test_a_bad_table_is_refused_in_one_line(tmp_path, content, expected):
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=expected) as caught:
        list(read_records(path))
    assert "\n" not in str(caught.value)
    assert "data.csv" in str(caught.value)


def test_csv_cells_may_hold_line_breaks_and_very_long_texts(tmp_path):
    path = tmp_path / "data.csv"
    table = '\ufeffsource,target\r\n"a\nb",' + "word " * 100_000 + "\r\nc,d\r\n"
    path.write_text(table, newline="", encoding="utf-8")
    first, second = read_records(path)
    assert first.source == "a\nb"
    assert len(first.target.split()) == 100_000
    assert second.where == f"{path}:4"


def test_parquet_keeps_lists_and_is_read_without_the_network(tmp_path, monkeypatch):
    import pyarrow
    from pyarrow import parquet

    asked = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *address, **options: asked.append(address))

    path = tmp_path / "data.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([{"source": "s", "target": ["a", "b"]}]), path)
    (record,) = read_records(path)
    assert record.target_segments == ("a", "b")
    assert record.where == f"{path} row 1"
    assert not asked
    path.write_text("text")
    with pytest.raises(UserError, match=r"data\.parquet: cannot be read"):
        list(read_rows(path))


def test_a_folder_gives_its_splits_by_the_names_of_its_files(tmp_path):
    with pytest.raises(UserError, match=r"train\.jsonl, dev\.jsonl, test\.jsonl"):
        given_splits(tmp_path)
    for name in ("train-0-of-2", "train-1-of-2", "validation", "notes", "trainer"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"source": name}) + "\n")
    assert given_splits(tmp_path) == ("train", "dev")
    rows = list(read_rows(tmp_path, "train"))
    assert [(row.number, row.value["source"]) for row in rows] == [(1, "train-0-of-2"), (2, "train-1-of-2")]


def test_a_missing_file_is_refused_without_asking_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in (
        "nothing.jsonl",
        "no/such/file",
        "no-folder/data.jsonl",
        "nothing",
        "data/in-a-folder-there",
    ):
        with pytest.raises(UserError, match=f"{name}: no such file"):
            list(read_rows(name))


def test_a_hub_data_set_is_read_by_split(tmp_path, monkeypatch):
    import datasets

    monkeypatch.chdir(tmp_path)
    asked = []

    def load(name, config=None, *, split, streaming):
        asked.append((name, config, split, streaming))
        return iter([{"source": "s"}])

    names = ["train", "validation", "extra"]
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda name, config: names)
    monkeypatch.setattr(datasets, "load_dataset", load)
    assert given_splits("owner/name:v1") == ("train", "dev")
    (row,) = read_rows("owner/name:v1", "dev")
    assert row.where == "owner/name validation row 1"
    assert asked == [("owner/name", "v1", "validation", True)]


def test_a_hub_data_set_that_cannot_be_had_is_one_line(tmp_path, monkeypatch):
    import datasets

    def fail(name, config):
        raise ConnectionError("offline\nlong explanation")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "get_dataset_split_names", fail)
    with pytest.raises(UserError, match=r"^owner/name: cannot be read: offline; no such file here either$"):
        given_splits("owner/name")
