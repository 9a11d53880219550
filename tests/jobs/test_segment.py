"""`pipedec segment` as a user runs it: from a file of any kind to segmented splits in the workspace, and what it says."""

import io
import json
import re
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from rich.console import Console

from pipedec_cli.compare.expected_calls import Estimate
from pipedec_cli.data.records import SPLITS, Record, Segmentation
from pipedec_cli.data.segmentation import TargetStatistics
from pipedec_cli.data.workspace import (
    Workspace,
    load_segmentation,
    load_segmenter,
    read_split,
)
from pipedec_cli.view.segment_tables import segment_sheets
from pipedec_cli.view.tables import show_sheet
from tests import running
from tests.running import read_json
from tests.running import write_lines as write

pytestmark = pytest.mark.usefixtures("empty_folder")
FACTS = (
    "The pump is on.",
    "Dr. Lee checked it.",
    "It runs at 3.5 bar.",
    "The valve is open, too.",
)
FACTS += ("It is late.",)

segment = partial(running.run, "segment", columns=120)
refusal = partial(running.refused, "segment")


def data_of(folder: str = "pipedec-workspace/data") -> dict[str, list[Record]]:
    return {name: [*read_split(Path(folder) / f"{name}.jsonl")] for name in SPLITS}


def segmentation() -> Segmentation:
    return load_segmentation(Path("pipedec-workspace/data/segmentation.json"))


def examples(count=40, **fields):
    return [
        {"source": f"case {i}", "target": " ".join(FACTS[: 3 + i % 3]), **fields}
        for i in range(count)
    ]


def test_a_file_becomes_three_segmented_splits_in_the_workspace():
    result = segment(write("data.jsonl", *examples(x=[1])), "--level", "sentence")
    assert result.stdout == ""
    splits = data_of()
    assert sum(map(len, splits.values())) == 40 and all(splits.values())
    for record in chain(*splits.values()):
        assert tuple(record.target_segments) == FACTS[: len(record.target_segments)]
        assert record.fields["x"] == [1]
        assert record.id == str(int(record.source.removeprefix("case ")) + 1)
    assert segmentation() == Segmentation("sentence", (), " ", 20)
    assert (Workspace.find().data / "sentences.json").exists()
    assert (
        "wrote train.jsonl, dev.jsonl, test.jsonl, segmentation.json" in result.stderr
    )
    assert "counted in words" in result.stderr


def test_steps_that_are_counted_on_a_sample_say_so():
    few = ("--level", "sentence", "--set", "held_out=0")
    path = write(
        "data.jsonl", *({"source": f"{n}", "target": "A. B."} for n in range(1_001))
    )
    assert "counted on a sample of 501 of 1,001 targets" in segment(path, *few).stderr
    assert (
        "counted on 5 targets" in segment(write("few.jsonl", *examples(5)), *few).stderr
    )


def test_sources_alone_are_dealt_out_for_a_teacher_and_nothing_is_promised_of_them():
    items = [{"source": f"case {i}. {FACTS[1]}", "note": i} for i in range(30)]
    result = segment(write("inputs.jsonl", *items), "--sources-only", "--json")
    printed, folder = json.loads(result.stdout), Path("pipedec-workspace/data")
    assert (printed["promise"], printed["statistics"], printed["joiner"]) == (
        [],
        {},
        " ",
    )
    assert printed["manifest"]["settings"]["sources_only"] is True
    splits = {
        name: [*read_split(folder / f"{name}.jsonl", need_target=False)]
        for name in SPLITS
    }
    assert all(
        printed["splits"][name]["examples"] == len(rows)
        for name, rows in splits.items()
    )
    assert sorted(record.fields["note"] for record in chain(*splits.values())) == [
        *range(30)
    ]
    assert not any(
        {"target", "target_segments"} & record.fields.keys()
        for record in chain(*splits.values())
    )
    assert load_segmenter(folder).cut(" ".join(FACTS)) == FACTS
    assert "next: `pipedec train --teacher MODEL` has" in result.stderr
    again = segment("inputs.jsonl", "--sources-only", "--out", "d").stderr
    assert "`pipedec train d --teacher MODEL`" in again
    refused = refusal("inputs.jsonl")
    assert (
        "inputs.jsonl:1: field 'target' is missing" in refused
        and "--sources-only" in refused
    )
    some = write("some.jsonl", items[0], *examples(1))
    assert "some.jsonl:2: there is a target; leave out --sources-only" in refusal(
        some, "--sources-only"
    )


