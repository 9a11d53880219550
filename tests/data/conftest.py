"""Small files, made on the spot."""

import gzip
import json

import pytest


@pytest.fixture
def write_lines(tmp_path):
    """Write text lines, or objects as JSON lines, to a file under the test's folder; gzipped if its name says so.

    A byte that is no UTF-8 is given as the surrogate that escapes it: ``\\udcff`` for
    0xff.
    """

    def write(name, *lines, end="\n"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(
            line if isinstance(line, str) else json.dumps(line) for line in lines
        )
        content = (text + end * bool(lines)).encode("utf-8", "surrogateescape")
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write
