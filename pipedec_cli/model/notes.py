"""What the user's cache remembers of large files, so that each is read for it once: its SHA-256, and that its weights are finite."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipedec_cli.data.cache import cache_folder, is_own, make_own_folder
from pipedec_cli.data.writing import file_sha256, write_text

#: Files of fewer bytes are read each time.
_FEWEST_BYTES: Final = 1 << 24
_FINITE: Final = "finite"


def remembered_sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, as it was noted, or else computed now and noted."""
    noted = _note_of(file, "sha256")
    if noted is None:
        noted = file_sha256(file)
        _note(file, "sha256", noted)
    return noted


def is_finite(file: Path) -> bool:
    """Whether it is known that no float of a file's weights is NaN or infinite."""
    return _note_of(file, _FINITE) == _FINITE


def note_finite(file: Path) -> None:
    """Remember that no float of a file's weights is NaN or infinite."""
    _note(file, _FINITE, _FINITE)


def _place(file: Path, what: str) -> Path:
    """The file in the cache for a note of this kind (`what`) on a file; another one if that file has changed.

    Its name is made of the size, the times and the path of the file.
    """
    state = file.stat()
    times = state.st_mtime_ns, state.st_ctime_ns
    facts = [what, os.path.realpath(file), state.st_size, *times, state.st_ino]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return cache_folder() / "notes" / name


def _note_of(file: Path, what: str) -> str | None:
    """What was noted of this kind on a file; None if nothing was, or if another user may have written it."""
    with suppress(OSError, ValueError, RuntimeError):
        place = _place(file, what)
        if is_own(place):
            return place.read_text(encoding="ascii")
    return None


def _note(file: Path, what: str, text: str) -> None:
    """Note a text of this kind (`what`) on a file, if that is large and there is a cache."""
    with suppress(OSError, ValueError, RuntimeError):
        if file.stat().st_size < _FEWEST_BYTES:
            return
        place = _place(file, what)
        make_own_folder(place.parent)
        write_text(place, text)
