"""`pipedec segment` as a user runs it: from a file of any kind to segmented splits in the workspace, and what it says."""

import json
import re
from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from pipedec_cli.data.records import SPLITS, Record, Segmentation
from pipedec_cli.data.workspace import (
    Workspace,
    load_segmentation,
    load_segmenter,
    read_split,
)
from tests import running
from tests.running import read_json
from tests.running import write_lines as write
from tests.words import same_words

pytestmark = pytest.mark.usefixtures("empty_folder")
FACTS = (
    "The pump is on.",
    "Dr. Lee checked it.",
    "It runs at 3.5 bar.",
    "The valve is open, too.",
    "It is late.",
)
DATA = Path("pipedec-workspace/data")

segment = partial(running.run, "segment", columns=120)
refusal = partial(running.refused, "segment")


def data_of(need_target: bool = True) -> dict[str, list[Record]]:
    splits = {}
    for name in SPLITS:
        splits[name] = [*read_split(DATA / f"{name}.jsonl", need_target=need_target)]
    return splits


def records_of(**options: bool) -> list[Record]:
    return [*chain(*data_of(**options).values())]


def segmentation() -> Segmentation:
    return load_segmentation(DATA / "segmentation.json")


def examples(count=40, **fields):
    rows = []
    for i in range(count):
        rows.append({"source": f"case {i}", "target": " ".join(FACTS[: 3 + i % 3])})
        rows[-1] |= fields
    return rows


def same_target(count, target):
    """Rows of different sources and one target."""
    return [{"source": str(i), "target": target} for i in range(count)]


def objects(count=30):
    """Rows whose field `facts` is an object: each third lacks a key, and one has one more."""
    rows = []
    for i in range(count):
        facts = {"name": f"Mill {i}", "food": ["Thai", "Greek"][i % 2], "stars": i % 5}
        if i % 3 == 0:
            del facts["food"]
        rows.append({"source": f"case {i}", "facts": facts})
    rows[4]["facts"]["parking"] = True
    return rows


#: Files of data by their names.
FILES = {
    "pump": examples(),
    "two": examples(2),
    "short": same_target(30, "It is late."),
    "thousand": same_target(1_001, "A. B."),
    "lists": [
        {"source": f"s{i}", "keyphrases": ["a", "b c"] if i % 2 else "a; b c;"}
        for i in range(12)
    ],
    "bars": same_target(9, "a|b\nc"),
    "many": same_target(10, "; ".join("abcdefghijklmnopqrstuvwxyz0123456789AB")),
    "long": same_target(10, "word " * 40 + "end, " + "more " * 12),
    "fitting": same_target(10, "word " * 40 + "end, "),
    "sources": [{"source": f"case {i}. {FACTS[1]}", "note": i} for i in range(30)],
    "answers": examples(1),
    "new": [*examples(6), {"source": "new", "target": "It is late."}],
    "objects": objects(),
    "hostile": same_target(9, "[bold]x[/bold] [/] \x1b[31m :smile: \x00 😀. Two."),
}
SAID = """
pump --level sentence
pump --set held_out=0 --out whole
pump --level clause
pump --dev new --set held_out=0.5
thousand --level sentence --set held_out=0
two --level sentence --set held_out=0
two
short
lists --level phrase --target-field keyphrases
bars --level phrase --separator | --separator \\n
many --level phrase
long
fitting
sources --sources-only
sources --sources-only --out d
sources --sources-only --test answers
objects --level field --target-field facts --set held_out=0
objects --level field --target-field facts --set held_out=0 --fields name,stars,food
hostile
"""


def lay_out(names):
    """Write the files of data whose names stand in a line, and give it with the files in their place."""
    words = []
    for word in names.split():
        if word in FILES:
            words.append(write(f"{word}.jsonl", *FILES[word]))
        else:
            words.append(word)
    return words


@pytest.mark.parametrize("line", SAID.strip().splitlines())
def test_what_is_said_of_data_is_said_on_stderr(line):
    """Warnings, steps saved and what comes next, in the words of the golden file."""
    result = segment(*lay_out(line))
    assert result.stdout == ""
    assert "\x1b" not in same_words(result.stderr)


