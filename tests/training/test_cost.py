"""What a training takes is known before its first update, and too little disk or memory is refused."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
import torch

from pipedec_cli.training.cost import (
    BatchTooLargeError,
    run_longest,
    training_disk,
)
from pipedec_cli.training.encoded import Encoded
from tests.checkpoints import QUICK, examples_of, fresh_toy, weights_of
from tests.words import refusing


def name(number):
    return f"n° {number}"


@pytest.mark.parametrize(
    ("keep", "weights", "folders"), [(2, "best", 3), (0, "best", 3), (0, "last", 2)]
)
def test_the_disk_is_that_of_the_weights_and_the_checkpoints(keep, weights, folders):
    checkpoint = fresh_toy()
    size = 4 * checkpoint.model.num_parameters()
    disk = training_disk(checkpoint, replace(QUICK, keep=weights), keep)
    # AdamW's two moments are beside the weights in each folder, and one more is
    # written before the oldest is removed.
    assert disk == (3 * size, size + folders * 3 * size)


@pytest.fixture
def checkpoint():
    return fresh_toy()


@pytest.fixture
def examples(checkpoint):
    """The third is the longest."""
    usual = examples_of(checkpoint)
    return [*usual[:2], Encoded([5] * 4, ([6] * 60,)), *usual]


def test_the_longest_batch_runs_and_leaves_the_model_as_it_was(checkpoint, examples):
    seen = []
    before = weights_of(checkpoint)
    checkpoint.model.encoder.register_forward_pre_hook(
        lambda module, args, inputs: seen.append(inputs["input_ids"].tolist()),
        with_kwargs=True,
    )
    run_longest(checkpoint, examples, QUICK, name=name)
    assert seen == [[[5] * 4] * QUICK.batch_size]
    after = weights_of(checkpoint)
    assert all(tensor.equal(before[key]) for key, tensor in after.items())
    assert all(parameter.grad is None for parameter in checkpoint.model.parameters())


def test_a_batch_that_runs_out_of_memory_is_refused_by_its_record(
    checkpoint, examples, monkeypatch
):
    error = torch.OutOfMemoryError("CUDA")
    monkeypatch.setattr(torch.Tensor, "backward", Mock(side_effect=error))
    with refusing() as raised:
        run_longest(checkpoint, examples, QUICK, name=name)
    assert isinstance(raised.value, BatchTooLargeError)
    assert raised.value.where == name(2)
    assert all(parameter.grad is None for parameter in checkpoint.model.parameters())


@pytest.mark.parametrize(
    ("longest", "batch_size", "free"),
    [
        (Encoded([5] * 4, ([6] * 60_000,)), 3, 10**9),
        (Encoded([5] * 2_000, ([6] * 8,)), 100, 10**9),
        (Encoded([5], ([6],)), 1, 10**5),
    ],
)
def test_what_does_not_fit_the_memory_is_refused_before_anything_is_computed(
    checkpoint, examples, monkeypatch, longest, batch_size, free
):
    memory = SimpleNamespace(available=free)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    checkpoint.model.forward = Mock(side_effect=AssertionError)
    examples[2] = longest
    hyper = replace(QUICK, batch_size=batch_size)
    with refusing() as raised:
        run_longest(checkpoint, examples, hyper, name=name)
    assert raised.value.where in (name(2), None)
    assert not isinstance(raised.value, BatchTooLargeError), "it is an estimate"
