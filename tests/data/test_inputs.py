"""Rows and records: what is read from files of every kind, standard input and the hub, and what is refused where."""

import csv
import gzip
import io
import json
from datetime import date, datetime, time
from decimal import Decimal
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipedec_cli.data.inputs import given_splits, read_records, read_rows
from pipedec_cli.data.records import FieldNames
from pipedec_cli.data.writing import record_fields, to_json, write_json_lines
from tests.words import refusing

TEXT = st.text(min_size=1).filter(str.strip)
ROWS = [
    {"source": 'a, "b"', "target": "007"},
    {"source": "NA", "target": "2020-01-01\nnull"},
]


def refusal(path, **options):
    with refusing() as raised:
        list(read_records(path, **options))
    return raised.value


def test_source_target_and_every_field_in_order_are_read_and_what_has_no_id_gets_its_line(
    write_lines,
):
    first = {"note": [1, {"a": None}], "id": "x", "source": "s", "target": "t"}
    lines = (
        first,
        {"source": "a"},
        "",
        {"source": "b", "id": 17},
        {"source": "c", "id": None},
    )
    path = write_lines("a.jsonl", *lines)
    record, *others = read_records(path)
    assert (record.id, record.source, record.target, record.target_segments) == (
        "x",
        "s",
        "t",
        None,
    )
    assert list(record.fields) == ["note", "id", "source", "target"]
    assert record.where == f"{path}:1"
    assert [record.id for record in others] == ["2", "17", "5"]
    assert others[1].fields["id"] == 17, "numbers become strings"


@pytest.mark.parametrize(
    ("fields", "target", "segments", "references"),
    [
        ({}, None, None, ()),
        ({"target": ""}, "", None, ()),
        ({"target": ["a", "b c"]}, "a b c", ("a", "b c"), ()),
        ({"target_segments": ["a", "b"]}, "a b", ("a", "b"), ()),
        ({"target": ["a", "b"], "target_segments": ["a b"]}, "a b", ("a b",), ()),
        ({"target": "t", "references": ["u", "t", "v"]}, "t", None, ("t", "u", "v")),
    ],
)
def test_a_list_is_segmented_and_a_target_its_first_text(
    write_lines, fields, target, segments, references
):
    (record,) = read_records(write_lines("a.jsonl", {"source": "s", **fields}))
    assert (record.target, record.target_segments, record.references) == (
        target,
        segments,
        references,
    )


A = {"source": "a"}


@pytest.mark.parametrize(
    "items",
    [
        [],
        [A, '{"source": "b",}'],
        ['{"source": }'],
        ["[1]"],
        [{"text": "a"}],
        [{"source": None}],
        [{"source": " \n"}],
        [{"source": ["a"]}],
        [A | {"references": "\ud800"}],
        [A | {"target": 3}],
        [A | {"target": ["b", 3]}],
        [A | {"id": ["b"]}],
        [A | {"id": "x"}, A, A | {"id": "x"}],
        [A | {"id": 2}, A],
        ["[" * 100_000],
        ['{"source": "a", "n": ' + "9" * 5000 + "}"],
        ["\ufeff" + json.dumps(A), '{"source": "\udcff"}'],
        ["The Mill is cheap."],
        ["source,target", "a,b"],
        ['"source"\t"target"'],
        "",
        '"source";"target"\n"a, b";c',
        "source,source\na,b",
        "source,target\na,b,c",
        "source,target\n\na",
        "sour\udcffce,target\na,b",
        "source,target\na,\udcff",
        'source,target\na,b\n"a,b',
    ],
)
def test_bad_lines_and_bad_tables_are_refused_in_one_line_that_names_its_place(
    write_lines, items
):
    lines = items.splitlines() if isinstance(items, str) else items
    refusal(write_lines("data.csv" if isinstance(items, str) else "a.jsonl", *lines))


def test_a_refusal_names_fields_as_they_are_called_and_an_option_only_where_there_is_one(
    write_lines,
):
    path, names = (
        write_lines("a.jsonl", {"article": 3, "source": ""}),
        FieldNames(source="article"),
    )
    refusal(path, names=names)
    refusal(path, names=FieldNames(source="text"))
    path = write_lines("a.jsonl", {"source": ""})
    refusal(path)
    refusal(path, skippable=True)


