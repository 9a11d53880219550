"""What made a result: versions, machine, settings and the hashes of the data, to be saved beside it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("pipedec", "torch", "transformers", "tokenizers", "datasets", "nltk")


def manifest(settings: Mapping[str, Any], *, inputs: Iterable[Path | str] = ()) -> dict[str, Any]:
    """The manifest of one result. It holds no time of day: the same command on the same data writes the same.

    Args:
        settings: the resolved options; paths are written as strings.
        inputs: what was read. Files get their SHA-256; standard input, folders and hub data sets have none.
    """
    return {
        "versions": package_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "inputs": [
            {"path": str(path), "sha256": file_sha256(Path(path)) if Path(path).is_file() else None}
            for path in inputs
        ],
        "settings": {name: _plain(value) for name, value in settings.items()},
    }


def package_versions() -> dict[str, str | None]:
    """The installed versions of what results depend on, read without importing any of it; None if not installed."""
    return {name: _version(name) for name in PACKAGES}


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
