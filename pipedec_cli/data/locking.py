"""One writer at a time: locks that end with their process, however that ends, and files that a killed one left behind.

A lock is flock's, on a hidden file of its own: what is written changes its inode when it is renamed into place. That file
says who holds the lock, is removed in the end, and blocks nobody where a killed process has left it.
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

import msgspec

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import real
from pipedec_cli.data.records import whole_text

#: What a file system without locks answers.
_UNSUPPORTED: Final = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


class _Holder(msgspec.Struct):
    pid: int
    host: str
    day: str
    time: str
    command: str

    def __str__(self) -> str:
        host = "" if self.host == socket.gethostname() else f" on {self.host}"
        since = self.time if self.day == strftime("%Y-%m-%d") else f"{self.day} {self.time}"
        return f"process {self.pid}{host} since {since} ({self.command})"


@contextmanager
def only_writer(
    path: Path, *, todo: str, folder: bool = False, warn: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Write to a file or a `folder` as the only one; a `UserError` that says who does already, and what `todo` instead.

    The folder is made if need be, and removed again if nothing came into it. Where there are no locks the user is
    warned; where nothing can be made there is nothing to guard.
    """
    path = real(path)
    lock = path / ".lock" if folder else path.with_name(f".{path.name}.lock")
    made = not lock.parent.exists()
    lock.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if os.access(lock.parent, os.W_OK):
            file, alone = _hold(lock)
            held.callback(os.close, file)
            if alone is None:
                warn(f"there are no locks in {lock.parent}: make sure that no other command writes to {path}")
            if alone is False:
                todo = f"wait for it, or {todo}"
                raise UserError(f"is being written by {_holder(file)}", where=str(path), todo=todo)
            held.callback(_remove, lock, folder=made)  # before it is let go: it could be another's by then
            command = whole_text(shlex.join(["pipedec", *sys.argv[1:]])[:100])
            day, minute = strftime("%Y-%m-%d %H:%M").split()
            told = _Holder(os.getpid(), socket.gethostname(), day, minute, command)
            os.truncate(file, 0)
            os.pwrite(file, msgspec.json.encode(told), 0)
        yield


def _holder(file: int) -> _Holder | str:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(os.pread(file, 10_000, 0), type=_Holder)
    return "another process"


def _remove(lock: Path, *, folder: bool) -> None:
    with suppress(OSError):
        lock.unlink()
        if folder:
            lock.parent.rmdir()  # which does nothing to one that holds something


def new_file(path: Path) -> tuple[Path, int]:
    """A new hidden file beside a path, to be written and then renamed to it, and its descriptor, which holds its lock.

    What killed processes left of such files is removed.
    """
    for left in path.parent.glob(f".{escape(path.name)}.*.partial"):
        with suppress(OSError):
            file, held = _hold(left)
            if held:
                left.unlink()
            os.close(file)
    while True:
        temporary = path.with_name(f".{path.name}.{token_hex(4)}.partial")
        file, held = _hold(temporary)
        if held is not False:  # else somebody who cleans up was quicker
            return temporary, file
        os.close(file)


def _hold(path: Path) -> tuple[int, bool | None]:
    """Open a file, made if need be, and take its lock: whether that succeeded, or None where there are no locks."""
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
        os.close(file)  # its name has gone to another file, or to none
