"""`pipedec segment` as the tests run it, and the data that they give it."""

import json
from pathlib import Path

from typer.testing import CliRunner

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import SPLITS
from pipedec_cli.data.workspace import load_split
from pipedec_cli.terminal.app import app

FACTS = [
    "The pump is on.",
    "Dr. Lee checked it.",
    "It runs at 3.5 bar.",
    "The valve is open, too.",
    "It is late.",
]


def write(name, *items):
    Path(name).write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return name


def examples(count=40, **fields):
    return [{"source": f"case {i}", "target": " ".join(FACTS[: 3 + i % 3]), **fields} for i in range(count)]


def run(*arguments, **options):
    environment = {"COLUMNS": "120", "NO_COLOR": "1"}
    return CliRunner().invoke(app, ["segment", *map(str, arguments)], env=environment, **options)


def refusal(*arguments):
    result = run(*arguments)
    assert isinstance(result.exception, UserError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def data_of(folder="pipedec-workspace/data"):
    return {name: load_split(Path(folder) / f"{name}.jsonl") for name in SPLITS}
