"""`pipedec generate` as a user runs it, on checkpoints that know a few texts by heart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.checkpoints import TOLD
from tests.terminal.generate.running import ROWS, done, lines, write


def test_the_bare_command_takes_the_workspace_and_says_where_it_wrote_and_what_is_next(place: Path) -> None:
    outcome = done()
    rows = lines(place / "generations" / "pipelined-delay2.jsonl")
    assert [row["segments"] for row in rows] == [list(told) for _, told in TOLD * 2]
    for row, given_row in zip(rows, ROWS, strict=True):
        assert given_row.items() <= row.items()
        assert set(row) - set(given_row) == {"prediction", "segments", "steps", "tokens", "truncated"}
    assert outcome.stdout == ""
    for told in ("generations/pipelined-delay2.jsonl", "pipedec score", "examples/s", "tokens a call"):
        assert told in outcome.stderr


def test_the_manifest_says_what_it_was_made_with_and_flags_win_over_a_config_file(place: Path) -> None:
    Path("c.toml").write_text("[generate]\ndelay = 3\nbatch-size = 2\nlimit = 2\n", encoding="utf-8")
    done("--config", "c.toml", "--limit", "1")
    file = place / "generations" / "pipelined-delay3-first1.manifest.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["examples"] == 1
    assert content["segmentation"]["level"] == "phrase"
    assert len(content["model"]["sha256"]) == len(content["data"]["sha256"]) == 64
    assert content["versions"]["torch"]
    wanted = {"delay": 3, "batch_size": 2, "dtype": "float32", "device": "cpu", "time_max": 50, "limit": 1}
    assert wanted.items() <= content["settings"].items()
    assert (content["settings"]["explore"], content["settings"]["threads"] >= 1) == ("retry", True)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ([], "pipelined-delay2"),
        (["--delay", "1"], "pipelined-delay1"),
        (["--delay", "sequential"], "pipelined-wait"),
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


def test_the_waiting_schedule_is_the_same_checkpoint_a_subsequence_at_a_time(place: Path) -> None:
    done("--delay", "wait")
    rows = lines(place / "generations" / "pipelined-wait.jsonl")
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


def test_a_t5_from_elsewhere_has_its_texts_cut_as_the_workspaces_targets_were(
    place: Path, models: Path
) -> None:
    plain = place.parent / "my-t5"
    shutil.copytree(models / "sequential", plain)
    config = json.loads((plain / "config.json").read_text())
    segmentation = config.pop("pipedec")["segmentation"]
    (plain / "config.json").write_text(json.dumps(config))
    (plain / "sentences.json").rename(place / "data" / "sentences.json")
    done("--model", plain, "--out", "alone.jsonl")
    assert {len(row["segments"]) for row in lines(Path("alone.jsonl"))} == {1}

    (place / "data" / "segmentation.json").write_text(json.dumps(segmentation))
    done("--model", plain, "--out", "cut.jsonl")

    done("--decoder", "sequential", "--out", "ours.jsonl")
    ours = [row["segments"] for row in lines(Path("ours.jsonl"))]
    assert [row["segments"] for row in lines(Path("cut.jsonl"))] == ours
    assert max(map(len, ours)) > 1