def test_a_file_becomes_three_segmented_splits_in_the_workspace():
    segment(write("data.jsonl", *examples(x=[1])), "--level", "sentence")
    splits = data_of()
    assert sum(map(len, splits.values())) == 40 and all(splits.values())
    for record in records_of():
        assert tuple(record.target_segments) == FACTS[: len(record.target_segments)]
        assert record.fields["x"] == [1]
        assert record.id == str(int(record.source.removeprefix("case ")) + 1)
    assert segmentation() == Segmentation("sentence", (), " ", 20)
    assert (Workspace.find().data / "sentences.json").exists()


def test_sources_alone_are_dealt_out_for_a_teacher_and_nothing_is_promised_of_them():
    printed = json.loads(segment(*lay_out("sources --sources-only --json")).stdout)
    assert (printed["promise"], printed["statistics"]) == ([], {})
    assert printed["manifest"]["settings"]["sources_only"] is True
    records = records_of(need_target=False)
    assert sorted(record.fields["note"] for record in records) == [*range(30)]
    for record in records:
        assert not {"target", "target_segments"} & record.fields.keys()
    assert load_segmenter(DATA).cut(" ".join(FACTS)) == FACTS
    refusal("sources.jsonl")
    some = write("some.jsonl", FILES["sources"][0], *examples(1))
    refusal(some, "--sources-only")
    refusal(*lay_out("sources --sources-only --dev answers"))


def test_a_test_file_beside_sources_alone_may_have_right_answers_which_are_segmented():
    segment(*lay_out("sources --sources-only --test answers"))
    (record,) = read_split(DATA / "test.jsonl")
    (right,) = FILES["answers"]
    assert (record.target, bool(record.target_segments)) == (right["target"], True)


def test_json_prints_what_segmentation_json_holds_and_the_same_command_writes_the_same_bytes():
    printed = json.loads(segment(*lay_out("pump --json --out there")).stdout)
    assert printed.pop("out") == "there"
    assert printed == read_json("there/segmentation.json")
    assert [row["delay"] for row in printed["promise"]] == [1, 2, 3]
    assert printed["promise"][0]["ratio"] > 1.5
    assert printed["splits"]["test"]["origin"] == "split off by source"
    assert not DATA.exists()
    segment("pump.jsonl", "--out", "again")
    for path in Path("there").iterdir():
        assert Path("again", path.name).read_bytes() == path.read_bytes()


def test_given_splits_are_kept_and_standard_input_may_be_limited():
    segment(*lay_out("pump --dev new --set held_out=0.5"))
    dev = [record.source for record in data_of()["dev"]]
    assert dev == [row["source"] for row in FILES["new"]]
    assert len(data_of()["test"]) > 8
    content = "".join(json.dumps(item) + "\n" for item in examples(20)) + "nonsense\n"
    segment("-", "--limit", "5", input=content)
    assert len(records_of()) == 5
    refusal("-", "--dev", "-")


@pytest.mark.parametrize("name", ["train.jsonl", "sentences.json", "segmentation.json"])
def test_a_users_own_file_is_not_written_over_and_a_segmentation_is(tmp_path, name):
    data, out = write("data.jsonl", *examples()), tmp_path / "out"
    own = write(out / name, {"id": "1", "source": "a", "target": "b"})
    before = own.read_bytes()
    refusal(data, "--out", out)
    assert own.read_bytes() == before
    own.unlink()
    for level in ("sentence", "clause"):
        segment(data, "--out", out, "--level", level)


def test_what_fails_keeps_the_data_of_the_last_run():
    segment(*lay_out("pump"))
    before = {path: path.read_bytes() for path in DATA.iterdir()}
    Path("wrong.jsonl").write_text('{"source": "a", "target": "b"}\n{"sour')
    write("empty.jsonl")
    for name in ("wrong.jsonl", "empty.jsonl", "nothing.jsonl", DATA / "train.jsonl"):
        refusal(name)
    refusal(DATA)
    assert {path: path.read_bytes() for path in DATA.iterdir()} == before


