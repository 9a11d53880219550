"""Folders of models in the user's cache, in the form that the present transformers writes."""

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pipedec_cli.data.cache import cache_folder, is_own, make_own_folder
from pipedec_cli.data.trained import UNFINISHED
from pipedec_cli.model.pretrained import quiet

#: The sizes and times of all files of a folder. It is written last.
_FILES: Final = ".files"
#: Seconds after which an unfinished folder belongs to no process that is still alive.
_ABANDONED: Final = 86_400


def kept_folder(name: str, write: Callable[[Path], None]) -> Path:
    """The folder of that name in the cache of models: written now if it was not written before, as a whole or not at all.

    It is written beside its place, and moved there at the end. Any error of `write`; an
    OSError if the folder cannot be written.
    """
    folder = cache_folder() / "models" / name
    if _is_whole(folder):
        return folder
    make_own_folder(folder.parent)
    _remove_abandoned(folder.parent)
    with TemporaryDirectory(dir=folder.parent, prefix=UNFINISHED) as unfinished:
        made = Path(unfinished) / "model"
        made.mkdir(mode=0o700)
        with quiet():
            write(made)
        for path in made.iterdir():
            with path.open("rb") as written:
                os.fsync(written.fileno())
        # The list of files comes after all of them are on disk.
        states = {path.name: _size_and_time(path) for path in made.iterdir()}
        (made / _FILES).write_text(json.dumps(states), encoding="utf-8")
        with suppress(OSError):  # another process was faster, and reads it already
            made.rename(folder)
        if not _is_whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    return folder


def _remove_abandoned(folder: Path) -> None:
    """Remove from a folder the unfinished folders of processes that ended long ago."""
    for left in folder.glob(f"{UNFINISHED}*"):
        if time.time() - left.stat().st_mtime > _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)


def _size_and_time(path: Path) -> list[int]:
    state = path.stat()
    return [state.st_size, state.st_mtime_ns]


def _is_whole(folder: Path) -> bool:
    """Whether a folder in the cache is the user's own and has all files that were written, unchanged."""
    with suppress(OSError, ValueError, AttributeError):
        listed = json.loads((folder / _FILES).read_text(encoding="utf-8"))
        states = {name: _size_and_time(folder / name) for name in listed}
        return states == listed and is_own(folder)
    return False
