"""Training on the Trainer: it learns, leaves a plain T5 without pickles, and says before what it will take."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.training import Progress, estimate, hyperparameters, train
from tests.checkpoints import QUICK, SMALL, TOY, examples_of, fresh_toy, weights_of


@pytest.mark.parametrize("delay", ["sequential", 1, 2, 3, 5])
def test_what_was_learnt_over_random_schedules_serves_every_delay(trained: Checkpoint, delay: Any) -> None:
    decoder = Decoder(trained, batch_size=4)
    results = list(decoder.texts([source for source, _ in TOY], decoder.method(delay)))
    assert [result.segments for result in results] == [segments for _, segments in TOY]
    assert [result.truncated for result in results] == [None] * len(TOY)


def test_the_loss_falls_and_is_shown(tmp_path: Path) -> None:
    checkpoint = fresh_toy()
    shown: list[Progress] = []
    hyper = replace(QUICK, batch_size=5, max_steps=40, learning_rate=3e-3)
    outcome = train(checkpoint, examples_of(checkpoint), [], tmp_path, hyper, show=shown.append)
    losses = [progress.loss for progress in shown if progress.loss is not None]
    assert losses[-1] < 0.5 * losses[0]
    assert [progress.step for progress in shown] == sorted(progress.step for progress in shown)
    assert {progress.total for progress in shown} == {40}
    assert (outcome["updates"], outcome["examples_seen"]) == (40, 200)
    assert outcome["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-3)
    assert not checkpoint.model.training


def test_gradients_of_small_batches_add_up_to_those_of_a_large_one(tmp_path: Path) -> None:
    """The mean is over the predictions of all of them, however many each has."""
    losses, weights = [], []
    for batch_size in (8, 2):
        checkpoint, shown = fresh_toy(delay=2), list[Progress]()
        hyper = replace(QUICK, batch_size=batch_size, accumulation=8 // batch_size, max_steps=1)
        train(checkpoint, examples_of(checkpoint), [], tmp_path / str(batch_size), hyper, show=shown.append)
        losses.append(shown[0].loss)
        weights.append(weights_of(checkpoint))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    # AdamW's first update is the rate times the sign, so a gradient near 0 may turn round: few do
    once, added = weights
    differs = torch.cat([((once[name] - added[name]).abs() > 1e-5).flatten() for name in once])
    assert differs.float().mean() < 0.01


def test_dev_examples_are_looked_at_and_scored_and_never_trained_on(tmp_path: Path) -> None:
    checkpoint = fresh_toy()
    examples = examples_of(checkpoint)
    shown: list[Progress] = []
    seen: dict[bool, set[tuple[int, ...]]] = {True: set(), False: set()}

    def watch(module: nn.Module, args: Any, inputs: dict[str, Any]) -> None:
        for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True):
            seen[torch.is_grad_enabled()].add(tuple(ids[mask.bool()].tolist()))

    checkpoint.model.encoder.register_forward_pre_hook(watch, with_kwargs=True)
    train(checkpoint, examples[:6], examples[6:], tmp_path, QUICK, show=shown.append, score=lambda: 42.0)
    assert seen[True] == {tuple(example.source) for example in examples[:6]}
    assert seen[False] == {tuple(example.source) for example in examples[6:]}
    looks = [progress for progress in shown if progress.dev_loss is not None]
    assert [progress.step for progress in looks] == [3, 6]
    assert all(progress.dev_score == 42.0 and (progress.dev_loss or 0) > 0 for progress in looks)


def test_the_saved_folder_holds_no_pickle(trained: Checkpoint) -> None:
    """Optimizer and chance are kept in checkpoint-N, and can be read without running what they hold."""
    folder = Path(trained.name)
    files = [path for path in folder.rglob("*") if path.is_file()]
    pickles = [path for path in files if path.suffix in {".bin", ".pt", ".pth", ".pkl", ".ckpt"}]
    assert {path.name for path in pickles} <= {"optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt"}
    assert pickles
    assert all(path.parent.name.startswith("checkpoint-") for path in pickles)
    assert all(path.suffix in {".json", ".safetensors"} for path in files if path not in pickles)
    from transformers.trainer_pt_utils import safe_globals

    for path in pickles:
        with safe_globals():
            torch.load(path, weights_only=True)


def test_plain_transformers_loads_what_was_trained(trained: Checkpoint) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained(trained.name)
    tokenizer = AutoTokenizer.from_pretrained(trained.name)
    assert tokenizer("red 3")["input_ids"] == trained.codec().source("red 3")[0]
    ids = {"input_ids": torch.tensor([[5, 6, 1]]), "decoder_input_ids": torch.tensor([[0, 8, 9]])}
    with torch.no_grad():
        assert model(**ids).logits.equal(trained.model(**ids).logits)


def test_mixed_precision_trains(tmp_path: Path) -> None:
    checkpoint = fresh_toy(shape=SMALL)
    outcome = train(checkpoint, examples_of(checkpoint), [], tmp_path, replace(QUICK, max_steps=2, bf16=True))
    assert 0 < outcome["loss"] < 20
    assert all(parameter.dtype == torch.float32 for parameter in checkpoint.model.parameters())


def test_adafactors_steps_are_in_proportion_to_each_matrix(tmp_path: Path) -> None:
    checkpoint = fresh_toy()
    before = {name: one for name, one in weights_of(checkpoint).items() if one.dim() > 1}
    hyper = replace(QUICK, optimizer="adafactor", max_steps=1)
    train(checkpoint, examples_of(checkpoint), [], tmp_path, hyper)
    after = weights_of(checkpoint)
    size = {name: float(one.pow(2).mean().sqrt()) for name, one in before.items()}
    moved = {name: float((after[name] - one).pow(2).mean().sqrt()) for name, one in before.items()}
    assert max(size.values()) / min(size.values()) > 10
    for name, distance in moved.items():
        assert 0.3 < distance / (QUICK.learning_rate * size[name]) <= 1.01, name


def test_an_estimate_counts_updates_parameters_and_disk_and_leaves_the_model_as_it_was() -> None:
    checkpoint = fresh_toy()
    before = weights_of(checkpoint)
    parameters = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    hyper = replace(QUICK, epochs=3, batch_size=4, max_steps=None)
    expected = estimate(checkpoint, examples_of(checkpoint), hyper)
    assert expected.updates == 9  # 10 examples in batches of 4, three times
    assert (expected.parameters, expected.bytes) == (parameters, 4 * parameters * 7)
    assert expected.seconds > 0
    assert all(tensor.equal(before[name]) for name, tensor in checkpoint.model.state_dict().items())
    assert all(parameter.grad is None for parameter in checkpoint.model.parameters())


def test_an_estimate_takes_whatever_number_of_examples_there_is_but_none(tmp_path: Path) -> None:
    checkpoint = fresh_toy()
    for count in (1, 3, 25):
        some = (examples_of(checkpoint) * 3)[:count]
        assert estimate(checkpoint, some, replace(QUICK, max_steps=7)).updates == 7
    with pytest.raises(UserError, match="there are no training examples"):
        estimate(checkpoint, [], QUICK)
    with pytest.raises(UserError, match="there are no training examples"):
        train(checkpoint, [], [], tmp_path, QUICK)


def test_updates_are_whole_epochs_rounded_up_to_batches() -> None:
    hyper = replace(QUICK, epochs=2, batch_size=4, accumulation=2, max_steps=None)
    assert hyper.updates(16) == 4
    assert hyper.updates(17) == 6
    assert hyper.updates(17, devices=2) == 4
    assert replace(hyper, epochs=0.1).updates(1) == 1
    assert replace(hyper, epochs=0.5).updates(16) == 1
    assert replace(hyper, max_steps=3).updates(10_000) == 3


@pytest.mark.parametrize(
    ("fresh", "optimizer", "expected"),
    [
        (False, None, ("adamw", 1e-4, 24)),
        (True, None, ("adafactor", 3e-2, 8)),
        (True, "adamw", ("adamw", 1e-3, 8)),
        (False, "adafactor", ("adafactor", 1e-3, 24)),
    ],
)
def test_trained_weights_get_the_papers_settings_and_fresh_ones_a_relative_rate(
    fresh: bool, optimizer: Any, expected: tuple[str, float, int]
) -> None:
    asked = asdict(QUICK) | {"batch_size": None, "optimizer": optimizer, "learning_rate": None}
    usual = hyperparameters(fresh=fresh, **asked)
    given = hyperparameters(fresh=fresh, **asked | {"batch_size": 3, "learning_rate": 0.0})
    assert (usual.optimizer, usual.learning_rate, usual.batch_size) == expected
    assert (given.learning_rate, given.batch_size) == (0, 3)