def test_models_that_were_trained_on_other_data_are_warned_of():
    model = Path("pipedec-workspace/models/pipelined")
    model.mkdir(parents=True)
    write("pump.jsonl", *FILES["pump"])
    assert "was trained" not in segment("pump.jsonl").stderr
    ours = {"pipedec": {"segmentation": {"level": "sentence"}}}
    write(model / "config.json", ours)
    same_words(segment("pump.jsonl", "--level", "clause", "-q").stderr)
    assert "was trained" not in segment("pump.jsonl").stderr
    same_words(segment("pump.jsonl", "--set", "held_out=0.4", "-q").stderr)


def test_a_config_file_or_a_recipe_carries_options_and_flags_win():
    Path("c.toml").write_text(
        'held-out = 0.4\n[segment]\nlevel = "clause"\nlimit = 9\n'
    )
    segment(*lay_out("pump --config c.toml --limit 20"))
    saved = read_json(DATA / "segmentation.json")
    assert (saved["level"], saved["sub_max"]) == ("clause", 20)
    settings = saved["manifest"]["settings"]
    assert (settings["held_out"], settings["limit"]) == (0.4, 20)
    write("data.jsonl", *same_target(9, "a; b"))
    segment("data.jsonl", "--config", "kp20k")
    assert segmentation().level == "phrase"
    Path("d.toml").write_text('level = "phrase"\nseparator = [";", "|"]\njson = true\n')
    assert json.loads(segment("data.jsonl", "--config", "d.toml").stdout)
    assert segmentation().separators == (";", "|")
    refusal("data.jsonl", "--level", "sentence", "--separator", ";")


def test_phrases_come_from_strings_and_lists():
    segment(*lay_out("lists --level phrase --target-field keyphrases"))
    for record in data_of()["train"]:
        assert record.target_segments == ("a", "b c")
        assert record.target in ("a; b c", "a; b c;")
        assert "keyphrases" in record.fields
    assert segmentation().joiner == "; "


def test_separators_may_be_ones_own():
    segment(*lay_out(r"bars --level phrase --separator | --separator \n"))
    assert data_of()["train"][0].target_segments == ("a", "b", "c")
    assert load_segmenter(DATA).separators == ("|", "\n")


def test_clauses_end_at_a_comma():
    segment(*lay_out("pump --level clause"))
    assert segmentation().joiner == " "
    longest = max((record.target_segments for record in data_of()["train"]), key=len)
    assert longest[-3:] == ("The valve is open,", "too.", "It is late.")


def test_too_many_segments_are_merged():
    segment(*lay_out("many --level phrase"))
    segments = data_of()["train"][0].target_segments
    assert (len(segments), segments[0], segments[-1]) == (19, "a; b", "A; B")


