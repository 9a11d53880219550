"""Commands as the tests run them, and the JSON lines that go in and come out."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipedec_cli.cli.app import app
from pipedec_cli.data.errors import UserError

#: A parameter whose test takes long, beside others of the same test that stay in the default set.
slow = partial(pytest.param, marks=pytest.mark.slow)


def extra(module: str, value: object = None) -> Any:
    """A parameter whose tests need a module that not everybody has; by default its name."""
    return pytest.param(value or module, marks=pytest.mark.extra(module))


def run(*arguments: object, columns: int = 100, exit_code: int = 0, **options: Any) -> Result:
    """A command line that must succeed, or end as it is to, unless it raises."""
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    result = CliRunner().invoke(
        app, list(map(str, arguments)), env=environment, catch_exceptions=False, **options
    )
    assert result.exit_code == exit_code, result.output
    return result


def refused(*arguments: object, **options: Any) -> str:
    """The one line that a command line is refused with."""
    with pytest.raises(UserError) as raised:
        run(*arguments, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def write_lines(path: str | Path, *rows: dict[str, Any]) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Path(path)


def lines_of(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def read_json(path: str | Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))
