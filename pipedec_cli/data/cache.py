"""The user's cache: a folder in which this user alone writes. What another user may have put there is not taken."""

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


def make_own_folder(folder: Path) -> bool:
    """Make a folder of the cache, for this user alone. Returns whether nobody else can write in it."""
    for path in (cache_folder(), folder):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return _is_safe(folder)


def is_own(path: Path) -> bool:
    """Whether a file or folder of the cache exists, and neither it nor its folder can have been written by another user.

    A link is not taken: others may write where it leads to.
    """
    return not path.is_symlink() and _is_safe(path) and _is_safe(path.parent)


def _is_safe(path: Path) -> bool:
    """Whether a path exists, and only this user and root can have written it, by owner and mode."""
    with suppress(FileNotFoundError):
        state = path.stat()
        others_write = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return state.st_uid in (0, os.geteuid()) and not others_write
    return False
