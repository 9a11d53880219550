"""Settings to save a checkpoint with, and the refusal of one that cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Segmentation
from pipedec_cli.model.checkpoint import MethodSettings, load_checkpoint

SETTINGS = MethodSettings(
    decoder="pipelined",
    delay=2,
    segmentation=Segmentation("phrase", (";", " / "), "; ", sub_max=7),
    source_prefix="summarize: ",
    max_source_tokens=300,
    time_max=33,
)


def refused(name: str | Path) -> str:
    """The one line with which a checkpoint is refused."""
    with pytest.raises(UserError) as error:
        load_checkpoint(str(name))
    line = str(error.value)
    assert "\n" not in line
    assert len(line) < 400
    return line
