"""The files of a run of generate: what is looked at before it begins, how a stopped one goes on, what a new one keeps."""

import json

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import GenerationFiles, differences, look_through, other_versions
from pipedec_cli.data.records import OUTPUT_FIELDS, FieldNames, Record
from pipedec_cli.data.writing import JsonLinesAppender, write_json

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
    return Record(str(number), "where to?", None, None, (), f"data.jsonl:{number}", given)


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
            file.write({"id": item.id, "prediction": "A. B."})
    return files


def kept_lines(folder):
    return len((folder / "run.jsonl.bak").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("keep", [False, True])
def test_inputs_are_counted_and_can_be_read_again_and_again(keep):
    once = iter(records(3))
    inputs = look_through(lambda: once if keep else iter(records(3)), NAMES, keep=keep)
    assert (inputs.count, inputs.longest) == (3, len("where to?"))
    assert [item.id for item in inputs.read()] == [item.id for item in inputs.read()] == ["1", "2", "3"]


def test_a_limit_takes_the_first_and_reads_no_further():
    def two():
        yield from records(2)
        raise AssertionError("read too far")

    inputs = look_through(two, NAMES, limit=2)
    assert inputs.count == len(list(inputs.read())) == 2


@pytest.mark.parametrize("other", [[record(1), record(2, x=2)], [record(2, x=1), record(1)], [record(1)]])
def test_the_hash_tells_other_fields_another_order_and_fewer_records(other):
    this = look_through(lambda: iter([record(1), record(2, x=1)]), NAMES)
    assert this.sha256 == look_through(lambda: iter([record(1), record(2, x=1)]), NAMES).sha256
    assert this.sha256 != look_through(lambda: iter(other), NAMES).sha256


@pytest.mark.parametrize(
    ("names", "wrong", "field"),
    [
        *((NAMES, {name: 1}, name) for name in OUTPUT_FIELDS),
        (FieldNames(source="body"), {"body": "b"}, "source"),
    ],
)
def test_a_field_that_would_be_written_over_is_refused_by_name_and_place(names, wrong, field):
    with pytest.raises(UserError, match=rf"data\.jsonl:2: field '{field}'"):
        look_through(lambda: iter([record(1), record(2, **wrong)]), names)


@pytest.mark.parametrize("lines", [0, 1, 3])
def test_whole_lines_of_the_same_run_are_counted(tmp_path, lines):
    assert begin(tmp_path, lines=lines).done(MANIFEST, records()) == lines


def test_a_torn_last_line_does_not_count(tmp_path):
    files = begin(tmp_path)
    files.lines.write_bytes(files.lines.read_bytes()[:-5])
    assert files.done(MANIFEST, records()) == 2


@pytest.mark.parametrize(
    ("now", "of", "message"),
    [
        (changed(delay=3, trace=True), records(), "delay was 2 and is now 3; trace was null and is now true"),
        ({**MANIFEST, "model": {"name": "here", "sha256": "x"}}, records(), "the model changed"),
        ({**MANIFEST, "data": {"name": "data.jsonl", "sha256": "x"}}, records(), "the data changed"),
        (MANIFEST, [record(1), record(5)], "line 2 is of id '2' where '5' belongs"),
        (MANIFEST, records(2), "more than the 2 lines"),
    ],
)
def test_lines_of_another_run_are_refused_by_what_differs(tmp_path, now, of, message):
    with pytest.raises(UserError, match=message) as raised:
        begin(tmp_path).done(now, of)
    assert "--resume" in str(raised.value.todo)


def test_a_moved_model_and_another_speed_are_no_change(tmp_path):
    now = {**changed(batch_size=1, threads=1), "model": {"name": "elsewhere", "sha256": "m"}}
    assert begin(tmp_path).done(now, records()) == 3


def test_a_run_of_the_waiting_schedule_under_its_older_name_goes_on(tmp_path):
    assert begin(tmp_path, manifest=changed(delay="sequential")).done(changed(delay="wait"), records()) == 3


def test_lines_without_a_manifest_of_ours_are_refused(tmp_path):
    files = begin(tmp_path)
    files.manifest.write_text("[1]", encoding="utf-8")
    with pytest.raises(UserError, match="not what `pipedec generate` writes"):
        files.done(MANIFEST, records())
    files.manifest.unlink()
    with pytest.raises(UserError, match=r"no run\.manifest\.json beside it"):
        files.done(MANIFEST, records())


def test_what_differs_is_told_of_a_manifest_of_an_unknown_make_and_of_other_versions(tmp_path):
    assert len(list(differences({}, MANIFEST))) == 3
    write_json(tmp_path / "run.manifest.json", MANIFEST)
    now = {**MANIFEST, "versions": {"torch": "3.0", "pipedec": "1"}}
    assert other_versions(tmp_path / "run.manifest.json", now) == ["torch 2.0 → 3.0", "pipedec None → 1"]


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


@pytest.mark.parametrize("runs", [(3, 1, 2), (1, 3, 0)])
def test_what_is_kept_is_the_whole_run_and_not_a_stopped_one(tmp_path, runs):
    for lines in runs:
        begin(tmp_path, lines=lines)
    assert kept_lines(tmp_path) == 3


def test_a_file_that_is_not_of_a_run_is_kept(tmp_path):
    (tmp_path / "run.jsonl").write_text("mine\n", encoding="utf-8")
    assert GenerationFiles(tmp_path / "run.jsonl").start(MANIFEST) == tmp_path / "run.jsonl.bak"
    assert (tmp_path / "run.jsonl.bak").read_text(encoding="utf-8") == "mine\n"
