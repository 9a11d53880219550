"""Each of the paper's six data sets, from files as they are published to a report beside the paper's figures.

The commands are read from docs/datasets.md. The model is tiny and hardly trained: what is held is that every step finds
what the one before has left, that the metrics are those of the task, and whose figures stand beside them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.paper import paper_row
from pipedec_cli.evaluate import timing
from pipedec_cli.model.scratch import SHAPES, Shape
from pipedec_cli.terminal.app import app
from tests.data.importers.published import TEST, WRITERS

ROUGE = ("rouge1", "rouge2", "rougeL")
F1 = ("present_f1@5", "present_f1@M", "absent_f1@5", "absent_f1@M")
EM_PM = ("em_f1", "pm_f1")
WORK = Path("pipedec-workspace")
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "datasets.md"

BRIEF = "--max-steps 2 --batch-size 4 --evaluations 1 --dev-examples 1 --device cpu"
QUICK = "--timing-examples 1 --repeats 1 --resamples 99 --no-memory --device cpu"


@dataclass(frozen=True)
class Case:
    """What a data set is scored by."""

    name: str
    protocol: str
    metrics: Sequence[str]

    @property
    def task(self) -> str:
        return {"rouge": "summarization", "chan2019": "keyphrases", "multispanqa": "multispan"}[self.protocol]


CASES = [
    Case("msqa", "multispanqa", EM_PM),
    Case("kp20k", "chan2019", F1),
    Case("kptimes", "chan2019", F1),
    Case("wikihowqa", "rouge", ROUGE),
    Case("cnn_dailymail", "rouge", ROUGE),
    Case("pubmed", "rouge", ROUGE),
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PIPEDEC_WORKSPACE", raising=False)
    monkeypatch.setattr(timing, "PAUSE_SECONDS", 0.0)
    smallest = Shape(d_model=16, d_ff=16, layers=1, heads=2, vocabulary=320, dropout=0.0, d_kv=8)
    monkeypatch.setitem(SHAPES, "scratch-tiny", smallest)  # type: ignore[misc]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_published_files_become_a_report_beside_the_papers_figures(case: Case) -> None:
    Path("published").mkdir()
    WRITERS[case.name](Path("published"))

    for command in documented("import", case.name):
        assert "the paper, Table 1" in run(*command).stderr
    for command in documented("segment", case.name):
        run(*command)
    assert_split_as_the_recipe_says(case)

    for command in documented("train", case.name):
        run(*command, *BRIEF.split())
    for decoder in ("pipelined", "sequential"):
        assert_trained_as_the_recipe_says_where_no_flag_does(decoder)

    for command in documented("generate", case.name):
        run(*command, "--device", "cpu")
    assert len(lines_of(WORK / "generations/pipelined-delay1.jsonl")) == TEST

    (command,) = documented("score", case.name)
    score = json.loads(run(*command, "--json").stdout)
    assert_scored(case, score)
    without_the_recipe = json.loads(run("score", "--json").stdout)
    assert without_the_recipe == score

    (command,) = documented("report", case.name)
    report = run(*command, *QUICK.split())
    assert "By number of target subsequences" in report.stdout
    assert_reported(case, json.loads((WORK / "report/report.json").read_text(encoding="utf-8")), score)
    assert_readable(case, (WORK / "report/report.md").read_text(encoding="utf-8"))


def documented(command: str, name: str) -> list[list[str]]:
    """What docs/datasets.md says is to be typed for a data set, the place of the published files put in.

    What is the same for all six stands there for WikiHowQA; a model of the hub is left out.
    """
    section = DOCUMENTATION.read_text(encoding="utf-8").split("## What to type")[1].split("\n## ")[0]
    lines = [shlex.split(line) for line in section.splitlines() if line.startswith(f"    pipedec {command} ")]
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


def assert_split_as_the_recipe_says(case: Case) -> None:
    """Level and joiner are the recipe's, its name is kept, and no target lost a subsequence."""
    content = json.loads((WORK / "data/segmentation.json").read_text(encoding="utf-8"))
    assert content["manifest"]["settings"]["recipe"] == case.name
    phrases = case.task != "summarization"
    assert (content["level"], content["joiner"]) == (("phrase", "; ") if phrases else ("sentence", " "))
    test = lines_of(WORK / "data/test.jsonl")
    assert [len(row["target_segments"]) for row in test] == [2, 3] * (TEST // 2)


def assert_trained_as_the_recipe_says_where_no_flag_does(decoder: str) -> None:
    content = json.loads((WORK / f"models/{decoder}/training.json").read_text(encoding="utf-8"))
    settings = content["settings"]
    assert (settings["delay"], settings["max_source_tokens"], settings["time_max"]) == (1, 2048, 50)
    training = settings["training"]
    assert (training["optimizer"], training["learning_rate"], training["epochs"]) == ("adamw", 1e-4, 10)
    assert (training["batch_size"], training["max_steps"]) == (4, 2)


def assert_scored(case: Case, score: dict[str, Any]) -> None:
    assert (score["task"], score["protocol"]) == (case.task, case.protocol)
    assert score["signature"].startswith(f"{case.protocol}|")
    assert set(case.metrics) <= set(score["values"])
    assert all(0.0 <= score["values"][metric] <= 100.0 for metric in case.metrics)
    assert score["rows"] == {"scored": TEST, "expected": TEST}


def assert_reported(case: Case, report: dict[str, Any], score: dict[str, Any]) -> None:
    baseline, pipelined = report["decoders"]
    assert (baseline["name"], pipelined["name"]) == ("sequential", "Δt = 1")
    assert "the plain T5" in report["baseline"]["is"]
    assert pipelined["quality"]["values"] == score["values"]
    assert {baseline["quality"]["signature"], pipelined["quality"]["signature"]} == {score["signature"]}
    assert set(case.metrics) <= set(pipelined["differences"])

    sizes = report["by_subsequences"]["Δt = 1"]
    assert [(row["subsequences"], row["examples"]) for row in sizes] == [(2, TEST // 2), (3, TEST // 2)]
    assert all(row["quality"] is not None and row["fewer_steps"] > 0 for row in sizes)

    expected = paper_row(case.name)
    assert expected is not None
    row = report["paper"]["row"]
    assert (row["dataset"], row["backbone"], row["speedup"]) == (case.name, "T5-Base", expected.speedup)
    assert row["pipelined"]["quality"] == expected.pipelined.quality
    assert set(case.metrics) <= set(row["pipelined"]["quality"])


def assert_readable(case: Case, text: str) -> None:
    """report.md has the paper's columns, its speedup among them, and the same metrics as it."""
    expected = paper_row(case.name)
    assert expected is not None
    assert "paper: Δt = 1" in text
    assert "By number of target subsequences" in text
    for metric in case.metrics:
        figures = (side.quality[metric] for side in (expected.sequential, expected.pipelined))
        assert all(f"| {figure:.1f} |" in text for figure in figures)
    assert f"| {expected.speedup:.1f} × |" in text


@dataclass(frozen=True)
class Break:
    """One place in the published files that is made to differ, and what is said of it."""

    name: str
    file: str
    right: str
    wrong: str
    message: str


BREAKS = [
    Break(
        "msqa",
        "valid.json",
        '["B", "O", "B", "O", "B", "O", "O", "O", "O"]',
        '"B O B O B O O O O"',
        "published/valid.json question 2: field 'label': expected a list of B, I and O, one a token, found the string",
    ),
    Break(
        "kp20k",
        "kp20k_testing.json",
        '"mask;delay;grid"',
        "3",
        "published/kp20k_testing.json:2: field 'keyword': expected a list of strings, or one string with ';'",
    ),
    Break(
        "kptimes",
        "test.jsonl",
        '["mask", "delay", "grid"]',
        '["mask", null, "grid"]',
        "published/test.jsonl:2: field 'keyphrases', item 2: expected a list of strings",
    ),
    Break(
        "wikihowqa",
        "test.txt",
        "how to cook 13\t13\t1",
        "how to cook 13, 13, 1",
        "published/test.txt:3: expected 3 columns with tabs between them (question, answer id, label), found 1",
    ),
    Break(
        "pubmed",
        "test.txt",
        '["<S> mask 13 helped . </S>",',
        '[3, "<S> mask 13 helped . </S>",',
        "published/test.txt:2: field 'abstract_text', item 1: expected a list of sentences, found the number 3",
    ),
]


@pytest.mark.parametrize("case", BREAKS, ids=lambda case: case.name)
def test_wrong_layout_is_refused_at_the_first_place_that_differs_and_nothing_is_written(case: Break) -> None:
    published = Path("published")
    published.mkdir()
    WRITERS[case.name](published)
    whole = (published / case.file).read_text(encoding="utf-8")
    assert case.right in whole
    (published / case.file).write_text(whole.replace(case.right, case.wrong, 1), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        run("import", case.name, "published")
    assert case.message in str(caught.value)
    assert list(Path().iterdir()) == [published]


def test_parquet_in_a_wrong_layout_is_refused_as_well() -> None:
    from datasets import Dataset

    Path("published").mkdir()
    WRITERS["cnn_dailymail"](Path("published"))
    rows = [{"article": "A", "highlights": ["H"], "id": "1"}]
    Dataset.from_list(rows).to_parquet("published/test-00000-of-00001.parquet")
    with pytest.raises(
        UserError, match=r"test-00000.*1: field 'highlights': expected a string, found a list"
    ):
        run("import", "cnn_dailymail", "published")
    assert list(Path().iterdir()) == [Path("published")]


def test_what_is_imported_is_never_written_over_nor_beside_what_is_read() -> None:
    Path("kptimes").mkdir()  # its published files have the very names of those that are written
    WRITERS["kptimes"](Path("kptimes"))
    before = Path("kptimes/train.jsonl").read_bytes()
    with pytest.raises(
        UserError, match=r"kptimes/train\.jsonl: would be written into the folder that is read"
    ):
        run("import", "kptimes", "kptimes")
    with pytest.raises(
        UserError, match="would be written over the file that is read; give another place as --out"
    ):
        run("import", "kptimes", "kptimes/train.jsonl", "--out", "./kptimes/train.jsonl")
    assert Path("kptimes/train.jsonl").read_bytes() == before
    run("import", "kptimes", "kptimes", "--out", "imported")
    assert len(lines_of(Path("imported/test.jsonl"))) == TEST


@pytest.mark.parametrize("field", ["answers", "segments"])
def test_string_where_a_list_of_answers_belongs_is_an_error_and_no_list_of_letters(field: str) -> None:
    row = {"id": "q", "source": "who ?", "prediction": "Ann", "segments": ["Ann"], "answers": ["Ann"]}
    Path("out.jsonl").write_text(json.dumps(row | {field: "Ann"}) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=rf"out\.jsonl:1: .{field}. .*list of strings"):
        run("score", "out.jsonl", "--recipe", "msqa")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(
        app, arguments, env={"COLUMNS": "160", "NO_COLOR": "1"}, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
