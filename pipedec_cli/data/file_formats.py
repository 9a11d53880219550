"""Reads the rows of a file by its format: JSON lines, JSON, CSV, TSV, parquet or plain lines, gzipped or not.

A row is not decoded yet, so that a reader can skip one that cannot be.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, time
from functools import partial
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError, first_line, log, many
from pipedec_cli.data.reading import (
    BYTE_ORDER_MARK,
    as_json,
    as_text,
    require_text,
    unreadable,
)

#: How the names of files end that `file_rows` reads.
SUFFIXES: Final = (
    ".jsonl",
    ".ndjson",
    ".json",
    ".csv",
    ".tsv",
    ".parquet",
    ".txt",
    ".gz",
)
#: The separator of a table's columns, by the ending of its file's name.
_SEPARATORS: Final = {".csv": ",", ".tsv": "\t"}
_BATCH_ROWS: Final = 1000  # of parquet, held in memory at a time

_Binary = io.BufferedReader | gzip.GzipFile


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row that is not decoded yet."""

    number: int  # of the line; in a format without lines, the position from 1
    where: str  # file:line or "file row N", for messages
    #: Gives the row, whose fields are not checked; a UserError if it cannot be decoded.
    decode: Callable[[], Any]

    @property
    def value(self) -> Any:
        """The decoded row."""
        return self.decode()


def file_rows(path: Path, plain: bool) -> Iterator[RawRow]:
    """The rows of a file, in the format that its name's ending says; of any other ending, JSON lines.

    With `plain` the file is text, whatever its name: each line is a ``source``.
    """
    suffix = "" if plain else _format_suffix(path)
    if suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    with _opened(path) as file:
        if suffix in _SEPARATORS:
            yield from _table_rows(file, str(path), _SEPARATORS[suffix])
        elif suffix == ".json" and _begins_an_array(file):
            text = file.read().removeprefix(BYTE_ORDER_MARK)
            yield from rows_of(as_json(text, str(path)), f"{path} item")
        else:
            yield from line_rows(file, str(path), plain)


def _format_suffix(path: Path) -> str:
    """The last ending of a file's name but ``.gz``, in lower case: ``.csv`` of ``a.CSV.gz``; "" if it has none."""
    for suffix in reversed(path.suffixes):
        if suffix.lower() != ".gz":
            return suffix.lower()
    return ""


def _begins_an_array(file: _Binary) -> bool:
    """Whether the file is one JSON array; nothing is consumed."""
    beginning = file.peek(4096).removeprefix(BYTE_ORDER_MARK)
    return beginning.lstrip().startswith(b"[")


def _parquet_rows(path: Path) -> Iterator[RawRow]:
    """The rows of a parquet file."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as table:
            batches = table.iter_batches(batch_size=_BATCH_ROWS)
            values = (value for batch in batches for value in batch.to_pylist())
            yield from rows_of(values, f"{path} row")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {first_line(error)}", where=path) from error


def line_rows(stream: Iterable[bytes], name: str, plain: bool) -> Iterator[RawRow]:
    """The rows of a stream of lines, without blank ones: each line is JSON or, with `plain`, the text of a ``source``.

    `name` is what messages call the stream. A warning counts the blank lines of plain
    text.
    """
    blank = 0
    for number, line in _numbered(stream, name):
        where = f"{name}:{number}"
        if plain and line.decode("utf-8", "replace").strip():
            yield RawRow(number, where, partial(_source_row, line, where))
        elif plain:
            blank += 1
        elif line.strip():
            yield RawRow(number, where, partial(as_json, line, name, number))
    if blank:
        log.warning(f"{name}: {many(blank, 'blank line')} left out")


def _source_row(line: bytes, where: str) -> dict[str, str]:
    """A line of plain text as a row."""
    return {"source": as_text(line.rstrip(b"\r\n"), where)}


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, gzipped or not, each with its number from 1. Only a line feed ends a line."""
    with _opened(path) as file:
        for number, line in _numbered(file, str(path)):
            yield number, as_text(line.rstrip(b"\r\n"), f"{path}:{number}")


