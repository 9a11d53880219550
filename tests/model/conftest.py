"""Fixtures that the tests of the model share."""

from __future__ import annotations

import pytest

from pipedec_cli.model.checkpoint import Checkpoint
from tests.checkpoints import trained_toy


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The toy T5 as it was trained, saved and loaded again; its name is the folder. Not to be changed."""
    return trained_toy(tmp_path_factory.mktemp("trained"))


@pytest.fixture(params=["operators", "what is fastest here"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same test with torch's operators, and with compiled kernels where they can be had."""
    if request.param == "operators":
        monkeypatch.setenv("PIPEDEC_NATIVE", "0")