@pytest.mark.parametrize(
    ("item", "options"),
    [
        ({"target": 3}, ""),
        ({"source": ""}, ""),
        ({"target": ...}, ""),
        ({"target": None}, ""),
        ({"steps": 1}, ""),
        ({}, "--set held_out=0.5"),
        ({}, "--tokenizer none/x/y"),
        ({}, "--tokenizer ./nothere"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(item, options):
    row = {"source": "s", "target": "t", **item}
    given = {name: value for name, value in row.items() if value is not ...}
    refusal(write("data.jsonl", given), *options.split())
    assert not Path("pipedec-workspace").exists()


def test_a_folder_in_which_no_file_is_named_after_a_split_is_told_what_segment_wants():
    Path("made").mkdir()
    refusal("made")


def test_a_folder_of_sets_is_for_level_field():
    write(Path("made") / "songs" / "train.jsonl", {"source": "a", "target": "b"})
    write(Path("made") / "notes.jsonl", {"source": "a", "target": "b"})
    told = refusal("made")
    for named in ("notes.jsonl", "songs", "--level field"):
        assert named in told


def test_hostile_text_is_data():
    segment(*lay_out("hostile"))
    assert data_of()["train"][0].target == FILES["hostile"][0]["target"]
    Path("[red]x.jsonl").write_text("{")
    refusal("[red]x.jsonl")


def test_the_examples_of_the_help_name_options_that_there_are():
    known, used = segment("--help").stdout.split("\nExamples\n")
    options = set(re.findall(r"--[a-z-]+", used))
    assert len(options) > 5
    assert options <= set(re.findall(r"--[a-z-]+", known))


# ---- objects: a row for each key
# -------------------------------------------------------------------------------------

ON_OBJECTS = "--level field --set held_out=0"


def test_objects_become_a_row_for_each_key_and_stay_as_they_were():
    write("data.jsonl", *objects(), {"source": "empty", "facts": {}})
    asked = ("--target-field", "facts", *ON_OBJECTS.split(), "--json")
    printed = json.loads(segment("data.jsonl", *asked).stdout)
    kinds = {field["name"]: field["kind"] for field in printed["fields"]}
    assert kinds == {
        "name": "string",
        "stars": "number",
        "food": "string",
        "parking": "boolean",
    }
    assert (segmentation().level, segmentation().joiner) == ("field", "; ")
    (promise,) = printed["promise"]
    assert promise["delay"] == "together"
    assert promise["pipelined_steps"] < 3.1 < promise["sequential_steps"]
    records = {record.source: record for record in records_of()}
    assert records["case 4"].target_segments == ("Mill 4", "4", "Thai", "true")
    assert records["case 3"].target_segments == ("Mill 3", "3", "", "")
    assert records["empty"].target_segments == ("",) * 4
    assert printed["counts"]["empty"] == 1
    assert records["case 4"].target_fields == objects()[4]["facts"]
    cut = load_segmenter(DATA).cut("name: A; parking: true")
    assert cut == ("A", "", "", "true")
    # The target has its plain name now.
    again = segment(
        DATA / "train.jsonl", *ON_OBJECTS.split(), "--out", "again", "--json"
    )
    assert json.loads(again.stdout)["fields"] == printed["fields"]


def names_of(line):
    """The names of the fields into which objects are segmented."""
    segment(*lay_out(line))
    return [field.name for field in segmentation().fields]


def test_a_schema_may_be_chosen_or_given():
    asked = f"objects --target-field facts {ON_OBJECTS}"
    for names in ("name,stars,food", "stars,name"):
        assert names_of(f"{asked} --fields {names}") == names.split(",")
    late = {"food": {"enum": ["Thai", "Greek"]}, "late": {"type": "string"}}
    write("schema.json", {"properties": late})
    assert names_of(f"{asked} --schema schema.json") == ["food", "late"]
    food, late = segmentation().fields
    assert (food.enum, late.kind, late.share) == (("Thai", "Greek"), "string", 0.0)
    sources = "sources --level field --sources-only --schema schema.json"
    assert names_of(sources) == ["food", "late"]


def test_five_hundred_keys_are_segmented():
    write("data.jsonl", *same_target(9, {f"key {i}": f"v {i}" for i in range(500)}))
    segment("data.jsonl", "--level", "field")
    assert len(segmentation().fields) == 500
    assert len(data_of()["train"][0].target_segments) == 500


@pytest.mark.parametrize(
    ("targets", "options"),
    [
        ('{"a": 1, "a": 2}', ""),
        ('{"a": "b"};"x"', ""),
        ('{"a": {"b": [{}, 1]}}', ""),
        ('{"a": 1}', "--fields b"),
        ('{"a": 1}', "--schema none.json"),
        ("null", "--sources-only"),
    ],
)
def test_what_is_no_object_of_values_is_refused(targets, options):
    lines = []
    for number, target in enumerate(targets.split(";")):
        lines.append(f'{{"source": "s{number}", "target": {target}}}\n')
    Path("data.jsonl").write_text("".join(lines))
    refusal("data.jsonl", "--level", "field", *options.split())


def test_a_target_of_dev_that_is_no_object_is_refused_too():
    write("dev.jsonl", {"source": "s", "target": "name: x"})
    write("data.jsonl", *same_target(9, {"name": "x"}))
    told = refusal("data.jsonl", "--dev", "dev.jsonl", "--level", "field")
    assert told.startswith("dev.jsonl:1: ")


def test_objects_and_their_options_belong_to_level_field():
    refusal(*lay_out("objects --target-field facts"))
    refusal("objects.jsonl", "--fields", "name")
