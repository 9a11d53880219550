"""A training that was killed goes on as if it had not been, and takes nothing that is broken or hostile for its own."""

import copy
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from msgspec import structs
from torch import nn

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.trained import checkpoints
from pipedec_cli.model.checkpoint import (
    PLAIN,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from pipedec_cli.training.encoded import Encoded
from pipedec_cli.training.trainer import load_weights
from tests.checkpoints import QUICK, SMALL, change, examples_of, fresh_toy, weights_of
from tests.model.engines import small_model
from tests.model.test_checkpoint import words_tokenizer
from tests.running import slow
from tests.training.trainings import PICKLED, run
from tests.words import refusing


def assert_equal_weights(one, other):
    torch.testing.assert_close(weights_of(one), weights_of(other), rtol=1e-5, atol=1e-6)


def killed(checkpoint, folder, hyper, after, **options):
    """A training that stops in its midst, at the first report after so many updates."""

    def show(progress):
        if progress.update > after:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run(checkpoint, folder, hyper, show=show, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "optimizer"),
    [(7, "adamw"), (6, "adafactor"), slow(3, "adamw")],
    ids=["within an epoch", "between epochs", "an epoch an update"],
)
def test_a_killed_training_that_is_resumed_ends_as_an_undisturbed_one(
    tmp_path, count, optimizer
):
    """The same examples in the same order, the same schedules, the same dropout: the same weights."""
    hyper = replace(QUICK, max_steps=4, optimizer=optimizer)  # checkpoints at 2 and 4
    undisturbed, stopped, resumed = (fresh_toy(shape=SMALL) for _ in range(3))
    examples = examples_of(resumed)[:count]
    run(undisturbed, tmp_path / "whole", hyper, examples=examples)
    killed(stopped, tmp_path / "killed", hyper, after=2, examples=examples)
    torch.manual_seed(99)  # another process, another chance
    again = run(resumed, tmp_path / "killed", hyper, examples=examples, resume=True)
    assert again.updates == 4
    assert_equal_weights(resumed, undisturbed)
    assert_equal_weights(load_checkpoint(str(tmp_path / "killed")), undisturbed)


def test_a_training_that_was_killed_while_its_result_was_saved_makes_no_further_update(
    tmp_path,
):
    before = run(fresh_toy(shape=SMALL), tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for file in tmp_path.iterdir():
        if file.is_file():
            file.unlink()
    torch.manual_seed(99)
    after = run(fresh_toy(shape=SMALL), tmp_path, resume=True)
    assert (tmp_path / "model.safetensors").read_bytes() == whole
    assert structs.replace(after, seconds=0) == structs.replace(before, seconds=0)
    names = [path.name for path in checkpoints(tmp_path)]
    assert names == ["checkpoint-3", "checkpoint-6"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [slow("gated"), "umt5"])
def test_resuming_keeps_an_output_matrix_of_its_own(tmp_path, kind):
    """v1.1, Flan-T5, mT5 and UMT5 have one, although transformers' config calls them tied."""
    made, hyper = copy.deepcopy(small_model(kind)), replace(QUICK, max_steps=2)
    if kind == "umt5":
        made.lm_head.weight = nn.Parameter(made.lm_head.weight.detach() + 1)
    undisturbed, stopped, resumed = (
        replace(fresh_toy(), model=copy.deepcopy(made)) for _ in range(3)
    )
    examples = [Encoded([5, 7 + n, 1], ([9, 10 + n], [11])) for n in range(5)]
    run(undisturbed, tmp_path / "whole", hyper, examples=examples)
    killed(stopped, tmp_path / "killed", hyper, after=1, examples=examples)
    run(resumed, tmp_path / "killed", hyper, examples=examples, resume=True)
    assert not resumed.model.lm_head.weight.equal(resumed.model.shared.weight)
    assert_equal_weights(resumed, undisturbed)


def test_what_is_not_whole_or_of_another_shape_is_not_resumed_from(tmp_path):
    two = replace(QUICK, max_steps=2)
    begun = run(fresh_toy(shape=SMALL), tmp_path, two, resume=True)
    assert begun.updates == 2, "where nothing was saved, it starts at update 0"
    # It was being written when the training was killed.
    half = tmp_path / "checkpoint-5"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    with refusing() as raised:
        run(fresh_toy(shape=replace(SMALL, layers=3)), tmp_path, resume=True)
    assert raised.value.where == str(tmp_path / "checkpoint-2")
    three = replace(QUICK, max_steps=3)
    again = run(fresh_toy(shape=SMALL), tmp_path, three, resume=True)
    assert again.updates == 3


def test_experts_are_read_again_by_the_names_that_they_have_in_files(tmp_path):
    model = copy.deepcopy(small_model("mixtral"))
    settings = structs.replace(PLAIN, decoder="pipelined")
    checkpoint = Checkpoint(model, words_tokenizer(40), settings, "x")
    before = weights_of(checkpoint)
    save_checkpoint(checkpoint, tmp_path)
    for weight in model.parameters():
        weight.data.zero_()
    load_weights(checkpoint, tmp_path)
    torch.testing.assert_close(weights_of(checkpoint), before, rtol=0, atol=0)


class Hostile:
    """What runs when it is unpickled by one who trusts it."""

    def __reduce__(self):
        return Path.touch, (Path("it-ran"),)


def torn(path):
    path.write_bytes(b"torn")


def pickled(value):
    return lambda path: torch.save(value, path)


def changed(**fields):
    return lambda path: change(path, **fields)


def other_moments(path):
    moments = {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(1, 2, 3)}}
    torch.save({**torch.load(path, weights_only=True), "state": moments}, path)


