"""Files of predictions: their lines and where a mistake is said to be, what is looked at before a run, how one goes on."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipedec_cli.data.inputs import scan_inputs
from pipedec_cli.data.predictions import (
    PredictionsFile,
    line,
    read_predictions,
    spans_of,
)
from pipedec_cli.data.records import OUTPUT_FIELDS, FieldNames, Generated, Record
from pipedec_cli.data.resumable import settings_diff
from pipedec_cli.data.writing import JsonLinesAppender
from tests.data.test_writing import JSON
from tests.words import refusing

NAMES = FieldNames()
MANIFEST = {
    "examples": 3,
    "settings": {"delay": 2, "batch_size": 8, "threads": 2},
    "model": {"name": "here", "sha256": "m"},
    "data": {"name": "data.jsonl", "sha256": "d"},
    "versions": {"torch": "2.0"},
}


def record(number=1, **fields):
    given = {"source": "where to?", **fields}
    name = str(fields.get("id") or number)
    return Record(name, "where to?", None, None, (), f"data.jsonl:{number}", given)


def generated(**fields):
    """What came of a record with these fields."""
    told = {
        "text": "A. B.",
        "segments": ("A.", "B."),
        "steps": 4,
        "tokens": 6,
        "seconds": 0.1234567,
    }
    ids = {"grid": ((0, (5, 6, 1)), (2, (1,))), "source_ids": (9, 8, 1)}
    return Generated(record=record(**fields), **told, **ids)


def test_a_line_holds_what_was_generated_and_every_field_of_the_input():
    plain = line(generated(id=7, title="T", nested={"a": [1, None]}), NAMES)
    assert plain == {
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
    assert (
        line(generated(), NAMES, batch_size=8)["batch_size"] == 8
    )  # of whose time the seconds are
    cut = replace(generated(), source_cut=True)
    assert line(cut, NAMES) == line(generated(), NAMES) | {"source_cut": True}
    with_grid = line(generated(), NAMES, trace=True)
    assert with_grid["grid"] == [
        {"start": 0, "tokens": [5, 6, 1]},
        {"start": 2, "tokens": [1]},
    ]
    assert with_grid["source_token_ids"] == [9, 8, 1]
    assert not any(name.startswith("grid_") for name in with_grid)


@pytest.mark.parametrize(
    ("given_id", "stays"),
    [(5, 5), ("five", "five"), (1.5, 1.5), (10**20, 10**20), (None, "1"), ("", "1")],
)
def test_an_id_stays_what_it_was_unless_it_was_nothing(given_id, stays):
    found = line(generated(id=given_id), NAMES)["id"]
    assert (found, type(found)) == (stays, type(stays))


def test_other_names_for_source_and_target_are_kept_and_the_plain_ones_added():
    fields = {"id": "k1", "body": "text", "keywords": ["t"]}
    of = replace(generated(), record=Record("k1", "text", "t", None, (), "", fields))
    added = {"source": "text", "target": ["t"]}
    assert line(of, FieldNames("body", "keywords")).items() >= (fields | added).items()


def test_all_places_of_a_value_are_given_in_whole_words_else_without_regard_to_case():
    source = "Thai food (3 stars, in 1933) at The\nMill, the mill; 3 Mills."
    values = {
        "name": "the mill",
        "both": "The Mill",
        "a": {"food": "THAI"},
        "stars": 3,
        "open": True,
        "lost": None,
    }
    values |= {"tags": ["food (3", "none"], "menu": [{"dish": "Food"}]}
    assert spans_of(values, source) == {
        "name": [[42, 50]],
        "both": [[32, 40]],
        "a": {"food": [[0, 4]]},
        "stars": [[11, 12], [52, 53]],
        "open": None,
        "lost": None,
        "tags": [[[5, 12]], None],
        "menu": [{"dish": [[5, 9]]}],
    }
    found = spans_of(
        dict(enumerate(["東京", "เชียง", "ABC", "AB"])), "彼は東京のABCへ เชียงใหม่"
    )
    assert [*found.values()] == [[[2, 4]], [[10, 15]], [[5, 8]], None]


@given(
    st.dictionaries(
        st.text().filter(lambda name: name not in {*OUTPUT_FIELDS, "id", "source"}),
        JSON,
    )
)
def test_whatever_the_input_holds_comes_back_from_the_file(fields):
    made = line(
        replace(generated(), record=replace(record(), fields=record().fields | fields)),
        NAMES,
    )
    assert json.loads(json.dumps(made)).items() >= fields.items()


def test_what_generate_writes_is_read_back(write_lines):
    answers = {
        "target": "A. C.",
        "target_segments": ["A.", "C."],
        "references": ["D.", "A. C."],
    }
    of = generated(id="x1", mine={"a": 1}, **answers)
    of = replace(of, calls=(2, 3), taken_back=((1, 1, 2, 7),), stopped_on_repeat=True)
    path = write_lines("run.jsonl", line(of, NAMES, trace=True))
    (found,) = read_predictions(path)
    assert replace(found, record=None) == replace(of, seconds=0.123457, record=None)
    of_it = found.record
    assert (found.id, of_it.source, of_it.target_segments) == (
        "x1",
        "where to?",
        ("A.", "C."),
    )
    assert (of_it.references, of_it.where) == (("A. C.", "D."), f"{path}:1")
    assert of_it.fields["mine"] == {"a": 1}


def test_a_bare_prediction_is_enough_and_its_lines_are_its_segments(write_lines):
    lines = (
        {"prediction": "a\n\nb"},
        {"prediction": ["c", "d"], "id": 7},
        {"prediction": ""},
    )
    first, second, third = read_predictions(write_lines("run.jsonl", *lines, end=""))
    assert (first.id, first.segments, first.steps) == ("1", ("a", "b"), 0)
    assert (second.id, second.segments, second.text) == ("7", ("c", "d"), "c d")
    assert third.segments == ()


def test_a_table_of_values_is_refused_with_the_name_of_its_lines(write_lines):
    table = write_lines("values.csv", "name,source", "The Mill,a")
    lines = write_lines("values.jsonl", {"prediction": "a"})
    with refusing(table) as refusal:
        read_predictions(table)
    assert str(lines) in str(refusal.value)


FIRST = {"prediction": "fine", "id": "first"}


@pytest.mark.parametrize(
    "lines",
    [
        [FIRST, {"id": 1, "text": "x"}],
        [FIRST, {"prediction": None}],
        [FIRST, {"prediction": 3}],
        [FIRST, {"prediction": ["a", None]}],
        [FIRST, {"prediction": "a", "steps": "4"}],
        [FIRST, {"prediction": "a", "seconds": True}],
        [FIRST, {"prediction": "a", "id": "first"}],
        [FIRST, [1]],
        [FIRST, "{not json}\n"],
        [FIRST, '{"prediction": "b'],
        ['{"prediction": "b', FIRST],
        [""],
    ],
)
def test_a_mistake_names_its_line_and_a_torn_last_one_is_told_from_a_wrong_one(
    write_lines, lines
):
    path = write_lines("run.jsonl", *lines, end="")
    with refusing():
        read_predictions(path)


def test_a_wrong_line_of_compressed_predictions_is_not_taken_for_a_torn_one(tmp_path):
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(b'wrong\n{"prediction": "b"}\n', mtime=0))
    assert (
        b"\n" not in path.read_bytes()
    )  # so that the first line seems to be the last one
    with refusing():
        read_predictions(path)


def records(count=3):
    return [record(number) for number in range(1, count + 1)]


def begin(folder, *, lines=3):
    """The files of a run that has come so far."""
    files = PredictionsFile(folder / "run.jsonl")
    files.start(MANIFEST)
    with JsonLinesAppender(files.path) as file:
        for item in records(lines):
            file.write({"id": item.id, "prediction": "A. B.", **item.fields})
    if lines == MANIFEST["examples"]:
        files.finish_lines()
    return files


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        *((NAMES, {name: 1}) for name in OUTPUT_FIELDS),
        (FieldNames(source="body"), {"body": "b"}),
    ],
)
def test_a_field_that_would_be_written_over_is_refused_by_name_and_place(names, wrong):
    with refusing("data.jsonl:2"):
        scan_inputs(lambda: iter([record(1), record(2, **wrong)]), names)


def test_lines_of_other_records_or_without_a_manifest_of_ours_are_refused(tmp_path):
    files, moved = (
        begin(tmp_path),
        {**MANIFEST, "model": {"name": "elsewhere", "sha256": "m"}},
    )
    assert files.done(moved, records()) == 3
    for of in ([record(1), record(5)], records(2)):
        with refusing():
            files.done(MANIFEST, of)
    files.manifest_path.write_text("[1]", encoding="utf-8")
    with refusing():
        files.done(MANIFEST, records())
    files.manifest_path.unlink()
    with refusing():
        files.done(MANIFEST, records())
    with refusing():
        read_predictions(tmp_path / "none.jsonl")


def test_what_differs_is_named_for_a_manifest_of_an_unknown_make_and_for_other_versions(
    tmp_path,
):
    assert list(settings_diff({}, MANIFEST)) == [
        "delay was not given and is now 2",
        "the model changed",
        "the data changed",
    ]
    rows = [{"count": count, "sha256": f"hash {count}"} for count in (2, 3)]
    was, is_now = ({"settings": {"rows": each}} for each in rows)
    assert [*settings_diff(was, is_now)] == [
        "the rows changed (count was 2 and is now 3)"
    ]
    now = {**MANIFEST, "versions": {"torch": "3.0", "pipedec": "1"}}
    assert begin(tmp_path).version_changes(now) == [
        "torch 2.0 → 3.0",
        "pipedec None → 1",
    ]


def test_each_earlier_run_and_a_file_of_no_run_is_kept_and_no_backup_is_replaced(
    tmp_path,
):
    for lines in (3, 1, 2):
        begin(tmp_path, lines=lines)
    counts = {
        path.name: len(path.read_bytes().splitlines())
        for path in tmp_path.glob("run.jsonl*")
    }
    assert counts == {"run.jsonl.bak": 3, "run.jsonl.bak2": 1, "run.jsonl": 2}
    assert len([*tmp_path.glob("run.manifest.json*")]) == 3
    mine = PredictionsFile(tmp_path / "mine.jsonl")
    mine.path.write_text("mine\n", encoding="utf-8")
    assert mine.start(MANIFEST) == tmp_path / "mine.jsonl.bak"
    assert (tmp_path / "mine.jsonl.bak").read_text(encoding="utf-8") == "mine\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.jsonl", b"\x08\0\0\0\0\0\0\0{}      weights"),
        ("run.jsonl", b'{"id": "1", "source": "a"}\n'),
        ("run.manifest.json", b'{"name": "an app", "icons": []}'),
        ("run.invalid.jsonl", b"mine\n"),
    ],
)
def test_a_file_that_generate_did_not_write_is_refused_by_its_name(
    tmp_path, name, content
):
    (tmp_path / name).write_bytes(content)
    with refusing(tmp_path / name):
        PredictionsFile(tmp_path / "run.jsonl").require_own()


def test_files_of_earlier_runs_may_be_replaced_with_and_without_their_manifest(
    tmp_path,
):
    files = PredictionsFile(tmp_path / "run.jsonl")
    files.require_own()
    files.path.touch()
    files.require_own()
    begin(tmp_path).require_own()
    files.manifest_path.unlink()
    files.path.write_text(
        '{"id": 1, "prediction": "A.", "steps": 3, "truncated": null}\n',
        encoding="utf-8",
    )
    files.require_own()
