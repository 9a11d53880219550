"""Devices and dtypes by name."""

from __future__ import annotations

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.device import DTYPES, choose_device, choose_dtype

CPU = torch.device("cpu")


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_where_there_is_no_gpu() -> None:
    assert choose_device() == CPU


@pytest.mark.usefixtures("one_gpu")
def test_auto_is_the_gpu_where_there_is_one() -> None:
    assert choose_device() == torch.device("cuda")
    assert choose_device("cuda:0") == torch.device("cuda:0")
    assert choose_device("cpu") == CPU


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_a_gpu_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name} is not here; use --device cpu$"):
        choose_device(name)


@pytest.mark.usefixtures("one_gpu")
def test_a_second_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match="cuda:1 is not here"):
        choose_device("cuda:1")


def test_apples_gpu_is_said_not_to_be_supported() -> None:
    with pytest.raises(UserError, match="Apple's GPU is not supported; use --device cpu"):
        choose_device("mps")


@pytest.mark.usefixtures("one_gpu")
@pytest.mark.parametrize("name", ["tpu", "", "cuda:x", "cuda:", "cuda:-1", "cuda:0:1", "cpu:zero", "CPU"])
def test_what_is_no_device_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(UserError, match=r"^there is no device '.*'; use auto, cpu, cuda or cuda:N$"):
        choose_device(name)


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "float16"])
def test_dtypes_of_the_cpu(name: str) -> None:
    assert choose_dtype(name, CPU) == getattr(torch, name)


def test_float16_is_for_gpus() -> None:
    assert choose_dtype("float16", torch.device("cuda")) == torch.float16
    with pytest.raises(UserError, match="float16 is not for the CPU; use bfloat16 or float32"):
        choose_dtype("float16", CPU)


def test_what_is_no_dtype_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match="there is no dtype 'int4'; use one of float32, bfloat16, float16"):
        choose_dtype("int4", CPU)
