"""What made a result: versions, machine, settings and the hashes of the data, to be saved beside it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.records import Record
from pipedec_cli.data.writing import record_fields, to_json

PACKAGES: Final = ("pipedec", "torch", "transformers", "tokenizers", "datasets", "nltk")


def make_manifest(settings: Mapping[str, Any], data: Mapping[str, str | None]) -> dict[str, Any]:
    """The manifest of one result. It holds no time of day: the same command on the same data writes the same.

    Args:
        settings: the resolved options, paths as strings.
        data: what was read, by name, each with its SHA-256 or None where there is none.
    """
    return {
        "versions": package_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "data": [{"path": name, "sha256": digest} for name, digest in data.items()],
        "settings": {name: _plain(value) for name, value in settings.items()},
    }


def package_versions() -> dict[str, str | None]:
    """The installed versions of what results depend on, read without importing any of it; None if not installed."""
    return {name: _version(name) for name in PACKAGES}


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def records_sha256(records: Iterable[Record]) -> str:
    """The SHA-256 of records as `write_records` writes them: for what came from standard input or the hub."""
    digest = hashlib.sha256()
    for record in records:
        digest.update((to_json(record_fields(record)) + "\n").encode())
    return digest.hexdigest()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
