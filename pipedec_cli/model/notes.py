"""What the user's cache remembers of large files, so that each is read for it once: its SHA-256, and that its weights are finite."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipedec_cli.data.cache import cache_folder, is_own, make_own_folder
from pipedec_cli.data.writing import file_sha256, write_text

#: Files of fewer bytes are read each time.
_FEWEST_BYTES: Final = 1 << 24
_FINITE: Final = "finite"


def remembered_sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes."""
    known = known_sha256(file)
    if known is None:
        known = file_sha256(file)
        _note(file, "sha256", known)
    return known


def known_sha256(file: Path) -> str | None:
    """The SHA-256 of a file's bytes, if it was remembered. Nothing is read but the note."""
    return _note_of(file, "sha256")


def state_of(file: Path) -> Sequence[object]:
    """What changes when a file is written to, or another file takes its place."""
    state = file.stat()
    times = state.st_mtime_ns, state.st_ctime_ns
    return [os.path.realpath(file), state.st_size, *times, state.st_ino]


def is_finite(file: Path) -> bool:
    """Whether it is known that no float of a file's weights is NaN or infinite."""
    return _note_of(file, _FINITE) == _FINITE


def note_finite(file: Path) -> None:
    """Remember that no float of a file's weights is NaN or infinite."""
    _note(file, _FINITE, _FINITE)


def _place(file: Path, what: str) -> Path:
    """The file of a note. Its name changes with the size, the times and the place of what is noted."""
    facts = [what, *state_of(file)]
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
