"""`pipedec segment` as the tests run it, and the data that they give it."""

from functools import partial
from pathlib import Path

from pipedec_cli.data.records import SPLITS
from pipedec_cli.data.workspace import load_segmentation, load_split
from tests.terminal import running
from tests.terminal.running import write_lines as write

__all__ = ["FACTS", "data_of", "examples", "refusal", "run", "segmentation", "write"]

FACTS = [
    "The pump is on.",
    "Dr. Lee checked it.",
    "It runs at 3.5 bar.",
    "The valve is open, too.",
    "It is late.",
]


def examples(count=40, **fields):
    return [{"source": f"case {i}", "target": " ".join(FACTS[: 3 + i % 3]), **fields} for i in range(count)]


run = partial(running.run, "segment", columns=120)
refusal = partial(running.refused, "segment")


def data_of(folder="pipedec-workspace/data"):
    return {name: load_split(Path(folder) / f"{name}.jsonl") for name in SPLITS}


def segmentation():
    return load_segmentation(Path("pipedec-workspace/data/segmentation.json"))
