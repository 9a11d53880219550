"""The user's cache folder: what can be made again, and is kept because making it takes seconds."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """The folder, which need not exist; a ValueError or RuntimeError if the environment names none."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not root.is_absolute():
        raise ValueError(f"XDG_CACHE_HOME is {str(root)!r}, not an absolute path")
    return root / "pipedec"


def is_safe(path: Path) -> bool:
    """Whether a file or folder exists, and only the user and root can have written it, by owner and mode."""
    with suppress(FileNotFoundError):
        state = path.stat()
        return state.st_uid in (0, os.geteuid()) and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return False
