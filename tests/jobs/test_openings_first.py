"""Openings first at the command line: from training to a report."""

import pytest

from pipedec_cli.model.scratch import SHAPES
from tests import running
from tests.checkpoints import SMALL, TOLD
from tests.running import lines_of, read_json, run, write_lines

FEW = (
    "--max-steps",
    "2",
    "--batch-size",
    "4",
    "--device",
    "cpu",
    "--set",
    "evaluations=1",
    "--set",
    "dev_examples=2",
)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setitem(SHAPES, "scratch-tiny", SMALL)
    write_lines(
        tmp_path / "d.jsonl", *({"source": source, "target": " ".join(told)} for source, told in TOLD * 4)
    )
    run("segment", tmp_path / "d.jsonl", "-w", tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_a_model_is_trained_to_write_openings_first_and_writes_and_reports_so(workspace, family):
    run("train", "-w", workspace, *FEW, "--delay", "plan", "--set", f"family={family}")
    run("train", "-w", workspace, *FEW, "--decoder", "sequential", "--set", f"family={family}")
    assert read_json(workspace / "models" / "pipelined" / "config.json")["pipedec"]["delay"] == "plan"
    few = ("generate", "-w", workspace, "--device", "cpu", "--max-tokens", "40")
    run(*few, "--set", "trace=true")
    made = workspace / "generations" / "pipelined-plan-maxtokens40.jsonl"
    assert read_json(made.with_suffix(".manifest.json"))["settings"]["delay"] == "plan"
    for line in lines_of(made):
        first, *rows = line["grid"]
        assert first["start"] == 0 and len(line["segments"]) <= len(rows)
    assert "trained for delay plan only" in running.refused(*few, "--delay", "2")
    told = run("report", "-w", workspace, "--device", "cpu", "--max-tokens", "40", "--set", "repeats=1")
    assert "openings first" in told.stdout


def test_a_model_for_other_delays_does_not_write_openings_first(workspace):
    run("train", "-w", workspace, *FEW)
    refusal = running.refused("generate", "-w", workspace, "--delay", "plan")
    assert "was not trained to write openings first; train with --delay plan" in refusal
