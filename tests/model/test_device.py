"""Devices, dtypes and batch sizes: by name, or by what there is room for."""

from __future__ import annotations

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.decoder import (
    DTYPES,
    MOST_ON_CPU,
    bytes_per_example,
    choose_batch_size,
    choose_device,
    choose_dtype,
)
from tests.checkpoints import fresh_toy

CPU = torch.device("cpu")
NO_DEVICES = ["tpu", "", "cuda:x", "cuda:", "cuda:-1", "cuda:0:1", "cpu:zero", "CPU"]


@pytest.mark.parametrize(
    ("gpus", "name", "chosen"),
    [
        (0, "auto", "cpu"),
        (1, "auto", "cuda"),
        (1, "cuda:0", "cuda:0"),
        (1, "cpu", "cpu"),
        (0, "cuda", "cuda is not here; use --device cpu"),
        (0, "cuda:0", "cuda:0 is not here; use --device cpu"),
        (1, "cuda:1", "cuda:1 is not here; use --device cpu"),
        (1, "mps", "Apple's GPU is not supported; use --device cpu"),
        *((1, name, f"there is no device {name!r}; use auto, cpu, cuda or cuda:N") for name in NO_DEVICES),
    ],
)
def test_a_device_is_chosen_by_name_or_by_what_there_is_or_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, gpus: int, name: str, chosen: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    try:
        found = str(choose_device(name))
    except UserError as error:
        found = str(error)
    assert found == chosen


def test_dtypes_are_chosen_by_name_and_float16_is_for_gpus() -> None:
    assert [choose_dtype(name, torch.device("cuda")) for name in DTYPES] == [*DTYPES.values()]
    assert choose_dtype("bfloat16", CPU) == torch.bfloat16
    with pytest.raises(UserError, match="float16 is not for the CPU; use bfloat16 or float32"):
        choose_dtype("float16", CPU)
    with pytest.raises(UserError, match="there is no dtype 'int4'; use one of float32, bfloat16, float16"):
        choose_dtype("int4", CPU)


def test_the_batch_size_is_bounded_by_the_examples_and_the_machine() -> None:
    model = fresh_toy().model
    assert choose_batch_size(model, 100, 3) == 3
    assert choose_batch_size(model, 100, 10_000) == MOST_ON_CPU
    assert choose_batch_size(model, 1_000_000, 10_000) == 1  # more memory than there is
    short, long = bytes_per_example(model, 128), bytes_per_example(model, 2048)
    assert 0 < short < long / 16  # the scores of the encoder grow with the square
