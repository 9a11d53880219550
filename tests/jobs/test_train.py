"""`pipedec train` as a user runs it, on a handful of examples and for a few updates."""

import errno
import os
import re
import resource
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipedec_cli.data.writing import only_writer
from pipedec_cli.model.checkpoint import save_checkpoint
from pipedec_cli.model.scratch import SHAPES, train_tokenizer
from pipedec_cli.training.cost import BatchTooLargeError
from pipedec_cli.training.loss import recomputes
from tests import running
from tests.checkpoints import change
from tests.running import lines_of, read_json, run, write_lines

QUICK = ("--max-steps", "2", "--batch-size", "4", "--device", "cpu")
SMALLEST = replace(
    SHAPES["scratch-tiny"],
    d_model=16,
    d_ff=16,
    layers=1,
    heads=2,
    vocabulary=320,
    d_kv=8,
)
#: Where the Trainer finds the function that writes a model.
SAVE = "pipedec_cli.training.trainer.save_checkpoint"


@pytest.fixture(autouse=True, scope="module")
def smallest_shape():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SHAPES, "scratch-tiny", SMALLEST)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory, smallest_shape) -> tuple[Path, str]:
    """A workspace with data and a model, and what its training said. Not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    rows = []
    for number, colour in enumerate(["red", "green", "blue"] * 8):
        source = f"colour: {colour} number: {number}"
        target = f"It is {colour}. There are {number} of them."
        rows.append({"id": str(number), "source": source, "target": target})
    data = write_lines(folder / "data.jsonl", *rows)
    run("segment", data, "--level", "sentence", "-w", folder / "work")
    return folder / "work", train(folder / "work")


@pytest.fixture
def workspace(made, tmp_path) -> Path:
    """A copy of the workspace, with the model."""
    return Path(shutil.copytree(made[0], tmp_path / "work"))


@pytest.fixture
def folder(workspace) -> Path:
    """The folder of the model."""
    return workspace / "models" / "pipelined"


def train(workspace: Path, *more: object) -> str:
    return run("train", "-w", workspace, *QUICK, *more).stderr


def again(workspace: Path, *more: object) -> str:
    """What a training says that replaces the model."""
    return train(workspace, "--overwrite", *more)


def refused(workspace: Path, *more: object) -> str:
    return running.refused("train", "-w", workspace, *QUICK, *more)


def manifest_of(folder: Path) -> Any:
    return read_json(folder / "training.json")


def forget_the_end(folder: Path) -> None:
    """As after a kill behind the last checkpoint."""
    change(folder / "training.json", "result")


@pytest.mark.slow
def test_a_report_is_advised_where_it_has_something_to_compare_with(workspace, folder):
    said = again(workspace, "--delay", "1")
    (command,) = re.findall("`(pipedec train [^`]*)`, which `report` needs", said)
    assert "--model scratch-tiny --decoder sequential" in command, "the same start"
    assert " --max-steps 2 --batch-size 4 " in command, "trained as long"
    assert command.endswith(f"--workspace {workspace}")
    generate = ("generate", "-w", workspace, "--delay", "1")
    assert "`pipedec report" not in run(*generate).stderr
    running.refused("report", "-w", workspace)
    assert "`pipedec report" in train(workspace, "--decoder", "sequential")
    assert "`pipedec report" in run(*generate).stderr
    shutil.rmtree(folder)
    said = again(workspace, "--decoder", "sequential")
    teacher = workspace / "models/sequential"
    assert f"`pipedec train --teacher {teacher} --workspace {workspace}`" in said


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_record_that_is_too_long_for_the_memory_is_refused_by_its_name(
    workspace, split, monkeypatch
):
    monkeypatch.setattr("psutil.virtual_memory", lambda: Mock(available=4_000_000_000))
    target = "It is red. " * 10_000
    long = {"id": "long", "source": "a", "target": target, "target_segments": [target]}
    records = lines_of(workspace / "data/train.jsonl")
    write_lines(workspace / f"data/{split}.jsonl", long, *records)
    refused(workspace, "--overwrite")


def passes_that_do_not_fit(monkeypatch, count: int) -> list[bool]:
    """So many passes of the longest batch take too much memory. Returns whether layers are computed again, by pass."""
    passes: list[bool] = []

    def run_longest(checkpoint: Any, *_: Any, **__: Any) -> None:
        passes.append(recomputes(checkpoint.model))
        if len(passes) <= count:
            raise BatchTooLargeError("does not fit the memory")

    monkeypatch.setattr("pipedec_cli.training.cost.run_longest", run_longest)
    return passes


def test_a_batch_that_does_not_fit_is_tried_again_with_less_that_is_kept(
    workspace, monkeypatch
):
    passes = passes_that_do_not_fit(monkeypatch, 1)
    assert "computed again in the backward pass" in again(workspace)
    assert passes == [False, True]


def test_a_batch_that_does_not_fit_even_then_is_refused(workspace, monkeypatch):
    passes = passes_that_do_not_fit(monkeypatch, 2)
    refused(workspace, "--overwrite")
    assert passes == [False, True]


def test_a_batch_of_a_large_model_is_not_tried_in_the_same_way_again(
    workspace, monkeypatch
):
    wide = replace(SMALLEST, d_model=512)
    monkeypatch.setitem(SHAPES, "scratch-tiny", wide)
    passes = passes_that_do_not_fit(monkeypatch, 1)
    refused(workspace, "--overwrite")
    assert passes == [True]


def test_what_a_training_takes_is_said_first_and_what_comes_next_last(made):
    workspace, said = made
    dev = said.index("dev ROUGE-L")
    assert said.index("MB of disk") < dev < said.index("trained in")
    assert "its weights are those of update 2, the best by dev score" in said
    assert "MB of 2 checkpoint-N folders stay there, and may be deleted" in said
    generate = f"next: `pipedec generate --workspace {workspace}`"
    assert f"{generate}, or `pipedec report --workspace" in said


def test_a_model_is_what_plain_transformers_loads(made):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = made[0] / "models" / "pipelined"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.config.architectures == ["T5ForConditionalGeneration"]
    assert model.config.pipedec["delay"] == "any"
    assert AutoTokenizer.from_pretrained(folder).eos_token == "</s>"
    assert (folder / "generation_config.json").exists()


def test_a_model_comes_with_a_card_and_a_page_of_its_training(made, page_of):
    workspace = made[0]
    folder = workspace / "models" / "pipelined"
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "2 of 2, the best by dev score" in card
    assert "max\\_steps" in card and "epochs" not in card
    page = page_of(folder / "training.html")
    assert "Loss in training" in page and "max_steps" in page
    assert str(workspace) not in page


def test_a_manifest_holds_the_settings_and_the_result_of_a_training(made):
    workspace = made[0]
    manifest = manifest_of(workspace / "models" / "pipelined")
    training = {
        "epochs": 10.0,
        "max_steps": 2,
        "batch_size": 4,
        "accumulation": 1,
        "schedule": "linear",
        "optimizer": "adafactor",
        "learning_rate": 0.03,
        "warmup": 0.05,
        "bf16": False,
        "seed": 0,
        "evaluations": None,
        "cpu": True,
        "keep": "best",
        "patience": None,
    }
    assert manifest["settings"] == {
        "model": "scratch-tiny",
        "data": str(workspace / "data"),
        "decoder": "pipelined",
        "delay": "any",
        "max_source_tokens": 2048,
        "training": training,
    }
    assert manifest["result"]["weights_update"] == 2
    loss = {"update", "loss"}
    points = [{*point} for point in manifest["result"]["curve"]]
    assert points == [loss, loss, {"update", "dev_loss", "dev_score"}]


@pytest.mark.parametrize("can", [True, False])
def test_bf16_where_it_takes_many_times_as_long_is_warned_of(
    workspace, monkeypatch, can
):
    monkeypatch.setattr("pipedec_cli.model.arguments.computes_bfloat16", lambda: can)
    said = again(workspace, "--bf16")
    assert ("no instructions for bfloat16" in said) is not can


def test_what_logs_a_training_is_looked_for_before_anything_starts(
    workspace, folder, monkeypatch
):
    monkeypatch.setattr(
        "pipedec_cli.jobs.train.find_spec", lambda name: name != "wandb" or None
    )
    before = manifest_of(folder)
    refused(workspace, "--overwrite", "--set", "log_to=tensorboard,wandb")
    assert manifest_of(folder) == before
    run("train", "-w", workspace, "--set", "log_to=paper", exit_code=2)


def test_transformers_own_callbacks_log_losses_and_scores(workspace, monkeypatch):
    from transformers import TrainerCallback
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    logged = dict[str, int]()

    class Logger(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs) -> None:
            logged.update(dict.fromkeys(logs, state.global_step))

    monkeypatch.setattr("pipedec_cli.jobs.train.find_spec", lambda _: True)
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "trackio", Logger)
    again(workspace, "--set", "log_to=trackio")
    for name in ("loss", "learning_rate", "eval_loss", "eval_score"):
        assert logged[name] == 2


def test_a_training_that_ran_out_of_patience_says_so(workspace, folder):
    # The dev set is evaluated after each update that learns so many examples.
    never = ("--learning-rate", "0", "--max-steps", "4", "--batch-size", "500")
    said = again(workspace, *never, "--set", "patience=2")
    assert "ended after 3 updates: 2 evaluations without a better one" in said
    assert "its weights are those of update 1, the best by dev score" in said
    assert "4 of 4, the last" not in (folder / "README.md").read_text()


def test_a_training_ends_with_a_word_about_a_model_that_ignores_its_input(workspace):
    shutil.copy(workspace / "data/train.jsonl", workspace / "data/dev.jsonl")
    said = again(workspace)
    assert "2 updates are few for a model from scratch" in said
    assert "warning: not yet a model to go on with: the model ignores its input" in said


def test_what_does_not_count_and_what_is_cut_is_said(workspace):
    vain = ("--decoder", "sequential", "--epochs", "3", "--delay", "2")
    said = train(workspace, *vain, "--set", "limit=1", "--max-source-tokens", "4")
    assert "warning: 1 example: too few for a training" in said
    assert "1 of 1 sources are longer than 4 tokens and were cut" in said
    assert "warning: --epochs does not count" in said
    assert "warning: --delay does not count" in said
    assert f"`pipedec generate --model sequential --workspace {workspace}`" in said
    folder = workspace / "models" / "sequential"
    method = read_json(folder / "config.json")["pipedec"]
    assert (method["decoder"], method["max_source_tokens"]) == ("sequential", 4)


def test_a_config_file_carries_options_and_flags_win(workspace, folder, tmp_path):
    asked = ("--learning-rate", "0.01", "--max-source-tokens", "4")
    said = again(workspace, "--config", "paper", *asked)
    assert "longer than 4 tokens and were cut" in said
    settings = manifest_of(folder)["settings"]
    assert settings["delay"] == 1
    assert settings["training"]["learning_rate"] == 0.01

    lines = [
        "seed = 3",
        "[train]",
        'decoder = "sequential"',
        "max-steps = 1",
        'prompt-template = "say: {source}"',
    ]
    config = tmp_path / "pipedec.toml"
    config.write_text("\n".join(lines))
    train(workspace, "--config", config)
    sequential = workspace / "models" / "sequential"
    method = read_json(sequential / "config.json")["pipedec"]
    assert (method["decoder"], method["source_prefix"]) == ("sequential", "say: ")
    manifest = manifest_of(sequential)
    assert manifest["settings"]["training"]["seed"] == 3
    assert manifest["result"]["updates"] == 2
    config.write_text("[train]\nlearning_rat = 1\n")
    refused(workspace, "--config", config)


def test_a_model_is_not_lost_and_a_training_is_resumed_as_it_was_begun(
    workspace, folder
):
    before = (folder / "model.safetensors").read_bytes()
    refused(workspace, "--seed", "1")
    assert "has been trained to the end already" in train(workspace, "--resume")
    forget_the_end(folder)
    refused(workspace)
    refused(workspace, "--resume", "--seed", "1")
    assert (folder / "model.safetensors").read_bytes() == before
    other = workspace / ".." / workspace.name
    said = train(other, "--resume")
    assert f"going on from {other / 'models/pipelined/checkpoint-2'}" in said
    again(workspace, "--seed", "1")
    assert (folder / "model.safetensors").read_bytes() != before


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_a_model_of_another_make_is_not_written_over(workspace, folder, more):
    (folder / "training.json").unlink()
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    before = (folder / "model.safetensors").read_bytes()
    refused(workspace, "--seed", "1", *more)
    assert (folder / "model.safetensors").read_bytes() == before


def test_resuming_what_never_began_or_has_no_checkpoint_starts_at_update_0(
    workspace, folder
):
    whole = (folder / "model.safetensors").read_bytes()
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    forget_the_end(folder)
    refused(workspace, "--resume", "--seed", "1")
    for _ in range(2):
        said = train(workspace, "--resume")
        assert "nothing to resume" in said and "update 0" in said
        assert (folder / "model.safetensors").read_bytes() == whole
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "asked",
    [
        ("--model", "scratch-huge"),
        ("--device", "cuda:1"),
        ("--device", "cuda"),
        ("--model", "same", "--out", "same"),
        ("a-file",),
        ("-w", "none"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_the_gpus_that_are_seen_stay(
    workspace, monkeypatch, asked
):
    monkeypatch.chdir(workspace)
    Path("a-file").touch()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    refused(workspace, "--out", "new", *asked)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert not Path("new/config.json").exists()


def test_a_folder_that_is_being_trained_into_is_refused_to_a_second_training(workspace):
    other = workspace / "models" / "sequential"
    with only_writer(other, folder=True, todo=""):
        refused(workspace, "--decoder", "sequential")
    assert not other.exists()


def test_a_model_is_none_until_its_training_has_come_to_its_end(
    workspace, folder, monkeypatch
):
    """Wherever `--overwrite` is stopped, nothing uses old weights under new settings, and what to do is said."""
    before = manifest_of(folder)
    (folder / ".unfinished-abc").mkdir()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(SAVE, Mock(side_effect=RuntimeError))
        again(workspace, "--seed", "1")
    assert (folder / "model.safetensors").exists()
    assert manifest_of(folder)["settings"] != before["settings"]
    for command in (["generate"], ["report"], ["generate", "--model", folder]):
        running.refused(*command, "-w", workspace, "--device", "cpu")
    refused(workspace, "--model", folder, "--decoder", "sequential")
    cleaned = "killed left" not in train(workspace, "--seed", "1")
    assert cleaned, "the run that failed had cleaned up"
    assert not [*folder.glob(".*")]
    run("generate", "-w", workspace, "--device", "cpu")


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        ("weights", "File too large"),
        ("optimizer", "a file cannot be written: a quota, a limit"),
    ],
)
def test_a_file_that_cannot_be_written_is_an_error_of_the_system(
    workspace, folder, monkeypatch, saved, why
):
    """Safetensors writes the weights and torch the optimizer: their errors hold the system's, or hide it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(checkpoint: Any, place: Path) -> None:
        if saved == "optimizer":  # which is written after the weights
            save_checkpoint(checkpoint, place)
        if place.name.startswith("checkpoint-"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
        if saved == "weights":
            save_checkpoint(checkpoint, place)

    monkeypatch.setattr(SAVE, limited)
    try:
        with pytest.raises(OSError, match=why) as raised:
            again(workspace)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(folder)
    assert raised.value.errno in (errno.EFBIG, None), "the exit code is 1"


def test_what_a_killed_training_was_writing_is_removed_and_said(workspace, folder):
    (folder / ".unfinished-abc").mkdir()
    (folder / "checkpoint-3").mkdir()
    (folder / "checkpoint-3" / "trainer_state.json").write_text("{")
    (folder / ".training.html.1234abcd.partial").touch()
    left = "checkpoint-3, .unfinished-abc, .training.html.1234abcd.partial"
    assert f"left {left} half written: removed" in again(workspace)
    assert not (folder / "checkpoint-3").exists()
    assert not [*folder.glob(".*")]


def test_the_checkpoints_that_stay_are_bounded_and_an_ended_training_is_not_resumed(
    workspace, folder
):
    thrice = ("--max-steps", "3")
    said = again(workspace, *thrice)
    assert "MB of 2 checkpoint-N folders stay there, and may be deleted" in said
    kept = [*folder.glob("checkpoint-*")]
    assert {path.name for path in kept} == {"checkpoint-2", "checkpoint-3"}
    files = [path for path in folder.iterdir() if path.is_file()]
    whole = {path: path.read_bytes() for path in files}
    said = train(workspace, "--resume", *thrice)
    assert "has been trained to the end already" in said
    assert {path: path.read_bytes() for path in files} == whole


def test_a_training_whose_tokenizer_does_not_come_back_as_it_is_does_not_begin(
    workspace, monkeypatch
):
    """transformers makes another tokenizer of any that a Qwen2 has."""

    def usual(texts, size, *, begins, family):
        return train_tokenizer(texts, size, begins=begins)

    monkeypatch.setattr("pipedec_cli.model.scratch.train_tokenizer", usual)
    out = workspace / "qwen2"
    model = "scratch-tiny-qwen2"
    refused(workspace, "--model", model, "--out", out)
    assert not (out / "config.json").exists()


def test_what_a_training_has_learnt_is_read_again_by_the_saved_tokenizer(
    workspace, folder, monkeypatch
):
    """A file of the tokenizer that is spoilt while a training runs is noticed at its end."""

    def spoilt(checkpoint: Any, place: Path) -> None:
        save_checkpoint(checkpoint, place)
        tokenizer = read_json(place / "tokenizer.json")
        tokenizer["pre_tokenizer"]["add_prefix_space"] = False
        write_lines(place / "tokenizer.json", tokenizer)

    monkeypatch.setattr(SAVE, spoilt)
    refused(workspace, "--overwrite")
    running.refused("generate", "--text", "a", "--model", folder)