def test_a_test_file_beside_sources_alone_may_have_right_answers_which_are_segmented():
    items = [{"source": f"case {i}. {FACTS[1]}"} for i in range(30)]
    (right,) = examples(1)
    told = segment(write("inputs.jsonl", *items), "--sources-only").stderr
    assert "right answers: --test FILE" in told
    options = ("--sources-only", "--test", write("right.jsonl", right))
    assert "right answers" not in segment("inputs.jsonl", *options).stderr
    (record,) = read_split(Path("pipedec-workspace/data/test.jsonl"))
    assert (record.target, bool(record.target_segments)) == (right["target"], True)
    dev = ("--sources-only", "--dev", "right.jsonl")
    assert "right.jsonl:1: there is a target" in refusal("inputs.jsonl", *dev)


def test_json_prints_what_segmentation_json_holds_and_the_same_command_writes_the_same_bytes():
    result = segment(write("data.jsonl", *examples()), "--json", "--out", "there")
    printed = json.loads(result.stdout)
    assert printed.pop("out") == "there"
    assert printed == read_json("there/segmentation.json")
    assert [row["delay"] for row in printed["promise"]] == [1, 2, 3]
    assert printed["promise"][0]["ratio"] > 1.5
    assert printed["splits"]["test"]["origin"] == "split off by source"
    assert not Path("pipedec-workspace").exists()
    for out in ("a", "b"):
        segment("data.jsonl", "--out", out)
    first, second = (
        {p.name: p.read_bytes() for p in Path(out).iterdir()} for out in ("a", "b")
    )
    assert first == second


def test_given_splits_are_kept_leaks_are_said_and_standard_input_may_be_limited():
    write("data.jsonl", *examples(30))
    write("dev.jsonl", *examples(6), {"source": "new", "target": "It is late."})
    nothing = segment("data.jsonl", "--set", "held_out=0", "--out", "whole")
    assert "is empty" not in nothing.stderr
    result = segment("data.jsonl", "--dev", "dev.jsonl", "--set", "held_out=0.5")
    assert [record.source for record in data_of()["dev"]] == [
        *(f"case {i}" for i in range(6)),
        "new",
    ]
    assert len(data_of()["test"]) > 8
    assert "of dev and test with a source that train has, too" in result.stderr
    content = "".join(json.dumps(item) + "\n" for item in examples(20)) + "nonsense\n"
    segment("-", "--limit", "5", input=content)
    assert sum(map(len, data_of().values())) == 5
    assert "can be read only once" in refusal("-", "--dev", "-")


@pytest.mark.parametrize("name", ["train.jsonl", "sentences.json", "segmentation.json"])
def test_a_users_own_file_is_not_written_over_and_a_segmentation_is(tmp_path, name):
    data, out = write("data.jsonl", *examples()), tmp_path / "out"
    own = write(out / name, {"id": "1", "source": "a", "target": "b"})
    before = own.read_bytes()
    assert str(own) in refusal(data, "--out", out)
    assert own.read_bytes() == before
    own.unlink()
    for level in ("sentence", "clause"):
        segment(data, "--out", out, "--level", level)


def test_what_fails_keeps_the_data_of_the_last_run_and_models_of_other_data_are_warned_of():
    segment(write("data.jsonl", *examples()))
    before = {
        path: path.read_bytes() for path in Path("pipedec-workspace/data").iterdir()
    }
    Path("wrong.jsonl").write_text('{"source": "a", "target": "b"}\n{"sour')
    assert "wrong.jsonl:2: not JSON" in refusal("wrong.jsonl")
    assert "empty.jsonl: is empty" in refusal(write("empty.jsonl"))
    assert "nothing.jsonl: no such file" in refusal("nothing.jsonl")
    for over in ("pipedec-workspace/data/train.jsonl", "pipedec-workspace/data"):
        assert "would be written over" in refusal(over)
    assert {
        path: path.read_bytes() for path in Path("pipedec-workspace/data").iterdir()
    } == before
    Path("pipedec-workspace/models/pipelined").mkdir(parents=True)
    assert "was trained" not in segment("data.jsonl").stderr
    ours = {"pipedec": {"segmentation": {"level": "sentence"}}}
    write("pipedec-workspace/models/pipelined/config.json", ours)
    told = "was trained at level sentence, and pipedec-workspace/data now holds level clause: train again"
    assert told in segment("data.jsonl", "--level", "clause", "-q").stderr
    assert "was trained" not in segment("data.jsonl").stderr
    assert (
        "was trained on other data"
        in segment("data.jsonl", "--set", "held_out=0.4", "-q").stderr
    )


