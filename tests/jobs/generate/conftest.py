"""A workspace after `segment` and both trainings, for the tests of `pipedec generate`."""

from pathlib import Path

import pytest

from tests.checkpoints import tiny_checkpoint
from tests.jobs.generate.running import ROWS, new_test_set


@pytest.fixture(scope="package")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tiny_checkpoint(folder / "pipelined")
    tiny_checkpoint(folder / "sequential", decoder="sequential", level="sentence")
    tiny_checkpoint(folder / "delay1", delay=1)
    return folder


@pytest.fixture
def place(empty_folder: Path, models: Path) -> Path:
    """A workspace after `segment` and both trainings, in the folder where commands run."""
    root = empty_folder / "pipedec-workspace"
    new_test_set(root, *ROWS)
    (root / "models").mkdir()
    for decoder in ("pipelined", "sequential"):
        (root / "models" / decoder).symlink_to(models / decoder)
    return root
