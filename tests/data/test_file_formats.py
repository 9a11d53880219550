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

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.inputs import read_records, read_rows
from pipedec_cli.data.records import FieldNames
from pipedec_cli.data.writing import record_fields, to_json, write_json_lines

TEXT = st.text(min_size=1).filter(str.strip)
ROWS = [
    {"source": 'a, "b"', "target": "007"},
    {"source": "NA", "target": "2020-01-01\nnull"},
]


def refusal(path, **options):
    with pytest.raises(UserError) as caught:
        list(read_records(path, **options))
    message = str(caught.value)
    assert "\n" not in message
    return message


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
    ("items", "expected"),
    [
        ([], ".jsonl: is empty"),
        ([A, '{"source": "b",}'], ":2: not JSON: "),
        (['{"source": }'], ":1: not JSON: Expecting value at column 12"),
        (["[1]"], ":1: expected an object, found a list"),
        (
            [{"text": "a"}],
            ":1: field 'source' is missing; its fields are: text; --source-field",
        ),
        ([{"source": None}], ":1: field 'source' is null; its fields are: source"),
        ([{"source": " \n"}], ":1: 'source' is empty"),
        ([{"source": ["a"]}], ":1: field 'source': expected a string, found a list"),
        (
            [A | {"references": "\ud800"}],
            ":1: field 'references': expected a list, found a string",
        ),
        (
            [A | {"target": 3}],
            ":1: field 'target': expected a string or an object or a list, found a number",
        ),
        (
            [A | {"target": ["b", 3]}],
            ":1: field 'target', item 2: expected a string, found a number",
        ),
        (
            [A | {"id": ["b"]}],
            ":1: field 'id': expected a number or a string, found a list",
        ),
        (
            [A | {"id": "x"}, A, A | {"id": "x"}],
            "a.jsonl:3: id 'x' was already used at …a.jsonl:1",
        ),
        ([A | {"id": 2}, A], ":2: id '2' was already used at "),
        (["[" * 100_000], ":1: not JSON"),
        (['{"source": "a", "n": ' + "9" * 5000 + "}"], ":1: not JSON"),
        (
            ["\ufeff" + json.dumps(A), '{"source": "\udcff"}'],
            ":2: not UTF-8: byte 0xff at position 13",
        ),
        (
            ["The Mill is cheap."],
            ":1: not JSON…one JSON object a line; a table's…plain text with --plain",
        ),
        (
            ["source,target", "a,b"],
            ":1: not JSON…; it looks like a table: rename it to .csv or .tsv",
        ),
        (
            ['"source"\t"target"'],
            ":1: not JSON…; it looks like a table: rename it to .csv or .tsv",
        ),
        ("", "data.csv…is empty"),
        (
            '"source";"target"\n"a, b";c',
            "data.csv:1: the header has ';'…separate with commas",
        ),
        ("source,source\na,b", "data.csv…column 'source' is there twice"),
        ("source,target\na,b,c", "data.csv:2: 3 cells under 2 columns"),
        ("source,target\n\na", "data.csv:3: 1 cell under 2 columns; put cells"),
        ("sour\udcffce,target\na,b", "data.csv…not UTF-8"),
        ("source,target\na,\udcff", "data.csv:2: not UTF-8: byte 0xff at position 3"),
        ('source,target\na,b\n"a,b', "data.csv:3: not a table: unexpected end of data"),
    ],
)
def test_bad_lines_and_bad_tables_are_refused_in_one_line_that_names_its_place(
    write_lines, items, expected
):
    lines = items.splitlines() if isinstance(items, str) else items
    message = refusal(
        write_lines("data.csv" if isinstance(items, str) else "a.jsonl", *lines)
    )
    assert all(part in message for part in expected.split("…"))


def test_a_refusal_names_fields_as_they_are_called_and_an_option_only_where_there_is_one(
    write_lines,
):
    path, names = (
        write_lines("a.jsonl", {"article": 3, "source": ""}),
        FieldNames(source="article"),
    )
    told = 'field \'article\': expected a string, found a number; write {"article": "…", "target": "…"}'
    assert refusal(path, names=names) == f"{path}:1: {told}"
    assert "field 'text' is missing" in refusal(path, names=FieldNames(source="text"))
    path = write_lines("a.jsonl", {"source": ""})
    assert refusal(path).endswith("give the record a source, or leave it out")
    assert refusal(path, skippable=True).endswith("or leave it out with --skip-invalid")


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
        assert "cannot unzip" in refusal(path)


GZIPPED = gzip.compress(b'{"source": "a"}\n', mtime=0)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (GZIPPED, "is compressed with gzip"),
        (b"BZh91AY&SY\x00", "is compressed"),
        (b"PK\x03\x04\x14\x00\x06\x00xl/workbook.xml\n\xff", "is a ZIP file, as .xlsx"),
        (b"PAR1\x15\x04\x15\x10", "is a parquet file"),
        ('{"source": "a"}\n'.encode("utf-16"), "is UTF-16"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json", "a.txt"])
def test_a_file_of_another_kind_than_its_name_says_is_refused_as_what_it_is(
    tmp_path, name, content, what
):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        list(read_rows(path, plain=name == "a.txt"))
    assert error.value.where == str(path)
    assert error.value.what.startswith(what) and error.value.todo


def test_what_comes_compressed_from_a_pipe_is_said_to_be(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(GZIPPED)))
    with pytest.raises(UserError) as error:
        list(read_rows("-"))
    assert (error.value.where, error.value.what) == ("stdin", "is compressed with gzip")


def test_empty_columns_behind_the_last_one_of_a_table_are_passed_over_and_no_value_in_them(
    write_lines,
):
    path = write_lines("a.csv", "source,target,,", "a,b,,", "c,d,", "e,f", '"g ",h, ,')
    assert [row.value for row in read_rows(path)] == [
        {"source": source, "target": target}
        for source, target in ("ab", "cd", "ef", ("g ", "h"))
    ]
    assert "a.csv:2: 3 cells under 2 columns" in refusal(
        write_lines("a.csv", "source,target,,", "a,b,x,")
    )


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
    for content, message in (
        (b"a\nb\xff", "a.txt:2: not UTF-8: byte 0xff"),
        (b"\n \n", "is empty"),
    ):
        path.write_bytes(content)
        assert message in refusal(path, plain=True)
    assert "no such file" in refusal("owner/name", plain=True)


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
    with pytest.raises(
        UserError, match=r"data\.json:2: not JSON: Expecting value at column 13"
    ):
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
    said = "data.parquet row 1 field 'image': not UTF-8: byte 0xff at position 1; leave the column out"
    assert said in refusal(path)
    parquet.write_table(
        pyarrow.Table.from_pylist([{"source": "damaged"}]), path, compression="none"
    )
    damaged = path.read_bytes().replace(b"damaged", b"damag\xff\xff")
    for content, why in ((damaged, "'utf-8' codec"), (b"text", "")):
        path.write_bytes(content)
        assert f"data.parquet: cannot be read: {why}" in refusal(path)
