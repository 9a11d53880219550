"""`pipedec demo`: all of the workflow, in small."""

from dataclasses import replace

import pytest

from pipedec_cli.cli import demo
from tests.running import read_json, refused

SMALL = demo.DemoSettings(updates=120, examples=200, test=4)  # after fewer updates, the T5 ends no text


@pytest.mark.slow
def test_the_demo_runs_every_command_and_ends_in_a_comparison_and_what_to_do_next(tmp_path, capsys):
    out = tmp_path / "demo"
    demo.demo(replace(SMALL, out=out))
    stderr = capsys.readouterr().err
    models = ("models/pipelined/config.json", "models/sequential/config.json")
    for made in ("data/test.jsonl", *models, "report/report.md"):
        assert (out / made).exists()
    facts = read_json(out / "report" / "facts.json")
    assert set(facts) == {"sequential", *(f"pipelined-delay{delay}" for delay in (1, 2, 3))}
    told = [line for line in stderr.splitlines() if "facts right" in line]
    assert [line.partition(":")[0] for line in told] == ["Δt = 1", "Δt = 2", "Δt = 3", "sequential"]
    assert "checkpoint-N" not in stderr and not list(out.glob("models/*/checkpoint-*"))
    assert "made with --limit" not in stderr, "the demo set it itself"
    assert all(count["right"] + count["missing"] > 0 for count in facts.values())
    assert "next: " not in stderr  # what a command by itself would say
    last = [line.strip() for line in stderr.splitlines()[-8:] if line.startswith("  ")]
    assert (last[0], last[-1]) == tuple(
        f"pipedec segment data.jsonl --level {one}" for one in ("sentence", "field")
    )
    assert last[-2].startswith("pipedec report --compare sequential")


def test_the_demo_touches_no_folder_that_is_not_its_own(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    assert "no demo made it" in refused("demo", "--out", tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep me"


def test_a_demo_that_is_stopped_says_that_it_starts_over(tmp_path, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "segment", stopped)
    with pytest.raises(KeyboardInterrupt):
        demo.demo(demo.DemoSettings(out=tmp_path / "demo"))
    assert "the demo itself starts over when it is run again" in capsys.readouterr().err
