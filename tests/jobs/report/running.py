"""`pipedec report` as the tests run it, and what it leaves."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.checkpoints import change
from tests.running import read_json, run, write_lines

#: Keys that make a report quick.
FEW = ("timing_examples=3", "memory=false")
QUICK = (*(word for key in FEW for word in ("--set", key)), "--device", "cpu")
reported = partial(run, "report", *QUICK)


def write_data(
    place: Path, told: Sequence[tuple[str, Sequence[str]]], recipe: str | None = None
) -> None:
    rows = (
        {
            "id": str(number),
            "source": source,
            "target": " ".join(parts),
            "target_segments": list(parts),
        }
        for number, (source, parts) in enumerate(told)
    )
    write_lines(place / "data/test.jsonl", *rows)
    segmentation: dict[str, Any] = {
        "level": "sentence",
        "separators": [],
        "joiner": " ",
        "sub_max": 20,
    }
    segmentation["manifest"] = {"settings": {"recipe": recipe}}
    write_lines(place / "data/segmentation.json", segmentation)


def trained_with(model: Path, **settings: Any) -> None:
    """Let a checkpoint say that it was trained with these settings."""
    path = model / "config.json"
    change(path, pipedec={**read_json(path)["pipedec"], **settings})


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def options_of(entry: dict[str, Any]) -> str:
    """The options of an entry's `pipedec generate`."""
    return entry["command"].removeprefix("pipedec generate").strip()


def report_of(place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The report, and its decoders by name."""
    content = read_json(place / "report/report.json")
    return content, {entry["name"]: entry for entry in content["entries"]}
