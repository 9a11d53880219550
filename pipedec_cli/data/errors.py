"""What a command says: the log, the error that the user can correct, and nouns with their numbers."""

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: Messages to the person who runs a command.
log: Final = logging.getLogger("pipedec")


class UserError(Exception):
    """An error that the user can correct: bad input, a missing file, settings that do not fit together.

    The command line prints it as one line, without a traceback, and exits with code 2.
    The message says where (a file, or ``file:line``; None: nowhere in particular), what
    is wrong, and what to do about it.
    """

    def __init__(
        self, what: str, *, where: str | Path | None = None, todo: str | None = None
    ) -> None:
        self.where = None if where is None else str(where)
        self.what = what
        self.todo = todo
        head = f"{where}: {what}" if self.where else what
        super().__init__(f"{head}; {todo}" if todo else head)


#: Takes the error of an invalid record, which is then skipped.
OnInvalid = Callable[[UserError], None]


@contextmanager
def skipping_invalid(on_invalid: OnInvalid | None) -> Iterator[None]:
    """Give a `UserError` about a single record to `on_invalid`, so that the work goes on; with None it is raised."""
    try:
        yield
    except UserError as error:
        if on_invalid is None:
            raise
        on_invalid(error)


@contextmanager
def naming(path: Path, *, instead: bool = False) -> Iterator[None]:
    """Let a system error name the file `path`, if it names none. With `instead`, also if it names another.

    What is written stands in a temporary file or beside a lock, whose names say nothing
    to the user.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and not instead):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator of Python, torch or a GPU has failed."""
    # On the CPU torch raises a plain RuntimeError: nothing but its words tells it.
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError"}:
        return True
    return "DefaultCPUAllocator" in str(error)


def is_out_of_space(error: BaseException) -> bool:
    """Whether a disk is full, or the user's share of it. Libraries in Rust say so in words alone."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in codes or any(
        f"(os error {code})" in str(error) for code in codes
    )


def first_line(error: BaseException) -> str:
    """The first line of a library's error, or the name of the error if it has no text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def many(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time for people: seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