@pytest.mark.parametrize(
    ("name", "break_it"),
    [
        *product(PICKLED, (pickled({"state": Hostile()}), pickled([1]), torn)),
        ("optimizer.pt", other_moments),
        ("scheduler.pt", pickled({"last_epoch": "x"})),
        (
            "scheduler.pt",
            pickled({"step": "x", "last_epoch": 1, "_step_count": 1, "_last_lr": [1]}),
        ),
        ("rng_state.pth", pickled({"python": 1, "numpy": 2, "cpu": 3})),
        ("model.safetensors", torn),
        ("trainer_state.json", lambda path: path.write_text("[1]")),
        ("trainer_state.json", changed(global_step="x")),
        ("trainer_state.json", changed(global_step=5)),
        ("trainer_state.json", changed(logging_steps=0)),
        ("trainer_state.json", changed(log_history=[{"loss": "x"}])),
        ("trainer_state.json", changed(stateful_callbacks={})),
        ("trainer_state.json", changed(unknown=1)),
    ],
)
def test_a_broken_or_hostile_file_is_refused_in_one_line_and_nothing_in_it_is_run(
    stopped, tmp_path, monkeypatch, name, break_it
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(stopped, "stopped")
    break_it(Path("stopped", "checkpoint-3", name))
    with pytest.raises(UserError) as raised:
        run(fresh_toy(shape=SMALL), Path("stopped"), resume=True)
    assert raised.value.where == "stopped/checkpoint-3"
    assert "\n" not in str(raised.value)
    assert not Path("it-ran").exists()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A training that was killed behind its first checkpoint."""
    folder = tmp_path_factory.mktemp("stopped")
    killed(fresh_toy(shape=SMALL), folder, QUICK, after=3)
    return folder


@pytest.mark.parametrize(
    ("keep", "kept"), [(0, ["checkpoint-3"]), (2, ["checkpoint-2", "checkpoint-3"])]
)
def test_so_many_checkpoints_stay_as_are_to_be_kept_and_one_until_training_has_ended(
    tmp_path, keep, kept
):
    hyper = replace(QUICK, max_steps=3, evaluations=3)
    run(fresh_toy(shape=SMALL), tmp_path, hyper, keep=keep)
    assert [path.name for path in checkpoints(tmp_path)] == kept
