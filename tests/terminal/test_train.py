"""`pipedec train` as a user runs it, on a handful of examples and for a few updates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipedec_cli.data.errors import UserError
from pipedec_cli.terminal.app import app

QUICK = [
    "--max-steps",
    "2",
    "--batch-size",
    "4",
    "--evaluations",
    "1",
    "--dev-examples",
    "4",
    "--device",
    "cpu",
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    rows = [
        {"id": str(i), "source": f"colour: {c} number: {i}", "target": f"It is {c}. There are {i} of them."}
        for i, c in enumerate(["red", "green", "blue"] * 8)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run("segment", str(data), "--level", "sentence", "-w", str(tmp_path / "work"))
    return tmp_path / "work"


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.stderr
    return outcome.stderr


def refused(*arguments: str) -> str:
    with pytest.raises(UserError) as raised:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    return str(raised.value)


def train(workspace: Path, *more: str) -> str:
    return run("train", "-w", str(workspace), *QUICK, *more)


def test_estimates_first_and_saves_what_plain_transformers_loads(workspace: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    talk = train(workspace)
    assert talk.index("MB of disk") < talk.index("trained in") < talk.index("next: `pipedec generate`")
    assert "dev loss" in talk
    assert "dev ROUGE-L" in talk
    folder = workspace / "models" / "pipelined"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert type(model).__name__ == "T5ForConditionalGeneration"
    assert model.config.architectures == ["T5ForConditionalGeneration"]
    assert model.config.pipedec["delay"] == "any"
    assert AutoTokenizer.from_pretrained(folder).eos_token == "</s>"
    assert (folder / "generation_config.json").exists()


def test_nothing_beside_checkpoint_folders_is_pickled(workspace: Path) -> None:
    train(workspace)
    files = [path for path in (workspace / "models" / "pipelined").iterdir() if path.is_file()]
    assert files
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".pth", ".pkl")]


def test_the_recipe_gives_defaults_and_flags_win(workspace: Path) -> None:
    train(workspace, "--recipe", "paper", "--learning-rate", "0.01")
    settings = json.loads((workspace / "models" / "pipelined" / "training.json").read_text())["settings"]
    assert settings["delay"] == 1
    assert settings["training"]["learning_rate"] == 0.01
    assert settings["training"]["batch_size"] == 4


def test_a_config_file_carries_options_and_flags_win(workspace: Path, tmp_path: Path) -> None:
    config = tmp_path / "pipedec.toml"
    config.write_text('seed = 3\n[train]\ndecoder = "sequential"\nmax-steps = 1\nsource-prefix = "say: "\n')
    run("train", "-w", str(workspace), "--config", str(config), *QUICK)
    content = json.loads((workspace / "models" / "sequential" / "config.json").read_text())["pipedec"]
    assert content["decoder"] == "sequential"
    assert content["source_prefix"] == "say: "
    saved = json.loads((workspace / "models" / "sequential" / "training.json").read_text())
    assert saved["settings"]["training"]["seed"] == 3
    assert saved["result"]["updates"] == 2


def test_an_unknown_setting_in_the_config_file_is_named(workspace: Path, tmp_path: Path) -> None:
    config = tmp_path / "pipedec.toml"
    config.write_text("[train]\nlearning_rat = 1\n")
    assert "'learning_rat'" in refused("train", "-w", str(workspace), "--config", str(config))


def test_resuming_wants_the_same_settings_and_an_unfinished_training_is_not_lost(workspace: Path) -> None:
    train(workspace)
    manifest = workspace / "models" / "pipelined" / "training.json"
    begun = json.loads(manifest.read_text())
    del begun["result"]  # as after a kill
    manifest.write_text(json.dumps(begun))
    assert "--resume" in refused("train", "-w", str(workspace), *QUICK)
    assert "seed was 0 and is now 1" in refused(
        "train", "-w", str(workspace), *QUICK, "--resume", "--seed", "1"
    )
    train(workspace, "--resume")


def test_a_trained_model_is_replaced_on_purpose_only(workspace: Path) -> None:
    train(workspace)
    model = workspace / "models" / "pipelined" / "model.safetensors"
    before = model.read_bytes()
    said = refused("train", "-w", str(workspace), *QUICK, "--seed", "1")
    assert "holds a trained model" in said
    assert "--overwrite" in said
    assert model.read_bytes() == before

    train(workspace, "--overwrite", "--seed", "1")
    assert model.read_bytes() != before


def test_training_without_data_names_the_command_that_makes_them(tmp_path: Path) -> None:
    assert "pipedec segment DATA" in refused("train", "-w", str(tmp_path / "none"))


def test_nothing_to_resume_is_said(workspace: Path) -> None:
    assert "nothing to resume" in refused("train", "-w", str(workspace), *QUICK, "--resume")


@pytest.mark.parametrize("delay", ["0", "-1", "two", "1.5"])
def test_a_delay_that_is_no_delay_is_a_usage_error(workspace: Path, delay: str) -> None:
    outcome = CliRunner().invoke(app, ["train", "-w", str(workspace), "--delay", delay])
    assert outcome.exit_code == 2


def test_a_shape_that_is_not_there_is_named(workspace: Path) -> None:
    assert "scratch-tiny" in refused("train", "-w", str(workspace), "--model", "scratch-huge")


def test_sources_that_are_cut_are_counted(workspace: Path) -> None:
    assert "longer than 4 tokens and were cut" in train(workspace, "--max-source-tokens", "4")


def test_a_training_that_an_older_version_began_is_resumed(workspace: Path) -> None:
    """Its manifest has these settings under these names."""
    train(workspace)
    settings = json.loads((workspace / "models" / "pipelined" / "training.json").read_text())["settings"]
    assert settings == {
        "model": "scratch-tiny",
        "decoder": "pipelined",
        "delay": "any",
        "source_prefix": "",
        "max_source_tokens": 2048,
        "time_max": 50,
        "dev_examples": 4,
        "limit": None,
        "training": {
            "epochs": 10.0,
            "batch_size": 4,
            "accumulation": 1,
            "optimizer": "adafactor",
            "learning_rate": 0.03,
            "warmup": 0.05,
            "schedule": "linear",
            "weight_decay": 0.0,
            "bf16": False,
            "seed": 0,
            "evaluations": 1,
            "max_steps": 2,
            "cpu": True,
        },
        "data": str(workspace / "data"),
    }
