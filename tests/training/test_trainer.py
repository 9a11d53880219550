"""Training on the Trainer: it learns, leaves a plain T5 without pickles, and says before what it takes."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.training.collate import Encoded
from pipedec_cli.training.hyperparameters import hyperparameters
from pipedec_cli.training.trainer import (
    _Reporter,
    run_longest,
    train,
    training_disk,
)
from tests.checkpoints import QUICK, SMALL, examples_of, fresh_toy, weights_of
from tests.training.trainings import PICKLED, run


def test_the_loss_falls_and_is_shown(tmp_path):
    checkpoint = fresh_toy()
    shown = []
    hyper = replace(QUICK, batch_size=5, max_steps=40, learning_rate=3e-3)
    outcome = run(
        checkpoint, tmp_path, hyper, dev=examples_of(checkpoint)[:2], show=shown.append
    )
    losses = [
        *dict.fromkeys(progress.loss for progress in shown if progress.loss is not None)
    ]
    assert losses[-1] < 0.5 * losses[0]
    updates = [progress.update for progress in shown]
    assert updates == [*range(1, 41)], "once, where a loss and an evaluation coincide"
    assert (
        shown[0].left is None
        and all(progress.left for progress in shown[1:-1])
        and shown[-1].left == 0
    )
    assert (
        next(progress for progress in shown if progress.update == 40).dev_loss
        is not None
    )
    assert {progress.updates for progress in shown} == {40}
    assert (outcome.updates, outcome.examples_seen) == (40, 200)
    assert outcome.loss == pytest.approx(sum(losses) / len(losses), rel=1e-3)
    assert not checkpoint.model.training


def test_checkpoints_that_take_long_take_a_twentieth_of_the_time_and_the_last_is_written(
    tmp_path, monkeypatch
):
    now, saved = 0.0, []
    monkeypatch.setattr("pipedec_cli.training.trainer.time.perf_counter", lambda: now)
    reporter = _Reporter(lambda _: None, tmp_path, fresh_toy(), None, keeps=False)
    for update in range(1, 31):  # of 10 seconds; a checkpoint takes 6
        now += 10
        control = SimpleNamespace(
            should_save=True, should_log=True, should_training_stop=update == 30
        )
        at = SimpleNamespace(global_step=update)
        reporter.on_step_end(SimpleNamespace(eval_strategy="no"), at, control)
        if control.should_save:
            saved.append(update)
            now += 6
            reporter.on_save()
    assert saved == [1, 11, 21, 30]


def test_dev_examples_are_looked_at_and_scored_and_never_trained_on(tmp_path):
    checkpoint = fresh_toy()
    examples = examples_of(checkpoint)
    shown = []
    seen = {True: set(), False: set()}

    def watch(module, args, inputs):
        for ids, mask in zip(
            inputs["input_ids"], inputs["attention_mask"], strict=True
        ):
            seen[torch.is_grad_enabled()].add(tuple(ids[mask.bool()].tolist()))

    checkpoint.model.encoder.register_forward_pre_hook(watch, with_kwargs=True)
    train(
        checkpoint,
        examples[:6],
        examples[6:],
        tmp_path,
        QUICK,
        show=shown.append,
        score=lambda: 42.0,
    )
    assert seen[True] == {tuple(example.source) for example in examples[:6]}
    assert seen[False] == {tuple(example.source) for example in examples[6:]}
    looks = [progress for progress in shown if progress.dev_loss is not None]
    assert [progress.update for progress in looks] == [3, 6]
    assert all(
        progress.dev_score == 42.0 and (progress.dev_loss or 0) > 0
        for progress in looks
    )


def test_the_saved_folder_is_plain_transformers_and_holds_no_pickle(trained):
    """Optimizer and chance are kept in checkpoint-N, and can be read without running what they hold."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    from transformers.trainer_pt_utils import safe_globals

    files = [path for path in Path(trained.name).rglob("*") if path.is_file()]
    pickles = [
        path
        for path in files
        if path.suffix in {".bin", ".pt", ".pth", ".pkl", ".ckpt"}
    ]
    assert {path.name for path in pickles} <= {*PICKLED, "scaler.pt"}
    assert pickles
    assert all(path.parent.name.startswith("checkpoint-") for path in pickles)
    assert all(
        path.suffix in {".json", ".safetensors"}
        for path in files
        if path not in pickles
    )
    for path in pickles:
        with safe_globals():
            torch.load(path, weights_only=True)
    tokenizer = AutoTokenizer.from_pretrained(trained.name)
    assert tokenizer("red 3")["input_ids"] == trained.codec().source("red 3")[0]
    ids = {
        "input_ids": torch.tensor([[5, 6, 1]]),
        "decoder_input_ids": torch.tensor([[0, 8, 9]]),
    }
    with torch.no_grad():
        logits = AutoModelForSeq2SeqLM.from_pretrained(trained.name)(**ids).logits
        assert logits.equal(trained.model(**ids).logits)


def test_adafactors_steps_are_in_proportion_to_each_matrix(tmp_path):
    checkpoint = fresh_toy()
    before = {
        name: one for name, one in weights_of(checkpoint).items() if one.dim() > 1
    }
    run(checkpoint, tmp_path, replace(QUICK, optimizer="adafactor", max_steps=1))
    after = weights_of(checkpoint)
    size = {name: float(one.pow(2).mean().sqrt()) for name, one in before.items()}
    moved = {
        name: float((after[name] - one).pow(2).mean().sqrt())
        for name, one in before.items()
    }
    assert max(size.values()) / min(size.values()) > 10
    for name, distance in moved.items():
        assert 0.3 < distance / (QUICK.learning_rate * size[name]) <= 1.01, name


