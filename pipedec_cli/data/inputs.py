"""Reads the rows of a file, a folder, standard input or the hub as records, and the shards of a job. All are read once first."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import logging
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from msgspec import structs

from pipedec_cli.data.errors import (
    OnInvalid,
    UserError,
    first_line,
    log,
    many,
    skipping_invalid,
)
from pipedec_cli.data.reading import (
    BYTE_ORDER_MARK,
    as_json,
    as_text,
    mended,
    mended_text,
    missing_field,
    require_text,
    unreadable,
)
from pipedec_cli.data.records import (
    SPLIT_NAMES,
    FieldNames,
    Record,
    SplitName,
    record_of,
)
from pipedec_cli.data.stored import FirstPlaces, InvalidRecords, StoredRecords
from pipedec_cli.data.writing import hashed, to_json

#: A shard on the command line, and in the name of its file.
_WRITTEN: Final = re.compile(r"0*(\d{1,6})/0*(\d{1,6})", re.ASCII)
_NAMED: Final = re.compile(r"part-0*(\d{1,6})-of-0*(\d{1,6})\.jsonl", re.ASCII)


@dataclass(frozen=True, order=True)
class Shard:
    """Part `number`, counted from 1, of the `of` parts of a job's records, in order."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def file(self) -> str:
        """The name of its file, such as ``part-03-of-16.jsonl``: the names sort as the shards do."""
        return f"part-{self.number:0{len(str(self.of))}}-of-{self.of}.jsonl"

    def records(self, count: int) -> tuple[int, int]:
        """The place of its first record, from 0, and the place behind its last one, of `count` records."""
        return count * (self.number - 1) // self.of, count * self.number // self.of

    @classmethod
    def parse(cls, value: object) -> Self:
        """The shard that a command line names, such as ``3/16``; a ValueError if it names none."""
        if (shard := cls.named(str(value), _WRITTEN)) is None:
            raise ValueError(
                f"{value!r} is no shard; write K/N, such as 1/4 for the first of four"
            )
        return shard

    @classmethod
    def named(cls, file: str, pattern: re.Pattern[str] = _NAMED) -> Self | None:
        """The shard that a file's name tells; None if it tells none."""
        found = pattern.fullmatch(file)
        shard = cls(int(found[1]), int(found[2])) if found else None
        return shard if shard and 1 <= shard.number <= shard.of else None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Valid records, counted, that can be read again and again."""

    count: int
    sha256: str  # of all records of the job, in order
    longest: int  # characters of the longest source
    names: FieldNames
    read: Callable[
        ..., Iterator[Record]
    ]  # the records, or those from a first place up to an end
    file: Mapping[str, str | None]  # where they come from, as a manifest lists it
    invalid: InvalidRecords | None = (
        None  # the records that are skipped, where any may be
    )
    shard: Shard | None = None  # the part of the job; None for all of it
    total: int = 0  # the job's records, where this is a shard

    def part(self, shard: Shard) -> Inputs:
        """The records of one shard."""
        first, end = shard.records(self.count)
        read = lambda: self.read(first, end)  # noqa: E731
        return replace(
            self, count=end - first, read=read, shard=shard, total=self.count
        )

    def skipped(self) -> Iterator[dict[str, Any]]:
        """What is wrong with the skipped records between these."""
        if self.invalid is None:
            return iter(())
        places = self.shard.records(self.total) if self.shard else ()
        return self.invalid.between(*places)


def scan_inputs(
    read: Callable[[], Iterator[Record]],
    names: FieldNames,
    *,
    limit: int | None = None,
    keep: Path | None = None,
    location: str = "",
    invalid: InvalidRecords | None = None,
) -> Inputs:
    """Check and count the first `limit` records. From a pipe they are kept on disk, in or near the folder `keep`.

    With `invalid`, which `read` must use as well, invalid records are skipped and noted
    there.
    """
    kept = StoredRecords(keep) if keep else None
    count = longest = 0
    digest = hashlib.sha256()

    def read_valid() -> Iterator[Record]:
        for record in read():
            with skipping_invalid(invalid):
                names.check(record)
                yield record

    def read_again(first: int = 0, end: int | None = None) -> Iterator[Record]:
        if kept is not None:
            return iter(kept[first:end])
        return islice(read_valid(), first, limit if end is None else end)

    for record in islice(read_valid(), limit):
        count += 1
        longest = max(longest, len(record.source))
        digest.update(
            to_json([record.id, record.source, dict(record.fields)]).encode() + b"\n"
        )
        if kept is not None:
            kept.append(record)
        if invalid:
            invalid.good = count
    if invalid:
        invalid.closed = True
        if not count:
            first = next(invalid.between(), None)
            none = "none of its records can be used; the first: {where}: {what}"
            raise UserError(
                "is empty" if first is None else none.format(**first), where=location
            )
    return Inputs(
        count, digest.hexdigest(), longest, names, read_again, hashed(location), invalid
    )


STDIN: Final = "-"

_SPLIT_FILE: Final = re.compile(rf"^({'|'.join(SPLIT_NAMES)})(?=[-_.])", re.IGNORECASE)
#: What to do about a folder without such a file.
_NAME_FILES: Final = (
    "name its files train.jsonl, dev.jsonl, test.jsonl, or give a single file"
)
_HUB_NAME: Final = re.compile(r"(?P<name>[\w.-]+/[\w.-]+?)(?::(?P<config>[\w.-]+))?")
_SUFFIXES: Final = (
    ".jsonl",
    ".ndjson",
    ".json",
    ".csv",
    ".tsv",
    ".parquet",
    ".txt",
    ".gz",
)
_CORPUS: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".parquet")


def given_splits(
    location: str | Path, todo: str = _NAME_FILES
) -> tuple[SplitName, ...]:
    """The splits of a folder or hub data set, else (); a UserError with `todo` for a folder without any."""
    path = Path(location)
    if path.is_dir():
        return tuple(split_files(path, todo))
    return () if str(location) == STDIN or path.exists() else tuple(_hub(location)[2])


def files_by_split(
    folder: Path,
    name: re.Pattern[str] = _SPLIT_FILE,
    accepts: Callable[[Path], bool] = lambda file: file.name.lower().endswith(
        _SUFFIXES
    ),
) -> dict[SplitName, list[Path]]:
    """The files of a folder by split, without empty splits; the first group of the pattern finds a split in a name."""
    found: dict[SplitName, list[Path]] = {split: [] for split in SPLIT_NAMES.values()}
    for file in sorted(folder.iterdir()):
        if (word := name.search(file.name)) and file.is_file() and accepts(file):
            found[SPLIT_NAMES[word[1].lower()]].append(file)
    return {split: files for split, files in found.items() if files}


def split_files(folder: Path, todo: str = _NAME_FILES) -> dict[SplitName, list[Path]]:
    """The files of each split, found by name: ``train.jsonl``, ``validation-00000-of-00001.parquet``."""
    weights = (*folder.glob("*.safetensors"), *folder.glob("*.bin"))
    if weights and (folder / "config.json").is_file():
        todo = "name it with --model, and give a file or a folder of records"
        raise UserError("is a model, and no data", where=str(folder), todo=todo)
    if not (found := files_by_split(folder)):
        raise UserError(
            "a folder without a file for any split", where=str(folder), todo=todo
        )
    return found


def corpus_files(folder: Path) -> list[Path]:
    """The JSON lines and parquet files of a folder by name; none if a file is named after a split."""
    if files_by_split(folder):
        return []
    files = (
        file
        for file in folder.iterdir()
        if file.is_file() and not file.name.startswith(".")
    )
    return sorted(file for file in files if file.name.lower().endswith(_CORPUS))


def is_hub_name(location: str | Path) -> bool:
    """Whether nothing of that name is here, so that the hub is asked for it."""
    return (
        str(location) != STDIN
        and not Path(location).exists()
        and _hub_match(location) is not None
    )


def _hub_match(location: str | Path) -> re.Match[str] | None:
    """The location as a hub name; None if it looks like a mistyped path."""
    text = str(location)
    mistyped = text.lower().endswith(_SUFFIXES) or Path(text).parent.exists()
    return None if mistyped else _HUB_NAME.fullmatch(text)


def _hub(location: str | Path) -> tuple[str, str | None, dict[SplitName, str]]:
    """Name, configuration and splits of a hub data set; its own name of a split by ours."""
    if (found := _hub_match(location)) is None:
        todo = "give a file, a folder, `-` for standard input, or a hub data set `owner/name`"
        raise UserError("no such file", where=str(location), todo=todo)
    name = found["name"]
    config = found["config"]
    with _hub_errors(name, "no such file here either"):
        splits = _datasets().get_dataset_split_names(name, config)
    return (
        name,
        config,
        {SPLIT_NAMES[split]: split for split in splits if split in SPLIT_NAMES},
    )


def _datasets() -> Any:
    """The library `datasets`: without its logs, running no code of a data set, counting no downloads."""
    import datasets
    import huggingface_hub

    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = (
        False  # release 3 ran code, or asked
    )
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    for library in (datasets, huggingface_hub):
        library.utils.logging.set_verbosity(logging.CRITICAL)
    return datasets


@contextmanager
def _hub_errors(name: str, todo: str | None = None) -> Iterator[None]:
    """Make the errors of `datasets` one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the library raises the errors of its file systems, parsers and HTTP client
        deepest: BaseException = error
        while deepest.__cause__ is not None:
            deepest = deepest.__cause__
        what = f"cannot be read: {first_line(deepest)}"
        if (
            type(error) is RuntimeError
        ):  # all that the library says of a data set with a script
            what = "needs a loading script, and no program of a data set is run here"
            fetch = f"hf download {name} --repo-type dataset --local-dir DIR"
            todo = f"fetch its files (`{fetch}`) and import those"
        raise UserError(what, where=name, todo=todo) from error


