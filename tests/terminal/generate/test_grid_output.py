"""The grid in the output and on the screen."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.generate import GenerateSettings
from pipedec_cli.terminal.generate import run as run_generate
from tests.checkpoints import SOURCES, TOLD
from tests.terminal.generate.running import done, lines


def test_a_trace_is_the_grid_token_by_token(place: Path, models: Path) -> None:
    from pipedec_cli.model.checkpoint import load_checkpoint

    (row,) = lines(done("--text", SOURCES[0], "--trace", "--delay", "2", "--json", "-q").stdout)
    checkpoint = load_checkpoint(str(models / "pipelined"))
    text = checkpoint.codec()
    told = [text.ids([segment])[0] + [checkpoint.eos] for segment in TOLD[0][1]]
    assert row["grid"][:2] == [{"start": 0, "tokens": told[0]}, {"start": 2, "tokens": told[1]}]
    assert row["grid"][2:] == [{"start": start, "tokens": [checkpoint.eos]} for start in (4, 6)]
    assert row["source_token_ids"] == text.source(SOURCES[0])[0]
    assert row["tokens"] == sum(map(len, told)) - 2


def test_live_shows_the_grid_on_stderr_and_leaves_stdout_to_the_data(place: Path) -> None:
    outcome = done("--text", SOURCES[0], "--live")
    assert outcome.stdout == "; ".join(TOLD[0][1]) + "\n"
    assert "<bos>" in outcome.stderr
    assert "cheap" in outcome.stderr
    assert "name[The Mill]" in outcome.stderr


def test_live_on_a_terminal_ends_with_the_whole_grid(place: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40, markup=False)
    settings = GenerateSettings(text=("it is not [red]</s>\x1b[2J",), out="out.jsonl", live=True)
    run_generate(settings, Talk(console=console))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "<eos>" in shown
    assert "[red]</s>" in shown
    assert "\x1b[2J" not in shown
    assert "finished" in shown
