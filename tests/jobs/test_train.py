"""`pipedec train` as a user runs it, on a handful of examples and for a few updates."""

import errno
import os
import re
import resource
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.writing import only_writer
from pipedec_cli.jobs.train import only_gpu
from pipedec_cli.model.checkpoint import save_checkpoint
from pipedec_cli.model.scratch import SHAPES, train_tokenizer
from tests import running
from tests.checkpoints import change
from tests.running import lines_of, read_json, run, write_lines

QUICK = [
    "--max-steps",
    "2",
    "--batch-size",
    "4",
]
SMALLEST = replace(
    SHAPES["scratch-tiny"],
    d_model=16,
    d_ff=16,
    layers=1,
    heads=2,
    vocabulary=320,
    d_kv=8,
)


@pytest.fixture(autouse=True, scope="module")
def smallest_shape():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SHAPES, "scratch-tiny", SMALLEST)
        yield


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, smallest_shape: None
) -> tuple[Path, str]:
    """A workspace with data and a model, and what its training said. Not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    rows = [
        {
            "id": str(i),
            "source": f"colour: {c} number: {i}",
            "target": f"It is {c}. There are {i} of them.",
        }
        for i, c in enumerate(["red", "green", "blue"] * 8)
    ]
    data = write_lines(folder / "data.jsonl", *rows)
    run("segment", data, "--level", "sentence", "-w", folder / "work")
    return folder / "work", train(folder / "work")


@pytest.fixture
def workspace(made: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the workspace, with the model."""
    return Path(shutil.copytree(made[0], tmp_path / "work"))


def train(workspace: Path, *more: str) -> str:
    return run("train", "-w", workspace, *QUICK, "--device", "cpu", *more).stderr


def refused(workspace: Path, *more: str) -> str:
    return running.refused("train", "-w", workspace, *QUICK, "--device", "cpu", *more)


def pipelined(workspace: Path) -> Path:
    return workspace / "models" / "pipelined"


def manifest(workspace: Path, decoder: str = "pipelined") -> dict[str, Any]:
    return dict(read_json(workspace / "models" / decoder / "training.json"))


def forget_the_end(folder: Path) -> None:
    """As after a kill behind the last checkpoint."""
    change(folder / "training.json", "result")


@pytest.mark.slow
def test_a_report_is_advised_where_it_has_something_to_compare_with(workspace):
    said = train(workspace, "--delay", "1", "--overwrite")
    (command,) = re.findall(
        "`(pipedec train [^`]*)`, which `report` needs to compare with", said
    )
    assert "--model scratch-tiny --decoder sequential" in command, "the same start"
    assert command.endswith(f"--workspace {workspace}")
    assert " --max-steps 2 --batch-size 4 " in command, (
        "trained as long, on as many examples at a time"
    )
    generate = ("generate", "-w", workspace, "--delay", "1")
    assert "`pipedec report" not in run(*generate).stderr
    assert "nothing to compare with" in running.refused("report", "-w", workspace)
    assert "`pipedec report" in train(workspace, "--decoder", "sequential")
    assert "`pipedec report" in run(*generate).stderr
    shutil.rmtree(pipelined(workspace))
    teach = f"`pipedec train --teacher {workspace / 'models/sequential'} --workspace {workspace}`"
    talk = train(workspace, "--decoder", "sequential", "--overwrite")
    assert f"{teach}, which makes a pipelined decoder of it" in talk


@pytest.mark.parametrize(
    ("split", "told"),
    [("train", "record 'long': a batch of 4"), ("dev", "'long' of dev")],
)
def test_a_record_that_is_too_long_for_the_memory_is_refused_by_its_name(
    workspace, split, told, monkeypatch
):
    monkeypatch.setattr("psutil.virtual_memory", lambda: Mock(available=4_000_000_000))
    target = "It is red. " * 10_000
    long = {"id": "long", "source": "a", "target": target, "target_segments": [target]}
    write_lines(
        workspace / f"data/{split}.jsonl",
        long,
        *lines_of(workspace / "data/train.jsonl"),
    )
    said = refused(workspace, "--overwrite")
    assert told in said and "leave it out of the data, or shorten it" in said