_Binary = io.BufferedReader | gzip.GzipFile


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row that is not decoded yet, so that a reader can skip one that cannot be."""

    number: int  # of the line; in a format without lines, the place from 1
    where: str  # file:line or "file row N", for messages
    decode: Callable[
        [], Any
    ]  # the row, whose fields are not checked; a UserError if it cannot be decoded

    @property
    def value(self) -> Any:
        """The decoded row."""
        return self.decode()


def read_records(
    location: str | Path,
    names: FieldNames | None = None,
    *,
    split: SplitName | None = None,
    plain: bool = False,
    allow_empty: bool = False,
    say_mended: bool = False,
    invalid: OnInvalid | None = None,
    skippable: bool = False,
) -> Iterator[Record]:
    """Read the rows of `read_rows` in order and check each.

    Half surrogate pairs become U+FFFD in the text that models see; `Record.fields`
    keeps the object unchanged. With `say_mended` a warning at the end counts such
    records. With `invalid`, records that cannot be used are given to it and skipped;
    `skippable` says that the user could have asked for that.
    """
    names = names or FieldNames()
    places = FirstPlaces()
    count = 0
    mended_count = 0
    first_mended = ""
    try:
        for row in read_rows(location, split, plain):
            with skipping_invalid(invalid):
                record, is_mended = _record_in(row, names)
                if is_mended:
                    mended_count += 1
                    first_mended = first_mended or row.where
                count += 1
                _require_source(record, names, skippable)
                _require_own_id(record, places)
                yield record
        if not count and not allow_empty:
            place = "standard input" if location == STDIN else str(location)
            raise UserError(
                "is empty", where=place, todo="it must hold at least one record"
            )
    finally:
        places.close()
        if mended_count and say_mended:
            mended_in = many(mended_count, "record")
            log.warning(
                f"{first_mended}: half a surrogate pair replaced by U+FFFD, in {mended_in}"
            )


def _record_in(row: RawRow, names: FieldNames) -> tuple[Record, bool]:
    """The record in a row, and whether its text was mended, see `mended_text`."""
    value = row.value
    record = record_of(value, row.where, row.number, names)
    segments = record.target_segments or ()
    texts = (record.id, record.source, record.target or "")
    text = "".join((*texts, *segments, *record.references))
    if text.isascii() or mended_text(text) == text:
        return record, False
    record = record_of(mended(value), row.where, row.number, names)
    return structs.replace(record, fields=value), True


def _require_source(record: Record, names: FieldNames, skippable: bool) -> None:
    """Raise a UserError if a record has no source, or an empty one."""
    todo = "give the record a source, or leave it out"
    if skippable:
        todo += " with --skip-invalid"
    if record.fields.get(names.source) is None:
        hint = f"--source-field names another, or {todo}"
        raise missing_field(record.fields, names.source, record.where, hint)
    if not record.source.strip():
        raise UserError(f"{names.source!r} is empty", where=record.where, todo=todo)


def _require_own_id(record: Record, places: FirstPlaces) -> None:
    """Raise a UserError if an earlier record has the same identifier."""
    before = places.before(record.id, record.where)
    if before is not None:
        what = f"id {record.id!r} was already used at {before}"
        todo = "give each record an id of its own"
        raise UserError(what, where=record.where, todo=todo)


def read_rows(
    location: str | Path, split: SplitName | None = None, plain: bool = False
) -> Iterator[RawRow]:
    """Yield the raw rows of a place in order; of a folder or a hub data set those of a split (default: train).

    The place is ``-`` (JSON lines on standard input), a file (JSON lines; ``.json``, an
    array or lines; ``.csv`` and ``.tsv`` with a header; ``.parquet``; all but parquet
    also gzipped), a folder with a file for each split or with `corpus_files`, or a hub
    data set ``owner/name[:config]``. With `plain`, each line that is not blank is a
    ``source``.
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
        # The rows of a hub data set are streamed: nothing is copied, memory stays
        # bounded.
        name, config, splits = _hub(location)
        split = split or "train"
        if (theirs := splits.get(split)) is None:
            raise UserError(f"has no split for {split}", where=name)
        with _hub_errors(name):
            streamed = _datasets().load_dataset(
                name, config, split=theirs, streaming=True
            )
            yield from _rows_of(streamed, f"{name} {theirs} row")