def test_the_disk_is_that_of_the_weights_the_checkpoints_and_the_best_weights():
    checkpoint = fresh_toy()
    parameters = checkpoint.model.num_parameters()
    # AdamW's two moments are beside the weights in each of three folders.
    assert training_disk(checkpoint, QUICK, 2) == (12 * parameters, 4 * parameters * 11)


def test_the_longest_batch_runs_before_the_first_update_and_leaves_the_model_as_it_was(
    monkeypatch,
):
    checkpoint, seen = fresh_toy(), []
    before, examples = weights_of(checkpoint), examples_of(checkpoint)
    long = Encoded([5] * 4, ([6] * 60,))
    checkpoint.model.encoder.register_forward_pre_hook(
        lambda module, args, inputs: seen.append(inputs["input_ids"].tolist()),
        with_kwargs=True,
    )
    run_longest(checkpoint, [*examples[:2], long, *examples], QUICK, name=str)
    assert seen == [[[5] * 4] * QUICK.batch_size]
    assert all(
        tensor.equal(before[name])
        for name, tensor in checkpoint.model.state_dict().items()
    )
    assert all(parameter.grad is None for parameter in checkpoint.model.parameters())
    monkeypatch.setattr(
        torch.Tensor, "backward", Mock(side_effect=torch.OutOfMemoryError("CUDA"))
    )
    words = r"^n° 2: a batch of 3 with this record does not fit the memory; give a smaller --batch-size, or"
    with pytest.raises(UserError, match=words):
        run_longest(
            checkpoint, [*examples[:2], long, *examples], QUICK, name="n° {}".format
        )
    assert all(parameter.grad is None for parameter in checkpoint.model.parameters())


def test_no_examples_are_refused(tmp_path):
    for train_nothing in (
        lambda: run_longest(fresh_toy(), [], QUICK, name=str),
        lambda: train(fresh_toy(), [], [], tmp_path, QUICK),
    ):
        with pytest.raises(UserError, match="there are no training examples"):
            train_nothing()


def test_a_record_whose_length_does_not_fit_the_memory_is_refused_before_anything_is_computed(
    monkeypatch,
):
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: SimpleNamespace(available=1_000_000_000)
    )
    checkpoint = fresh_toy()
    examples = examples_of(checkpoint)
    long = Encoded([5] * 4, ([6] * 60_000,))
    words = r"^n° 2: a batch of 3 with this record needs [\d,]+\.\d GB .* 1\.0 GB are free; leave"
    with pytest.raises(UserError, match=words):
        run_longest(
            checkpoint, [*examples[:2], long, *examples], QUICK, name="n° {}".format
        )
    longer = replace(long, source=[5] * 2_000, texts=([6] * 8,))
    words = (
        r"^1: .*; give a smaller --batch-size, or leave it out .*--max-source-tokens"
    )
    with pytest.raises(UserError, match=words):
        run_longest(
            checkpoint, [examples[0], longer], replace(QUICK, batch_size=100), name=str
        )
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: SimpleNamespace(available=100_000)
    )
    with pytest.raises(
        UserError,
        match=r"the model with its gradients needs .*; take a smaller --model",
    ):
        run_longest(checkpoint, examples, QUICK, name=str)


def test_updates_are_whole_epochs_rounded_up_to_batches(monkeypatch):
    hyper = replace(QUICK, epochs=2, batch_size=4, accumulation=2, max_steps=None)
    assert hyper.updates(16) == 4
    assert hyper.updates(17) == 6
    assert replace(hyper, epochs=0.1).updates(1) == 1
    assert replace(hyper, epochs=0.5).updates(16) == 1
    assert replace(hyper, max_steps=3).updates(10_000) == 3
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert hyper.updates(17) == 4


@pytest.mark.parametrize(
    ("start", "optimizer", "expected"),
    [
        ("published", None, ("adamw", 1e-4, 24)),
        ("fresh", None, ("adafactor", 3e-2, 8)),
        ("fresh", "adamw", ("adamw", 1e-3, 8)),
        ("from-scratch", None, ("adafactor", 1e-2, 8)),
        ("from-scratch", "adamw", ("adamw", 3e-4, 8)),
        ("published", "adafactor", ("adafactor", 1e-3, 24)),
    ],
)
def test_trained_weights_get_the_papers_settings_and_fresh_ones_a_relative_rate(
    start, optimizer, expected
):
    asked = asdict(QUICK) | {
        "batch_size": None,
        "optimizer": optimizer,
        "learning_rate": None,
    }
    usual = hyperparameters(start=start, fields=False, **asked)
    given = hyperparameters(
        start=start, fields=False, **asked | {"batch_size": 3, "learning_rate": 0.0}
    )
    assert (usual.optimizer, usual.learning_rate, usual.batch_size) == expected
    assert (given.learning_rate, given.batch_size) == (0, 3)
    objects = hyperparameters(start=start, fields=True, **asked)
    fresh = (start, objects.optimizer) == ("fresh", "adafactor")
    assert objects == (replace(usual, learning_rate=1e-2) if fresh else usual)


def test_every_file_of_a_model_has_the_mode_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        run(fresh_toy(shape=SMALL), tmp_path, replace(QUICK, max_steps=1))
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o640"}
    assert "model.safetensors" in {path.name for path in files}
