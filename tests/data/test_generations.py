"""Predictions as they are written: what a line holds, and how a stopped run goes on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import (
    GenerationFiles,
    differences,
    look_through,
    other_versions,
)
from pipedec_cli.data.predictions import line as line_of
from pipedec_cli.data.records import OUTPUT_FIELDS, FieldNames, Generated, Record
from pipedec_cli.data.writing import JsonLinesAppender

MANIFEST = {
    "examples": 3,
    "settings": {"delay": 2, "batch_size": 8, "threads": 2},
    "model": {"name": "here", "sha256": "m"},
    "data": {"name": "data.jsonl", "sha256": "d"},
    "versions": {"torch": "2.0"},
}
#: Whatever a field of the input may hold.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def record(number=1, **fields):
    identifier = str(fields.get("id", number))
    return Record(
        identifier, "where to?", None, None, (), f"data.jsonl:{number}", {"source": "where to?", **fields}
    )


def prediction(of):
    return Generated(
        text="A. B.",
        segments=("A.", "B."),
        steps=4,
        tokens=6,
        seconds=0.1234567,
        grid=((0, (5, 6, 1)), (2, (1,))),
        source_ids=(9, 8, 1),
        record=of,
    )


def records(count=3):
    return [record(number) for number in range(1, count + 1)]


def changed(**settings):
    return {**MANIFEST, "settings": {**MANIFEST["settings"], **settings}}


def begin(folder, *, lines=3, manifest=MANIFEST):
    """The files of a run that has come so far."""
    files = GenerationFiles(folder / "run.jsonl")
    files.start(manifest)
    with JsonLinesAppender(files.lines) as file:
        for item in records(lines):
            file.write(line_of(prediction(item), FieldNames()))
    return files


# --- a line ---------------------------------------------------------------------------------------------


def test_a_line_holds_what_was_generated_and_every_field_of_the_input():
    line = line_of(prediction(record(7, title="T", nested={"a": [1, None]})), FieldNames())
    assert line == {
        "id": "7",
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


@pytest.mark.parametrize("given_id", [5, "five", 1.5, 10**20])
def test_an_id_stays_what_it_was_in_the_input(given_id):
    line = line_of(prediction(record(1, id=given_id)), FieldNames())
    assert line["id"] == given_id
    assert type(line["id"]) is type(given_id)


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_id_that_is_nothing_gives_way_to_the_line_number(nothing):
    of = Record("3", "s", None, None, (), "", {"id": nothing, "source": "s"})
    assert line_of(prediction(of), FieldNames())["id"] == "3"


def test_other_names_for_source_target_and_id_are_kept_and_the_plain_ones_added():
    of = Record("k1", "text", "t", None, (), "", {"key": "k1", "body": "text", "keywords": ["t"]})
    line = line_of(prediction(of), FieldNames("body", "keywords", "key"))
    assert (line["id"], line["source"], line["target"]) == ("k1", "text", ["t"])
    assert (line["key"], line["body"], line["keywords"]) == ("k1", "text", ["t"])


@given(st.dictionaries(st.text().filter(lambda name: name not in {*OUTPUT_FIELDS, "id", "source"}), JSON))
def test_whatever_the_input_holds_comes_back_from_the_file(fields):
    line = json.loads(json.dumps(line_of(prediction(record(**fields)), FieldNames())))
    for name, value in fields.items():
        assert line[name] == value


def test_a_trace_adds_the_grid_and_the_ids_of_the_source():
    line = line_of(prediction(record()), FieldNames(), trace=True)
    assert line["grid"] == [{"start": 0, "tokens": [5, 6, 1]}, {"start": 2, "tokens": [1]}]
    assert line["source_token_ids"] == [9, 8, 1]


# --- looking through the input --------------------------------------------------------------------------


def test_inputs_are_counted_and_can_be_read_again_and_again():
    inputs = look_through(lambda: iter(records(3)), FieldNames())
    assert inputs.count == 3
    assert inputs.longest == len("where to?")
    assert [item.id for item in inputs.read()] == [item.id for item in inputs.read()] == ["1", "2", "3"]


def test_a_limit_takes_the_first_and_reads_no_further():
    def two():
        yield from records(2)
        raise AssertionError("read too far")

    inputs = look_through(two, FieldNames(), limit=2)
    assert inputs.count == 2
    assert len(list(inputs.read())) == 2


def test_what_can_be_read_only_once_is_kept():
    once = iter(records(3))
    inputs = look_through(lambda: once, FieldNames(), keep=True)
    assert len(list(inputs.read())) == len(list(inputs.read())) == 3


@pytest.mark.parametrize("other", [[record(1), record(2, x=2)], [record(2, x=1), record(1)], [record(1)]])
def test_the_hash_tells_other_fields_another_order_and_fewer_records(other):
    this = look_through(lambda: iter([record(1), record(2, x=1)]), FieldNames())
    assert this.sha256 == look_through(lambda: iter([record(1), record(2, x=1)]), FieldNames()).sha256
    assert this.sha256 != look_through(lambda: iter(other), FieldNames()).sha256


@pytest.mark.parametrize("name", OUTPUT_FIELDS)
def test_a_field_that_generate_writes_is_refused_by_name_and_place(name):
    with pytest.raises(UserError, match=rf"data\.jsonl:2: field '{name}'"):
        look_through(lambda: iter([record(1), record(2, **{name: 1})]), FieldNames())


def test_a_plain_name_beside_the_one_that_was_chosen_is_refused():
    of = Record("1", "b", None, None, (), "data.jsonl:1", {"source": "s", "body": "b"})
    with pytest.raises(UserError, match=r"data\.jsonl:1: field 'source'"):
        look_through(lambda: iter([of]), FieldNames(source="body"))


# --- going on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [0, 1, 3])
def test_whole_lines_of_the_same_run_are_counted(tmp_path, lines):
    assert begin(tmp_path, lines=lines).done(MANIFEST, records()) == lines


def test_a_torn_last_line_does_not_count(tmp_path):
    files = begin(tmp_path)
    content = files.lines.read_bytes()
    files.lines.write_bytes(content[:-5])
    assert files.done(MANIFEST, records()) == 2


def test_other_settings_are_refused_each_by_name(tmp_path):
    with pytest.raises(UserError, match="delay was 2 and is now 3; trace was null and is now true") as raised:
        begin(tmp_path).done(changed(delay=3, trace=True), records())
    assert raised.value.todo is not None
    assert "--resume" in raised.value.todo


@pytest.mark.parametrize("what", ["model", "data"])
def test_another_model_and_other_data_are_refused(tmp_path, what):
    with pytest.raises(UserError, match=f"the {what} changed"):
        begin(tmp_path).done({**MANIFEST, what: {"name": "elsewhere", "sha256": "x"}}, records())


def test_a_moved_model_and_another_speed_are_no_change(tmp_path):
    now = changed(batch_size=1, threads=1)
    now["model"] = {"name": "elsewhere", "sha256": "m"}
    assert begin(tmp_path).done(now, records()) == 3


def test_lines_of_other_records_are_refused(tmp_path):
    with pytest.raises(UserError, match="line 2 is of id '2' where '5' belongs"):
        begin(tmp_path).done(MANIFEST, [record(1), record(5)])


def test_more_lines_than_records_are_refused(tmp_path):
    with pytest.raises(UserError, match="more than the 2 lines"):
        begin(tmp_path).done(MANIFEST, records(2))


def test_lines_without_a_manifest_are_refused(tmp_path):
    files = begin(tmp_path)
    files.manifest.unlink()
    with pytest.raises(UserError, match=r"no run\.manifest\.json beside it"):
        files.done(MANIFEST, records())


def test_a_manifest_that_is_none_of_ours_is_refused(tmp_path):
    files = begin(tmp_path)
    files.manifest.write_text("[1]", encoding="utf-8")
    with pytest.raises(UserError, match="not what `pipedec generate` writes"):
        files.done(MANIFEST, records())


# --- starting anew --------------------------------------------------------------------------------------


def test_a_first_run_replaces_nothing(tmp_path):
    files = GenerationFiles(tmp_path / "new" / "run.jsonl")
    assert files.start(MANIFEST) is None
    assert json.loads(files.manifest.read_text(encoding="utf-8")) == MANIFEST


def test_what_a_new_run_replaces_is_kept_with_its_manifest(tmp_path):
    files = begin(tmp_path)
    before = files.lines.read_bytes()
    assert files.start(changed(delay=1)) == tmp_path / "run.jsonl.bak"
    assert not files.begun
    assert (tmp_path / "run.jsonl.bak").read_bytes() == before
    assert json.loads((tmp_path / "run.manifest.json.bak").read_text(encoding="utf-8")) == MANIFEST


def test_a_stopped_run_does_not_take_the_place_of_a_whole_one_that_is_kept(tmp_path):
    begin(tmp_path, lines=3)
    begin(tmp_path, lines=1)
    begin(tmp_path, lines=2)
    assert len((tmp_path / "run.jsonl.bak").read_text(encoding="utf-8").splitlines()) == 3


def test_a_whole_run_takes_the_place_of_the_one_that_was_kept(tmp_path):
    begin(tmp_path, lines=1)
    begin(tmp_path, lines=3)
    begin(tmp_path, lines=0)
    assert len((tmp_path / "run.jsonl.bak").read_text(encoding="utf-8").splitlines()) == 3


def test_a_file_that_is_not_of_a_run_is_kept(tmp_path):
    (tmp_path / "run.jsonl").write_text("mine\n", encoding="utf-8")
    assert GenerationFiles(tmp_path / "run.jsonl").start(MANIFEST) == tmp_path / "run.jsonl.bak"
    assert (tmp_path / "run.jsonl.bak").read_text(encoding="utf-8") == "mine\n"


# --- differences ----------------------------------------------------------------------------------------


def test_equal_manifests_do_not_differ():
    assert list(differences(MANIFEST, MANIFEST)) == []


def test_a_manifest_of_an_unknown_make_differs_in_all_that_matters():
    assert len(list(differences({}, MANIFEST))) == 3


def test_other_versions_are_named(tmp_path):
    files = begin(tmp_path)
    now = {**MANIFEST, "versions": {"torch": "3.0", "pipedec": "1"}}
    assert other_versions(files.manifest, now) == ["torch 2.0 → 3.0", "pipedec None → 1"]
