"""Settings from a config file or a recipe."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from pipedec_cli.terminal.app import app
from tests.terminal.generate.running import done


def test_a_config_file_carries_options_and_flags_win(place: Path) -> None:
    Path("c.toml").write_text("[generate]\ndelay = 3\nbatch-size = 2\nlimit = 2\n", encoding="utf-8")
    done("--config", "c.toml", "--limit", "1")
    content = (place / "generations" / "pipelined-delay3-first1.manifest.json").read_text(encoding="utf-8")
    assert json.loads(content)["settings"]["batch_size"] == 2


def test_a_recipe_and_a_config_file_do_not_bind_the_sequential_decoder(place: Path) -> None:
    done("--recipe", "paper", "--decoder", "sequential")
    content = (place / "generations" / "sequential.manifest.json").read_text(encoding="utf-8")
    resolved = json.loads(content)["settings"]
    assert (resolved["delay"], resolved["time_max"], resolved["sub_max"]) == (None, None, None)
    done("--recipe", "paper")
    assert (place / "generations" / "pipelined-delay1.jsonl").exists()


def test_help_says_that_decoding_is_greedy() -> None:
    outcome = CliRunner().invoke(app, ["generate", "--help"])
    assert "no beams" in " ".join(outcome.stdout.split())