def test_estimates_first_and_saves_what_plain_transformers_loads(made):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    workspace, talk = made
    then = f"next: `pipedec generate --workspace {workspace}`, or `pipedec report --workspace"
    assert talk.index("MB of disk") < talk.index("trained in") < talk.index(then)
    assert all(words in talk for words in ("dev loss", "dev ROUGE-L"))
    folder = pipelined(workspace)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.config.architectures == ["T5ForConditionalGeneration"]
    assert model.config.pipedec["delay"] == "any"
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "max\\_steps" in card and "epochs" not in card
    assert "its weights are those of update 2, the best by dev score" in talk
    assert (
        "2 of 2, the best by dev score" in card
        and manifest(workspace)["result"]["weights_update"] == 2
    )
    assert not list(folder.glob("best-*"))
    curve = manifest(workspace)["result"]["curve"]
    assert [set(point) for point in curve] == [{"update", "loss"}] * 2 + [
        {"update", "dev_loss", "dev_score"}
    ]
    page = (folder / "training.html").read_text(encoding="utf-8")
    assert (
        "Loss in training" in page
        and "max_steps" in page
        and str(workspace) not in page
    )
    assert AutoTokenizer.from_pretrained(folder).eos_token == "</s>"
    assert (folder / "generation_config.json").exists()
    training = {
        "epochs": 10.0,
        "max_steps": 2,
        "batch_size": 4,
        "accumulation": 1,
        "schedule": "linear",
    }
    training |= {"optimizer": "adafactor", "learning_rate": 0.03, "warmup": 0.05}
    training |= {
        "bf16": False,
        "seed": 0,
        "evaluations": None,
        "cpu": True,
        "keep": "best",
        "patience": None,
    }
    method = {
        "decoder": "pipelined",
        "delay": "any",
        "max_source_tokens": 2048,
    }
    asked = {
        "model": "scratch-tiny",
        "data": str(workspace / "data"),
        **method,
    }
    assert manifest(workspace)["settings"] == asked | {"training": training}


@pytest.mark.parametrize("can", [True, False])
def test_bf16_where_it_takes_many_times_as_long_is_warned_of(
    workspace, monkeypatch, can
):
    monkeypatch.setattr("pipedec_cli.model.arguments.computes_bfloat16", lambda: can)
    talk = train(workspace, "--bf16", "--overwrite")
    assert ("no instructions for bfloat16" in talk) is not can


def test_what_logs_a_training_is_looked_for_before_anything_starts(
    workspace, monkeypatch
):
    monkeypatch.setattr(
        "pipedec_cli.jobs.train.find_spec",
        lambda name: None if name == "wandb" else name,
    )
    before = manifest(workspace)
    told = refused(workspace, "--overwrite", "--set", "log_to=tensorboard,wandb")
    assert told == "log_to=wandb needs wandb, which is not installed; pip install wandb"
    assert manifest(workspace) == before
    run("train", "-w", workspace, "--set", "log_to=paper", exit_code=2)


def test_transformers_own_callbacks_log_losses_and_scores(workspace, monkeypatch):
    from transformers import TrainerCallback
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    logged = dict[str, int]()

    class Logger(TrainerCallback):
        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
        ) -> None:
            logged.update(dict.fromkeys(logs, state.global_step))

    monkeypatch.setattr("pipedec_cli.jobs.train.find_spec", lambda _: True)
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "trackio", Logger)
    train(workspace, "--overwrite", "--set", "log_to=trackio")
    assert {
        logged[name] for name in ("loss", "learning_rate", "eval_loss", "eval_score")
    } == {2}


def test_a_training_that_ran_out_of_patience_says_so(workspace):
    never = (
        "--learning-rate",
        "0",
        "--max-steps",
        "4",
        "--batch-size",
        "500",
        "--set",
        "patience=2",
    )
    talk = train(workspace, "--overwrite", *never)
    assert "ended after 3 updates: 2 evaluations without a better one" in talk
    assert "its weights are those of update 1, the best by dev score" in talk
    assert "4 of 4, the last" not in (pipelined(workspace) / "README.md").read_text()


