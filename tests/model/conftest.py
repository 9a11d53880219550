"""Fixtures that the tests of the model share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipedec_cli.model.checkpoint import Checkpoint, save_checkpoint
from tests.checkpoints import fresh_toy, trained_toy
from tests.model.saving import SETTINGS


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The toy T5 as it was trained, saved and loaded again; its name is the folder. Not to be changed."""
    return trained_toy(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder as `pipedec train` leaves it."""
    folder = tmp_path / "saved"
    save_checkpoint(replace(fresh_toy(), settings=SETTINGS), folder)
    return folder


@pytest.fixture(params=["operators", "what is fastest here"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same test with torch's operators, and with compiled kernels where they can be had."""
    if request.param == "operators":
        monkeypatch.setenv("PIPEDEC_NATIVE", "0")