def _file_rows(path: Path, plain: bool) -> Iterator[RawRow]:
    place = str(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = (
        ""
        if plain
        else next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")
    )
    if kind == ".parquet":
        import pyarrow
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(path) as table:
                batches = table.iter_batches(batch_size=1000)
                values = (value for batch in batches for value in batch.to_pylist())
                yield from _rows_of(values, f"{path} row")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"cannot be read: {first_line(error)}", where=str(path)
            ) from error
        return
    with _opened(path) as file:
        if kind in (".csv", ".tsv"):
            yield from _table_rows(file, place, "," if kind == ".csv" else "\t")
        elif kind == ".json" and file.peek(4096).removeprefix(
            BYTE_ORDER_MARK
        ).lstrip().startswith(b"["):
            yield from _rows_of(
                as_json(file.read().removeprefix(BYTE_ORDER_MARK), place),
                f"{path} item",
            )
        else:
            yield from _line_rows(file, place, plain)


def _line_rows(stream: Iterable[bytes], name: str, plain: bool) -> Iterator[RawRow]:
    """The rows of JSON lines, or of plain lines as sources, without blank lines."""
    blank = 0
    for number, line in _numbered(stream, name):
        where = f"{name}:{number}"
        if plain and line.decode("utf-8", "replace").strip():
            read = partial(
                lambda line, where: {"source": as_text(line.rstrip(b"\r\n"), where)},
                line,
                where,
            )
            yield RawRow(number, where, read)
        elif plain:
            blank += 1
        elif line.strip():
            yield RawRow(number, where, partial(as_json, line, name, number))
    if blank:
        log.warning(f"{name}: {many(blank, 'blank line')} left out")


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, gzipped or not, each with its number from 1. Only a line feed ends a line."""
    with _opened(path) as file:
        for number, line in _numbered(file, str(path)):
            yield number, as_text(line.rstrip(b"\r\n"), f"{path}:{number}")


def _numbered(stream: Iterable[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stream, start=1):
        if number == 1:
            require_text(line, name)
        yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


@contextmanager
def _opened(path: Path) -> Iterator[_Binary]:
    try:
        with (
            gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file
        ):
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"cannot unzip: {error}", where=str(path), todo="is it whole?"
        ) from None
    except (FileNotFoundError, PermissionError) as error:
        raise unreadable(path, error) from None


def _decoded(file: _Binary, name: str) -> Iterator[str]:
    """The lines of a table as text; a carriage return alone ends a line, too."""
    for number, line in _numbered(file, name):
        yield from io.StringIO(as_text(line, f"{name}:{number}"), newline="")


def _table_rows(file: _Binary, name: str, separator: str) -> Iterator[RawRow]:
    # Not by a library for tables: those guess numbers, dates and missing values, and
    # shift the columns of a row that has a cell too many. Here every cell stays text,
    # and such a row is refused.
    csv.field_size_limit(
        sys.maxsize
    )  # for the whole process; the default is some 20,000 words
    line = 1
    beginning = file.peek(1)
    require_text(beginning, name)
    header = beginning.partition(b"\n")[0]
    if separator == "," and b";" in header and b"," not in header:
        what = "the header has ';' between its columns"
        todo = "separate with commas, or use .tsv"
        raise UserError(what, where=f"{name}:1", todo=todo)
    try:
        reader = csv.reader(_decoded(file, name), delimiter=separator, strict=True)
        columns = next(reader, [])
        while (
            columns and not columns[-1].strip()
        ):  # a spreadsheet leaves some behind the last one
            del columns[-1]
        if (
            twice := next((one for one in columns if columns.count(one) > 1), None)
        ) is not None:
            raise UserError(f"column {twice!r} is there twice", where=f"{name}:1")
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                where = f"{name}:{line}"
                yield RawRow(line, where, partial(_named_cells, columns, cells, where))
            line = reader.line_num + 1
    except csv.Error as error:
        todo = "are the quotation marks closed?"
        raise UserError(
            f"not a table: {error}", where=f"{name}:{line}", todo=todo
        ) from None


def _named_cells(columns: list[str], cells: list[str], where: str) -> dict[str, str]:
    while len(cells) > len(columns) and not cells[-1].strip():
        del cells[-1]
    if len(cells) != len(columns):
        todo = "put cells that hold the separator into quotation marks"
        raise UserError(
            f"{many(len(cells), 'cell')} under {len(columns)} columns",
            where=where,
            todo=todo,
        )
    return dict(zip(columns, cells, strict=True))


def _rows_of(values: Iterable[Any], place: str) -> Iterator[RawRow]:
    for number, value in enumerate(values, start=1):
        where = f"{place} {number}"
        yield RawRow(number, where, partial(_plain_value, value, where))


def _plain_value(value: Any, where: str) -> Any:
    """A value of a table as JSON has it: dates and times in ISO 8601, decimals in digits, bytes as text."""
    if isinstance(value, Mapping):
        return {
            str(name): _plain_value(one, f"{where} field {name!r}")
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain_value(one, where) for one in value]
    if isinstance(value, bytes):
        return as_text(value, where, "leave the column out, or save it as text")
    if isinstance(value, date | time):
        return value.isoformat()
    return (
        value if value is None or isinstance(value, str | int | float) else str(value)
    )
