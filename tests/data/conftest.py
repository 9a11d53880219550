"""Small files, made on the spot."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WriteLines = Callable[..., Path]


@pytest.fixture
def write_lines(tmp_path: Path) -> WriteLines:
    """Write text lines, or objects as JSON lines, to a file under the test's folder; gzipped if its name says so."""

    def write(name: str, *lines: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        content = text.encode("utf-8")
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write
