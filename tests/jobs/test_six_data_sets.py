"""Each of the paper's six data sets, from files as they are published to a report beside the paper's figures.

The commands are read from docs/datasets.md. The model is tiny and hardly trained: what
is held is that every step finds what the one before has left, that the metrics are
those of the task, and whose figures stand beside them.
"""

import json
import shlex
from functools import partial
from pathlib import Path

import pytest

from pipedec_cli.compare import timing
from pipedec_cli.data.paper import paper_figures, recipe
from pipedec_cli.model.scratch import SHAPES, Shape
from tests import running
from tests.data.importers.published import TEST, WRITERS
from tests.running import generated, lines_of, read_json, refused, slow

#: The metrics of each task.
METRICS = {
    "summarization": ("rouge1", "rouge2", "rougeL"),
    "keyphrases": ("present_f1@5", "present_f1@M", "absent_f1@5", "absent_f1@M"),
    "multispan": ("em_f1", "pm_f1"),
}
WORK = Path("pipedec-workspace")
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "datasets.md"

run = partial(running.run, columns=160)
BRIEF = "--max-steps 2 --batch-size 4 --device cpu"
QUICK = "--set memory=false --device cpu"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PAUSE_SECONDS", 0.0)
    smallest = Shape(
        d_model=16, d_ff=16, layers=1, heads=2, vocabulary=320, dropout=0.0, d_kv=8
    )
    monkeypatch.setitem(SHAPES, "scratch-tiny", smallest)  # type: ignore[misc]


@pytest.mark.parametrize(
    "name",
    ["wikihowqa", *map(slow, ["kp20k", "msqa", "kptimes", "cnn_dailymail", "pubmed"])],
)
def test_published_files_become_a_report_beside_the_papers_figures(name):
    Path("published").mkdir()
    WRITERS[name](Path("published"))
    for command in documented("import", name):
        run(*command)
    for command in documented("segment", name):
        run(*command)
    check_data(name)
    for command in documented("train", name):
        run(*command, *BRIEF.split())
    for decoder in ("pipelined", "sequential"):
        check_settings(decoder)
    for command in documented("generate", name):
        run(*command, "--device", "cpu")
    assert len(lines_of(generated(WORK, "pipelined-delay1"))) == TEST
    (command,) = documented("score", name)
    score = json.loads(run(*command, "--json").stdout)
    check_score(name, score)
    # The workspace knows its recipe.
    assert json.loads(run("score", "--json").stdout) == score
    (command,) = documented("report", name)
    run(*command, *QUICK.split())
    check_report(name, score)
    check_figures(name)


def check_data(name):
    """The splits are segmented as the recipe says, and no target lost a subsequence."""
    segmentation = read_json(WORK / "data/segmentation.json")
    level = recipe(name, "segment")["level"]
    joiner = "; " if level == "phrase" else " "
    assert (segmentation["level"], segmentation["joiner"]) == (level, joiner)
    rows = lines_of(WORK / "data/test.jsonl")
    counts = [len(row["target_segments"]) for row in rows]
    assert counts == [2, 3] * (TEST // 2)


def check_settings(decoder):
    """What no flag says is as the recipe says."""
    settings = read_json(WORK / f"models/{decoder}/training.json")["settings"]
    paper = {"delay": 1, "max_source_tokens": 2048, "time_max": 50}
    assert settings.items() >= paper.items()
    usual = {"optimizer": "adamw", "learning_rate": 1e-4, "epochs": 10}
    typed = {"batch_size": 4, "max_steps": 2}
    assert settings["training"].items() >= (usual | typed).items()


def check_score(name, score):
    task = recipe(name, "score")["task"]
    assert score["task"] == task
    assert score["signature"].startswith(f"{score['protocol']}|")
    assert all(0.0 <= score["values"][metric] <= 100.0 for metric in METRICS[task])
    assert score["rows"] == {"scored": TEST, "expected": TEST}


def check_report(name, score):
    """Both decoders are scored as `score` does, on both splits and by number of subsequences."""
    report = read_json(WORK / "report/report.json")
    baseline, pipelined = report["entries"]
    assert (baseline["name"], pipelined["name"]) == ("sequential", "Δt = 1")
    assert pipelined["quality"]["values"] == score["values"]
    for entry in report["entries"]:
        assert entry["quality"]["signature"] == score["signature"]
        assert [*entry["other_splits"]] == ["dev"]
    assert {*METRICS[score["task"]]} <= {*pipelined["differences"]}
    assert (report["split"], report["sample"]["timed"]) == ("test", TEST)
    for size, row in zip((2, 3), report["by_subsequences"]["Δt = 1"], strict=False):
        assert (row["subsequences"], row["examples"]) == (size, TEST // 2)
        assert row["quality"] is not None and row["fewer_steps"] > 0


def check_figures(name):
    """The paper's figures stand beside ours, in JSON and on the page."""
    expected = paper_figures(name).row
    row = read_json(WORK / "report/report.json")["paper"]["row"]
    assert (row["dataset"], row["backbone"]) == (name, "T5-Base")
    assert row["speedup"] == expected.speedup
    assert row["pipelined"]["quality"] == expected.pipelined.quality
    page = (WORK / "report/report.md").read_text(encoding="utf-8")
    assert "By number of target subsequences" in page and "paper: Δt = 1" in page
    assert f"| {expected.speedup:.1f} × |" in page
    for side in (expected.sequential, expected.pipelined):
        for metric in METRICS[recipe(name, "score")["task"]]:
            assert f"| {side.quality[metric]:.1f} |" in page


def documented(command: str, name: str) -> list[list[str]]:
    """What docs/datasets.md says is to be typed for a data set, the place of the published files put in.

    What is the same for all six stands there for WikiHowQA; a model of the hub is left
    out.
    """
    section = (
        DOCUMENTATION.read_text(encoding="utf-8")
        .split("## What to type")[1]
        .split("\n## ")[0]
    )
    lines = [
        shlex.split(line)
        for line in section.splitlines()
        if line.startswith(f"pipedec {command} ")
    ]
    of_its_own = command in ("import", "segment")
    found = []
    for _, *words in lines:
        if of_its_own and words[1] != name:
            continue
        if command == "import":
            words[2] = "published"
        if "--model" in words:
            del words[words.index("--model") : words.index("--model") + 2]
        found.append([name if word == "wikihowqa" else word for word in words])
    assert found, (command, name)
    return found


def test_nothing_is_written_over_nor_beside_what_is_read():
    Path(
        "kptimes"
    ).mkdir()  # its published files have the very names of those that are written
    WRITERS["kptimes"](Path("kptimes"))
    before = Path("kptimes/train.jsonl").read_bytes()
    refused("import", "kptimes", "kptimes")
    refused(
        "import", "kptimes", "kptimes/train.jsonl", "--out", "./kptimes/train.jsonl"
    )
    assert Path("kptimes/train.jsonl").read_bytes() == before
    run("import", "kptimes", "kptimes", "--out", "imported")
    assert len(lines_of(Path("imported/test.jsonl"))) == TEST
