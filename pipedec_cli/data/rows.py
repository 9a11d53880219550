"""Reads the rows of a file, of standard input or of a hub data set, and checks them as records.

All data files are opened here; `lines` has the schema of an object. A place that is missing or cannot be read is a
`UserError` with its line.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, time
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from pipedec_cli.data.checking import mended, mended_text, missing_field
from pipedec_cli.data.errors import OnInvalid, UserError, first_line, skipping_invalid
from pipedec_cli.data.lines import FieldNames, record_of
from pipedec_cli.data.places import STDIN, corpus_files, hub_rows, split_files
from pipedec_cli.data.reading import BYTE_ORDER_MARK, as_json, as_text, unreadable
from pipedec_cli.data.records import Record, SplitName
from pipedec_cli.data.stored import FirstPlaces
from pipedec_cli.data.wording import many

_Binary = io.BufferedReader | gzip.GzipFile


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row that is not decoded yet, so that a reader can skip one that cannot be."""

    number: int  # of the line; in a format without lines, the place from 1
    where: str  # file:line or "file row N", for messages
    decode: Callable[[], Any]

    @property
    def value(self) -> Any:
        """The decoded row; its fields are not checked. Raises a UserError if it cannot be decoded."""
        return self.decode()


def read_records(
    location: str | Path,
    names: FieldNames | None = None,
    *,
    split: SplitName | None = None,
    plain: bool = False,
    allow_empty: bool = False,
    warn: Callable[[str], None] | None = None,
    invalid: OnInvalid | None = None,
    skippable: bool = False,
) -> Iterator[Record]:
    """Read the rows of `read_rows` in order and check each.

    A target that is a list of strings is segmented already, and so is a record with ``target_segments``. Half surrogate
    pairs become U+FFFD in the text that models see; `Record.fields` keeps the object unchanged. `warn` is called once, at
    the end, if text was mended. With `invalid`, records that cannot be used are given to it and skipped; `skippable` says
    that the user could have asked for that.
    """
    names, places, count, mended_count, first = names or FieldNames(), FirstPlaces(), 0, 0, ""
    try:
        for row in read_rows(location, split, plain):
            with skipping_invalid(invalid):
                value = row.value
                record = record_of(value, row.where, row.number, names)
                if _has_half_pairs(record):
                    mended_count, first = mended_count + 1, first or row.where
                    record = record_of(mended(value), row.where, row.number, names)
                    record = structs.replace(record, fields=value)
                count += 1
                _check_source(record, names, skippable)
                if (before := places.before(record.id, row.where)) is not None:
                    raise UserError(f"id {record.id!r} was already used at {before}", where=row.where)
                yield record
        if not count and not allow_empty:
            place = "standard input" if location == STDIN else str(location)
            raise UserError("is empty", where=place, todo="it must hold at least one record")
    finally:
        places.close()
        if mended_count and warn is not None:
            warn(f"{first}: half a surrogate pair replaced by U+FFFD, in {many(mended_count, 'record')}")


def _has_half_pairs(record: Record) -> bool:
    listed = (*(record.target_segments or ()), *record.references)
    text = "".join((record.id, record.source, record.target or "", *listed))
    return not text.isascii() and mended_text(text) != text


def _check_source(record: Record, names: FieldNames, skippable: bool) -> None:
    todo = "give the record a source, or leave it out" + (" with --skip-invalid" if skippable else "")
    if record.fields.get(names.source) is None:
        raise missing_field(
            record.fields, names.source, record.where, f"--source-field names another, or {todo}"
        )
    if not record.source.strip():
        raise UserError(f"{names.source!r} is empty", where=record.where, todo=todo)


def read_rows(location: str | Path, split: SplitName | None = None, plain: bool = False) -> Iterator[RawRow]:
    """Yield the raw rows of a place in order; of a folder or a hub data set those of a split (default: train).

    The place is ``-`` (JSON lines on standard input), a file (JSON lines; ``.json``, an array or lines; ``.csv`` and ``.tsv``
    with a header; ``.parquet``; all but parquet also gzipped), a folder with a file for each split or with `corpus_files`,
    or a hub data set ``owner/name[:config]``. With `plain`, each line that is not blank is a ``source``.
    """
    path = Path(location)
    if str(location) == STDIN:
        yield from _line_rows(sys.stdin.buffer, "stdin", plain)
    elif path.is_dir():
        files = corpus_files(path) or split_files(path).get(split or "train", [])
        rows = (row for file in files for row in _file_rows(file, plain))
        for number, row in enumerate(rows, start=1):
            yield replace(row, number=number)
    elif path.exists() or plain:
        yield from _file_rows(path, plain)
    else:
        for number, where, value in hub_rows(location, split or "train"):
            yield RawRow(number, where, partial(_plain_value, value, where))