def _numbered(stream: Iterable[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers from 1, without a byte order mark; a UserError if the first one is no text."""
    for number, line in enumerate(stream, start=1):
        if number == 1:
            require_text(line, name)
            yield number, line.removeprefix(BYTE_ORDER_MARK)
        else:
            yield number, line


@contextmanager
def _opened(path: Path) -> Iterator[_Binary]:
    """Open a file's bytes, unzipped if its name ends in ``.gz``; errors of reading it become a UserError."""
    try:
        with (
            gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file
        ):
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        what = f"cannot unzip: {error}"
        raise UserError(what, where=path, todo="is it whole?") from None
    except (FileNotFoundError, PermissionError) as error:
        raise unreadable(path, error) from None


def _table_rows(file: _Binary, name: str, separator: str) -> Iterator[RawRow]:
    """The rows of a table with a header: an object of column and cell each.

    Not by a library for tables: those guess numbers, dates and missing values, and
    shift the columns of a row that has a cell too many. Here every cell stays text, and
    such a row is refused. `name` is what messages call the file.
    """
    # For the whole process; the default is some 20,000 words.
    csv.field_size_limit(sys.maxsize)
    line = 1
    _require_separator(file, name, separator)
    try:
        reader = csv.reader(_decoded(file, name), delimiter=separator, strict=True)
        columns = _column_names(next(reader, []), name)
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                where = f"{name}:{line}"
                yield RawRow(line, where, partial(_named_cells, columns, cells, where))
            line = reader.line_num + 1
    except csv.Error as error:
        where = f"{name}:{line}"
        todo = "are the quotation marks closed?"
        raise UserError(f"not a table: {error}", where=where, todo=todo) from None


def _require_separator(file: _Binary, name: str, separator: str) -> None:
    """Raise a UserError for a file that is no text, or a ``.csv`` with semicolons; nothing is consumed."""
    beginning = file.peek(1)
    require_text(beginning, name)
    header = beginning.partition(b"\n")[0]
    if separator == "," and b";" in header and b"," not in header:
        raise UserError(
            "the header has ';' between its columns",
            where=f"{name}:1",
            todo="separate with commas, or use .tsv",
        )


def _decoded(file: _Binary, name: str) -> Iterator[str]:
    """The lines of a table as text; a carriage return alone ends a line, too."""
    for number, line in _numbered(file, name):
        yield from io.StringIO(as_text(line, f"{name}:{number}"), newline="")


def _column_names(columns: list[str], name: str) -> list[str]:
    """The names of a table's columns, without empty ones behind the last; a UserError if a name is there twice."""
    # A spreadsheet leaves some empty ones behind the last one.
    while columns and not columns[-1].strip():
        del columns[-1]
    for column in columns:
        if columns.count(column) > 1:
            raise UserError(f"column {column!r} is there twice", where=f"{name}:1")
    return columns


def _named_cells(columns: list[str], cells: list[str], where: str) -> dict[str, str]:
    """A table's row as an object; empty cells behind the last column are left out, and any other number is a UserError."""
    while len(cells) > len(columns) and not cells[-1].strip():
        del cells[-1]
    if len(cells) != len(columns):
        raise UserError(
            f"{many(len(cells), 'cell')} under {len(columns)} columns",
            where=where,
            todo="put cells that hold the separator into quotation marks",
        )
    return dict(zip(columns, cells, strict=True))


def rows_of(values: Iterable[Any], label: str) -> Iterator[RawRow]:
    """A row for each value of a format without lines. Messages call it `label` with its position from 1 behind."""
    for number, value in enumerate(values, start=1):
        where = f"{label} {number}"
        yield RawRow(number, where, partial(_plain_value, value, where))


def _plain_value(value: Any, where: str) -> Any:
    """A value of a table as JSON has it: dates and times in ISO 8601, decimals in digits, bytes as text."""
    if isinstance(value, Mapping):
        return {
            str(name): _plain_value(item, f"{where} field {name!r}")
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain_value(item, where) for item in value]
    if isinstance(value, bytes):
        return as_text(value, where, "leave the column out, or save it as text")
    if isinstance(value, date | time):
        return value.isoformat()
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
