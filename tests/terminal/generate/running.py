"""`pipedec generate` as the tests run it, and the rows that they give it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipedec_cli.data.errors import UserError
from pipedec_cli.terminal.app import app
from tests.checkpoints import TOLD

ROWS = [
    {
        "id": number,
        "source": source,
        "target": " ".join(told),
        "target_segments": list(told),
        "kept": {"a": [None]},
    }
    for number, (source, told) in enumerate(TOLD * 2)
]


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["generate", *map(str, arguments)], input=stdin, catch_exceptions=False)


def done(*arguments: object, stdin: str | bytes | None = None) -> Result:
    outcome = run(*arguments, stdin=stdin)
    assert outcome.exit_code == 0, outcome.stderr
    return outcome


def refused(*arguments: object, stdin: str | bytes | None = None) -> str:
    with pytest.raises(UserError) as raised:
        run(*arguments, stdin=stdin)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def lines(text: str | Path) -> list[dict[str, Any]]:
    """The objects of JSON lines, without the one thing that two runs may differ in."""
    content = text.read_text(encoding="utf-8") if isinstance(text, Path) else text
    rows = [json.loads(line) for line in content.splitlines()]
    for row in rows:
        assert row.pop("seconds") >= 0
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
