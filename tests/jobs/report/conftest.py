"""A workspace after `segment` and both trainings, for the tests of `pipedec report`."""

import shutil
from pathlib import Path

import pytest

from pipedec_cli.compare import timing
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.jobs.report.running import write_data


@pytest.fixture(scope="package")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two decoders, trained alike."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tiny_checkpoint(folder / "pipelined", level="sentence")
    tiny_checkpoint(folder / "sequential", decoder="sequential", level="sentence")
    return folder


@pytest.fixture
def workspace(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch, checkpoints: Path
) -> Path:
    monkeypatch.setattr(timing, "PAUSE_SECONDS", 0.0)
    place = Path("pipedec-workspace")
    shutil.copytree(checkpoints, place / "models")
    write_data(place, TOLD * 2)
    shutil.copy(place / "models/pipelined/sentences.json", place / "data")
    return place
