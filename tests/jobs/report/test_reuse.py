"""Predictions that are there are taken, and what was stopped is finished."""

import shutil

from tests.checkpoints import TOLD
from tests.jobs.report.running import report_of, reported, write_data
from tests.running import run


def test_predictions_that_are_there_are_taken_all_some_or_with_their_grids(workspace):
    reported("--delays", "1")
    files = sorted((workspace / "generations").glob("*.jsonl"))
    assert [file.name for file in files] == ["pipelined-delay1.jsonl", "sequential.jsonl"]
    before = [file.stat().st_mtime_ns for file in files]
    assert "Δt = 1: all 12 predictions are in" in reported("--delays", "1").stderr
    assert [file.stat().st_mtime_ns for file in files] == before
    result = reported("--delays", "1", "--limit", "4")
    assert "made with --limit" not in result.stderr, "it was asked for"
    content, decoders = report_of(workspace)
    assert decoders["Δt = 1"]["totals"]["examples"] == content["sample"]["of"] == 4
    shutil.rmtree(workspace / "generations")
    run("generate", "--delay", "1", "--set", "trace=true", "--device", "cpu", "--quiet")
    assert "Δt = 1: all 12 predictions are in" in reported("--delays", "1").stderr


def test_stopped_run_is_finished_and_one_of_other_data_begun_anew(workspace):
    reported("--delays", "1")
    file = workspace / "generations/pipelined-delay1.jsonl"
    whole = file.read_text(encoding="utf-8").splitlines(keepends=True)
    marked = whole[0].replace('"seconds": ', '"seconds": 77')
    file.write_text(marked + whole[1] + whole[2][:20], encoding="utf-8")
    reported("--delays", "1")
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    assert (lines[:2], len(lines)) == ([marked, whole[1]], 12)
    write_data(workspace, TOLD[:1])
    anew = "is of another run and is generated anew (cannot go on: the data changed)"
    assert anew in reported("--delays", "1").stderr
    assert (workspace / "generations/pipelined-delay1.jsonl.bak").exists()
    assert report_of(workspace)[0]["entries"][0]["totals"]["examples"] == 1