def test_a_byte_order_mark_is_passed_over_and_numbers_that_are_none_are_carried_along(
    write_lines,
):
    (record,) = read_records(
        write_lines("a.jsonl", '\ufeff{"source": "a", "score": NaN, "best": -Infinity}')
    )
    assert (
        to_json(record_fields(record))
        == '{"source": "a", "score": NaN, "best": -Infinity, "id": "1"}'
    )


def test_a_torn_archive_is_refused(write_lines):
    path = write_lines(
        "data.jsonl.gz", *({"source": f"text {i} " + "x" * i} for i in range(1000))
    )
    for content in (path.read_bytes()[:-100], b"plain text"):
        path.write_bytes(content)
        refusal(path)


GZIPPED = gzip.compress(b'{"source": "a"}\n', mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        GZIPPED,
        b"BZh91AY&SY\x00",
        b"PK\x03\x04\x14\x00\x06\x00xl/workbook.xml\n\xff",
        b"PAR1\x15\x04\x15\x10",
        '{"source": "a"}\n'.encode("utf-16"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json", "a.txt"])
def test_a_file_of_another_kind_than_its_name_says_is_refused_as_what_it_is(
    tmp_path, name, content
):
    path = tmp_path / name
    path.write_bytes(content)
    with refusing(path) as error:
        list(read_rows(path, plain=name == "a.txt"))
    assert error.value.todo


def test_what_comes_compressed_from_a_pipe_is_said_to_be(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(GZIPPED)))
    with refusing("stdin"):
        list(read_rows("-"))


def test_empty_columns_behind_the_last_one_of_a_table_are_passed_over_and_no_value_in_them(
    write_lines,
):
    path = write_lines("a.csv", "source,target,,", "a,b,,", "c,d,", "e,f", '"g ",h, ,')
    assert [row.value for row in read_rows(path)] == [
        {"source": source, "target": target}
        for source, target in ("ab", "cd", "ef", ("g ", "h"))
    ]
    refusal(write_lines("a.csv", "source,target,,", "a,b,x,"))


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.txt.gz"])
def test_plain_lines_are_sources_and_their_numbers_identifiers(
    tmp_path, name, monkeypatch, caplog
):
    content = '\ufefffirst\n\n \u00a0 \n{"source": "x"}\r\n[b] \x00\x1b[31m\u2028 two\nlast'.encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    expected = [
        ("1", "first"),
        ("4", '{"source": "x"}'),
        ("5", "[b] \x00\x1b[31m\u2028 two"),
        ("6", "last"),
    ]
    for place in (path, "-"):
        assert [
            (record.id, record.source) for record in read_records(place, plain=True)
        ] == expected
    assert caplog.messages == [
        f"{path}: 2 blank lines left out",
        "stdin: 2 blank lines left out",
    ]


def test_plain_lines_that_cannot_be_read_are_refused(tmp_path):
    path = tmp_path / "a.txt"
    for content in (b"a\nb\xff", b"\n \n"):
        path.write_bytes(content)
        refusal(path, plain=True)
    refusal("owner/name", plain=True)


@given(
    source=TEXT,
    segments=st.none() | st.lists(TEXT, max_size=4),
    target=st.text(),
    identifier=st.none() | st.integers() | TEXT,
    more=st.dictionaries(
        TEXT.map("x{}".format),
        st.none() | st.booleans() | st.text() | st.lists(st.text()),
    ),
)
def test_what_is_written_reads_back_equal(
    tmp_path_factory, source, segments, target, identifier, more
):
    folder = tmp_path_factory.mktemp("round")
    may_be = {"id": identifier, "target_segments": segments}
    given = {name: value for name, value in may_be.items() if value is not None}
    (folder / "a.jsonl").write_text(
        json.dumps({"source": source, "target": target, **more, **given})
    )
    (first,) = read_records(folder / "a.jsonl")
    write_json_lines(folder / "b.jsonl", [record_fields(first)])
    (second,) = read_records(folder / "b.jsonl")
    added = {} if "id" in given else {"id": first.id}
    assert second == replace(
        first, where=second.where, fields={**first.fields, **added}
    )


def test_a_json_array_and_json_lines_in_a_json_file_give_the_same_and_a_broken_one_is_refused(
    write_lines,
):
    array = write_lines("array.json", json.dumps(ROWS, indent=2))
    one_a_line = write_lines("lines.json", *ROWS, end="")
    assert (
        [row.value for row in read_rows(array)]
        == [row.value for row in read_rows(one_a_line)]
        == ROWS
    )
    assert [row.where for row in read_rows(array)] == [
        f"{array} item 1",
        f"{array} item 2",
    ]
    path = write_lines("data.json", '[{"source": "a"},', ' {"source": b}]')
    with refusing():
        list(read_rows(path))


@pytest.mark.parametrize(
    ("name", "separator"), [("data.csv", ","), ("data.tsv", "\t"), ("data.csv.gz", ",")]
)
def test_csv_cells_stay_the_text_they_are(write_lines, name, separator):
    table = io.StringIO()
    writer = csv.writer(table, delimiter=separator)
    writer.writerows([["source", "target"], *(row.values() for row in ROWS)])
    path = write_lines(name, table.getvalue(), end="")
    rows = list(read_rows(path))
    assert [row.value for row in rows] == ROWS
    assert rows[1].where == f"{path}:3"


def test_csv_cells_may_hold_line_breaks_and_very_long_texts(write_lines):
    table = '\ufeffsource,target\r\n"a\nb",' + "word " * 100_000 + "\r\nc,d\r\n"
    path = write_lines("data.csv", table, end="")
    first, second = read_records(path)
    assert (first.source, len(first.target.split()), second.where) == (
        "a\nb",
        100_000,
        f"{path}:4",
    )


def test_what_json_lacks_in_parquet_is_carried_along_as_text_and_bytes_that_are_none_are_refused(
    tmp_path,
):
    import pyarrow
    from pyarrow import parquet

    path, day, moment = (
        tmp_path / "data.parquet",
        date(2024, 1, 2),
        datetime(2024, 1, 2, 3, 4),
    )
    inside = {"days": [day], "t": time(5)}
    row = {
        "id": day,
        "source": b"s",
        "target": ["a", "b"],
        "price": Decimal("1.50"),
        "at": moment,
    }
    parquet.write_table(pyarrow.Table.from_pylist([row | {"in": inside}]), path)
    (record,) = read_records(path)
    assert (record.id, record.target_segments, record.where) == (
        "2024-01-02",
        ("a", "b"),
        f"{path} row 1",
    )
    written = {
        "price": "1.50",
        "at": "2024-01-02T03:04:00",
        "in": {"days": ["2024-01-02"], "t": "05:00:00"},
    }
    assert record.fields.items() >= written.items()
    parquet.write_table(
        pyarrow.Table.from_pylist([{"source": "s", "image": b"\xff"}]), path
    )
    refusal(path)
    parquet.write_table(
        pyarrow.Table.from_pylist([{"source": "damaged"}]), path, compression="none"
    )
    damaged = path.read_bytes().replace(b"damaged", b"damag\xff\xff")
    for content in (damaged, b"text"):
        path.write_bytes(content)
        refusal(path)


def test_a_folder_gives_its_splits_by_the_names_of_its_files(tmp_path, write_lines):
    with refusing():
        given_splits(tmp_path)
    for name in ("train-0-of-2", "train-1-of-2", "validation", "notes", "trainer"):
        write_lines(f"{name}.jsonl", {"source": name})
    assert given_splits(tmp_path) == ("train", "dev")
    rows = list(read_rows(tmp_path, "train"))
    assert [(row.number, row.value["source"]) for row in rows] == [
        (1, "train-0-of-2"),
        (2, "train-1-of-2"),
    ]


def test_a_missing_file_is_refused_without_asking_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in (
        "nothing.jsonl",
        "no/such/file",
        "no-folder/data.jsonl",
        "nothing",
        "data/in-a-folder",
    ):
        refusal(name)


def test_a_hub_data_set_is_read_by_split_and_one_that_cannot_be_had_is_one_line(
    tmp_path, monkeypatch
):
    import datasets

    asked = []

    def load(name, config=None, *, split, streaming):
        asked.append((name, config, split, streaming))
        return iter([{"source": "s"}])

    def fail(name, config):
        raise ConnectionError("offline\nlong explanation")

    monkeypatch.chdir(tmp_path)
    names = ["train", "validation", "extra"]
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda name, config: names)
    monkeypatch.setattr(datasets, "load_dataset", load)
    assert given_splits("owner/name:v1") == ("train", "dev")
    (row,) = read_rows("owner/name:v1", "dev")
    assert row.where == "owner/name validation row 1"
    assert asked == [("owner/name", "v1", "validation", True)]

    monkeypatch.setattr(datasets, "get_dataset_split_names", fail)
    with refusing():
        given_splits("owner/name")
