"""What tests of several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the test runs in, with no workspace set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PIPEDEC_WORKSPACE", raising=False)
    return tmp_path
