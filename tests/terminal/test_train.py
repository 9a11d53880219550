"""`pipedec train` as a user runs it, on a handful of examples and for a few updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import running
from tests.terminal.running import read_json, run, write_lines

QUICK = ["--max-steps", "2", "--batch-size", "4", "--evaluations", "1", "--dev-examples", "4"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    rows = [
        {"id": str(i), "source": f"colour: {c} number: {i}", "target": f"It is {c}. There are {i} of them."}
        for i, c in enumerate(["red", "green", "blue"] * 8)
    ]
    data = write_lines(tmp_path / "data.jsonl", *rows)
    run("segment", data, "--level", "sentence", "-w", tmp_path / "work")
    return tmp_path / "work"


def train(workspace: Path, *more: str) -> str:
    return run("train", "-w", workspace, *QUICK, "--device", "cpu", *more).stderr


def refused(workspace: Path, *more: str) -> str:
    return running.refused("train", "-w", workspace, *QUICK, "--device", "cpu", *more)


def manifest(workspace: Path, decoder: str = "pipelined") -> dict[str, Any]:
    return dict(read_json(workspace / "models" / decoder / "training.json"))


def test_estimates_first_and_saves_what_plain_transformers_loads(workspace: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    talk = train(workspace)
    assert talk.index("MB of disk") < talk.index("trained in") < talk.index("next: `pipedec generate`")
    assert "dev loss" in talk and "dev ROUGE-L" in talk
    folder = workspace / "models" / "pipelined"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert type(model).__name__ == "T5ForConditionalGeneration"
    assert model.config.architectures == ["T5ForConditionalGeneration"]
    assert model.config.pipedec["delay"] == "any"
    assert AutoTokenizer.from_pretrained(folder).eos_token == "</s>"
    assert (folder / "generation_config.json").exists()
    # Settings under these names are what a training that an older version began is resumed with.
    training = {"epochs": 10.0, "max_steps": 2, "batch_size": 4, "accumulation": 1, "schedule": "linear"}
    training |= {"optimizer": "adafactor", "learning_rate": 0.03, "warmup": 0.05, "weight_decay": 0.0}
    training |= {"bf16": False, "seed": 0, "evaluations": 1, "cpu": True}
    method = {"decoder": "pipelined", "delay": "any", "source_prefix": "", "max_source_tokens": 2048}
    data = {"data": str(workspace / "data"), "limit": None, "dev_examples": 4}
    settings = {"model": "scratch-tiny", **method, "time_max": 50, **data, "training": training}
    assert manifest(workspace)["settings"] == settings


def test_a_recipe_or_a_config_file_carries_options_and_flags_win(workspace: Path, tmp_path: Path) -> None:
    talk = train(workspace, "--recipe", "paper", "--learning-rate", "0.01", "--max-source-tokens", "4")
    assert "longer than 4 tokens and were cut" in talk
    settings = manifest(workspace)["settings"]
    training = settings["training"]
    assert (settings["delay"], training["learning_rate"], training["batch_size"]) == (1, 0.01, 4)
    config = tmp_path / "pipedec.toml"
    config.write_text('seed = 3\n[train]\ndecoder = "sequential"\nmax-steps = 1\nsource-prefix = "say: "\n')
    train(workspace, "--config", str(config))
    content = read_json(workspace / "models" / "sequential" / "config.json")["pipedec"]
    assert (content["decoder"], content["source_prefix"]) == ("sequential", "say: ")
    saved = manifest(workspace, "sequential")
    assert (saved["settings"]["training"]["seed"], saved["result"]["updates"]) == (3, 2)
    config.write_text("[train]\nlearning_rat = 1\n")
    assert "'learning_rat'" in refused(workspace, "--config", str(config))


def test_a_model_is_not_lost_and_a_training_is_resumed_as_it_was_begun(workspace: Path) -> None:
    assert "nothing to resume" in refused(workspace, "--resume")
    train(workspace)
    folder = workspace / "models" / "pipelined"
    before = (folder / "model.safetensors").read_bytes()
    assert "holds a trained model; replace it with --overwrite" in refused(workspace, "--seed", "1")
    begun = manifest(workspace)
    del begun["result"]  # as after a kill
    (folder / "training.json").write_text(json.dumps(begun))
    assert "--resume" in refused(workspace)
    assert "seed was 0 and is now 1" in refused(workspace, "--resume", "--seed", "1")
    assert (folder / "model.safetensors").read_bytes() == before
    train(workspace, "--resume")
    train(workspace, "--overwrite", "--seed", "1")
    assert (folder / "model.safetensors").read_bytes() != before


def test_what_cannot_be_trained_is_refused(workspace: Path) -> None:
    for delay in ("0", "-1", "two", "1.5"):
        run("train", "-w", workspace, "--delay", delay, exit_code=2)
    assert "scratch-tiny" in refused(workspace, "--model", "scratch-huge")
    assert "pipedec segment DATA" in refused(workspace / "none")