def test_a_config_file_or_a_recipe_carries_options_and_flags_win():
    write("data.jsonl", *examples())
    Path("c.toml").write_text(
        'held-out = 0.4\n[segment]\nlevel = "clause"\nlimit = 9\n'
    )
    segment("data.jsonl", "--config", "c.toml", "--limit", "20")
    saved = read_json("pipedec-workspace/data/segmentation.json")
    assert (saved["level"], saved["sub_max"]) == ("clause", 20)
    settings = saved["manifest"]["settings"]
    assert (settings["held_out"], settings["limit"]) == (0.4, 20)
    write("data.jsonl", *({"source": str(i), "target": "a; b"} for i in range(9)))
    segment("data.jsonl", "--config", "kp20k")
    assert segmentation().level == "phrase"
    Path("d.toml").write_text('level = "phrase"\nseparator = [";", "|"]\njson = true\n')
    told = json.loads(segment("data.jsonl", "--config", "d.toml").stdout)
    assert segmentation().separators == (";", "|") and told
    assert "has no separators" in refusal(
        "data.jsonl", "--level", "sentence", "--separator", ";"
    )


def test_phrases_come_from_strings_and_lists_and_separators_may_be_ones_own():
    items = [
        {"source": f"s{i}", "keyphrases": ["a", "b c"] if i % 2 else "a; b c;"}
        for i in range(12)
    ]
    result = segment(
        write("data.jsonl", *items), "--level", "phrase", "--target-field", "keyphrases"
    )
    for record in data_of()["train"]:
        assert record.target_segments == ("a", "b c")
        assert record.target in ("a; b c", "a; b c;")
        assert "keyphrases" in record.fields
    assert segmentation().joiner == "; "
    assert "6 targets came segmented" in result.stderr
    data = write(
        "data.jsonl", *({"source": str(i), "target": "a|b\nc"} for i in range(9))
    )
    result = segment(
        data, "--level", "phrase", "--separator", "|", "--separator", r"\n"
    )
    assert (
        "9 targets with line breaks or separators that predictions will not have"
        in result.stderr
    )
    assert data_of()["train"][0].target_segments == ("a", "b", "c")
    assert load_segmenter(Path("pipedec-workspace/data")).separators == ("|", "\n")
    result = segment(write("data.jsonl", *examples()), "--level", "clause")
    assert "predictions will not have" not in result.stderr
    assert segmentation().joiner == " "
    longest = max((record.target_segments for record in data_of()["train"]), key=len)
    assert longest[-3:] == ("The valve is open,", "too.", "It is late.")


def test_too_many_segments_are_merged_and_long_ones_warned_of():
    letters = "; ".join("abcdefghijklmnopqrstuvwxyz0123456789AB")
    items = [{"source": str(i), "target": letters} for i in range(10)]
    result = segment(write("data.jsonl", *items), "--level", "phrase")
    segments = data_of()["train"][0].target_segments
    assert (len(segments), segments[0], segments[-1]) == (19, "a; b", "A; B")
    told = "10 targets had too many segments: neighbours were merged to 19"
    assert told in result.stderr
    items = [
        {"source": str(i), "target": "word " * 40 + "end, " + "more " * 12}
        for i in range(10)
    ]
    result = segment(write("data.jsonl", *items), "-q")
    warning = "warning: 10 subsequences in 10 of 10 targets would be cut, being too long for 50 time-steps"
    assert warning in result.stderr.replace("\n", " ")
    told = " ".join(result.stderr.split())
    assert (
        "(the longest has 53 words): train and decode with `--set time_max=N`" in told
    )
    write(
        "data.jsonl",
        *({**item, "target": item["target"].replace("more", "")} for item in items),
    )
    assert "would be cut" not in segment("data.jsonl").stderr


WHOLE, AT = {"source": "s", "target": "t"}, "data.jsonl:1: "


