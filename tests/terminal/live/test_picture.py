"""The picture of the grid for the documentation."""

from __future__ import annotations

import json
from pathlib import Path

from pipedec_cli.data.workspace import Workspace
from pipedec_cli.terminal.live import draw_picture
from tests.checkpoints import TOLD, tiny_checkpoint


def test_the_picture_shows_a_models_own_run_and_comes_out_the_same_each_time(tmp_path: Path) -> None:
    place = Workspace(tmp_path / "work")
    tiny_checkpoint(place.model("pipelined"))
    source, told = TOLD[3]
    place.data.mkdir()
    (place.data / "test.jsonl").write_text(
        json.dumps({"id": "a", "source": source, "target": " ".join(told), "target_segments": told}) + "\n",
        encoding="utf-8",
    )
    drawn = []
    for _ in range(2):
        draw_picture(tmp_path / "live-grid.svg", place.root, steps=5)
        drawn.append((tmp_path / "live-grid.svg").read_text(encoding="utf-8"))

    assert drawn[0] == drawn[1]
    assert drawn[0].startswith("<svg")
    assert "in&#160;this&#160;step" in drawn[0], "it is drawn mid-decoding"
    assert "rating[5" in drawn[0]