def test_a_training_ends_with_a_word_about_a_model_that_ignores_its_input(workspace):
    shutil.copy(workspace / "data/train.jsonl", workspace / "data/dev.jsonl")
    talk = train(workspace, "--overwrite")
    assert "2 updates are few for a model from scratch" in talk
    assert "warning: not yet a model to go on with: the model ignores its input" in talk


def test_a_recipe_or_a_config_file_carries_options_and_flags_win(workspace, tmp_path):
    recipe = (
        "--config",
        "paper",
        "--learning-rate",
        "0.01",
        "--max-source-tokens",
        "4",
        "--overwrite",
    )
    assert "longer than 4 tokens and were cut" in train(workspace, *recipe)
    settings = manifest(workspace)["settings"]
    training = settings["training"]
    assert (settings["delay"], training["learning_rate"], training["batch_size"]) == (
        1,
        0.01,
        4,
    )
    config = tmp_path / "pipedec.toml"
    config.write_text(
        'seed = 3\n[train]\ndecoder = "sequential"\nmax-steps = 1\nprompt-template = "say: {source}"\n'
    )
    talk = train(
        workspace,
        "--config",
        str(config),
        "--set",
        "limit=1",
        "--epochs",
        "3",
        "--delay",
        "2",
    )
    assert "warning: 1 example: too few for a training" in talk
    assert "warning: --epochs does not count" in talk
    assert "warning: --delay does not count" in talk
    assert (
        f"next: `pipedec generate --model sequential --workspace {workspace}`" in talk
    )
    content = read_json(workspace / "models" / "sequential" / "config.json")["pipedec"]
    assert (content["decoder"], content["source_prefix"]) == ("sequential", "say: ")
    saved = manifest(workspace, "sequential")
    assert (saved["settings"]["training"]["seed"], saved["result"]["updates"]) == (3, 2)
    config.write_text("[train]\nlearning_rat = 1\n")
    assert "'learning_rat'" in refused(workspace, "--config", str(config))


def test_a_model_is_not_lost_and_a_training_is_resumed_as_it_was_begun(workspace):
    folder = pipelined(workspace)
    before = (folder / "model.safetensors").read_bytes()
    assert "holds a trained model; replace it with --overwrite" in refused(
        workspace, "--seed", "1"
    )
    assert "has been trained to the end already" in train(workspace, "--resume")
    forget_the_end(folder)
    assert "--resume" in refused(workspace)
    assert "--seed was 0 and is now 1" in refused(workspace, "--resume", "--seed", "1")
    assert (folder / "model.safetensors").read_bytes() == before
    again = workspace / ".." / workspace.name
    assert f"going on from {again / 'models/pipelined/checkpoint-2'}" in train(
        again, "--resume"
    )
    train(workspace, "--overwrite", "--seed", "1")
    assert (folder / "model.safetensors").read_bytes() != before


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_a_model_of_another_make_is_not_written_over(workspace, more):
    folder = pipelined(workspace)
    (folder / "training.json").unlink()
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    before = (folder / "model.safetensors").read_bytes()
    assert str(folder) in refused(workspace, "--seed", "1", *more)
    assert (folder / "model.safetensors").read_bytes() == before


def test_resuming_what_never_began_or_has_no_checkpoint_starts_at_update_0(workspace):
    whole = (pipelined(workspace) / "model.safetensors").read_bytes()
    for number in (1, 2):
        shutil.rmtree(pipelined(workspace) / f"checkpoint-{number}")
    forget_the_end(pipelined(workspace))
    assert "--seed was 0 and is now 1" in refused(workspace, "--resume", "--seed", "1")
    for _ in range(2):
        assert (
            "nothing to resume" in (talk := train(workspace, "--resume"))
            and "update 0" in talk
        )
        assert (pipelined(workspace) / "model.safetensors").read_bytes() == whole
        shutil.rmtree(pipelined(workspace))


def test_what_cannot_be_trained_is_refused(workspace, monkeypatch):
    for delay in ("0", "-1", "two", "1.5"):
        run("train", "-w", workspace, "--delay", delay, exit_code=2)
    shutil.rmtree(pipelined(workspace))
    assert "no shape 'scratch-huge'; use one of scratch-tiny" in refused(
        workspace, "--model", "scratch-huge"
    )
    assert "pipedec segment DATA" in refused(workspace / "none")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for device in ("cuda", "cuda:1"):
        assert "cuda is not here; use --device cpu" in refused(
            workspace, "--device", device
        )
    assert "would be written over" in refused(
        workspace, "--model", str(pipelined(workspace))
    )


