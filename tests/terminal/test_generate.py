"""`pipedec generate` as a user runs it, on checkpoints that know a few texts by heart."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.generations import GenerationFiles, Inputs
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import JsonLinesAppender
from pipedec_cli.terminal.app import app
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.runs import generation
from pipedec_cli.terminal.runs.generation import Run, run_generation
from pipedec_cli.terminal.runs.generation_inputs import read_data
from pipedec_cli.terminal.runs.generation_request import GenerateRequest
from pipedec_cli.terminal.runs.generation_setup import Setup, set_up
from tests.models import SOURCES, TOLD, tiny_checkpoint

ROWS = [
    {
        "id": number,
        "source": source,
        "target": " ".join(told),
        "target_segments": list(told),
        "kept": {"a": [None]},
    }
    for number, (source, told) in enumerate(TOLD * 2)
]


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str


def run(*arguments: object, stdin: str | bytes | None = None) -> Outcome:
    outcome = CliRunner().invoke(app, ["generate", *map(str, arguments)], input=stdin, catch_exceptions=False)
    return Outcome(outcome.exit_code, outcome.stdout, outcome.stderr)


def done(*arguments: object, stdin: str | bytes | None = None) -> Outcome:
    outcome = run(*arguments, stdin=stdin)
    assert outcome.code == 0, outcome.stderr
    return outcome


def refused(*arguments: object, stdin: str | bytes | None = None) -> str:
    with pytest.raises(UserError) as raised:
        run(*arguments, stdin=stdin)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def lines(text: str | Path) -> list[dict[str, Any]]:
    """The objects of JSON lines, without the one thing that two runs may differ in."""
    content = text.read_text(encoding="utf-8") if isinstance(text, Path) else text
    rows = [json.loads(line) for line in content.splitlines()]
    for row in rows:
        assert row.pop("seconds") >= 0
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tiny_checkpoint(folder / "pipelined")
    tiny_checkpoint(folder / "sequential", decoder="sequential", level="sentence")
    tiny_checkpoint(folder / "delay1", delay=1)
    return folder


@pytest.fixture
def place(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace after `segment` and both trainings, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PIPEDEC_WORKSPACE", raising=False)
    root = tmp_path / "pipedec-workspace"
    write(root / "data" / "test.jsonl", ROWS)
    (root / "models").mkdir()
    for decoder in ("pipelined", "sequential"):
        (root / "models" / decoder).symlink_to(models / decoder)
    return root


# --- the workflow ---------------------------------------------------------------------------------------


def test_the_bare_command_takes_the_workspace_and_says_where_it_wrote_and_what_is_next(place: Path) -> None:
    outcome = done()
    file = place / "generations" / "pipelined-delay2.jsonl"
    rows = lines(file)
    assert [row["segments"] for row in rows] == [list(told) for _, told in TOLD * 2]
    assert [row["id"] for row in rows] == [row["id"] for row in ROWS]
    for row, given_row in zip(rows, ROWS, strict=True):
        assert given_row.items() <= row.items()
        assert set(row) - set(given_row) == {"prediction", "segments", "steps", "tokens", "truncated"}
    assert outcome.stdout == ""
    assert "generations/pipelined-delay2.jsonl" in outcome.stderr
    assert "pipedec score" in outcome.stderr
    assert "examples/s" in outcome.stderr
    assert "tokens a call" in outcome.stderr


def test_the_manifest_beside_it_says_what_it_was_made_with(place: Path) -> None:
    done("--delay", "3", "--batch-size", "2", "--limit", "3")
    file = place / "generations" / "pipelined-delay3-first3.manifest.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["examples"] == 3
    assert content["segmentation"]["level"] == "phrase"
    assert len(content["model"]["sha256"]) == len(content["data"]["sha256"]) == 64
    assert content["versions"]["torch"]
    wanted = {
        "delay": 3,
        "batch_size": 2,
        "dtype": "float32",
        "device": "cpu",
        "time_max": 50,
        "explore": "retry",
    }
    assert wanted.items() <= content["settings"].items()
    assert content["settings"]["threads"] >= 1


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ([], "pipelined-delay2"),
        (["--delay", "1"], "pipelined-delay1"),
        (["--delay", "sequential"], "pipelined-sequential"),
        (["--decoder", "sequential"], "sequential"),
        (["--explore", "once"], "pipelined-delay2-once"),
        (["--sub-max", "4", "--time-max", "30"], "pipelined-delay2-timemax30-submax4"),
        (["--sub-max", "20", "--max-source-tokens", "99"], "pipelined-delay2-source99"),
        (["--dtype", "bfloat16"], "pipelined-delay2-bfloat16"),
        (["--limit", "2"], "pipelined-delay2-first2"),
        (["my data.jsonl"], "pipelined-delay2-my-data"),
    ],
)
def test_a_file_is_called_after_all_that_is_unusual_about_it(
    place: Path, options: list[str], name: str
) -> None:
    write(Path("my data.jsonl"), ROWS[:1])
    write(place / "data" / "test.jsonl", ROWS[:2])
    done(*options)
    assert [file.name for file in (place / "generations").glob("*.jsonl")] == [f"{name}.jsonl"]


def test_the_sequential_decoder_writes_whole_texts_cut_into_sentences(place: Path) -> None:
    done("--decoder", "sequential")
    rows = lines(place / "generations" / "sequential.jsonl")
    assert [row["prediction"] for row in rows] == [" ".join(told) for _, told in TOLD * 2]
    assert rows[0]["segments"] == list(TOLD[0][1])


def test_the_sequential_schedule_is_the_same_checkpoint_a_subsequence_at_a_time(place: Path) -> None:
    done("--delay", "sequential")
    rows = lines(place / "generations" / "pipelined-sequential.jsonl")
    assert rows[0]["segments"] == list(TOLD[0][1])
    assert all(row["steps"] == row["tokens"] + len(row["segments"]) + 1 for row in rows)


@pytest.mark.parametrize("batch_size", ["1", "3", "auto"])
def test_the_batch_size_changes_the_timings_alone(place: Path, batch_size: str) -> None:
    done("--batch-size", "2", "--out", "two.jsonl", "--trace")
    done("--batch-size", batch_size, "--out", "other.jsonl", "--trace")
    assert lines(Path("two.jsonl")) == lines(Path("other.jsonl"))


def test_the_summary_as_json_is_all_that_is_on_stdout(place: Path) -> None:
    outcome = done("--json", "--quiet", "--sub-max", "2")
    summary = json.loads(outcome.stdout)
    assert outcome.stderr == ""
    assert summary["out"].endswith("pipelined-delay2-submax2.jsonl")
    assert summary["rows"] == summary["examples"] == len(ROWS)
    assert summary["truncated"] == {"sub_max": 10}
    assert summary["tokens_per_step"] == pytest.approx(summary["tokens"] / summary["steps"], abs=1e-3)
    assert summary["settings"]["sub_max"] == 2


# --- where sources come from and where lines go ---------------------------------------------------------


def test_texts_come_out_as_texts_on_stdout(place: Path) -> None:
    outcome = done("--text", SOURCES[0], "--text", SOURCES[1])
    assert outcome.stdout.splitlines() == ["; ".join(TOLD[0][1]), TOLD[1][1][0]]
    assert not (place / "generations").exists()


def test_texts_come_out_as_objects_with_json(place: Path) -> None:
    (row,) = lines(done("--text", SOURCES[1], "--json", "-q").stdout)
    assert row == {
        "id": "1",
        "prediction": TOLD[1][1][0],
        "segments": list(TOLD[1][1]),
        "steps": 7,
        "tokens": 6,
        "truncated": None,
        "source": SOURCES[1],
    }


def test_texts_can_go_to_a_file(place: Path) -> None:
    assert done("--text", SOURCES[1], "--out", "one.jsonl").stdout == ""
    assert lines(Path("one.jsonl"))[0]["prediction"] == TOLD[1][1][0]


def test_standard_input_to_standard_output(place: Path) -> None:
    outcome = done("-", "--out", "-", stdin='{"source": "a", "id": "x"}\n\n{"source": "Mr. Smith"}\n')
    rows = lines(outcome.stdout)
    assert [row["id"] for row in rows] == ["x", "3"]
    assert [row["segments"] for row in rows] == [list(TOLD[2][1]), list(TOLD[4][1])]
    assert not (place / "generations").exists()


def test_standard_input_to_a_file_can_be_resumed(place: Path) -> None:
    text = (place / "data" / "test.jsonl").read_text(encoding="utf-8")
    done("-", "--out", "out.jsonl", stdin=text)
    whole = Path("out.jsonl").read_bytes()
    Path("out.jsonl").write_bytes(whole[: len(whole) // 2])
    done("-", "--out", "out.jsonl", "--resume", stdin=text)
    assert lines(Path("out.jsonl")) == lines(whole.decode())


def test_fields_by_other_names(place: Path) -> None:
    write(Path("other.jsonl"), [{"key": "k", "body": "a", "gold": "A. B."}])
    options = ("--source-field", "body", "--target-field", "gold", "--id-field", "key", "--out", "-")
    (row,) = lines(done("other.jsonl", *options).stdout)
    assert (row["id"], row["source"], row["target"]) == ("k", "a", "A. B.")
    assert (row["key"], row["body"], row["gold"]) == ("k", "a", "A. B.")


def test_a_split_of_a_folder(place: Path) -> None:
    for split in ("train", "dev"):
        write(Path("folder") / f"{split}.jsonl", [{"source": "a", "of": split}])
    assert lines(done("folder", "--split", "dev", "--out", "-").stdout)[0]["of"] == "dev"
    assert "has no file for test; give --split train or dev" in refused("folder")
    assert "a single file has no splits" in refused("folder/dev.jsonl", "--split", "dev")


def test_special_files_get_lines_and_no_manifest(place: Path) -> None:
    done("--out", os.devnull)
    assert not Path("/dev/null.manifest.json").exists()


# --- the grid -------------------------------------------------------------------------------------------


def test_a_trace_is_the_grid_token_by_token(place: Path, models: Path) -> None:
    from pipedec_cli.model.checkpoint import load_checkpoint

    (row,) = lines(done("--text", SOURCES[0], "--trace", "--delay", "2", "--json", "-q").stdout)
    checkpoint = load_checkpoint(str(models / "pipelined"))
    text = checkpoint.encoder()
    told = [text.ids([segment])[0] + [checkpoint.eos] for segment in TOLD[0][1]]
    assert row["grid"][:2] == [{"start": 0, "tokens": told[0]}, {"start": 2, "tokens": told[1]}]
    assert row["grid"][2:] == [{"start": start, "tokens": [checkpoint.eos]} for start in (4, 6)]
    assert row["source_token_ids"] == text.source(SOURCES[0])[0]
    assert row["tokens"] == sum(map(len, told)) - 2


def test_live_shows_the_grid_on_stderr_and_leaves_stdout_to_the_data(place: Path) -> None:
    outcome = done("--text", SOURCES[0], "--live")
    assert outcome.stdout == "; ".join(TOLD[0][1]) + "\n"
    assert "<bos>" in outcome.stderr
    assert "cheap" in outcome.stderr
    assert "name[The Mill]" in outcome.stderr


def test_live_on_a_terminal_ends_with_the_whole_grid(place: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40, markup=False)
    run_generation(
        GenerateRequest(texts=("it is not [red]</s>\x1b[2J",)),
        out="out.jsonl",
        resume=False,
        live=True,
        workspace=None,
        talk=Talk(console=console),
    )
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "<eos>" in shown
    assert "[red]</s>" in shown
    assert "\x1b[2J" not in shown
    assert "finished" in shown


# --- stopping and going on ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, models: Path
) -> Iterator[tuple[Setup, Inputs, Path, bytes]]:
    """A run that is set up once, where it writes, and what it writes if nothing disturbs it."""
    folder = tmp_path_factory.mktemp("resuming")
    request = GenerateRequest(
        data=str(write(folder / "data.jsonl", ROWS)), model=str(models / "pipelined"), batch_size=3
    )
    talk, workspace = Talk(quiet=True), Workspace(folder)
    inputs, location = read_data(request, workspace, talk)
    setup = set_up(request, inputs, location, workspace, talk, live=False)
    out = folder / "out.jsonl"
    Run(setup, inputs, talk, trace=False, live=False).write(out, resume=False)
    return setup, inputs, out, out.read_bytes()


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_run_that_was_killed_at_any_byte_ends_as_an_undisturbed_one(
    prepared: tuple[Setup, Inputs, Path, bytes], data: st.DataObject
) -> None:
    setup, inputs, out, whole = prepared
    out.write_bytes(whole[: data.draw(st.integers(0, len(whole)), label="bytes")])
    left = sum(line.endswith(b"\n") for line in out.read_bytes().splitlines(keepends=True))
    result = Run(setup, inputs, Talk(quiet=True), trace=False, live=False).write(out, resume=True)
    assert lines(out) == lines(whole.decode())
    assert result["resumed_from"] == left
    assert result["examples"] == len(ROWS) - left
    assert out.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:left]))  # not written again


@pytest.mark.slow
def test_a_kill_leaves_whole_lines_and_resuming_ends_as_an_undisturbed_run(place: Path) -> None:
    write(
        place / "data" / "test.jsonl", [{**row, "id": f"{n} {row['id']}"} for n in range(40) for row in ROWS]
    )
    done("--batch-size", "2", "--out", "undisturbed.jsonl")
    out = Path("killed.jsonl")
    command = [sys.executable, "-m", "pipedec_cli", "generate", "--batch-size", "2", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not out.exists() or out.stat().st_size < 20_000:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < len(out.read_bytes().splitlines()) < 40 * len(ROWS)
    done("--batch-size", "2", "--out", out, "--resume")
    assert lines(out) == lines(Path("undisturbed.jsonl"))


def test_ctrl_c_leaves_whole_lines_says_how_to_go_on_and_exits_with_130(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(JsonLinesAppender):
        def write(self, item: Any) -> None:
            super().write(item)
            if item["id"] == 4:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(generation, "JsonLinesAppender", Interrupted)
        stopped = run("--out", "out.jsonl", "--quiet")
    assert stopped.code == 130
    assert "5 of 12 lines are in out.jsonl; the same command with --resume goes on" in stopped.stderr
    assert [row["id"] for row in lines(Path("out.jsonl"))] == [0, 1, 2, 3, 4]
    outcome = done("--out", "out.jsonl", "--resume")
    assert "5 of 12 lines are there" in outcome.stderr
    assert [row["id"] for row in lines(Path("out.jsonl"))] == [row["id"] for row in ROWS]


def test_a_whole_file_is_left_as_it_is(place: Path) -> None:
    done()
    file = place / "generations" / "pipelined-delay2.jsonl"
    before = file.read_bytes(), file.stat().st_mtime_ns
    outcome = done("--resume", "--batch-size", "1")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert "is whole already: 12 of 12 lines are there" in outcome.stderr


def test_resuming_what_never_began_begins(place: Path) -> None:
    assert "starting at the beginning" in done("--resume").stderr
    assert len(lines(place / "generations" / "pipelined-delay2.jsonl")) == len(ROWS)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--delay", "3"], "delay was 2 and is now 3"),
        (["--trace"], "trace was false and is now true"),
        (["--dtype", "bfloat16"], 'dtype was "float32" and is now "bfloat16"'),
        (["--limit", "2"], "limit was null and is now 2; the data changed"),
        (["--explore", "once", "--sub-max", "9"], 'explore was "retry" and is now "once"; sub_max was 20'),
        (["--model", "other"], "the model changed"),
    ],
)
def test_resuming_with_other_settings_is_refused_and_names_them(
    place: Path, models: Path, options: list[str], what: str
) -> None:
    Path("other").symlink_to(models / "delay1")
    done("--out", "out.jsonl")
    before = Path("out.jsonl").read_bytes()
    more = ["--untrained-delay"] if "other" in options else []
    assert what in refused("--out", "out.jsonl", "--resume", *options, *more)
    assert Path("out.jsonl").read_bytes() == before


def test_resuming_with_other_data_is_refused(place: Path) -> None:
    done("--out", "out.jsonl")
    write(place / "data" / "test.jsonl", [*ROWS[:-1], {**ROWS[-1], "target": "Another."}])
    assert "the data changed" in refused("--out", "out.jsonl", "--resume")


def test_a_new_run_keeps_what_stood_there(place: Path) -> None:
    done("--out", "out.jsonl")
    before = Path("out.jsonl").read_bytes()
    assert "kept as out.jsonl.bak" in done("--out", "out.jsonl", "--delay", "1").stderr
    assert Path("out.jsonl.bak").read_bytes() == before
    assert GenerationFiles(Path("out.jsonl")).manifest.with_name("out.manifest.json.bak").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_is_one_line_that_names_the_file(place: Path) -> None:
    with pytest.raises(OSError, match="No space left on device; there is nothing to resume from") as raised:
        run("--out", "/dev/full")
    assert raised.value.filename == "/dev/full"


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is empty"),
        ("nonsense\n", "data.jsonl:1: not JSON"),
        ('{"source": "a"}\n{"text": "a"}\n', "data.jsonl:2: field 'source' is missing"),
        ('{"source": "a"}\n{"source": " "}\n', "data.jsonl:2: 'source' is empty"),
        ('{"source": "a", "target": 3}\n', "data.jsonl:1: 'target' is a number"),
        ('{"source": "a"}\n{"source": "b", "steps": 1}\n', "data.jsonl:2: field 'steps' is one that"),
        ('{"source": "a", "grid": []}\n', "data.jsonl:1: field 'grid' is one that"),
    ],
)
def test_bad_data_is_refused_before_anything_is_written(place: Path, content: str, what: str) -> None:
    Path("data.jsonl").write_text(content, encoding="utf-8")
    assert what in refused("data.jsonl")
    assert not (place / "generations").exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--text", ""], "--text 1: is empty"),
        (["--text", "a", "--resume"], "--resume goes on with a file"),
        (["data.jsonl", "--text", "a"], "--text and DATA are both given"),
        (["--dtype", "float16", "--device", "cpu"], "float16"),
        (["--out", "pipedec-workspace"], "is a folder"),
        (["--out", "out.jsonl.gz"], "not compressed"),
        (["pipedec-workspace/data/test.jsonl", "--out", "pipedec-workspace/data/test.jsonl"], "written over"),
        (["--decoder", "sequential", "--delay", "2"], "is an ordinary T5 and has no delay"),
        (["--model", "pipedec-workspace/models/sequential", "--decoder", "pipelined"], "is an ordinary T5"),
        (["--model", "pipedec-workspace/models/pipelined", "--decoder", "sequential"], "--delay sequential"),
        (["--model", "nowhere"], "no checkpoint folder 'nowhere'"),
        (["nowhere.jsonl"], "no such file"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(place: Path, options: list[str], what: str) -> None:
    assert what in refused(*options)


@pytest.mark.parametrize(
    "options",
    [["--delay", "0"], ["--delay", "soon"], ["--batch-size", "0"], ["--device", "tpu"], ["--num-beams", "4"]],
)
def test_options_that_are_none_are_usage_errors(place: Path, options: list[str]) -> None:
    assert run(*options).code == 2


def test_what_is_not_there_yet_names_the_command_that_makes_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "run `pipedec segment DATA` first" in refused("-w", "elsewhere")
    assert "run `pipedec train` first" in refused("--text", "a", "-w", "elsewhere")
    told = refused("--text", "a", "-w", "elsewhere", "--decoder", "sequential")
    assert "run `pipedec train --decoder sequential` first" in told
    (tmp_path / "stopped" / "models" / "pipelined").mkdir(parents=True)
    assert "run `pipedec train --resume` first" in refused("--text", "a", "-w", "stopped")
    monkeypatch.setenv("PIPEDEC_WORKSPACE", "by-variable")
    assert refused().startswith("by-variable/data/test.jsonl is not there yet")


def test_an_empty_test_set_points_to_the_others(place: Path) -> None:
    write(place / "data" / "test.jsonl", [])
    assert "--split dev" in refused()


def test_a_delay_that_was_not_trained_for_is_refused_or_warned_about(place: Path, models: Path) -> None:
    model = ("--model", models / "delay1", "--limit", "1")
    assert "was trained for delay 1 only" in refused(*model, "--delay", "3")
    assert "warning: " not in done(*model).stderr
    outcome = done(*model, "--delay", "3", "--untrained-delay", "--quiet")
    assert "was trained for delay 1 only" in outcome.stderr


# --- what is said ---------------------------------------------------------------------------------------


def test_cut_sources_are_counted_and_named_even_when_quiet(place: Path) -> None:
    stderr = done("--max-source-tokens", "8", "--quiet").stderr
    assert stderr.count("\n") == 1
    assert "warning: " in stderr
    assert "longer than 8 tokens and cut: id 0, " in stderr
    assert ", …" in stderr


def test_explorations_that_use_up_all_subsequences_are_counted(place: Path) -> None:
    outcome = done("--delay", "1", "--sub-max", "6")
    assert "empty explorations used up all 6 subsequences in 10 of 12" in outcome.stderr
    assert "used up" not in done("--delay", "1", "--sub-max", "6", "--explore", "once").stderr


def test_texts_that_were_cut_are_counted_by_reason(place: Path) -> None:
    assert "cut short: 12 by time_max, of 12" in done("--time-max", "3").stderr


def test_nothing_of_the_libraries_noise_is_on_the_terminal(place: Path) -> None:
    text = SOURCES[0] * 300  # more tokens than tokenizers like to see
    command = [
        sys.executable,
        "-m",
        "pipedec_cli",
        "generate",
        "--text",
        text,
        "-q",
        "--max-source-tokens",
        "100",
    ]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(outcome.stdout.splitlines()) == 1
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("warning: 1 of 1 source was longer than 100 tokens")


@pytest.mark.parametrize(
    "hostile", ["[bold]x[/bold]", "\x1b]0;title\x07", "a\x00b", "😀 \ud83d", "</s> <pad> <unk>", "{}"]
)
def test_hostile_text_is_data(place: Path, hostile: str) -> None:
    write(Path("data.jsonl"), [{"id": hostile, "source": f"a {hostile}", "note": hostile}])
    (row,) = lines(done("data.jsonl", "--out", "-", "--live").stdout)
    assert row["note"] == hostile
    assert row["id"] in (hostile, hostile.replace("\ud83d", "\ufffd"))


def test_the_source_prefix_of_the_training_is_used_again(place: Path, tmp_path: Path) -> None:
    model = tiny_checkpoint(tmp_path / "prefixed", source_prefix="Mr. ")
    (row,) = lines(done("--text", "Smith", "--model", model, "--trace", "--json").stdout)
    assert row["source"] == "Smith"
    assert row["segments"] == list(TOLD[4][1])


# --- settings from elsewhere ----------------------------------------------------------------------------


def test_a_config_file_carries_options_and_flags_win(place: Path) -> None:
    Path("c.toml").write_text("[generate]\ndelay = 3\nbatch-size = 2\nlimit = 2\n", encoding="utf-8")
    done("--config", "c.toml", "--limit", "1")
    content = (place / "generations" / "pipelined-delay3-first1.manifest.json").read_text(encoding="utf-8")
    assert json.loads(content)["settings"]["batch_size"] == 2


def test_a_recipe_and_a_config_file_do_not_bind_the_sequential_decoder(place: Path) -> None:
    done("--recipe", "paper", "--decoder", "sequential")
    content = (place / "generations" / "sequential.manifest.json").read_text(encoding="utf-8")
    resolved = json.loads(content)["settings"]
    assert (resolved["delay"], resolved["time_max"], resolved["sub_max"]) == (None, None, None)
    done("--recipe", "paper")
    assert (place / "generations" / "pipelined-delay1.jsonl").exists()


def test_help_says_that_decoding_is_greedy() -> None:
    outcome = CliRunner().invoke(app, ["generate", "--help"])
    assert "no beams" in " ".join(outcome.stdout.split())
