"""A training that is resumed ends as if it had never stopped."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import Checkpoint, load_checkpoint
from pipedec_cli.model.collate import Encoded
from pipedec_cli.model.training import Progress, train
from tests.checkpoints import QUICK, SMALL, examples_of, fresh_toy, weights_of
from tests.model.families import Kind, small_model


def assert_equal_weights(one: Checkpoint, other: Checkpoint) -> None:
    torch.testing.assert_close(weights_of(one), weights_of(other), rtol=1e-5, atol=1e-6)


class KilledError(Exception):
    """What stops a training in its midst."""


def killed_after(step: int) -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        if progress.step > step:
            raise KilledError

    return show


@pytest.mark.parametrize(
    "examples", [7, 6, 3], ids=["within an epoch", "between epochs", "an epoch an update"]
)
@pytest.mark.parametrize("optimizer", ["adafactor", "adamw"])
def test_a_killed_training_that_is_resumed_ends_as_an_undisturbed_one(
    tmp_path: Path, examples: int, optimizer: Literal["adamw", "adafactor"]
) -> None:
    """The same examples in the same order, the same schedules, the same dropout: the same weights."""
    hyper = replace(QUICK, max_steps=8, evaluations=2, optimizer=optimizer)  # checkpoints at 4 and 8
    undisturbed = fresh_toy(shape=SMALL)
    train(undisturbed, examples_of(undisturbed)[:examples], [], tmp_path / "whole", hyper)
    killed = fresh_toy(shape=SMALL)
    with pytest.raises(KilledError):
        train(killed, examples_of(killed)[:examples], [], tmp_path / "killed", hyper, show=killed_after(4))
    torch.manual_seed(99)  # another process, another chance
    resumed = fresh_toy(shape=SMALL)
    outcome = train(resumed, examples_of(resumed)[:examples], [], tmp_path / "killed", hyper, resume=True)
    assert outcome["updates"] == 8
    assert_equal_weights(resumed, undisturbed)
    assert_equal_weights(load_checkpoint(str(tmp_path / "killed")), undisturbed)


@pytest.mark.parametrize("kind", ["gated", "umt5"])
def test_resuming_keeps_an_output_matrix_of_its_own(tmp_path: Path, kind: Kind) -> None:
    """v1.1, Flan-T5, mT5 and UMT5 have one, although transformers' config calls them tied."""

    def fresh() -> Checkpoint:
        model = copy.deepcopy(small_model(kind))
        if kind == "umt5":
            model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() + 1)
        return replace(fresh_toy(), model=model)

    examples = [Encoded([5, 7 + n, 1], ([9, 10 + n], [11])) for n in range(5)]
    undisturbed = fresh()
    train(undisturbed, examples, [], tmp_path / "whole", QUICK)
    with pytest.raises(KilledError):
        train(fresh(), examples, [], tmp_path / "killed", QUICK, show=killed_after(3))
    resumed = fresh()
    train(resumed, examples, [], tmp_path / "killed", QUICK, resume=True)
    assert not resumed.model.lm_head.weight.equal(resumed.model.shared.weight)
    assert_equal_weights(resumed, undisturbed)


def test_what_is_not_whole_or_of_another_shape_or_not_there_is_not_resumed_from(tmp_path: Path) -> None:
    checkpoint, deeper = (fresh_toy(shape=SMALL._replace(layers=layers)) for layers in (2, 3))
    examples = examples_of(checkpoint)
    with pytest.raises(UserError, match="nothing to resume"):
        train(checkpoint, examples, [], tmp_path, QUICK, resume=True)
    train(checkpoint, examples, [], tmp_path, replace(QUICK, max_steps=4))
    half = tmp_path / "checkpoint-5"  # which was being written when the training was killed
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    with pytest.raises(RuntimeError, match="Missing key"):
        train(deeper, examples, [], tmp_path, QUICK, resume=True)
    assert train(fresh_toy(shape=SMALL), examples, [], tmp_path, QUICK, resume=True)["updates"] == 6


@pytest.mark.slow
def test_two_processes_train_one_model_and_resume_it(tmp_path: Path) -> None:
    """As torchrun starts them: one of them talks and writes, both end with the same weights, a resumed run too."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    subprocess.run(
        [sys.executable, *launch, "-m", "tests.model.two_processes", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    first, second = (
        json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)
    )
    assert first["shown"] == [1, 2, 3, 3, 4, 5, 6, 6]
    assert second["shown"] == []
    whole, resumed = first["weights"]
    assert second["weights"] == [whole, resumed]
    assert resumed == pytest.approx(whole, rel=1e-6)
