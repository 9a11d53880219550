"""`pipedec segment`, from a raw file to the segmented splits, as a user runs it."""

import gzip
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.preparation import Counts
from pipedec_cli.data.records import SPLITS, Segmentation
from pipedec_cli.data.segmented import load_segmentation, load_segmenter, load_split
from pipedec_cli.data.statistics import TargetStatistics
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.evaluate.promise import Promise
from pipedec_cli.terminal.app import app
from pipedec_cli.terminal.commands.segment import EXAMPLES
from pipedec_cli.terminal.views.segmentation import describe_counts, describe_too_long, render_summary

FACTS = [
    "The pump is on.",
    "Dr. Lee checked it.",
    "It runs at 3.5 bar.",
    "The valve is open, too.",
    "It is late.",
]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PIPEDEC_WORKSPACE", raising=False)
    return tmp_path


def write(name, *items):
    Path(name).write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return name


def examples(count=40, **fields):
    return [{"source": f"case {i}", "target": " ".join(FACTS[: 3 + i % 3]), **fields} for i in range(count)]


def run(*arguments, **options):
    environment = {"COLUMNS": "120", "NO_COLOR": "1"}
    return CliRunner().invoke(app, ["segment", *map(str, arguments)], env=environment, **options)


def refusal(*arguments):
    result = run(*arguments)
    assert isinstance(result.exception, UserError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def data_of(folder="pipedec-workspace/data"):
    return {name: load_split(Path(folder) / f"{name}.jsonl") for name in SPLITS}


def test_a_file_becomes_three_segmented_splits_in_the_workspace():
    result = run(write("data.jsonl", *examples(x=[1])), "--level", "sentence")
    assert result.exit_code == 0
    assert result.stdout == ""
    splits = data_of()
    assert sum(map(len, splits.values())) == 40
    assert all(splits.values())
    for record in (record for records in splits.values() for record in records):
        assert list(record.target_segments) == FACTS[: len(record.target_segments)]
        assert record.fields["x"] == [1]
        assert record.id == str(int(record.source.removeprefix("case ")) + 1)
    workspace = Workspace.find()
    assert load_segmentation(workspace.segmentation) == Segmentation("sentence", (), " ", 20)
    assert workspace.sentences.exists()
    assert "wrote train.jsonl, dev.jsonl, test.jsonl, segmentation.json" in result.stderr
    assert "counted in words" in result.stderr


def test_the_tables_show_the_papers_columns_and_the_promise():
    said = run(write("data.jsonl", *examples())).stderr
    for expected in (
        "subsequences /",
        "Decoder steps that the grid promises, in words",
        "sequential",
        "times",
        "Δt",
    ):
        assert expected in said


def test_json_prints_what_segmentation_json_holds():
    result = run(write("data.jsonl", *examples()), "--json", "--out", "there")
    printed = json.loads(result.stdout)
    assert printed.pop("out") == "there"
    assert printed == json.loads(Path("there/segmentation.json").read_text())
    assert [row["delay"] for row in printed["promise"]] == [1, 2, 3]
    assert printed["promise"][0]["ratio"] > 1.5
    assert printed["splits"]["test"]["origin"] == "split off by source"
    assert printed["manifest"]["settings"]["seed"] == 0
    assert not Path("pipedec-workspace").exists()


def test_the_same_command_writes_the_same_bytes():
    write("data.jsonl", *examples())
    run("data.jsonl", "--out", "a")
    run("data.jsonl", "--out", "b")
    assert {p.name: p.read_bytes() for p in Path("a").iterdir()} == {
        p.name: p.read_bytes() for p in Path("b").iterdir()
    }


def test_phrases_come_from_strings_and_lists():
    items = [{"source": f"s{i}", "keyphrases": ["a", "b c"] if i % 2 else "a; b c;"} for i in range(12)]
    result = run(write("data.jsonl", *items), "--level", "phrase", "--target-field", "keyphrases")
    assert result.exit_code == 0, result.output
    for record in data_of()["train"]:
        assert record.target_segments == ("a", "b c")
        assert record.target in ("a; b c", "a; b c;")
        assert "keyphrases" in record.fields
    assert load_segmentation(Path("pipedec-workspace/data/segmentation.json")).joiner == "; "
    assert "6 targets came segmented" in result.stderr


def test_separators_may_be_several_and_escaped():
    run(
        write("data.jsonl", *({"source": str(i), "target": "a|b\nc"} for i in range(9))),
        "--level",
        "phrase",
        "--separator",
        "|",
        "--separator",
        r"\n",
    )
    assert data_of()["train"][0].target_segments == ("a", "b", "c")
    assert load_segmenter(Path("pipedec-workspace/data")).separators == ("|", "\n")


def test_clauses_and_an_own_joiner():
    run(write("data.jsonl", *examples()), "--level", "clause", "--joiner", "\\n")
    assert load_segmentation(Path("pipedec-workspace/data/segmentation.json")).joiner == "\n"
    longest = max((record.target_segments for record in data_of()["train"]), key=len)
    assert longest[-3:] == ("The valve is open,", "too.", "It is late.")


def test_given_splits_are_kept_and_leaks_are_said():
    write("data.jsonl", *examples(30))
    write("dev.jsonl", *examples(6), {"source": "new", "target": "It is late."})
    result = run("data.jsonl", "--dev", "dev.jsonl", "--test-fraction", "0.5")
    assert [record.source for record in data_of()["dev"]] == [*(f"case {i}" for i in range(6)), "new"]
    assert len(data_of()["test"]) > 8
    assert "have a source that train has, too" in result.stderr


def test_standard_input_and_a_limit():
    content = "".join(json.dumps(item) + "\n" for item in examples(20)) + "nonsense\n"
    result = run("-", "--limit", "5", input=content)
    assert result.exit_code == 0, result.output
    assert sum(map(len, data_of().values())) == 5
    assert "can be read only once" in refusal("-", "--dev", "-")


def test_too_many_segments_are_merged_and_said():
    items = [{"source": str(i), "target": "; ".join("abcdefgh")} for i in range(10)]
    result = run(write("data.jsonl", *items), "--level", "phrase", "--sub-max", "5")
    assert data_of()["train"][0].target_segments == ("a; b", "c; d", "e; f", "g; h")
    assert "10 targets had too many segments: neighbours were merged to 4" in result.stderr


def test_long_segments_are_warned_of_or_split():
    items = [{"source": str(i), "target": "word " * 8 + "end, " + "more " * 5} for i in range(10)]
    write("data.jsonl", *items)
    result = run("data.jsonl", "--time-max", "12", "-q")
    assert (
        "warning: 10 subsequences in 10 of 10 targets do not fit into 12 time-steps"
        in result.stderr.replace("\n", " ")
    )
    assert "the longest has 14 words" in result.stderr
    result = run("data.jsonl", "--time-max", "12", "--split-long")
    assert data_of()["train"][0].target_segments == (("word " * 8 + "end,"), ("more " * 5).strip())
    assert "do not fit" not in result.stderr


def test_data_that_the_method_will_not_help_is_said_so_with_the_number():
    items = [{"source": str(i), "target": "It is late."} for i in range(30)]
    result = run(write("data.jsonl", *items), "--quiet")
    assert "1.0 subsequences on average" in result.stderr
    assert "will hardly help" in result.stderr
    assert "will hardly help" not in run(write("data.jsonl", *examples())).stderr


def test_tiny_data_says_which_split_is_empty():
    result = run(write("data.jsonl", *examples(2)), "-q")
    assert result.exit_code == 0
    assert "dev is empty" in result.stderr
    assert "test is empty" in result.stderr
    assert len(data_of()["train"]) == 2


@pytest.mark.parametrize(
    ("item", "options", "expected"),
    [
        (
            {"source": "s", "target": 3},
            [],
            "data.jsonl:1: 'target' is a number, neither a string nor a list of strings",
        ),
        ({"source": "", "target": "t"}, [], "data.jsonl:1: 'source' is empty"),
        (
            {"source": "s"},
            [],
            "data.jsonl:1: field 'target' is missing; its fields are: source; --target-field",
        ),
        (
            {"source": "s", "target": "t", "steps": 1},
            [],
            "data.jsonl:1: field 'steps' is one that `pipedec generate`",
        ),
        ({"source": "s", "target": "t"}, ["--separator", ","], "level sentence has no separators"),
        (
            {"source": "s", "target": "t"},
            ["--dev-fraction", "0.6", "--test-fraction", "0.4"],
            "nothing to train on",
        ),
        (
            {"source": "s", "target": "t"},
            ["--tokenizer", "no-such-folder/x/y"],
            "no tokenizer can be loaded from",
        ),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(item, options, expected):
    assert expected in refusal(write("data.jsonl", item), *options)
    assert not Path("pipedec-workspace").exists()


def test_an_empty_file_and_a_missing_one_are_refused():
    assert "data.jsonl: is empty" in refusal(write("data.jsonl"))
    assert "nothing.jsonl: no such file" in refusal("nothing.jsonl")


def test_a_run_that_fails_keeps_the_data_of_the_last():
    run(write("data.jsonl", *examples()))
    before = {path: path.read_bytes() for path in Path("pipedec-workspace/data").iterdir()}
    Path("data.jsonl").write_text('{"source": "a", "target": "b"}\n{"sour')
    assert "data.jsonl:2: not JSON" in refusal("data.jsonl")
    assert {path: path.read_bytes() for path in Path("pipedec-workspace/data").iterdir()} == before


def test_the_input_is_never_written_over():
    run(write("data.jsonl", *examples()))
    assert "would be written over" in refusal("pipedec-workspace/data/train.jsonl")
    assert "would be written over" in refusal("pipedec-workspace/data")


def test_models_of_other_data_are_warned_of():
    run(write("data.jsonl", *examples()))
    Path("pipedec-workspace/models/pipelined").mkdir(parents=True)
    assert "was trained on other data" not in run("data.jsonl").stderr
    assert "was trained on other data" in run("data.jsonl", "--seed", "1", "-q").stderr


def test_a_config_file_carries_options_and_flags_win():
    write("data.jsonl", *examples())
    Path("c.toml").write_text('seed = 5\n[segment]\nlevel = "clause"\nsub-max = 9\n')
    run("data.jsonl", "--config", "c.toml", "--sub-max", "8")
    saved = json.loads(Path("pipedec-workspace/data/segmentation.json").read_text())
    assert (saved["level"], saved["sub_max"], saved["manifest"]["settings"]["seed"]) == ("clause", 8, 5)


def test_a_recipe_sets_the_level():
    write("data.jsonl", *({"source": str(i), "target": "a; b"} for i in range(9)))
    run("data.jsonl", "--recipe", "kp20k")
    assert load_segmentation(Path("pipedec-workspace/data/segmentation.json")).level == "phrase"


def test_gzipped_lines_csv_and_a_folder_give_the_same_records():
    items = examples(9)
    Path("data.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps(item) + "\n" for item in items).encode())
    )
    Path("data.csv").write_text(
        "source,target\n" + "".join(f'{item["source"]},"{item["target"]}"\n' for item in items)
    )
    for name in ("data.jsonl.gz", "data.csv"):
        assert run(name, "--out", f"out-{name}").exit_code == 0
    for split in SPLITS:
        first, second = (
            load_split(Path(f"out-{name}/{split}.jsonl")) for name in ("data.jsonl.gz", "data.csv")
        )
        assert [record.target_segments for record in first] == [record.target_segments for record in second]


def test_text_that_looks_like_markup_or_drives_a_terminal_is_data():
    hostile = "[bold]x[/bold] [/] \x1b[31m :smile: \x00 😀."
    result = run(
        write("data.jsonl", *({"source": f"{hostile}{i}", "target": f"{hostile} Two."} for i in range(9)))
    )
    assert result.exit_code == 0, result.output
    assert data_of()["train"][0].target == f"{hostile} Two."
    assert "\x1b" not in result.stderr


def test_a_file_name_that_looks_like_markup_is_shown_as_it_is():
    Path("[red]x.jsonl").write_text("{")
    assert refusal("[red]x.jsonl").startswith("[red]x.jsonl:1: not JSON")


def test_help_is_shown_without_heavy_imports():
    code = (
        "import sys; from pipedec_cli.terminal.app import app\ntry: app(['segment', '-h'])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'datasets', 'nltk'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Δt = 1, 2 or 3" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_the_examples_name_options_that_there_are():
    known = set(re.findall(r"--[a-z-]+", run("--help").stdout))
    used = set(re.findall(r"--[a-z-]+", EXAMPLES))
    assert len(used) > 5
    assert used <= known


def test_the_view_says_what_was_done_and_nothing_else():
    assert describe_counts(Counts(targets=3), sub_max=20) == []
    assert describe_too_long(Counts(targets=3), unit="words", time_max=50) is None
    assert len(describe_counts(Counts(3, 1, 1, 1, 1, 1), sub_max=20)) == 5


def test_tables_stand_side_by_side_where_there_is_room():
    rows = {
        "train": TargetStatistics(2, 4.0, 2.0, 2.0, {1: 1, 3: 1}),
        "dev": TargetStatistics(0, 0.0, 0.0, 0.0, {}),
    }
    heights = []
    for width in (60, 140):
        console = Console(file=io.StringIO(), width=width)
        console.print(render_summary(rows, [Promise(1, 2, 9.0, 3.0, 0.25)], "words"))
        shown = console.file.getvalue()
        assert "25.0%" in shown
        assert "3.0" in shown
        assert "1 to 2: 50%, 3 to 5: 50%" in shown
        heights.append(shown.count("\n"))
    assert heights[1] < heights[0]
