"""Commands as the tests run them, and the JSON lines that go in and come out."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipedec_cli.cli.app import app
from tests.words import refusing

#: A user who owns nothing.
NOBODY = 65_534
#: A parameter whose test takes long, beside others of the same test that stay in the
#: default set.
slow = partial(pytest.param, marks=pytest.mark.slow)


def extra(module: str, value: object = None) -> Any:
    """A parameter whose tests need a module that not everybody has; by default its name."""
    return pytest.param(value or module, marks=pytest.mark.extra(module))


def run(
    *arguments: object, columns: int = 100, exit_code: int = 0, **options: Any
) -> Result:
    """A command line that must succeed, or end as it is to, unless it raises."""
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    result = CliRunner().invoke(
        app,
        list(map(str, arguments)),
        env=environment,
        catch_exceptions=False,
        **options,
    )
    assert result.exit_code == exit_code, result.output
    return result


def refused(*arguments: object, **options: Any) -> str:
    """The one line that a command line is refused with; its words are those of its entry in words.txt."""
    with refusing() as raised:
        run(*arguments, **options)
    return str(raised.value)


def write_lines(path: str | Path, *rows: dict[str, Any]) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    return Path(path)


def generated(workspace: Path, name: str) -> Path:
    """The predictions of that name and a hash in a workspace."""
    (path,) = (workspace / "generations").glob(f"{name}-{'[0-9a-f]' * 8}.jsonl")
    return path


def lines_of(path: str | Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()
    ]


def read_json(path: str | Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A new folder of a user who is not root, and may read and write what permissions say. Root becomes that user."""
    is_root = os.geteuid() == 0
    with TemporaryDirectory(dir="/tmp") as folder:
        if not is_root:
            yield Path(folder)
            return
        os.chown(folder, NOBODY, -1)
        os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield Path(folder)
        finally:
            os.setresuid(0, 0, 0)


def run_trial(name, *arguments):
    """Run a script of tests/trials in a process of its own, since it forks or sends signals; what it wrote. It has to end well."""
    program = [sys.executable, "-m", f"tests.trials.{name}", *arguments]
    root = Path(__file__).parents[1]
    ended = subprocess.run(
        program, capture_output=True, text=True, check=False, cwd=root
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
