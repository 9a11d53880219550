"""Predictions made whole for a report: what is there is taken, first lines of a longer run and older names included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipedec_cli.model.decoder import Decoder
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.generate import GenerateSettings, load_decoder, read_inputs
from pipedec_cli.terminal.predicting import Predictions
from tests.terminal.generate.running import ROWS, done, lines, write


def complete(**options: Any) -> tuple[Path, int]:
    """The file, as a report has it made whole, and how many examples were generated for it."""
    settings, talk = GenerateSettings(**options), Talk()
    predictions = Predictions(settings, load_decoder(settings, talk), read_inputs(settings, talk), talk)
    return predictions.complete("the decoder").resolve(), predictions.tally.examples


def manifest_of(path: Path) -> Any:
    return json.loads(path.with_name(f"{path.stem}.manifest.json").read_text(encoding="utf-8"))


def rename_as_older_versions_did(place: Path, name: str, older: str) -> Path:
    folder = place / "generations"
    content = manifest_of(folder / f"{name}.jsonl")
    assert content["settings"]["delay"] == "wait"
    content["settings"]["delay"] = "sequential"
    (folder / f"{name}.manifest.json").unlink()
    (folder / f"{older}.manifest.json").write_text(json.dumps(content), encoding="utf-8")
    return (folder / f"{name}.jsonl").rename(folder / f"{older}.jsonl")


def test_what_is_there_is_taken_and_what_is_missing_made(place: Path) -> None:
    done("--trace")  # lines that hold more than is needed serve as well
    path, made = complete()
    assert (path.name, made) == ("pipelined-delay2.jsonl", 0)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert complete() == (path, len(ROWS) - whole[: len(whole) // 2].count(b"\n"))
    assert lines(path) == lines(whole.decode())


def test_a_decoder_and_the_data_serve_several_runs(place: Path) -> None:
    talk = Talk(quiet=True)
    decoder, inputs = load_decoder(GenerateSettings(), talk), read_inputs(GenerateSettings(), talk)
    for delay in (1, 2, "wait"):
        done("--delay", delay, "--out", f"{delay}.jsonl")
        path = Predictions(GenerateSettings(delay=delay), decoder, inputs, talk).complete("")
        assert lines(path) == lines(Path(f"{delay}.jsonl"))


def test_what_is_of_another_run_is_kept_and_made_anew(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done("--limit", "2")
    write(place / "data" / "test.jsonl", ROWS[2:])
    path, made = complete(limit=2)
    assert made == 2
    assert path.with_name("pipelined-delay2-first2.jsonl.bak").exists()
    told = capsys.readouterr().err
    assert "is of another run and is generated anew (cannot go on: the data changed)" in told


@pytest.mark.parametrize("longer", [(), ("--limit", "5"), ("--trace",)])
def test_a_limited_run_takes_the_first_lines_of_a_longer_one(place: Path, longer: tuple[str, ...]) -> None:
    done("--limit", "3", "--out", "alone.jsonl", *(["--trace"] if "--trace" in longer else []))
    done(*longer, "--batch-size", "5")
    path, made = complete(limit=3)
    assert (path.name, made) == ("pipelined-delay2-first3.jsonl", 0)
    assert lines(path) == lines(Path("alone.jsonl"))
    alone, taken = manifest_of(Path("alone.jsonl")), manifest_of(path)
    free = {"batch_size": 5, "threads": taken["settings"]["threads"]}
    assert taken == {**alone, "settings": {**alone["settings"], **free}}
    assert complete(limit=3) == (path, 0)


@pytest.mark.parametrize("other", [["--explore", "once"], ["--limit", "2"], ["--sub-max", "5"]])
def test_a_run_of_other_settings_or_too_few_lines_is_none_to_take_from(place: Path, other: list[str]) -> None:
    done(*other, "--out", place / "generations" / "pipelined-delay2.jsonl")
    assert complete(limit=3)[1] == 3


def test_a_line_of_another_record_is_not_taken(place: Path) -> None:
    done()
    write(place / "data" / "test.jsonl", [ROWS[0], {**ROWS[1], "target": "Another."}, *ROWS[2:]])
    assert complete(limit=1)[1] == 0
    assert complete(limit=2)[1] == 2


@pytest.mark.parametrize("cut", [0, 40])
def test_the_waiting_schedule_is_found_under_its_older_name(place: Path, cut: int) -> None:
    done("--delay", "wait")
    path = rename_as_older_versions_did(place, "pipelined-wait", "pipelined-sequential")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - cut])
    assert complete(delay="wait") == (path, int(cut > 0))
    assert lines(path) == lines(whole.decode())
    assert complete(delay="wait", limit=4)[1] == 0
    path.write_bytes(whole[: len(whole) - cut])
    done("--delay", "sequential", "--resume")
    assert lines(path) == lines(whole.decode())
    done("--delay", "wait")
    assert path.with_name("pipelined-wait.jsonl").exists()
    assert not path.with_name("pipelined-sequential.jsonl.bak").exists()


def test_complete_predictions_need_no_decoder_step(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done()
    monkeypatch.delattr(Decoder, "run")
    assert complete()[1] == complete(limit=2)[1] == 0
