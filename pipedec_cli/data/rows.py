"""Where data comes from: the raw objects of a file, of standard input, of a table or of a hub data set.

Everything that opens files is here; what an object must look like is in `reading`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.hub import hub_objects, hub_splits, parquet_objects, parse_hub_name
from pipedec_cli.data.records import SPLIT_NAMES, SplitName

__all__ = ["SPLIT_NAMES", "STDIN", "Row", "given_splits", "is_hub_name", "json_lines", "read_rows"]

STDIN: Final = "-"

_SPLIT_FILE = re.compile(rf"({'|'.join(sorted(SPLIT_NAMES, key=len, reverse=True))})(?=[-_.])", re.IGNORECASE)
_CELL_SEPARATORS: Final = {".csv": ",", ".tsv": "\t"}
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt", ".gz")


@dataclass(frozen=True, slots=True)
class Row:
    """One raw object, before anything is known about its fields.

    Attributes:
        number: its line number, or its place counted from 1 where there are no lines.
        where: ``file:line``, or ``file row N``, for messages.
        value: what stood there: any JSON value.
    """

    number: int
    where: str
    value: Any


def read_rows(location: str | Path, split: SplitName | None = None) -> Iterator[Row]:
    """The raw objects of one place, in order, one at a time.

    Args:
        location: ``-`` for JSON lines on standard input; a file (JSON lines, gzipped or not; ``.json``, an array or
            lines; ``.csv`` and ``.tsv``, the first line naming the columns; ``.parquet``); a folder with a file for each split; or, where nothing of that
            name is here, a data set of the hub, ``owner/name`` or ``owner/name:config``.
        split: which split of a folder or hub data set; None for what has no splits.

    Raises:
        UserError: nothing is there, or it cannot be read; with the line where there is one.
    """
    if str(location) == STDIN:
        yield from json_lines(sys.stdin.buffer, "stdin")
        return
    path = Path(location)
    if path.is_dir():
        number = 0
        for file in _split_files(path).get(split or "train", ()):
            for row in _file_rows(file):
                number += 1
                yield Row(number, row.where, row.value)
    elif path.exists():
        yield from _file_rows(path)
    else:
        name, config = _hub_name(location)
        yield from _hub_rows(name, config, split or "train")


def given_splits(location: str | Path) -> tuple[SplitName, ...]:
    """The splits that a folder or a hub data set comes in; () for a single file or standard input.

    Raises:
        UserError: a folder without a file for any split, or nothing there at all.
    """
    if str(location) == STDIN:
        return ()
    path = Path(location)
    if path.is_dir():
        return tuple(_split_files(path))
    if path.exists():
        return ()
    name, config = _hub_name(location)
    return tuple(hub_splits(name, config))


def is_hub_name(location: str | Path) -> bool:
    """Whether there is nothing of that name here, so that the hub will be asked for it."""
    return str(location) != STDIN and not Path(location).exists() and _maybe_hub_name(location) is not None


def json_lines(stream: Iterable[bytes], name: str) -> Iterator[Row]:
    """The values of a JSON-lines stream; blank lines and a byte order mark at the start are passed over.

    Raises:
        UserError: a line is not UTF-8, or not JSON; with line and column.
    """
    for number, line in enumerate(stream, start=1):
        content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if content.strip():
            where = f"{name}:{number}"
            yield Row(number, where, _parse(content, where))


def _parse(content: bytes, where: str) -> Any:
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8: byte {content[error.start]:#04x} at position {error.start + 1}",
            where=where,
            todo="save the file as UTF-8",
        ) from None
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise UserError(
            f"not JSON: {error.msg} at {place}", where=where, todo="write one JSON object a line"
        ) from None
    except (RecursionError, ValueError) as error:  # brackets nested too deep; a number of thousands of digits
        raise UserError(f"not JSON that can be read: {error}", where=where) from None


def _file_rows(path: Path) -> Iterator[Row]:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    kind = next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")
    try:
        if kind == ".parquet":
            yield from _parquet_rows(path)
        elif kind in _CELL_SEPARATORS:
            yield from _csv_rows(path, _CELL_SEPARATORS[kind], zipped=zipped)
        else:
            with _open(path, zipped=zipped) as file:
                if kind == ".json" and _first_byte(file) == b"[":
                    yield from _array_rows(file.read(), str(path))
                else:
                    yield from json_lines(file, str(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"cannot unzip: {error}", where=str(path), todo="is it whole?") from None
    except PermissionError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path)) from None


def _open(path: Path, *, zipped: bool) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb")) if zipped else path.open("rb")


def _first_byte(file: BinaryIO) -> bytes:
    start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    file.seek(0)
    return start


def _array_rows(content: bytes, name: str) -> Iterator[Row]:
    for number, value in enumerate(_parse(content.removeprefix(b"\xef\xbb\xbf"), name), start=1):
        yield Row(number, f"{name} item {number}", value)


def _split_files(folder: Path) -> dict[SplitName, list[Path]]:
    """The data files of each split in a folder, by name: ``train.jsonl``, ``validation-00000-of-00001.parquet``."""
    found: dict[SplitName, list[Path]] = {"train": [], "dev": [], "test": []}
    for file in sorted(folder.iterdir()):
        match = _SPLIT_FILE.match(file.name)
        if match and file.name.lower().endswith(_SUFFIXES) and file.is_file():
            found[SPLIT_NAMES[match[1].lower()]].append(file)
    if not any(found.values()):
        raise UserError(
            "a folder without a file for any split",
            where=str(folder),
            todo="name them train.jsonl, dev.jsonl, test.jsonl",
        )
    return {split: files for split, files in found.items() if files}


def _csv_rows(path: Path, separator: str, *, zipped: bool) -> Iterator[Row]:
    """The rows of a table, its first line naming the columns.

    Every cell stays the text it is. Libraries for tables guess numbers, dates and missing values, and shift the
    columns of a row that has one cell too many; here such a row is refused.
    """
    csv.field_size_limit(
        sys.maxsize
    )  # for the whole process; the default stops at sources of some 20,000 words
    with io.TextIOWrapper(_open(path, zipped=zipped), encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=separator, strict=True)
        line = 1
        try:
            columns = next(reader, [])
            repeated = next((name for name in columns if columns.count(name) > 1), None)
            if repeated is not None:
                raise UserError(f"column {repeated!r} is there twice", where=f"{path}:1")
            line = reader.line_num + 1
            for cells in reader:
                if len(cells) not in (0, len(columns)):
                    raise UserError(
                        f"{len(cells)} cells under {len(columns)} columns", where=f"{path}:{line}"
                    )
                if cells:
                    yield Row(line, f"{path}:{line}", dict(zip(columns, cells, strict=True)))
                line = reader.line_num + 1
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8: {error.reason}", where=str(path), todo="save the file as UTF-8"
            ) from None
        except csv.Error as error:
            raise UserError(
                f"not a table: {error}", where=f"{path}:{line}", todo="are the quotation marks closed?"
            ) from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    for number, value in enumerate(parquet_objects(path), start=1):
        yield Row(number, f"{path} row {number}", value)


def _hub_rows(name: str, config: str | None, split: SplitName) -> Iterator[Row]:
    theirs = hub_splits(name, config).get(split)
    if theirs is None:
        raise UserError(f"has no split for {split}", where=name)
    for number, value in enumerate(hub_objects(name, config, theirs), start=1):
        yield Row(number, f"{name} {theirs} row {number}", value)


def _hub_name(location: str | Path) -> tuple[str, str | None]:
    """Name and configuration of a hub data set, for a location that is no file and no folder here."""
    found = _maybe_hub_name(location)
    if found is None:
        raise UserError(
            "no such file",
            where=str(location),
            todo="give a file, a folder, `-` for standard input, or a hub data set `owner/name`",
        )
    return found


def _maybe_hub_name(location: str | Path) -> tuple[str, str | None] | None:
    """The location read as a hub name, unless it looks like a path that was mistyped."""
    text = str(location)
    mistyped = text.lower().endswith(_SUFFIXES) or Path(text).parent.exists()
    return None if mistyped else parse_hub_name(text)
