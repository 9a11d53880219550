"""`pipedec generate` as the tests run it, and the rows that they give it."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from typer.testing import Result

from tests import running
from tests.checkpoints import TOLD
from tests.running import run, write_lines

ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "source": source,
        "target": " ".join(told),
        "target_segments": list(told),
        "kept": {"a": [None]},
    }
    for number, (source, told) in enumerate(TOLD * 2)
]


def done(*arguments: object, stdin: str | None = None) -> Result:
    return run("generate", *arguments, input=stdin)


refused = partial(running.refused, "generate")


def lines(text: str | Path) -> list[dict[str, Any]]:
    """The objects of JSON lines, without what two runs may differ in: the time, and how many examples it is of."""
    content = text.read_text(encoding="utf-8") if isinstance(text, Path) else text
    rows = [json.loads(line) for line in content.splitlines()]
    assert all(row.pop("seconds") >= 0 and row.pop("batch_size", 2) > 1 for row in rows)
    return rows


def printed(*arguments: object, stdin: str | None = None) -> list[dict[str, Any]]:
    """What goes to stdout, as JSON lines."""
    return lines(done(*arguments, stdin=stdin).stdout)


def written(name: str, *arguments: object) -> list[dict[str, Any]]:
    """What goes to a file of that name."""
    done(*arguments, "--out", name)
    return lines(Path(name))


def new_test_set(place: Path, *rows: dict[str, Any]) -> None:
    write_lines(place / "data" / "test.jsonl", *rows)
