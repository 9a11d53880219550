"""Commands that are printed: what a shell and the command line read from them are the settings that were printed."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipedec_cli.cli.options import Command, Invocation, add
from pipedec_cli.data.inputs import Shard
from pipedec_cli.jobs.command_lines import command_line, quoted
from pipedec_cli.jobs.generate_settings import GenerateSettings, MergeSettings
from pipedec_cli.jobs.loading import read_inputs
from pipedec_cli.jobs.report_settings import BenchSettings, ReportSettings
from pipedec_cli.jobs.score import ScoreSettings
from pipedec_cli.jobs.segment import SegmentSettings
from pipedec_cli.jobs.settings import Settings, settings_of
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.view.console import one_line

EACH = [
    GenerateSettings(),
    GenerateSettings(
        data="-in.jsonl",
        delay="wait",
        spans=True,
        part=Shard(1, 3),
        out="made here",
        limit=3,
    ),
    GenerateSettings(
        ask=("Who, and when?", "-v", "a"),
        grounded=False,
        shots=("a:b.jsonl", 4),
        trace=False,
    ),
    GenerateSettings(
        text=("a, b", "it's $c"),
        prompt_template="Say\n{source}\x1b",
        chat=True,
    ),
    TrainSettings(
        learning_rate=0.00012345678901234,
        epochs=2.5,
        log_to=("mlflow", "wandb"),
        chat=False,
    ),
    TrainSettings(
        data=Path("-d"),
        learning_rate=1e-12,
        epochs=3.0,
        seed=2**32 - 1,
        patience=2,
        bf16=True,
    ),
    SegmentSettings(
        data="-", level="phrase", separator=(";", ",", "", r"\n"), held_out=0.1 + 0.2
    ),
    ScoreSettings(
        predictions=Path("-a"),
        other=Path("b c"),
        metrics=(("name", "words"), ("menu[].price", "5%")),
    ),
    ReportSettings(
        delays=(1, 3, "wait"),
        split=("dev", "test"),
        memory=False,
    ),
    BenchSettings(
        batch_sizes=(1, 4), dtypes=("float32", "int8"), delays=(1, 2), memory=True
    ),
    MergeSettings(folder=Path("-made"), out="-"),
]


def words_of(line: str) -> list[str]:
    """The words that a shell reads."""
    made = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True
    )
    return made.stdout.decode().split("\0")[:-1]


def read_back(line: str, kind: type[Settings]) -> Settings:
    """The settings that the command line makes of a line."""
    app, found = typer.Typer(), list[Any]()

    def take(settings: Any, _: Invocation) -> None:
        """Take settings."""
        found.append(settings)

    add(app, Command("it", kind, take, ""))
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, words_of(line)[1:], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (settings,) = found
    return settings


@pytest.mark.parametrize("settings", EACH, ids=lambda one: type(one).__name__)
def test_a_printed_command_reads_back_as_the_settings_that_it_was_printed_for(settings):
    assert read_back(command_line("it", settings), type(settings)) == settings


def test_the_home_folder_is_put_into_paths_and_into_no_text(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = {setting.name: setting for setting in settings_of(GenerateSettings)}
    for name in ("out", "workspace", "model", "data", "fields"):
        assert str(settings[name].parse("~/a")) == str(tmp_path / "a")
    assert settings["text"].parse(["~/a"]) == ("~/a",)
    assert settings["source_field"].parse("~/a") == "~/a"


def test_a_text_that_is_the_name_of_a_file_is_warned_of(tmp_path, caplog):
    file = tmp_path / "doc.txt"
    file.write_text("a")
    read_inputs(GenerateSettings(text=(str(file), "no file", "a" * 9999)))
    (warning,) = caplog.messages
    assert str(file) in warning and "--plain" in warning


@given(st.floats(allow_nan=False, min_value=0.001, max_value=1e9))
def test_a_number_is_printed_with_all_its_digits(number):
    for setting in settings_of(TrainSettings):
        if setting.name in ("learning_rate", "epochs"):
            (text,) = setting.typed(number)
            assert setting.parse(text) == number


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    "word",
    [
        "it's",
        "a\n\t'é'\\n\r{source}\n",
        "\x1b[31m\x07e\x7f\x9b",
        "\u2028\u200d☕\u202e",
        "\udcff",
    ],
)
def test_a_shell_reads_a_quoted_word_as_it_was_from_one_line(word):
    assert one_line(quoted(word)) == quoted(word), (
        "nothing that is shown by another symbol"
    )
    told = subprocess.run(
        ["bash", "-c", f"printf %s {quoted(word)}"], capture_output=True, check=True
    )
    assert os.fsdecode(told.stdout) == word