@pytest.mark.parametrize(
    ("item", "options", "expected"),
    [
        (
            WHOLE | {"target": 3},
            "",
            f"{AT}field 'target': expected a string or an object or a list, foun",
        ),
        (WHOLE | {"source": ""}, "", f"{AT}'source' is empty"),
        (
            {"source": "s"},
            "",
            f"{AT}field 'target' is missing; its fields are: source; --target-field",
        ),
        (
            WHOLE | {"target": None},
            "",
            f"{AT}field 'target' is null; its fields are: source, target",
        ),
        (WHOLE | {"steps": 1}, "", f"{AT}field 'steps' is one that `pipedec generate`"),
        (WHOLE, "--set held_out=0.5", "nothing to train on"),
        (
            WHOLE,
            "--tokenizer none/x/y",
            "none/x/y: no such folder; give a checkpoint folder",
        ),
        (
            WHOLE,
            "--tokenizer ./nothere",
            "./nothere: no such folder; give a checkpoint folder",
        ),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(item, options, expected):
    assert expected in refusal(write("data.jsonl", item), *options.split())
    assert not Path("pipedec-workspace").exists()


def test_a_folder_in_which_no_file_is_named_after_a_split_is_told_what_segment_wants():
    Path("made").mkdir()
    what = "made: a folder without a file for any split"
    assert (
        refusal("made")
        == f"{what}; name its files train.jsonl, dev.jsonl, test.jsonl, or give a single file"
    )


def test_data_that_will_not_be_helped_or_are_too_few_are_said_so_and_hostile_text_is_data():
    items = [{"source": str(i), "target": "It is late."} for i in range(30)]
    result = segment(write("data.jsonl", *items), "--quiet")
    assert "1.0 subsequences on average" in result.stderr
    assert "will hardly help" in result.stderr
    assert "will hardly help" not in segment(write("data.jsonl", *examples())).stderr
    result = segment(write("data.jsonl", *examples(2)), "-q")
    assert "dev is empty" in result.stderr and "test is empty" in result.stderr
    assert len(data_of()["train"]) == 2
    hostile = "[bold]x[/bold] [/] \x1b[31m :smile: \x00 😀."
    items = ({"source": f"{hostile}{i}", "target": f"{hostile} Two."} for i in range(9))
    result = segment(write("data.jsonl", *items))
    assert data_of()["train"][0].target == f"{hostile} Two."
    assert "\x1b" not in result.stderr
    Path("[red]x.jsonl").write_text("{")
    assert refusal("[red]x.jsonl").startswith("[red]x.jsonl:1: not JSON")


def test_tables_have_the_papers_columns_and_the_steps_of_each_delay():
    train, dev = (
        TargetStatistics(2, 4.0, 2.0, 2.0, {1: 1, 3: 1}),
        TargetStatistics(0, 0.0, 0.0, 0.0, {}),
    )
    console = Console(file=io.StringIO(), width=60)
    for sheet in segment_sheets(
        {"train": train, "dev": dev}, [Estimate(1, 2, 9.0, 3.0, 0.25)], "words"
    ):
        show_sheet(console, sheet)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(
        figure in shown for figure in ("25.0%", "3.0", "1 to 2: 50%, 3 to 5: 50%")
    )
    said = segment(write("data.jsonl", *examples())).stderr
    promise = "Decoder steps on the grid, in words"
    assert all(
        expected in said
        for expected in ("subsequences", promise, "sequential", "times")
    )
    # the examples in the help name options that there are
    known, used = (
        set(re.findall(r"--[a-z-]+", text))
        for text in segment("--help").stdout.split("\nExamples\n")
    )
    assert len(used) > 5 and used <= known


# ---- objects: a row for each key
# -------------------------------------------------------------------------------------

NO_SPLIT = ("--set", "held_out=0")


def objects(count=30):
    facts = [
        {"name": f"Mill {i}", "food": ["Thai", "Greek"][i % 2], "stars": i % 5}
        for i in range(count)
    ]
    for fact in facts[::3]:
        del fact["food"]
    facts[4]["parking"] = True
    return [{"source": f"case {i}", "facts": fact} for i, fact in enumerate(facts)]


def test_objects_become_a_row_for_each_key_and_stay_as_they_were():
    data = write("data.jsonl", *objects(), {"source": "empty", "facts": {}})
    result = segment(
        data, "--level", "field", "--target-field", "facts", *NO_SPLIT, "--json"
    )
    printed = json.loads(result.stdout)
    assert [field["name"] for field in printed["fields"]] == [
        "name",
        "stars",
        "food",
        "parking",
    ]
    assert [field["kind"] for field in printed["fields"]] == [
        "string",
        "number",
        "string",
        "boolean",
    ]
    assert (printed["level"], printed["joiner"], segmentation().level) == (
        "field",
        "; ",
        "field",
    )
    (promise,) = printed["promise"]
    assert (
        promise["delay"] == "together"
        and promise["pipelined_steps"] < 3.1 < promise["sequential_steps"]
    )
    assert "Keys, a row each" not in result.stderr
    found = {record.source: record for record in chain(*data_of().values())}
    assert found["case 4"].target_segments == ("Mill 4", "4", "Thai", "true")
    assert found["case 3"].target_segments == ("Mill 3", "3", "", "")
    assert (
        found["empty"].target_segments == ("",) * 4 and printed["counts"]["empty"] == 1
    )
    assert found["case 4"].target_fields == {
        "name": "Mill 4",
        "food": "Thai",
        "stars": 4,
        "parking": True,
    }
    cut = load_segmenter(Path("pipedec-workspace/data")).cut("name: A; parking: true")
    assert cut == ("A", "", "", "true")
    made = "pipedec-workspace/data/train.jsonl"
    again = segment(made, *NO_SPLIT, "--level", "field", "--out", "again", "--json")
    assert json.loads(again.stdout)["fields"] == printed["fields"], (
        "the target has its plain name now"
    )


def test_a_schema_may_be_chosen_or_given_and_what_it_leaves_out_is_said():
    on = (
        write("data.jsonl", *objects()),
        "--level",
        "field",
        "--target-field",
        "facts",
        *NO_SPLIT,
    )
    names = lambda: [field.name for field in segmentation().fields]  # noqa: E731
    result = segment(*on, "--fields", "name, stars, food")
    assert re.search(r"food +string +any +66\.7%", result.stderr)
    assert names() == ["name", "stars", "food"]
    assert "1 key left out, with 1 value in train: 'parking'" in result.stderr
    assert "1 value of keys that are not in the schema left out" in result.stderr
    segment(*on, "--fields", "stars, name")
    assert names() == ["stars", "name"]
    write(
        "schema.json",
        {
            "properties": {
                "food": {"enum": ["Thai", "Greek"]},
                "late": {"type": "string"},
            }
        },
    )
    segment(*on, "--schema", "schema.json")
    food, late = segmentation().fields
    assert (food.enum, late.kind, late.share) == (("Thai", "Greek"), "string", 0.0)
    write("inputs.jsonl", *({"source": f"case {i}"} for i in range(9)))
    segment(
        "inputs.jsonl", "--level", "field", "--sources-only", "--schema", "schema.json"
    )
    assert names() == ["food", "late"]


def test_five_hundred_keys_are_segmented():
    every = {f"key {i}": f"v {i}" for i in range(500)}
    write("data.jsonl", *({"source": f"case {i}", "target": every} for i in range(9)))
    segment("data.jsonl", "--level", "field")
    assert (
        len(segmentation().fields) == len(data_of()["train"][0].target_segments) == 500
    )


@pytest.mark.parametrize(
    ("targets", "options", "told"),
    [
        ('{"a": 1, "a": 2}', "", "data.jsonl:1: 'a' is there twice"),
        ('{"a": "b"};"x"', "", "data.jsonl:2: the target"),
        ('{"a": {"b": [{}, 1]}}', "", "data.jsonl:1: 'a.b' is [{}, 1]; a value is"),
        ('{"a": 1}', "--fields b", "no training target has a value for 'b'"),
        ('{"a": 1}', "--schema none.json", "none.json: no such file"),
        (
            "null",
            "--sources-only",
            "without targets there is nothing to read the keys off",
        ),
    ],
)
def test_what_is_no_object_of_values_is_refused(targets, options, told):
    lines = (
        f'{{"source": "s{n}", "target": {target}}}'
        for n, target in enumerate(targets.split(";"))
    )
    Path("data.jsonl").write_text("\n".join(lines))
    assert told in refusal("data.jsonl", "--level", "field", *options.split())


def test_a_target_of_dev_that_is_no_object_is_refused_too():
    write("dev.jsonl", {"source": "s", "target": "name: x"})
    write("data.jsonl", *({**one, "target": one["facts"]} for one in objects()))
    told = refusal("data.jsonl", "--dev", "dev.jsonl", "--level", "field")
    assert "dev.jsonl:1: the target is not an object" in told


def test_objects_and_their_options_belong_to_level_field():
    write("data.jsonl", *objects())
    told = refusal("data.jsonl", "--target-field", "facts")
    assert (
        "the target is an object; --level field makes a row of each of its keys" in told
    )
    assert "--fields does not go with --level sentence" in refusal(
        "data.jsonl", "--fields", "name"
    )
