"""`pipedec demo`: all of the workflow, in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipedec_cli.data.errors import UserError
from pipedec_cli.terminal.app import app

SMALL = ["--examples", "200", "--updates", "3", "--test", "4"]


@pytest.mark.slow
def test_the_demo_runs_every_command_and_ends_in_a_comparison_and_what_to_do_next(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    outcome = CliRunner().invoke(app, ["demo", *SMALL, "--out", str(out)], catch_exceptions=False)
    assert outcome.exit_code == 0
    for made in (
        "data/test.jsonl",
        "models/pipelined/config.json",
        "models/sequential/config.json",
        "report/report.md",
    ):
        assert (out / made).exists()
    facts = json.loads((out / "report" / "facts.json").read_text())
    assert {"pipelined-delay2", "sequential"} <= {name.partition("-first")[0] for name in facts}
    assert all(count["right"] + count["missing"] > 0 for count in facts.values())
    assert "next: " not in outcome.stderr  # what a command by itself would say
    last = outcome.stderr.splitlines()[-5:]
    assert last[0].strip() == "pipedec segment data.jsonl --level sentence"
    assert last[-1].strip().startswith("pipedec report --compare sequential")


def test_the_demo_touches_no_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(UserError, match="no demo made it"):
        CliRunner().invoke(app, ["demo", *SMALL, "--out", str(tmp_path)], catch_exceptions=False)
    assert (tmp_path / "mine.txt").read_text() == "keep me"
