"""What `pipedec generate` refuses, in one line, what it says for itself, and that hostile text is data."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints import SOURCES
from tests.jobs.generate.running import (
    ROWS,
    done,
    lines,
    new_test_set,
    printed,
    refused,
)
from tests.running import generated, run, write_lines


def test_bad_data_is_refused_before_anything_is_written(place):
    write_lines("data.jsonl", {"source": "a"}, {"text": "a"})
    refused("data.jsonl")
    assert not (place / "generations").exists()


#: Lines of options that do not fit, or name what is not there.
REFUSED = """
--text=
--model sequential --schema none.json
--model sequential --shots none.jsonl:4
--draft source
--exact pipedec-workspace/models/pipelined
--exact pipedec-workspace/models/sequential --draft source --set time_max=3
--exact pipedec-workspace/models/sequential --draft source --set empty_rows=stop
--exact pipedec-workspace/models/sequential --draft source --model nowhere
--exact pipedec-workspace/models/sequential --draft source --delay wait
--exact pipedec-workspace/models/sequential --draft source --set sub_max=2
--exact pipedec-workspace/models/sequential --draft source --delay 2
--model sequential --set empty_rows=stop
--source-field text
--text a --split dev
--text a --skip-invalid
--text a --resume
data.jsonl --text a
--dtype float16 --device cpu
--out pipedec-workspace
--out out.jsonl.gz
--out out.tsv
--out out.csv.gz
--out weights
pipedec-workspace/data/test.jsonl --out pipedec-workspace/data/test.jsonl
new.invalid.jsonl --skip-invalid --out new.jsonl
pipedec-workspace/data --out pipedec-workspace/data/test_out.jsonl
--out pipedec-workspace/data/test.jsonl
--split dev --out pipedec-workspace/data/train.jsonl
--model sequential --delay 2
--model nowhere
nowhere.jsonl
-w elsewhere
--text a -w elsewhere
--text a -w elsewhere --model sequential
--text a -w stopped
--model sequential --delay wait
"""


@pytest.mark.parametrize("options", REFUSED.strip().splitlines())
def test_what_does_not_fit_or_is_not_there_is_refused_in_one_line(place, options):
    Path("stopped/models/pipelined").mkdir(parents=True)
    Path("weights").write_bytes(b"\0\x08weights")
    refused(*options.split())
    assert Path("weights").read_bytes() == b"\0\x08weights"


@pytest.mark.parametrize(
    "options", ["--delay 0", "--delay soon", "--batch-size 0", "--device tpu"]
)
def test_values_that_are_none_are_usage_errors(options):
    run("generate", *options.split(), exit_code=2)


def test_the_variable_names_the_workspace_and_an_empty_test_set_points_to_the_others(
    place, monkeypatch
):
    new_test_set(place)
    refused()
    monkeypatch.setenv("PIPEDEC_WORKSPACE", "by-variable")
    refused()


@pytest.mark.parametrize(
    "options", ["--model sequential", "--model PATH", "--draft source --exact PATH"]
)
def test_a_recipe_does_not_give_a_delay_to_a_model_that_has_none(place, options):
    named = options.replace("PATH", str(place / "models" / "sequential")).split()
    done("--config", "kp20k", "--limit", "1", "--out", "new.jsonl", *named)
    settings = json.loads(Path("new.manifest.json").read_text())["settings"]
    assert [settings[name] for name in ("delay", "time_max", "sub_max")] == [
        None,
        None,
        None,
    ]


def test_a_delay_that_was_not_trained_for_is_refused(place, models):
    model = ("--model", models / "delay1", "--limit", "1")
    refused(*model, "--delay", "3")
    assert "warning: " not in done(*model).stderr


def test_the_summary_as_json_is_all_that_is_on_stdout(place):
    outcome = done("--json", "--quiet", "--set", "sub_max=2")
    summary = json.loads(outcome.stdout)
    assert all(line.startswith("warning: ") for line in outcome.stderr.splitlines())
    assert summary["out"] == str(
        generated(place.relative_to(Path.cwd()), "pipelined-delay2")
    )
    assert summary["rows"] == summary["counts"]["examples"] == len(ROWS)
    assert summary["counts"]["truncated"] == {"sub_max": 10}
    assert summary["counts"]["tokens"] > summary["counts"]["steps"]
    assert summary["settings"]["sub_max"] == 2


def test_cut_sources_are_counted_and_named_even_when_quiet(place):
    line, *others = done("--max-source-tokens", "8", "--quiet").stderr.splitlines()
    assert all(each.startswith("warning: ") for each in (line, *others))
    assert "longer than 8 tokens and cut: id 0, " in line
    assert ", …" in line


def test_a_folder_that_is_made_is_said(place):
    told = f"made the folder {Path('new/er').absolute()}"
    assert told in done("--limit", "1", "--out", "new/er/1.jsonl").stderr
    assert told not in done("--limit", "1", "--out", "new/er/2.jsonl").stderr


def test_json_that_is_read_as_plain_text_is_noticed(place):
    write_lines("data.jsonl", {"source": "a"})
    Path("data.txt").write_text("a\n", encoding="utf-8")
    told = "data.jsonl holds JSON, which --plain reads as text, keys and braces too: leave --plain out"
    assert told in done("data.jsonl", "--plain", "--quiet").stderr
    assert not done("data.txt", "--plain", "--quiet").stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            "--set time_max=3",
            "cut short: 12 by time_max, of 12; `--set time_max=N` allows more",
        ),
        (
            "--delay 99 --limit 12",
            "Δt = 99 is larger than any delay of a training (up to 12)",
        ),
        ("--delay 99", "cut short: 12 by time_max, of 12"),
        (
            "--delay 1 --set sub_max=6",
            "10 of 12 texts lost sentences because empty rows used up the lim",
        ),
    ],
)
def test_what_went_short_is_counted(place, options, told):
    assert f"warning: {told}" in done(*options.split(), "--quiet").stderr, (
        "less than the whole text"
    )
    assert "used up" not in done(*options.split(), "--set", "empty_rows=stop").stderr


def test_a_model_that_does_not_end_its_texts_is_told_while_there_is_work_to_be_spared(
    place,
):
    told = "all of the first 16 texts were cut short by time_max: the model may not end its texts"
    assert told not in done("--set", "time_max=3").stderr  # twelve
    new_test_set(
        place, *({**row, "id": f"{n} {row['id']}"} for n in range(2) for row in ROWS)
    )
    assert done("--set", "time_max=3").stderr.count(told) == 1
    assert told not in done("--out", "whole.jsonl").stderr


@pytest.mark.slow
def test_nothing_of_the_libraries_noise_is_on_the_terminal(place):
    text = SOURCES[0] * 300  # more tokens than tokenizers like to see
    command = [
        "-m",
        "pipedec_cli",
        "generate",
        "-q",
        "--max-source-tokens",
        "100",
        "--text",
    ]
    outcome = subprocess.run(
        [sys.executable, *command, text], capture_output=True, text=True, check=True
    )
    assert len(outcome.stdout.splitlines()) == 1
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("warning: 1 of 1 source was longer than 100 tokens")


@pytest.mark.parametrize(
    "hostile",
    [
        "[bold]x[/bold]",
        "\x1b]0;title\x07",
        "a\x00b",
        "😀 \ud83d",
        "</s> <pad> <unk>",
        "{}",
    ],
)
def test_hostile_text_is_data(place, hostile):
    write_lines(
        "data.jsonl", {"id": hostile, "source": f"a {hostile}", "note": hostile}
    )
    (row,) = printed("data.jsonl", "--out", "-", "--live")
    assert row["note"] == hostile
    assert row["id"] in (hostile, hostile.replace("\ud83d", "\ufffd"))


def test_what_can_be_done_next_is_a_command_that_works(place):
    report = ", or `pipedec report`\n"
    assert f"next: `pipedec score`{report}" in done().stderr
    assert (
        f"next: `pipedec score 'my own.jsonl'`{report}"
        in done("--out", "my own.jsonl").stderr
    )
    write_lines("data.jsonl", ROWS[0], {"source": "a"})
    told = done("data.jsonl", "-w", place, "--out", "b.jsonl").stderr
    assert told.endswith(f"next: `pipedec score b.jsonl --workspace {place}`\n")
    write_lines("data.jsonl", {"source": "a"})
    assert "next: " not in done("data.jsonl", "--out", "b.jsonl").stderr


def test_where_there_is_nothing_to_score_by_the_command_for_all_sources_is_next(place):
    rows = [{"id": row["id"], "text": row["source"]} for row in ROWS]
    write_lines("my inputs.jsonl", *rows)
    model = place / "models" / "pipelined"
    shutil.rmtree(place / "data")
    run(
        "segment",
        "my inputs.jsonl",
        "--sources-only",
        "--source-field",
        "text",
        "--limit",
        "9",
    )
    told = done("--model", model).stderr
    (command,) = re.findall(r"next: `pipedec generate (.*?)`", told)
    assert (
        "these are the sources of test alone" in told
        and "`pipedec segment` with --test FILE" in told
    )
    run("generate", *shlex.split(command), "--out", "all.jsonl")
    assert len(lines(Path("all.jsonl"))) == len(rows)


@pytest.mark.parametrize("limit", [(), ("--limit", "2")])
def test_half_a_surrogate_pair_is_generated_from_as_a_replacement_character_and_said_once(
    place, limit
):
    write_lines("data.jsonl", {"source": "a \ud800"}, {"source": "a \ufffd"})
    outcome = done("data.jsonl", "--out", "-", *limit)
    mended, meant = lines(outcome.stdout)
    assert mended["segments"] == meant["segments"]
    assert mended["source"] == "a \ud800", (
        "the user's own field is passed through as it was"
    )
    assert (
        outcome.stderr.count(
            "data.jsonl:1: half a surrogate pair replaced by U+FFFD, in 1 record\n"
        )
        == 1
    )


def test_what_goes_to_standard_output_has_no_manifest_and_hashes_no_weights(
    place, monkeypatch
):
    monkeypatch.setattr(
        "pipedec_cli.decoding.decoder.fingerprint",
        lambda _: pytest.fail("weights are hashed"),
    )
    assert done("--text", "a").stdout.strip()
