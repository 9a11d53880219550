"""What a run says for itself, and that hostile text is data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints import SOURCES, TOLD, tiny_checkpoint
from tests.terminal.generate.running import done, lines, write


def test_cut_sources_are_counted_and_named_even_when_quiet(place: Path) -> None:
    stderr = done("--max-source-tokens", "8", "--quiet").stderr
    assert stderr.count("\n") == 1
    assert "warning: " in stderr
    assert "longer than 8 tokens and cut: id 0, " in stderr
    assert ", …" in stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--time-max 3", "cut short: 12 by time_max, of 12"),
        ("--delay 1 --sub-max 6", "empty explorations used up all 6 subsequences in 10 of 12"),
    ],
)
def test_what_went_short_is_counted(place: Path, options: str, told: str) -> None:
    assert told in done(*options.split()).stderr
    assert "used up" not in done(*options.split(), "--explore", "once").stderr


def test_nothing_of_the_libraries_noise_is_on_the_terminal(place: Path) -> None:
    text = SOURCES[0] * 300  # more tokens than tokenizers like to see
    command = ["-m", "pipedec_cli", "generate", "-q", "--max-source-tokens", "100", "--text"]
    outcome = subprocess.run([sys.executable, *command, text], capture_output=True, text=True, check=True)
    assert len(outcome.stdout.splitlines()) == 1
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("warning: 1 of 1 source was longer than 100 tokens")


@pytest.mark.parametrize(
    "hostile", ["[bold]x[/bold]", "\x1b]0;title\x07", "a\x00b", "😀 \ud83d", "</s> <pad> <unk>", "{}"]
)
def test_hostile_text_is_data(place: Path, hostile: str) -> None:
    write(Path("data.jsonl"), [{"id": hostile, "source": f"a {hostile}", "note": hostile}])
    (row,) = lines(done("data.jsonl", "--out", "-", "--live").stdout)
    assert row["note"] == hostile
    assert row["id"] in (hostile, hostile.replace("\ud83d", "\ufffd"))


@pytest.mark.parametrize("limit", [(), ("--limit", "2")])
def test_half_a_surrogate_pair_is_generated_from_as_a_replacement_character_and_said_once(
    place: Path, limit: tuple[str, ...]
) -> None:
    write(Path("data.jsonl"), [{"source": "a \ud800"}, {"source": "a \ufffd"}])
    outcome = done("data.jsonl", "--out", "-", *limit)
    mended, meant = lines(outcome.stdout)
    assert mended["segments"] == meant["segments"]
    assert mended["source"] == "a \ud800", "the user's own field is passed through as it was"
    assert outcome.stderr.count("data.jsonl:1: half a surrogate pair replaced by U+FFFD, in 1 record\n") == 1


def test_the_source_prefix_of_the_training_is_used_again(place: Path, tmp_path: Path) -> None:
    model = tiny_checkpoint(tmp_path / "prefixed", source_prefix="Mr. ")
    (row,) = lines(done("--text", "Smith", "--model", model, "--trace", "--json").stdout)
    assert row["source"] == "Smith"
    assert row["segments"] == list(TOLD[4][1])
