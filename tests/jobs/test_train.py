"""`pipedec train` as a user runs it, on a handful of examples and for a few updates."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipedec_cli.data.locking import only_writer
from tests import running
from tests.checkpoints import change
from tests.running import read_json, run, write_lines

QUICK = ["--max-steps", "2", "--batch-size", "4", "--set", "evaluations=1", "--set", "dev_examples=4"]


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


def test_a_report_is_advised_where_it_has_something_to_compare_with(workspace):
    other = (
        f"`pipedec train --decoder sequential --workspace {workspace}`, which `report` needs to compare with"
    )
    assert other in train(workspace, "--delay", "1")
    assert "`pipedec report" not in run("generate", "-w", workspace, "--delay", "1").stderr
    assert "nothing to compare with" in running.refused("report", "-w", workspace)
    assert "`pipedec report" in train(workspace, "--decoder", "sequential")
    shutil.rmtree(workspace / "models/pipelined")
    told = train(workspace, "--decoder", "sequential", "--overwrite")
    made = workspace / "models/sequential"
    assert (
        f"`pipedec train --teacher {made} --workspace {workspace}`, which makes a pipelined decoder of it"
        in told
    )
    train(workspace, "--delay", "1")
    assert "`pipedec report" in run("generate", "-w", workspace, "--delay", "1").stderr


def forget_the_end(folder: Path) -> None:
    """As after a kill behind the last checkpoint."""
    change(folder / "training.json", "result")


def test_estimates_first_and_saves_what_plain_transformers_loads(workspace):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    talk = train(workspace)
    then = f"next: `pipedec generate --workspace {workspace}`, or `pipedec report --compare sequential --workspace"
    assert talk.index("MB of disk") < talk.index("trained in") < talk.index(then)
    assert "GB of memory" in talk
    assert "dev loss" in talk and "dev ROUGE-L" in talk
    folder = workspace / "models" / "pipelined"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.config.architectures == ["T5ForConditionalGeneration"]
    assert model.config.pipedec["delay"] == "any"
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "max\\_steps" in card and "epochs" not in card
    curve = manifest(workspace)["result"]["curve"]
    assert [set(point) for point in curve] == [{"update", "loss"}] * 2 + [{"update", "dev_loss", "dev_score"}]
    page = (folder / "training.html").read_text(encoding="utf-8")
    assert "Loss in training" in page and "max_steps" in page and str(workspace) not in page
    assert AutoTokenizer.from_pretrained(folder).eos_token == "</s>"
    assert (folder / "generation_config.json").exists()
    training = {"epochs": 10.0, "max_steps": 2, "batch_size": 4, "accumulation": 1, "schedule": "linear"}
    training |= {"optimizer": "adafactor", "learning_rate": 0.03, "warmup": 0.05}
    training |= {"bf16": False, "seed": 0, "evaluations": 1, "cpu": True}
    method = {"decoder": "pipelined", "delay": "any", "source_prefix": "", "max_source_tokens": 2048}
    data = {"data": str(workspace / "data"), "dev_examples": 4}
    settings = {"model": "scratch-tiny", **method, **data, "training": training}
    assert manifest(workspace)["settings"] == settings


@pytest.mark.parametrize("can", [True, False])
def test_bf16_where_it_takes_many_times_as_long_is_warned_of(workspace, monkeypatch, can):
    monkeypatch.setattr("pipedec_cli.model.arguments.computes_bfloat16", lambda: can)
    assert ("no instructions for bfloat16" in train(workspace, "--bf16")) is not can


def test_a_recipe_or_a_config_file_carries_options_and_flags_win(workspace, tmp_path):
    talk = train(workspace, "--recipe", "paper", "--learning-rate", "0.01", "--max-source-tokens", "4")
    assert "longer than 4 tokens and were cut" in talk
    settings = manifest(workspace)["settings"]
    training = settings["training"]
    assert (settings["delay"], training["learning_rate"], training["batch_size"]) == (1, 0.01, 4)
    config = tmp_path / "pipedec.toml"
    config.write_text('seed = 3\n[train]\ndecoder = "sequential"\nmax-steps = 1\nsource-prefix = "say: "\n')
    talk = train(workspace, "--config", str(config), "--limit", "1")
    assert "warning: 1 example: too few to learn from" in talk
    assert f"next: `pipedec generate --model sequential --workspace {workspace}`" in talk
    content = read_json(workspace / "models" / "sequential" / "config.json")["pipedec"]
    assert (content["decoder"], content["source_prefix"]) == ("sequential", "say: ")
    saved = manifest(workspace, "sequential")
    assert (saved["settings"]["training"]["seed"], saved["result"]["updates"]) == (3, 2)
    config.write_text("[train]\nlearning_rat = 1\n")
    assert "'learning_rat'" in refused(workspace, "--config", str(config))


def test_a_model_is_not_lost_and_a_training_is_resumed_as_it_was_begun(workspace):
    assert "nothing to resume" in train(workspace, "--resume"), "it starts at update 0"
    folder = workspace / "models" / "pipelined"
    before = (folder / "model.safetensors").read_bytes()
    assert "holds a trained model; replace it with --overwrite" in refused(workspace, "--seed", "1")
    forget_the_end(folder)
    assert "--resume" in refused(workspace)
    assert "seed was 0 and is now 1" in refused(workspace, "--resume", "--seed", "1")
    assert (folder / "model.safetensors").read_bytes() == before
    again = workspace / ".." / workspace.name
    assert f"going on from {again / 'models/pipelined/checkpoint-2'}" in train(again, "--resume")
    train(workspace, "--overwrite", "--seed", "1")
    assert (folder / "model.safetensors").read_bytes() != before


def test_what_cannot_be_trained_is_refused(workspace, monkeypatch):
    for delay in ("0", "-1", "two", "1.5"):
        run("train", "-w", workspace, "--delay", delay, exit_code=2)
    assert "no shape 'scratch-huge'; use one of scratch-tiny" in refused(workspace, "--model", "scratch-huge")
    assert "pipedec segment DATA" in refused(workspace / "none")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "cuda is not here; use --device cpu" in refused(workspace, "--device", "cuda")
    assert "would be written over" in refused(workspace, "--model", str(workspace / "models" / "pipelined"))


def test_a_folder_that_is_being_trained_into_is_refused_to_a_second_training(workspace):
    folder = workspace / "models" / "pipelined"
    with only_writer(folder, folder=True, todo=""):
        assert refused(workspace).endswith("wait for it, or choose another --out")
    assert not folder.exists()


def test_a_model_is_none_until_its_training_has_come_to_its_end(workspace, monkeypatch):
    """Wherever `--overwrite` is stopped, nothing uses old weights under new settings, and what to do is said."""
    train(workspace)
    folder = workspace / "models" / "pipelined"
    before = manifest(workspace)
    (folder / ".unfinished-abc").mkdir()
    (folder / "checkpoint-3").mkdir()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr("pipedec_cli.model.training.trainer.save_checkpoint", Mock(side_effect=RuntimeError))
        train(workspace, "--overwrite", "--seed", "1")
    assert (folder / "model.safetensors").exists()
    assert manifest(workspace)["settings"] != before["settings"]
    for command in (["generate"], ["report"], ["generate", "--model", folder]):
        told = running.refused(*command, "-w", workspace, "--device", "cpu")
        assert all(word in told for word in ("training has not come to its end", "--resume", "--overwrite"))
    assert "not come to its end" in refused(workspace, "--model", str(folder), "--decoder", "sequential")
    talk = train(workspace, "--seed", "1")
    assert "a training that was killed left" not in talk, "the run that failed had cleaned up"
    assert not list(folder.glob(".*"))
    run("generate", "-w", workspace, "--device", "cpu")


def test_what_a_killed_training_was_writing_is_removed_and_said(workspace):
    train(workspace)
    folder = workspace / "models" / "pipelined"
    (folder / ".unfinished-abc").mkdir()
    (folder / "checkpoint-3").mkdir()
    (folder / "checkpoint-3" / "trainer_state.json").write_text("{")
    assert "left checkpoint-3, .unfinished-abc half written: removed" in train(workspace, "--overwrite")
    assert {".unfinished-abc", "checkpoint-3", ".lock"}.isdisjoint(path.name for path in folder.iterdir())


def test_the_checkpoints_that_stay_are_said_and_bounded_and_an_ended_training_is_not_resumed(workspace):
    folder = workspace / "models" / "pipelined"
    assert "MB of 1 checkpoint-N folder stay there; --set keep_checkpoints=0" in train(workspace)
    assert "checkpoint-N" not in train(workspace, "--overwrite", "--set", "keep_checkpoints=0")
    assert not list(folder.glob("checkpoint-*"))
    train(workspace, "--overwrite", "--set", "evaluations=2")
    forget_the_end(folder)
    assert len(list(folder.glob("checkpoint-*"))) == 2
    train(workspace, "--resume", "--set", "evaluations=2", "--set", "keep_checkpoints=1")
    assert [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-2"]
    train(workspace, "--resume", "--set", "evaluations=2", "--set", "keep_checkpoints=0")
    assert not list(folder.glob("checkpoint-*"))
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    assert "has been trained to the end already" in train(workspace, "--resume", "--set", "evaluations=2")
    assert {path: path.read_bytes() for path in folder.iterdir()} == whole
