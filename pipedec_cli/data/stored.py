"""Data that grows with the number of records. It lies on disk, in files without a name that vanish with their process."""

from __future__ import annotations

import json
import os
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from tempfile import SpooledTemporaryFile, gettempdir
from typing import Any, Final, Self, TypeVar, overload

import msgspec

from pipedec_cli.data.errors import UserError, naming
from pipedec_cli.data.records import Record

Item = TypeVar("Item")
_IN_MEMORY: Final = 1_000_000  # bytes; smaller data never touches the disk


class _File(SpooledTemporaryFile[bytes]):
    def __del__(
        self,
    ) -> None:  # several views may hold the file; the last one closes it
        with suppress(OSError):  # a full disk refuses the rest, which nobody will read
            self.close()


class Stored(Sequence[Item]):
    """A sequence in a temporary file, to be read in any order and many times. An item takes 8 bytes of memory.

    The items are of the type `kind`, which msgspec knows. The file lies in the folder
    `near` or in the nearest folder above it that exists, else in the system's folder
    for such files. A slice, or the result of `only`, is another view of the file.
    """

    def __init__(
        self, near: Path, items: Iterable[Item] = (), kind: Any = Record
    ) -> None:
        self._kind = kind
        self._folder = next(place for place in (near, *near.parents) if place.is_dir())
        self._file = _File(
            _IN_MEMORY,
            dir=str(self._folder) if os.access(self._folder, os.W_OK) else None,
        )
        self._starts = array("Q")
        for item in items:
            self.append(item)

    def append(self, item: Item) -> None:
        """Store one more item. Raises an OSError that names the folder if the disk is full."""
        try:
            line = msgspec.json.encode(item)
        except UnicodeEncodeError:
            # A half of a surrogate pair, which a user's fields may hold.
            line = json.dumps(msgspec.to_builtins(item)).encode()
        with naming(self._folder, instead=True):
            self._starts.append(self._file.seek(0, os.SEEK_END))
            self._file.write(line + b"\n")

    def only(self, chosen: Iterable[object]) -> Self:
        """The items of which `chosen` is true; it has a value for each item, in order."""
        return self._view(array("Q", compress(self._starts, chosen)))

    def _view(self, starts: array[int]) -> Self:
        view = copy(self)
        view._starts = starts
        return view

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Item]:
        return map(self._read, self._starts)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Item | Self:
        if isinstance(index, slice):
            return self._view(self._starts[index])
        return self._read(self._starts[index])

    def _read(self, start: int) -> Item:
        """The item whose line begins at this byte of the file."""
        self._file.seek(start)
        line = self._file.readline()
        try:
            item: Item = msgspec.json.decode(line, type=self._kind)
        except msgspec.DecodeError:  # a half of a surrogate pair
            item = msgspec.convert(json.loads(line), self._kind)
        return item


StoredRecords = Stored[Record]


class InvalidRecords:
    """The errors of records that are skipped, in a temporary file.

    They are collected while the records are counted. Whoever counts says so in `valid`
    and, at the end, `closed`: the records are read again later, and the errors that
    come again then are ignored.
    """

    def __init__(self) -> None:
        self.valid = 0  # the valid records counted so far
        self.closed = False  # whether all records were counted
        self._errors = Stored[tuple[int, dict[str, Any]]](
            Path(gettempdir()), kind=tuple[int, dict[str, Any]]
        )

    def __call__(self, error: UserError) -> None:
        """Store an error with its position: the number of valid records before it."""
        if not self.closed:
            words = {"where": error.where, "what": error.what, "todo": error.todo}
            self._errors.append((self.valid, words))

    def between(
        self, first: int = 0, end: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """The errors that stand before the valid records from position `first` up to `end` (None: all).

        Those behind the last valid record of all come with it.
        """
        if end is None or end == self.valid:
            end = self.valid + 1
        for position, error in self._errors:
            if first <= position < end:
                yield error


@dataclass(frozen=True, slots=True)
class Again:
    """Texts that can be iterated again and again without being held in memory."""

    begin: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.begin()


class FirstPlaces:
    """The first place of each identifier, in a database on disk."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(
            "", isolation_level=None, check_same_thread=False
        )
        table = "CREATE TABLE places (id PRIMARY KEY, place) WITHOUT ROWID"
        self._database.executescript(f"PRAGMA journal_mode = OFF; {table}; BEGIN")

    def before(self, identifier: str, place: str) -> str | None:
        """The place of an earlier record with this identifier; None if there is none, and `place` becomes the first."""
        # As bytes: the name of a file may hold halves of surrogate pairs, which UTF-8
        # does not have.
        key, here = (
            text.encode("utf-8", "surrogatepass") for text in (identifier, place)
        )
        try:
            self._database.execute("INSERT INTO places VALUES (?, ?)", (key, here))
        except sqlite3.IntegrityError:
            select = "SELECT place FROM places WHERE id = ?"
            (place_before,) = self._database.execute(select, (key,)).fetchone()
            return str(place_before, "utf-8", "surrogatepass")
        except sqlite3.OperationalError as error:
            todo = "set TMPDIR to a folder with more room"
            raise UserError(
                f"a temporary file cannot be written: {error}", todo=todo
            ) from error
        return None

    def close(self) -> None:
        """Free the space on disk."""
        self._database.close()
