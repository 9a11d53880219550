"""What the command says: tables, warnings, help; and that hostile text is data."""

import io
import re
from pathlib import Path

from rich.console import Console

from pipedec_cli.data.preparation import TargetStatistics
from pipedec_cli.evaluate.advice import Estimate
from pipedec_cli.terminal.segment import EXAMPLES, render_summary
from tests.terminal.segment.running import data_of, examples, refusal, run, write


def test_data_that_the_method_will_not_help_or_that_are_too_few_are_said_so():
    items = [{"source": str(i), "target": "It is late."} for i in range(30)]
    result = run(write("data.jsonl", *items), "--quiet")
    assert "1.0 subsequences on average" in result.stderr
    assert "will hardly help" in result.stderr
    assert "will hardly help" not in run(write("data.jsonl", *examples())).stderr
    result = run(write("data.jsonl", *examples(2)), "-q")
    assert "dev is empty" in result.stderr and "test is empty" in result.stderr
    assert len(data_of()["train"]) == 2


def test_text_that_looks_like_markup_or_drives_a_terminal_is_data():
    hostile = "[bold]x[/bold] [/] \x1b[31m :smile: \x00 😀."
    items = ({"source": f"{hostile}{i}", "target": f"{hostile} Two."} for i in range(9))
    result = run(write("data.jsonl", *items))
    assert data_of()["train"][0].target == f"{hostile} Two."
    assert "\x1b" not in result.stderr
    Path("[red]x.jsonl").write_text("{")
    assert refusal("[red]x.jsonl").startswith("[red]x.jsonl:1: not JSON")


def test_the_examples_name_options_that_there_are():
    known = set(re.findall(r"--[a-z-]+", run("--help").stdout))
    used = set(re.findall(r"--[a-z-]+", EXAMPLES))
    assert len(used) > 5 and used <= known


def test_tables_have_the_papers_columns_and_stand_side_by_side_where_there_is_room():
    train, dev = TargetStatistics(2, 4.0, 2.0, 2.0, {1: 1, 3: 1}), TargetStatistics(0, 0.0, 0.0, 0.0, {})
    heights = []
    for width in (60, 140):
        console = Console(file=io.StringIO(), width=width)
        estimates = [Estimate(1, 2, 9.0, 3.0, 0.25)]
        console.print(render_summary({"train": train, "dev": dev}, estimates, "words"))
        shown = console.file.getvalue()
        assert all(figure in shown for figure in ("25.0%", "3.0", "1 to 2: 50%, 3 to 5: 50%"))
        heights.append(shown.count("\n"))
    assert heights[1] < heights[0]
    said = run(write("data.jsonl", *examples())).stderr
    promise = "Decoder steps that the grid promises, in words"
    assert all(expected in said for expected in ("subsequences /", promise, "sequential", "times"))
