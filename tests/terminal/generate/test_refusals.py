"""What `pipedec generate` refuses, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.terminal.generate.running import done, refused, run, write


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
        (["--model", "pipedec-workspace/models/pipelined", "--decoder", "sequential"], "--delay wait"),
        (["--model", "nowhere"], "no checkpoint folder 'nowhere'"),
        (["nowhere.jsonl"], "no such file"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(place: Path, options: list[str], what: str) -> None:
    assert what in refused(*options)


@pytest.mark.parametrize(
    "options", ["--delay 0", "--delay soon", "--batch-size 0", "--device tpu", "--num-beams 4"]
)
def test_options_that_are_none_are_usage_errors(place: Path, options: str) -> None:
    assert run(*options.split()).exit_code == 2


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