def _file_rows(path: Path, plain: bool) -> Iterator[RawRow]:
    place, suffixes = str(path), [suffix.lower() for suffix in path.suffixes]
    kind = "" if plain else next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")
    if kind == ".parquet":
        yield from _parquet_rows(path)
        return
    with _opened(path) as file:
        if kind in (".csv", ".tsv"):
            yield from _table_rows(file, place, "," if kind == ".csv" else "\t")
        elif kind == ".json" and file.peek(4096).removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"["):
            values = as_json(file.read().removeprefix(BYTE_ORDER_MARK), place)
            for number, value in enumerate(values, start=1):
                where = f"{path} item {number}"
                yield RawRow(number, where, partial(_plain_value, value, where))
        else:
            yield from _line_rows(file, place, plain)


def _line_rows(stream: Iterable[bytes], name: str, plain: bool) -> Iterator[RawRow]:
    """The rows of JSON lines, or of plain lines as sources, without blank lines."""
    for number, line in _numbered(stream):
        where = f"{name}:{number}"
        if plain and line.decode("utf-8", "replace").strip():
            read = partial(lambda line, where: {"source": as_text(line.rstrip(b"\r\n"), where)}, line, where)
            yield RawRow(number, where, read)
        elif not plain and line.strip():
            yield RawRow(number, where, partial(as_json, line, name, number))


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, gzipped or not, each with its number from 1. Only a line feed ends a line."""
    with _opened(path) as file:
        for number, line in _numbered(file):
            yield number, as_text(line.rstrip(b"\r\n"), f"{path}:{number}")


def _numbered(stream: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stream, start=1):
        yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


@contextmanager
def _opened(path: Path) -> Iterator[_Binary]:
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"cannot unzip: {error}", where=str(path), todo="is it whole?") from None
    except (FileNotFoundError, PermissionError) as error:
        raise unreadable(path, error) from None


def _table_rows(file: _Binary, name: str, separator: str) -> Iterator[RawRow]:
    # Not by a library for tables: those guess numbers, dates and missing values, and shift the columns of a row that
    # has a cell too many. Here every cell stays text, and such a row is refused.
    csv.field_size_limit(sys.maxsize)  # for the whole process; the default is some 20,000 words
    line = 1
    header = file.peek(1).partition(b"\n")[0]
    if separator == "," and b";" in header and b"," not in header:
        what, todo = "the header has ';' between its columns", "separate with commas, or use .tsv"
        raise UserError(what, where=f"{name}:1", todo=todo)
    try:
        with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, delimiter=separator, strict=True)
            columns = next(reader, [])
            if (twice := next((one for one in columns if columns.count(one) > 1), None)) is not None:
                raise UserError(f"column {twice!r} is there twice", where=f"{name}:1")
            line = reader.line_num + 1
            for cells in reader:
                if cells:
                    where = f"{name}:{line}"
                    yield RawRow(line, where, partial(_named_cells, columns, cells, where))
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: {error.reason}", where=name, todo="save the file as UTF-8") from None
    except csv.Error as error:
        todo = "are the quotation marks closed?"
        raise UserError(f"not a table: {error}", where=f"{name}:{line}", todo=todo) from None


def _named_cells(columns: Sequence[str], cells: Sequence[str], where: str) -> dict[str, str]:
    if len(cells) != len(columns):
        raise UserError(f"{len(cells)} cells under {len(columns)} columns", where=where)
    return dict(zip(columns, cells, strict=True))


def _parquet_rows(path: Path) -> Iterator[RawRow]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            values = (value for batch in file.iter_batches(batch_size=1000) for value in batch.to_pylist())
            for number, value in enumerate(values, start=1):
                where = f"{path} row {number}"
                yield RawRow(number, where, partial(_plain_value, value, where))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {first_line(error)}", where=str(path)) from error


def _plain_value(value: Any, where: str) -> Any:
    """A value of a table as JSON has it: dates and times in ISO 8601, decimals in digits, bytes as text."""
    if isinstance(value, Mapping):
        return {str(name): _plain_value(one, f"{where} field {name!r}") for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(one, where) for one in value]
    if isinstance(value, bytes):
        return as_text(value, where, "leave the column out, or save it as text")
    if isinstance(value, date | time):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float) else str(value)
