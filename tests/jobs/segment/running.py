"""`pipedec segment` as the tests run it, and what it leaves."""

from functools import partial
from pathlib import Path

from pipedec_cli.data.records import SPLITS, Record, Segmentation
from pipedec_cli.data.workspace import load_segmentation, read_split
from tests import running

segment = partial(running.run, "segment", columns=120)
refusal = partial(running.refused, "segment")


def data_of(folder: str = "pipedec-workspace/data") -> dict[str, list[Record]]:
    return {name: [*read_split(Path(folder) / f"{name}.jsonl")] for name in SPLITS}


def segmentation() -> Segmentation:
    return load_segmentation(Path("pipedec-workspace/data/segmentation.json"))
