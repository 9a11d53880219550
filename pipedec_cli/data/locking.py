"""One writer at a time. A lock ends with its process, however the process ends.

A lock is flock's, on a hidden file of its own: the file that is written gets a new inode when it is renamed into place. The
hidden file says who holds the lock. It is removed in the end; one that a killed process left blocks nobody. The library
`filelock` would leave its file there, not say who holds it, and fail where a network file system has no locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from secrets import token_hex
from time import strftime
from typing import Final

from pipedec_cli.data.errors import UserError, naming
from pipedec_cli.data.reading import real

#: What a file system without locks answers.
_UNSUPPORTED: Final = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
#: The most bytes that a lock file holds.
_LONGEST: Final = 400


@contextmanager
def only_writer(
    path: Path, *, todo: str, folder: bool = False, warn: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Be the only one that writes to a file or a `folder`.

    A `UserError` if there is another writer: it says who, and what `todo`. The folder is made if need be, and removed again
    if it is still empty. `warn` is called where the file system has no locks. Nothing is locked where nothing can be written.
    """
    path = real(path)
    lock = path / ".lock" if folder else path.with_name(f".{path.name}.lock")
    made = not lock.parent.exists()
    lock.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if os.access(lock.parent, os.W_OK):
            with naming(path, instead=True):
                file, got_it = _lock(lock)
            held.callback(os.close, file)
            if got_it is None:
                warn(f"there are no locks in {lock.parent}: make sure that no other command writes to {path}")
            if got_it is False:
                told = " ".join(os.pread(file, _LONGEST, 0).decode(errors="replace").split())
                what = f"is being written by {told if told.startswith('process ') else 'another process'}"
                raise UserError(what, where=str(path), todo=f"wait for it, or {todo}")
            held.callback(_remove, lock, folder=made)  # before it is released: then it may be another's
            os.truncate(file, 0)
            os.pwrite(file, _this_process(), 0)
        yield


def _this_process() -> bytes:
    command = shlex.join(["pipedec", *sys.argv[1:]])[:100]
    told = f"process {os.getpid()} on {socket.gethostname()} since {strftime('%Y-%m-%d %H:%M')} ({command})"
    return told.encode(errors="replace")[:_LONGEST]


def _remove(lock: Path, *, folder: bool) -> None:
    with suppress(OSError):
        lock.unlink()
        if folder:
            lock.parent.rmdir()  # fails if the folder holds anything


def new_file(path: Path) -> tuple[Path, int]:
    """A new hidden file beside a path, to be written and then renamed to it; and its descriptor, which holds its lock.

    Such files that killed processes left are removed.
    """
    for left in path.parent.glob(f".{escape(path.name)}.*.partial"):
        with suppress(OSError):
            file, got_it = _lock(left)
            if got_it:
                left.unlink()
            os.close(file)
    while True:
        temporary = path.with_name(f".{path.name}.{token_hex(4)}.partial")
        file, got_it = _lock(temporary)
        if got_it is not False:  # False: another process is removing it as left over
            return temporary, file
        os.close(file)


def _lock(path: Path) -> tuple[int, bool | None]:
    """Open a file, made if need be, and try its lock: whether that succeeded, or None where there are no locks."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return file, False
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(file)
                raise
            return file, None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file, True
        os.close(file)  # the path now is another file, or none
