"""Packed weights in the user's cache: mapped by all processes that use them, and packed once."""

import fcntl
import hashlib
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from pipedec_cli.data.cache import cache_folder, is_own, make_own_folder
from pipedec_cli.data.errors import log
from pipedec_cli.data.trained import UNFINISHED
from pipedec_cli.model.notes import known_sha256, remembered_sha256, state_of

#: The environment variable for the most GB of packed weights in the cache; 0: none.
VARIABLE: Final = "PIPEDEC_CACHE_GB"
_USUAL_GB: Final = 30.0
#: Weights of fewer bytes are packed anew each time.
FEWEST_BYTES: Final = 1 << 26
#: Bytes that stay free on the disk.
_SPARE: Final = 1 << 30
#: How far a thread that keeps packed weights stands back behind those that decode.
_NICENESS: Final = 10
#: The threads that keep packed weights now.
_KEEPING: Final = list[threading.Thread]()


def most_bytes() -> int:
    """The most bytes of packed weights in the cache."""
    try:
        return int(float(os.environ.get(VARIABLE) or _USUAL_GB) * 1e9)
    except (ValueError, OverflowError):
        return int(_USUAL_GB * 1e9)


def place_of(files: Sequence[Path], facts: str) -> Path | None:
    """The file in the cache for the packed weights of some files; `facts` say how they are packed. None without a cache."""
    if not most_bytes():
        return None
    sums = [remembered_sha256(file) for file in files]
    name = hashlib.sha256("\n".join([*sums, facts]).encode()).hexdigest()[:32]
    try:
        return cache_folder() / "packed" / f"{name}.bin"
    except (ValueError, RuntimeError):
        return None


class Packed:
    """The packed weights of files in the cache, whether they are there or not.

    To read gigabytes for their SHA-256 takes seconds. It is put off until the weights
    are packed, where nothing in the cache can be what is looked for.
    """

    def __init__(self, files: Sequence[Path], facts: str, size: int) -> None:
        """Look for packed weights of so many bytes; `facts` say how they are packed."""
        self._files = files
        self._facts = facts
        self._size = size
        self._states = [state_of(file) for file in files]

    def find(self) -> Tensor | None:
        """The packed weights, mapped; None if they are not there."""
        if not most_bytes() or not self._may_be_there():
            return None
        place = place_of(self._files, self._facts)
        return load(place, self._size) if place else None

    def _may_be_there(self) -> bool:
        """Whether all files were hashed before, or something of this size is in the cache."""
        if all(known_sha256(file) for file in self._files):
            return True
        with suppress(OSError, ValueError, RuntimeError):
            for kept in (cache_folder() / "packed").glob("*.bin"):
                if kept.stat().st_size == self._size:
                    return True
        return False

    def keep(self, packed: Tensor) -> None:
        """Keep weights that were packed, while other work goes on; see `settle`."""
        if not most_bytes():
            return
        thread = threading.Thread(target=self._keep, args=[packed])
        _KEEPING.append(thread)
        thread.start()

    def _keep(self, packed: Tensor) -> None:
        """Keep packed weights. What was packed of files that have changed meanwhile is not kept."""
        with suppress(OSError):  # not every system has a niceness of a thread
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        try:
            place = place_of(self._files, self._facts)
            states = [state_of(file) for file in self._files]
        except OSError as error:
            log.info(f"the packed weights are not kept: {error}")
            return
        if place and states == self._states:
            keep(place, packed)


def settle() -> None:
    """Wait until all packed weights are kept. At its end a process waits by itself."""
    while _KEEPING:
        _KEEPING.pop().join()


def load(place: Path, size: int) -> Tensor | None:
    """The packed weights, mapped; None if they are not there, or are not of this size, or may be another user's."""
    try:
        if not is_own(place) or place.stat().st_size != size:
            return None
        with place.open("rb") as file:
            # The kernels only read: pages are shared by all processes.
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        os.utime(place)  # the least recently used go first
    except OSError:
        return None
    return torch.frombuffer(memory, dtype=torch.uint8)


def keep(place: Path, packed: Tensor) -> None:
    """Write packed weights, uint8 [bytes], to a file in the cache, whole or not at all.

    Where there is no room they are not kept, which is logged.
    """
    size = len(packed)
    try:
        if not make_own_folder(place.parent):
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
    """Delete the least recently used packed weights of a folder until there is room for so many bytes more."""
    states = {file: file.stat() for file in folder.glob("*.bin")}
    total = sum(state.st_size for state in states.values())
    for file in sorted(states, key=lambda file: states[file].st_mtime_ns):
        if total + size <= most_bytes():
            return
        total -= states[file].st_size
        file.unlink(missing_ok=True)
