"""The one error that is the user's to mend, and how it is worded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something that the user can put right: bad input, a missing file, settings that do not fit together.

    The terminal prints it as one line and exits with code 2; it never shows a traceback. Word it so that it
    says where (``file:line`` if there is one), what is wrong, and what to do about it.
    """

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        self.where = where
        self.what = what
        self.todo = todo
        head = f"{where}: {what}" if where else what
        super().__init__(f"{head}; {todo}" if todo else head)


#: Who is told what is wrong with a record that is then passed over.
Aside = Callable[[UserError], None]


@contextmanager
def skipping_invalid(aside: Aside | None) -> Iterator[None]:
    """Do what concerns one record alone: if it cannot be used, that ends all, unless somebody is there to be told."""
    try:
        yield
    except UserError as error:
        if aside is None:
            raise
        aside(error)


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line; else its name."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
