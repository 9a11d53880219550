"""What would grow in memory with the records: kept on disk, in files without a name that are gone with their process."""

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

from msgspec.structs import astuple

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Record
from pipedec_cli.data.writing import naming

Item = TypeVar("Item")
_IN_MEMORY: Final = 1_000_000  # bytes; what needs no more never sees the disk


class _File(SpooledTemporaryFile[bytes]):
    def __del__(self) -> None:  # several may hold it, and the last one to go closes it
        with suppress(OSError):  # a full disk does not take the rest, which nobody will read
            self.close()


class Stored(Sequence[Item]):
    """Things in a temporary file, to be read in any order and as often as need be; each takes 8 bytes of memory.

    It lies where `near` is or is to be made, or, if nothing can be written there, where the system keeps such files. A
    slice, or what `only` picks, is another view of the same file. `pack` makes one line of bytes of each.
    """

    def __init__(self, near: Path, pack: Callable[[Item], bytes], unpack: Callable[[bytes], Item]) -> None:
        self._pack, self._unpack = pack, unpack
        self._folder = next(place for place in (near, *near.parents) if place.is_dir())
        self._file = _File(_IN_MEMORY, dir=str(self._folder) if os.access(self._folder, os.W_OK) else None)
        self._starts = array("Q")

    def append(self, item: Item) -> None:
        """Store one more; an `OSError` that names the folder if the disk is full."""
        with naming(self._folder):
            self._starts.append(self._file.seek(0, os.SEEK_END))
            self._file.write(self._pack(item) + b"\n")

    def only(self, chosen: Iterable[object]) -> Self:
        """Those for which a true value stands in `chosen`."""
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
        self._file.seek(start)
        return self._unpack(self._file.readline())


class StoredRecords(Stored[Record]):
    """Records on disk."""

    def __init__(self, near: Path, records: Iterable[Record] = ()) -> None:
        # The ordinary library's JSON, since a record's fields may hold halves of surrogate pairs.
        super().__init__(near, lambda record: json.dumps(astuple(record)).encode(), _record)
        for record in records:
            self.append(record)


def _record(line: bytes) -> Record:
    name, source, target, segments, references, *others = json.loads(line)
    segments = None if segments is None else tuple(segments)
    return Record(name, source, target, segments, tuple(references), *others)


class InvalidRecords:
    """What is wrong with records that are passed over, in a temporary file: told once, while they are counted."""

    def __init__(self) -> None:
        self.count = 0
        self.good = 0  # the records that can be used, as far as they have been counted
        self.closed = False  # whether what is told is known already
        self._file = _File(_IN_MEMORY)

    def __call__(self, error: UserError) -> None:
        """Take one in behind the good ones that were counted."""
        if not self.closed:
            self.count += 1
            told = {"where": error.where, "what": error.what, "todo": error.todo}
            with naming(Path(gettempdir())):
                self._file.write(json.dumps([self.good, told]).encode() + b"\n")

    def between(self, first: int = 0, end: int | None = None) -> Iterator[dict[str, Any]]:
        """Those that stand before the good ones of these places; behind the last one they belong to it."""
        self._file.seek(0)
        for place, told in map(json.loads, self._file):
            if first <= place and (end is None or place < end or place == end == self.good):
                yield told


@dataclass(frozen=True, slots=True)
class Again:
    """Texts that can be gone through again and again without being held in memory."""

    begin: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.begin()


class FirstPlaces:
    """Where each identifier stood first, exactly, in a database on disk."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        table = "CREATE TABLE places (id PRIMARY KEY, place) WITHOUT ROWID"
        self._database.executescript(f"PRAGMA journal_mode = OFF; {table}; BEGIN")

    def before(self, identifier: str, place: str) -> str | None:
        """Where the identifier stood before; if nowhere, this is its place from now on."""
        # As bytes, since a file's name may hold what UTF-8 does not: halves of surrogate pairs.
        key, here = (text.encode("utf-8", "surrogatepass") for text in (identifier, place))
        try:
            self._database.execute("INSERT INTO places VALUES (?, ?)", (key, here))
        except sqlite3.IntegrityError:
            found = self._database.execute("SELECT place FROM places WHERE id = ?", (key,)).fetchone()
            return str(found[0], "utf-8", "surrogatepass")
        except sqlite3.OperationalError as error:
            todo = "set TMPDIR to a folder with more room"
            raise UserError(f"a temporary file cannot be written: {error}", todo=todo) from error
        return None

    def close(self) -> None:
        """Give the space on disk back."""
        self._database.close()
