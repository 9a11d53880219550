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
    metrics = METRICS[recipe(name, "score")["task"]]
    expected = paper_figures(name).row
    assert expected is not None
    Path("published").mkdir()
    WRITERS[name](Path("published"))

    for command in documented("import", name):
        assert "the paper, Table 1" in run(*command).stderr
    for command in documented("segment", name):
        run(*command)
    segmentation = read_json(WORK / "data/segmentation.json")
    assert segmentation["manifest"]["settings"]["recipe"] == name
    level = recipe(name, "segment")["level"]
    assert (segmentation["level"], segmentation["joiner"]) == (
        level,
        "; " if level == "phrase" else " ",
    )
    subsequences = [
        len(row["target_segments"]) for row in lines_of(WORK / "data/test.jsonl")
    ]
    assert subsequences == [2, 3] * (TEST // 2), "no target lost one"

    for command in documented("train", name):
        run(*command, *BRIEF.split())
    for decoder in ("pipelined", "sequential"):  # as the recipe says where no flag does
        settings = read_json(WORK / f"models/{decoder}/training.json")["settings"]
        assert (
            settings["delay"],
            settings["max_source_tokens"],
            settings["time_max"],
        ) == (1, 2048, 50)
        training = settings["training"]
        assert (
            training["optimizer"],
            training["learning_rate"],
            training["epochs"],
        ) == ("adamw", 1e-4, 10)
        assert (training["batch_size"], training["max_steps"]) == (4, 2)

    for command in documented("generate", name):
        run(*command, "--device", "cpu")
    assert len(lines_of(generated(WORK, "pipelined-delay1"))) == TEST

    (command,) = documented("score", name)
    score = json.loads(run(*command, "--json").stdout)
    assert score["task"] == recipe(name, "score")["task"]
    assert score["signature"].startswith(f"{score['protocol']}|")
    assert all(0.0 <= score["values"][metric] <= 100.0 for metric in metrics)
    assert score["rows"] == {"scored": TEST, "expected": TEST}
    assert json.loads(run("score", "--json").stdout) == score, (
        "the workspace knows its recipe"
    )

    (command,) = documented("report", name)
    shown = run(*command, *QUICK.split()).stdout
    report = read_json(WORK / "report/report.json")
    baseline, pipelined = report["entries"]
    assert (baseline["name"], pipelined["name"]) == ("sequential", "Δt = 1")
    assert "the sequential model" in report["baseline"]["description"]
    assert pipelined["quality"]["values"] == score["values"]
    assert {baseline["quality"]["signature"], pipelined["quality"]["signature"]} == {
        score["signature"]
    }
    assert set(metrics) <= set(pipelined["differences"])
    assert (report["split"], report["sample"]["timed"]) == ("test", TEST)
    assert [list(one["other_splits"]) for one in report["entries"]] == [["dev"]] * 2
    sizes = report["by_subsequences"]["Δt = 1"]
    assert [(row["subsequences"], row["examples"]) for row in sizes[:2]] == [
        (2, TEST // 2),
        (3, TEST // 2),
    ]
    assert all(
        row["quality"] is not None and row["fewer_steps"] > 0 for row in sizes[:2]
    )
    row = report["paper"]["row"]
    assert (row["dataset"], row["backbone"], row["speedup"]) == (
        name,
        "T5-Base",
        expected.speedup,
    )
    assert row["pipelined"]["quality"] == expected.pipelined.quality

    page = (WORK / "report/report.md").read_text(encoding="utf-8")
    assert "paper: Δt = 1" in page
    assert all("By number of target subsequences" in text for text in (page, shown))
    for side in (expected.sequential, expected.pipelined):
        assert all(f"| {side.quality[metric]:.1f} |" in page for metric in metrics)
    assert f"| {expected.speedup:.1f} × |" in page


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
        if line.startswith(f"    pipedec {command} ")
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
