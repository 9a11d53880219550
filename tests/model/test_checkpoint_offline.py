"""The hub is asked for names that only it can know, and for nothing else."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from pipedec_cli.model.checkpoint import load_checkpoint, save_checkpoint
from tests.model.saving import refused


def test_a_hub_name_without_the_hub_is_one_line() -> None:
    """The tests run with HF_HUB_OFFLINE."""
    assert refused("google-t5/t5-none").startswith("cannot load the checkpoint google-t5/t5-none: ")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Attempts to reach the network, each of which fails; the hub's own offline switch is off."""
    made: list[str] = []

    def fail(*args: Any, **kwargs: Any) -> Any:
        made.append(repr(args))
        raise OSError("the network is not to be used")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, fail)
    monkeypatch.setattr(socket.socket, "connect", fail)
    return made


def test_a_local_folder_never_calls_the_hub(saved: Path, calls: list[str]) -> None:
    checkpoint = load_checkpoint(str(saved))
    save_checkpoint(checkpoint, saved)

    assert calls == []


@pytest.mark.parametrize(
    "missing", ["tokenizer.json", "tokenizer_config.json", "model.safetensors", "config.json"]
)
def test_a_broken_local_folder_never_calls_the_hub(saved: Path, calls: list[str], missing: str) -> None:
    (saved / missing).unlink()

    refused(saved)

    assert calls == []


def test_a_hub_name_that_cannot_be_reached_is_one_line(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the hub's client tries again, and waits

    assert refused("google-t5/t5-none").startswith("cannot load the checkpoint google-t5/t5-none: ")
    assert calls
