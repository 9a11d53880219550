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
from tempfile import SpooledTemporaryFile
from typing import Final, Self, overload

from msgspec.structs import astuple

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Record
from pipedec_cli.data.writing import naming

_IN_MEMORY: Final = 1_000_000  # bytes; records that need no more never see the disk


class _File(SpooledTemporaryFile[bytes]):
    def __del__(self) -> None:  # several may hold it, and the last one to go closes it
        with suppress(OSError):  # a full disk does not take the rest, which nobody will read
            self.close()


class StoredRecords(Sequence[Record]):
    """Records in a temporary file, to be read in any order and as often as need be; each takes 8 bytes of memory.

    It lies where `near` is or is to be made, or, if nothing can be written there, where the system keeps such files. A
    slice, or what `only` picks, is another view of the same file.
    """

    def __init__(self, near: Path) -> None:
        self._folder = next(place for place in (near, *near.parents) if place.is_dir())
        self._file = _File(_IN_MEMORY, dir=str(self._folder) if os.access(self._folder, os.W_OK) else None)
        self._starts = array("Q")

    def append(self, record: Record) -> None:
        """Store one more; an `OSError` that names the folder if the disk is full."""
        with naming(self._folder):
            self._starts.append(self._file.seek(0, os.SEEK_END))
            self._file.write(json.dumps(astuple(record)).encode() + b"\n")

    def only(self, chosen: Iterable[object]) -> Self:
        """The records for which a true value stands in `chosen`."""
        return self._view(array("Q", compress(self._starts, chosen)))

    def _view(self, starts: array[int]) -> Self:
        view = copy(self)
        view._starts = starts
        return view

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Record]:
        return map(self._read, self._starts)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Record | Self:
        if isinstance(index, slice):
            return self._view(self._starts[index])
        return self._read(self._starts[index])

    def _read(self, start: int) -> Record:
        self._file.seek(start)
        name, source, target, segments, references, where, fields = json.loads(self._file.readline())
        segments = None if segments is None else tuple(segments)
        return Record(name, source, target, segments, tuple(references), where, fields)


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
