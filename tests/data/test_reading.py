import gzip
import io
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import FieldNames
from pipedec_cli.data.rows import read_records
from pipedec_cli.data.writing import record_fields, to_json, write_json_lines

TEXT = st.text(min_size=1).filter(str.strip)


def lines(tmp_path, *items, name="data.jsonl"):
    path = tmp_path / name
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items))
    return path


def refusal(path, **options):
    with pytest.raises(UserError) as caught:
        list(read_records(path, **options))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_reads_source_target_and_keeps_every_field_in_order(tmp_path):
    path = lines(tmp_path, {"note": [1, {"a": None}], "id": "x", "source": "s", "target": "t"})
    (record,) = read_records(path)
    assert (record.id, record.source, record.target, record.target_segments) == ("x", "s", "t", None)
    assert list(record.fields) == ["note", "id", "source", "target"]
    assert record.where == f"{path}:1"


def test_id_is_the_line_number_where_there_is_none_and_numbers_become_strings(tmp_path):
    path = lines(tmp_path, {"source": "a"}, "", {"source": "b", "id": 17}, {"source": "c", "id": None})
    records = list(read_records(path))
    assert [record.id for record in records] == ["1", "17", "4"]
    assert records[1].fields["id"] == 17


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
def test_a_list_is_a_target_that_is_segmented_already_and_references_put_the_target_first(
    tmp_path, fields, target, segments, references
):
    (record,) = read_records(lines(tmp_path, {"source": "s", **fields}))
    assert (record.target, record.target_segments, record.references) == (target, segments, references)


def test_fields_may_have_other_names(tmp_path):
    path = lines(tmp_path, {"article": "s", "summary": "t", "key": "k"})
    (record,) = read_records(path, FieldNames("article", "summary", "key"))
    assert (record.id, record.source, record.target) == ("k", "s", "t")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], "data.jsonl: is empty"),
        (["", "  "], "data.jsonl: is empty"),
        (['{"source": "a"}', '{"source": "b",}'], ":2: not JSON: "),
        (['{"source": }'], ":1: not JSON: Expecting value at column 12"),
        (["[1]"], ":1: a list where an object belongs"),
        (["3"], ":1: a number where an object belongs"),
        ([{"text": "a"}], ":1: field 'source' is missing; its fields are: text; --source-field"),
        ([{"source": None}], ":1: field 'source' is null"),
        ([{"source": " \n"}], ":1: 'source' is empty"),
        ([{"source": ["a"]}], ":1: 'source' is a list, not a string"),
        ([{"source": "a", "references": "\ud800"}], ":1: 'references' is a string, not a list of strings"),
        ([{"source": "a", "target": 3}], ":1: 'target' is a number, neither a string nor a list of strings"),
        ([{"source": "a", "target": True}], ":1: 'target' is true or false, neither"),
        ([{"source": "a", "target": ["b", 3]}], ":1: 'target' holds a number at place 2, not a string"),
        ([{"source": "a", "references": "b"}], ":1: 'references' is a string, not a list of strings"),
        ([{"source": "a", "id": ["b"]}], ":1: 'id' is a list, not a string or a number"),
        ([{"source": "a", "id": 1}, {"source": "b", "id": "1"}], ":2: id '1' was already used at "),
        ([{"source": "a", "id": 2}, {"source": "b"}], ":2: id '2' was already used at "),
        (["[" * 100_000], ":1: not JSON"),
        (['{"source": "a", "n": ' + "9" * 5000 + "}"], ":1: not JSON"),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_its_place(tmp_path, items, expected):
    assert expected in refusal(lines(tmp_path, *items))


def test_duplicate_ids_name_both_lines(tmp_path):
    path = lines(tmp_path, {"id": "x", "source": "a"}, {"id": "y", "source": "a"}, {"id": "x", "source": "a"})
    assert refusal(path) == f"{path}:3: id 'x' was already used at {path}:1"


def test_the_files_own_names_are_in_what_is_said(tmp_path):
    path, names = lines(tmp_path, {"article": 3, "source": "s"}), FieldNames(source="article")
    assert refusal(path, names=names) == f"{path}:1: 'article' is a number, not a string"
    assert "field 'text' is missing" in refusal(path, names=FieldNames(source="text"))


def test_a_missing_target_is_refused_where_it_is_needed_and_an_empty_one_is_there(tmp_path):
    assert "field 'target' is missing" in refusal(lines(tmp_path, {"source": "a"}), need_target=True)
    assert len(list(read_records(lines(tmp_path, {"source": "a", "target": ""}), need_target=True))) == 1


def test_a_byte_order_mark_is_passed_over_and_invalid_utf8_names_line_and_byte(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"source": "a"}\n{"source": "\xff"}\n')
    assert next(read_records(path)).source == "a"
    assert f"{path}:2: not UTF-8: byte 0xff at position 13" in refusal(path)


def test_gzipped_lines_are_read_and_a_torn_archive_is_refused(tmp_path):
    path = tmp_path / "data.jsonl.gz"
    content = "".join(json.dumps({"source": f"text {i} " + "x" * i}) + "\n" for i in range(1000))
    path.write_bytes(gzip.compress(content.encode()))
    assert len(list(read_records(path))) == 1000
    path.write_bytes(path.read_bytes()[:-100])
    assert "cannot unzip" in refusal(path)
    path.write_bytes(b"plain text")
    assert "cannot unzip" in refusal(path)


def test_dash_reads_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"source": "a"}\n{"sour')))
    reader = read_records("-")
    assert next(reader).source == "a"
    with pytest.raises(UserError, match=r"stdin:2: not JSON"):
        next(reader)


def test_half_a_surrogate_pair_is_replaced_and_said(tmp_path):
    path = lines(
        tmp_path,
        '{"source": "a\\ud800b", "target": ["\\udfff"], "x": "\\ud800"}',
        '{"source": "\\ud83d\\ude00"}',
    )
    said = []
    first, second = read_records(path, warn=said.append)
    assert first.source == "a\ufffdb"
    assert first.target_segments == ("\ufffd",)
    assert first.fields["x"] == "\ud800"
    assert second.source == "😀"
    assert len(said) == 1
    assert said[0].startswith(f"{path}:1: ")


def test_numbers_that_are_none_are_carried_along(tmp_path):
    (record,) = read_records(lines(tmp_path, '{"source": "a", "score": NaN, "best": -Infinity}'))
    assert to_json(record_fields(record)) == '{"source": "a", "score": NaN, "best": -Infinity, "id": "1"}'


@given(
    source=TEXT,
    segments=st.none() | st.lists(TEXT, max_size=4),
    target=st.text(),
    identifier=st.none() | st.integers() | TEXT,
    more=st.dictionaries(
        TEXT.map(lambda name: f"x{name}"), st.none() | st.booleans() | st.text() | st.lists(st.text())
    ),
)
def test_what_is_written_reads_back_equal(tmp_path_factory, source, segments, target, identifier, more):
    folder = tmp_path_factory.mktemp("round")
    item = {"source": source, "target": target, **more}
    if identifier is not None:
        item["id"] = identifier
    if segments is not None:
        item["target_segments"] = segments
    (first,) = read_records(lines(folder, item, name="a.jsonl"))
    write_json_lines(folder / "b.jsonl", [record_fields(first)])
    (second,) = read_records(folder / "b.jsonl")
    added = {} if identifier is not None else {"id": first.id}
    assert second == replace(first, where=second.where, fields={**first.fields, **added})