@pytest.mark.parametrize(
    ("before", "device", "seen"),
    [
        (None, "cuda:1", "1"),
        ("3,5", "cuda:1", "5"),
        ("3,5", "cuda:2", ""),
        ("", "cuda:0", ""),
        ("3,5", "cuda", "3,5"),
        (None, "cpu", None),
    ],
)
def test_one_gpu_alone_is_seen_while_it_is_trained_on_and_the_environment_stays(
    before, device, seen, monkeypatch
):
    name = "CUDA_VISIBLE_DEVICES"
    monkeypatch.delenv(name, raising=False) if before is None else monkeypatch.setenv(
        name, before
    )
    for error in (None, KeyboardInterrupt):
        with suppress(KeyboardInterrupt), only_gpu(device) as kind:
            assert (kind, os.environ.get(name)) == (device.partition(":")[0], seen)
            if error:
                raise error
        assert os.environ.get(name) == before


def test_a_refused_training_leaves_the_gpus_that_a_process_sees_as_they_were(
    workspace, monkeypatch
):
    shutil.rmtree(pipelined(workspace))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "cuda is not here" in refused(workspace, "--device", "cuda:1")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_gpu_is_not_hidden_from_a_process_that_uses_it(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(UserError), only_gpu("cuda:1"):
        pass


def test_a_folder_that_is_being_trained_into_is_refused_to_a_second_training(workspace):
    folder = workspace / "models" / "sequential"
    with only_writer(folder, folder=True, todo=""):
        assert refused(workspace, "--decoder", "sequential").endswith(
            "wait for it, or choose another --out"
        )
    assert not folder.exists()


def test_a_model_is_none_until_its_training_has_come_to_its_end(workspace, monkeypatch):
    """Wherever `--overwrite` is stopped, nothing uses old weights under new settings, and what to do is said."""
    folder, before = pipelined(workspace), manifest(workspace)
    (folder / ".unfinished-abc").mkdir()
    (folder / "checkpoint-3").mkdir()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(
            "pipedec_cli.training.trainer.save_checkpoint",
            Mock(side_effect=RuntimeError),
        )
        train(workspace, "--overwrite", "--seed", "1")
    assert (folder / "model.safetensors").exists()
    assert manifest(workspace)["settings"] != before["settings"]
    for command in (["generate"], ["report"], ["generate", "--model", folder]):
        told = running.refused(*command, "-w", workspace, "--device", "cpu")
        assert all(
            word in told
            for word in ("training has not come to its end", "--resume", "--overwrite")
        )
    assert "with `pipedec train --resume`, its --out" in told
    assert "not come to its end" in refused(
        workspace, "--model", str(folder), "--decoder", "sequential"
    )
    assert "killed left" not in train(workspace, "--seed", "1"), (
        "the run that failed had cleaned up"
    )
    assert not list(folder.glob(".*"))
    run("generate", "-w", workspace, "--device", "cpu")


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        ("weights", "File too large"),
        ("optimizer", "a file cannot be written: a quota, a limit"),
    ],
)
def test_a_file_that_cannot_be_written_is_an_error_of_the_system(
    workspace, monkeypatch, saved, why
):
    """Safetensors writes the weights and torch the optimizer: their errors hold the system's, or hide it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(*given: Any) -> None:
        if saved == "optimizer":  # which is written after the weights
            save_checkpoint(*given)
        if given[1].name.startswith("checkpoint-"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
        if saved == "weights":
            save_checkpoint(*given)

    monkeypatch.setattr("pipedec_cli.training.trainer.save_checkpoint", limited)
    try:
        with pytest.raises(OSError, match=why) as raised:
            train(workspace, "--overwrite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(pipelined(workspace))
    assert raised.value.errno in (errno.EFBIG, None), (
        "the command ends with exit code 1"
    )


def test_the_systems_error_behind_that_of_a_library_is_told(workspace, monkeypatch):
    def failing(*given: Any) -> None:
        full = OSError(errno.EDQUOT, "Disk quota exceeded")
        raise RuntimeError("the file was not written") from full

    monkeypatch.setattr("pipedec_cli.training.trainer.save_checkpoint", failing)
    with pytest.raises(OSError, match="quota") as raised:
        train(workspace, "--overwrite")
    assert raised.value.errno == errno.EDQUOT
    assert raised.value.filename == str(pipelined(workspace))


def test_what_a_killed_training_was_writing_is_removed_and_said(workspace):
    folder = pipelined(workspace)
    (folder / ".unfinished-abc").mkdir()
    (folder / "checkpoint-3").mkdir()
    (folder / "checkpoint-3" / "trainer_state.json").write_text("{")
    (folder / ".training.html.1234abcd.partial").touch()
    left = "checkpoint-3, .unfinished-abc, .training.html.1234abcd.partial"
    assert f"left {left} half written: removed" in train(workspace, "--overwrite")
    assert "checkpoint-3" not in (path.name for path in folder.iterdir())
    assert not list(folder.glob(".*"))


def test_the_checkpoints_that_stay_are_said_and_bounded_and_an_ended_training_is_not_resumed(
    made, workspace
):
    folder, thrice = pipelined(workspace), ("--max-steps", "3")
    talk = train(workspace, "--overwrite", *thrice)
    assert "MB of 2 checkpoint-N folders stay there, and may be deleted" in talk
    kept = [*folder.glob("checkpoint-*")]
    assert {path.name for path in kept} == {"checkpoint-2", "checkpoint-3"}
    whole = {path: path.read_bytes() for path in folder.iterdir() if path not in kept}
    assert "has been trained to the end already" in train(
        workspace, "--resume", *thrice
    )
    assert {path: path.read_bytes() for path in whole} == whole


def test_a_file_is_no_data_to_train_on(tmp_path):
    path = write_lines(tmp_path / "data.jsonl", {"source": "a", "target": "b"})
    told = running.refused("train", path, "-w", tmp_path / "work")
    assert (
        told
        == f"{path}: is a file; run `pipedec segment` on it, and give the folder that it writes"
    )


def test_a_training_whose_tokenizer_does_not_come_back_as_it_is_does_not_begin(
    workspace, monkeypatch
):
    """transformers makes another tokenizer of any that a Qwen2 has."""

    def usual(texts, size, *, begins, family):
        return train_tokenizer(texts, size, begins=begins)

    monkeypatch.setattr("pipedec_cli.model.scratch.train_tokenizer", usual)
    model = "scratch-tiny-qwen2"
    told = refused(workspace, "--model", model, "--out", str(workspace / "qwen2"))
    assert f"train.jsonl:1: the tokenizer of {model} gives this text other ids" in told
    assert not (workspace / "qwen2" / "config.json").exists()


def test_what_a_training_has_learnt_is_read_again_by_the_saved_tokenizer(
    workspace, monkeypatch
):
    """A file of the tokenizer that is spoilt while a training runs is noticed at its end."""
    folder, write = pipelined(workspace), save_checkpoint

    def spoilt(checkpoint: Any, place: Path) -> None:
        write(checkpoint, place)
        content = read_json(place / "tokenizer.json")
        content["pre_tokenizer"]["add_prefix_space"] = False
        write_lines(place / "tokenizer.json", content)

    monkeypatch.setattr("pipedec_cli.training.trainer.save_checkpoint", spoilt)
    assert "gives this text other ids" in refused(workspace, "--overwrite")
    monkeypatch.undo()
    assert "has not come to its end" in running.refused(
        "generate", "--text", "a", "--model", folder
    )


def test_a_batch_that_does_not_fit_is_tried_again_with_less_that_is_kept(
    workspace, monkeypatch
):
    tried: list[bool] = []

    def run_longest(checkpoint: Any, *_: Any, **__: Any) -> None:
        tried.append(checkpoint.model.is_activation_checkpointing)
        if len(tried) == 1:
            raise UserError("a batch does not fit the memory") from MemoryError()

    monkeypatch.setattr("pipedec_cli.training.trainer.run_longest", run_longest)
    assert "computed again in the backward pass" in train(workspace, "--overwrite")
    assert tried == [False, True]
