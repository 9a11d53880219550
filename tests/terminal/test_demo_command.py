"""`pipedec demo`: all of the workflow, in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.terminal.running import read_json, refused, run

SMALL = ["--examples", "200", "--updates", "3", "--test", "4"]


@pytest.mark.slow
def test_the_demo_runs_every_command_and_ends_in_a_comparison_and_what_to_do_next(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    outcome = run("demo", *SMALL, "--out", out)
    models = ("models/pipelined/config.json", "models/sequential/config.json")
    for made in ("data/test.jsonl", *models, "report/report.md"):
        assert (out / made).exists()
    facts = read_json(out / "report" / "facts.json")
    assert {"pipelined-delay2", "sequential"} <= {name.partition("-first")[0] for name in facts}
    assert all(count["right"] + count["missing"] > 0 for count in facts.values())
    assert "next: " not in outcome.stderr  # what a command by itself would say
    last = outcome.stderr.splitlines()[-5:]
    assert last[0].strip() == "pipedec segment data.jsonl --level sentence"
    assert last[-1].strip().startswith("pipedec report --compare sequential")


def test_the_demo_touches_no_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    assert "no demo made it" in refused("demo", *SMALL, "--out", tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep me"
