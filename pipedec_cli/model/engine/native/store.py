"""Packed weights in the user's cache: mapped by all processes that use them, and packed once."""

import fcntl
import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from pipedec_cli.data.errors import log
from pipedec_cli.data.trained import UNFINISHED
from pipedec_cli.data.writing import cache_folder, is_safe
from pipedec_cli.model.notes import remembered_sha256

#: The environment variable for the most GB of packed weights in the cache; 0: none.
VARIABLE: Final = "PIPEDEC_CACHE_GB"
_USUAL_GB: Final = 30.0
#: Weights of fewer bytes are packed anew each time.
FEWEST_BYTES: Final = 1 << 26
#: Bytes that stay free on the disk.
_SPARE: Final = 1 << 30


def most_bytes() -> int:
    """The most bytes of packed weights in the cache."""
    try:
        return int(float(os.environ.get(VARIABLE) or _USUAL_GB) * 1e9)
    except (ValueError, OverflowError):
        return int(_USUAL_GB * 1e9)


def place_of(files: Sequence[Path], facts: str) -> Path | None:
    """Where the packed weights of files are; `facts` say how they are packed. None without a cache."""
    if not most_bytes():
        return None
    sums = [remembered_sha256(file) for file in files]
    name = hashlib.sha256("\n".join([*sums, facts]).encode()).hexdigest()[:32]
    try:
        return cache_folder() / "packed" / f"{name}.bin"
    except (ValueError, RuntimeError):
        return None


def load(place: Path, size: int) -> Tensor | None:
    """The packed weights, mapped; None if they are not there, or are not of this size, or may be another user's."""
    try:
        if place.is_symlink() or not is_safe(place) or not is_safe(place.parent):
            return None
        if place.stat().st_size != size:
            return None
        with place.open("rb") as file:
            # The kernels only read: pages are shared by all processes.
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        os.utime(place)  # the least recently used go first
    except OSError:
        return None
    return torch.frombuffer(memory, dtype=torch.uint8)


def keep(place: Path, packed: Tensor) -> None:
    """Write packed weights, whole or not at all. Where there is no room they are not kept, which is said."""
    size = len(packed)
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_safe(place.parent):
            return
        _remove_abandoned(place.parent)
        _make_room(place.parent, size)
        free = shutil.disk_usage(place.parent).free
        if size > most_bytes() or free < size + _SPARE:
            log.info(
                f"no room to keep the packed weights in {place.parent}: they are packed at each start"
            )
            return
        with tempfile.NamedTemporaryFile(
            dir=place.parent, prefix=UNFINISHED, delete=False
        ) as file:
            unfinished = Path(file.name)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(packed.numpy().data)
                file.flush()
                os.fsync(file.fileno())
                unfinished.replace(place)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
    except OSError as error:
        log.info(f"the packed weights are not kept: {error}")


def _remove_abandoned(folder: Path) -> None:
    """Delete what processes that are gone have left half written: a living one has locked its file."""
    for left in folder.glob(f"{UNFINISHED}*"):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _make_room(folder: Path, size: int) -> None:
    """Delete the least recently used files until there is room for so many bytes more."""
    states = {file: file.stat() for file in folder.glob("*.bin")}
    total = sum(state.st_size for state in states.values())
    for file in sorted(states, key=lambda file: states[file].st_mtime_ns):
        if total + size <= most_bytes():
            return
        total -= states[file].st_size
        file.unlink(missing_ok=True)
