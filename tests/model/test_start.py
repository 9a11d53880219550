"""Where training starts: fresh weights or a checkpoint that is there, and what it will take."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.model.collate import Encoded, encode
from pipedec_cli.model.scratch import start_checkpoint
from pipedec_cli.model.training import estimate, hyperparameters
from tests.checkpoints import QUICK, TOY, fresh_toy, toy_records

SETTINGS = MethodSettings("pipelined", 1, Segmentation("phrase", (";",), "; ", sub_max=4), "copy: ", 128, 30)


def test_a_shape_is_made_fresh_with_a_tokenizer_of_the_data() -> None:
    segmenter = make_segmenter("phrase", separators=(";",))

    checkpoint = start_checkpoint("scratch-tiny", SETTINGS, toy_records(), seed=4, segmenter=segmenter)

    assert (checkpoint.settings, checkpoint.segmenter, checkpoint.name) == (
        SETTINGS,
        segmenter,
        "scratch-tiny",
    )
    assert checkpoint.model.config.d_model == 256
    assert checkpoint.model.config.vocab_size >= len(checkpoint.tokenizer)
    codec = checkpoint.codec()
    assert all(codec.decode(codec.ids([source])[0]) == source for source, _ in TOY)
    words = len(codec.ids(["green green green"])[0])
    assert words == 3  # learnt from the targets


def test_fresh_weights_depend_on_the_seed_alone() -> None:
    made = []
    for seed in (4, 4, 5):
        random.random()
        torch.rand(seed)
        made.append(start_checkpoint("scratch-tiny", SETTINGS, toy_records(), seed).model.shared.weight)

    assert made[0].equal(made[1])
    assert not made[0].equal(made[2])


def test_a_checkpoint_that_is_there_keeps_its_weights_and_takes_the_new_settings(trained: Checkpoint) -> None:
    segmenter = make_segmenter("phrase", separators=(";",))

    checkpoint = start_checkpoint(trained.name, SETTINGS, [], seed=0, segmenter=segmenter)

    assert (checkpoint.settings, checkpoint.segmenter) == (SETTINGS, segmenter)
    assert checkpoint.model.shared.weight.equal(trained.model.shared.weight)
    assert checkpoint.codec().source("red 3")[0] == trained.codec().source("copy: red 3")[0]


def test_a_shape_that_is_not_there_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match="no shape 'scratch-huge'; use one of scratch-tiny, scratch-small"):
        start_checkpoint("scratch-huge", SETTINGS, toy_records(), seed=0)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint folder"):
        start_checkpoint(str(tmp_path / "none"), SETTINGS, toy_records(), seed=0)


def test_an_estimate_counts_updates_parameters_and_disk() -> None:
    checkpoint = fresh_toy()
    examples = encode(checkpoint, toy_records())
    parameters = sum(parameter.numel() for parameter in checkpoint.model.parameters())

    expected = estimate(checkpoint, examples, replace(QUICK, epochs=3, batch_size=4, max_steps=None))

    assert expected.updates == 9  # 10 examples in batches of 4, three times
    assert expected.parameters == parameters
    assert expected.bytes == 4 * parameters * 7
    assert expected.seconds > 0


def test_an_estimate_leaves_the_model_as_it_was() -> None:
    checkpoint = fresh_toy()
    before = {name: tensor.clone() for name, tensor in checkpoint.model.state_dict().items()}

    estimate(checkpoint, encode(checkpoint, toy_records()), QUICK)

    assert all(tensor.equal(before[name]) for name, tensor in checkpoint.model.state_dict().items())
    assert all(parameter.grad is None for parameter in checkpoint.model.parameters())


@pytest.mark.parametrize("examples", [1, 3, 25])
def test_an_estimate_takes_whatever_number_of_examples_there_is(examples: int) -> None:
    checkpoint = fresh_toy()
    some = (encode(checkpoint, toy_records()) * 3)[:examples]

    assert estimate(checkpoint, some, replace(QUICK, max_steps=7)).updates == 7


def test_no_examples_are_refused() -> None:
    nothing: list[Encoded] = []

    with pytest.raises(UserError, match="there are no training examples"):
        estimate(fresh_toy(), nothing, QUICK)


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
    others = {
        name: value
        for name, value in asdict(QUICK).items()
        if name not in ("batch_size", "optimizer", "learning_rate")
    }

    usual = hyperparameters(fresh=fresh, batch_size=None, optimizer=optimizer, learning_rate=None, **others)
    given = hyperparameters(fresh=fresh, batch_size=3, optimizer=optimizer, learning_rate=0.0, **others)

    assert (usual.optimizer, usual.learning_rate, usual.batch_size) == expected
    assert (given.learning_rate, given.batch_size) == (0, 3)
