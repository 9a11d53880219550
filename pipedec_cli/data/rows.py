"""Where data comes from: the rows of a file, of standard input, of a table or of a hub data set, raw or as records.

All data files are opened here; what an object must look like is in `records`. What is not there or cannot be read
is a `UserError`, with line and column where there are any.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from pipedec_cli.data.errors import Aside, UserError, first_line, skipping_invalid
from pipedec_cli.data.reading import BYTE_ORDER_MARK, as_json, as_text
from pipedec_cli.data.records import SPLIT_NAMES, FieldNames, Record, SplitName, missing, record_of, whole
from pipedec_cli.data.stored import FirstPlaces

STDIN: Final = "-"

_SPLIT_FILE: Final = re.compile(rf"^({'|'.join(SPLIT_NAMES)})(?=[-_.])", re.IGNORECASE)
#: What to do about a folder in which no file has such a name.
_NAMES: Final = "name its files train.jsonl, dev.jsonl, test.jsonl, or give a single file"
_HUB_NAME: Final = re.compile(r"(?P<name>[\w.-]+/[\w.-]+?)(?::(?P<config>[\w.-]+))?")
_SUFFIXES: Final = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt", ".gz")
_CORPUS: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".parquet")


class RawRow(NamedTuple):
    """One raw object, before anything is known about its fields."""

    number: int  # of its line, or its place counted from 1 where there are no lines
    where: str  # file:line, or "file row N", for messages
    value: Any


def read_records(
    location: str | Path,
    names: FieldNames | None = None,
    *,
    split: SplitName | None = None,
    plain: bool = False,
    allow_empty: bool = False,
    warn: Callable[[str], None] | None = None,
    aside: Aside | None = None,
) -> Iterator[Record]:
    """Read the records of `read_rows` in order, checking each.

    A target that is a list of strings is already segmented, and so is a record with ``target_segments``, as `segment`
    writes it. Half surrogate pairs, which no tokenizer takes, become U+FFFD in the text that models see; the object
    in `Record.fields` stays as it was. `warn` is told once, when reading ends, if text had to be mended. With `aside`, which
    is told of each, records that cannot be used are passed over.
    """
    names, places, count, mended, first = names or FieldNames(), FirstPlaces(), 0, 0, ""
    try:
        for number, where, fields in read_rows(location, split, plain, aside):
            with skipping_invalid(aside):
                record = record_of(fields, where, number, names)
                if not record.is_whole:
                    mended, first = mended + 1, first or where
                    record = replace(record_of(whole(fields), where, number, names), fields=fields)
                count += 1
                if not record.source.strip():
                    todo = "give the record a source, or leave it out, as `pipedec generate --set-aside` does"
                    if fields.get(names.source) is None:
                        raise missing(fields, names.source, where, "--source-field names another", todo)
                    raise UserError(f"{names.source!r} is empty", where=where, todo=todo)
                if (before := places.before(record.id, where)) is not None:
                    raise UserError(f"id {record.id!r} was already used at {before}", where=where)
                yield record
        if not count and not allow_empty:
            place = "standard input" if location == STDIN else str(location)
            raise UserError("is empty", where=place, todo="it must hold at least one record")
    finally:
        places.close()
        if mended and warn is not None:
            records = "1 record" if mended == 1 else f"{mended:,} records"
            warn(f"{first}: half a surrogate pair replaced by U+FFFD, in {records}")


def read_rows(
    location: str | Path, split: SplitName | None = None, plain: bool = False, aside: Aside | None = None
) -> Iterator[RawRow]:
    """The raw objects of one place, in order, one at a time; of a folder or hub data set those of a split, or train's.

    The place is ``-`` for JSON lines on standard input; a file (JSON lines, gzipped or not; ``.json``, an array or
    lines; ``.csv`` and ``.tsv``, the first line naming the columns; ``.parquet``); a folder with a file for each split,
    or of `corpus_files`; or, where nothing of that name is here, a data set of the hub, ``owner/name`` or ``owner/name:config``. Lines and
    files may be `plain` text instead: each line that is not blank is a ``source``.
    """
    path = Path(location)
    if str(location) == STDIN:
        yield from _line_rows(sys.stdin.buffer, "stdin", plain, aside)
    elif path.is_dir():
        files = corpus_files(path) or _split_files(path).get(split or "train", [])
        for number, row in enumerate(
            (row for file in files for row in _file_rows(file, plain, aside)), start=1
        ):
            yield row._replace(number=number)
    elif path.exists():
        yield from _file_rows(path, plain, aside)
    elif plain:
        raise UserError("no such file", where=str(location))
    else:
        name, config, splits = _hub(location)
        if (theirs := splits.get(split or "train")) is None:
            raise UserError(f"has no split for {split or 'train'}", where=name)
        yield from _streamed(f"{name} {theirs}", name, name, config, aside=aside, split=theirs)


def given_splits(location: str | Path, todo: str = _NAMES) -> tuple[SplitName, ...]:
    """The splits that a folder or a hub data set comes in; () for a single file or standard input.

    A folder without any is refused, with `todo`.
    """
    path = Path(location)
    if path.is_dir():
        return tuple(_split_files(path, todo))
    return () if str(location) == STDIN or path.exists() else tuple(_hub(location)[2])


def is_hub_name(location: str | Path) -> bool:
    """Whether there is nothing of that name here, so that the hub will be asked for it."""
    return str(location) != STDIN and not Path(location).exists() and _hub_match(location) is not None


def _line_rows(stream: Iterable[bytes], name: str, plain: bool, aside: Aside | None) -> Iterator[RawRow]:
    """The values of JSON lines, or plain ones as sources; blank lines and a byte order mark at the start are passed over."""
    for number, line in _numbered(stream):
        where = f"{name}:{number}"
        with skipping_invalid(aside):
            if not plain:
                if line.strip():
                    yield RawRow(number, where, as_json(line, name, number))
            elif (text := as_text(line.rstrip(b"\r\n"), where)).strip():
                yield RawRow(number, where, {"source": text})


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, gzipped or not, each with its number from 1; only line feeds end them, and are left out."""
    with _opened(path) as file:
        for number, line in _numbered(file):
            yield number, as_text(line.rstrip(b"\r\n"), f"{path}:{number}")


def _numbered(stream: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stream, start=1):
        yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader | gzip.GzipFile]:
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"cannot unzip: {error}", where=str(path), todo="is it whole?") from None
    except FileNotFoundError:
        raise UserError("no such file", where=str(path)) from None
    except PermissionError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path)) from None


def _file_rows(path: Path, plain: bool, aside: Aside | None) -> Iterator[RawRow]:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = "" if plain else next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")
    if kind == ".parquet":
        yield from _streamed(
            str(path), str(path), "parquet", aside=aside, split="train", data_files=str(path)
        )
        return
    with _opened(path) as file:
        if kind in (".csv", ".tsv"):
            yield from _table_rows(file, str(path), "," if kind == ".csv" else "\t", aside)
        elif kind == ".json" and file.peek(4096).removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"["):
            items = as_json(file.read().removeprefix(BYTE_ORDER_MARK), str(path))
            for number, value in enumerate(items, start=1):
                yield RawRow(number, f"{path} item {number}", value)
        else:
            yield from _line_rows(file, str(path), plain, aside)


def _table_rows(
    file: io.BufferedReader | gzip.GzipFile, name: str, separator: str, aside: Aside | None
) -> Iterator[RawRow]:
    # Libraries for tables guess numbers, dates and missing values, and shift the columns of a row that has one cell too
    # many. Here every cell stays the text it is, and such a row is refused.
    csv.field_size_limit(sys.maxsize)  # for the whole process; the default stops at some 20,000 words
    line = 1
    if separator == "," and b";" in (header := file.peek(1).partition(b"\n")[0]) and b"," not in header:
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
                with skipping_invalid(aside):
                    if len(cells) not in (0, len(columns)):
                        what = f"{len(cells)} cells under {len(columns)} columns"
                        raise UserError(what, where=f"{name}:{line}")
                    if cells:
                        yield RawRow(line, f"{name}:{line}", dict(zip(columns, cells, strict=True)))
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: {error.reason}", where=name, todo="save the file as UTF-8") from None
    except csv.Error as error:
        todo = "are the quotation marks closed?"
        raise UserError(f"not a table: {error}", where=f"{name}:{line}", todo=todo) from None


def files_by_split(
    folder: Path, named: re.Pattern[str], accepts: Callable[[Path], bool]
) -> dict[SplitName, list[Path]]:
    """The files of a folder by split, as the first group of a pattern finds it in their names; no empty splits."""
    found: dict[SplitName, list[Path]] = {split: [] for split in SPLIT_NAMES.values()}
    for file in sorted(folder.iterdir()):
        if (word := named.search(file.name)) and file.is_file() and accepts(file):
            found[SPLIT_NAMES[word[1].lower()]].append(file)
    return {split: files for split, files in found.items() if files}


def _split_files(folder: Path, todo: str = _NAMES) -> dict[SplitName, list[Path]]:
    """The data files of each split in a folder, by name: ``train.jsonl``, ``validation-00000-of-00001.parquet``."""
    found = files_by_split(folder, _SPLIT_FILE, lambda file: file.name.lower().endswith(_SUFFIXES))
    if not found:
        raise UserError("a folder without a file for any split", where=str(folder), todo=todo)
    return found


def corpus_files(folder: Path) -> list[Path]:
    """The JSON lines and parquet files of a folder in the order of their names, where none is named after a split."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    named = any(_SPLIT_FILE.search(file.name) and file.name.lower().endswith(_SUFFIXES) for file in files)
    return [] if named else [file for file in files if file.name.lower().endswith(_CORPUS)]


def _hub_match(location: str | Path) -> re.Match[str] | None:
    """The location read as a hub name, unless it looks like a path that was mistyped."""
    text = str(location)
    mistyped = text.lower().endswith(_SUFFIXES) or Path(text).parent.exists()
    return None if mistyped else _HUB_NAME.fullmatch(text)


def _hub(location: str | Path) -> tuple[str, str | None, dict[SplitName, str]]:
    """Name, configuration and splits (by our names, each with its own) of a data set that is no file and no folder."""
    if (found := _hub_match(location)) is None:
        todo = "give a file, a folder, `-` for standard input, or a hub data set `owner/name`"
        raise UserError("no such file", where=str(location), todo=todo)
    name, config = found["name"], found["config"]
    with _datasets(name, "no such file here either"):
        from datasets import get_dataset_split_names

        splits = get_dataset_split_names(name, config)
    return name, config, {SPLIT_NAMES[split]: split for split in splits if split in SPLIT_NAMES}


def _streamed(
    place: str, where: str, *arguments: Any, aside: Aside | None = None, **options: Any
) -> Iterator[RawRow]:
    """Rows as `datasets` streams them: nothing is copied to its cache, and memory stays bounded."""
    with _datasets(where):
        from datasets import load_dataset

        for number, value in enumerate(load_dataset(*arguments, streaming=True, **options), start=1):
            row = f"{place} row {number}"
            with skipping_invalid(aside):
                yield RawRow(number, row, _plain(value, row))


def _plain(value: Any, where: str) -> Any:
    """A value of a table as JSON could hold it: dates and times in ISO 8601, decimals in digits, bytes as their text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one, f"{where} field {name!r}") for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, where) for one in value]
    if isinstance(value, bytes):
        return as_text(value, where, "leave the column out, or save it as text")
    if isinstance(value, date | time):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float) else str(value)


@contextmanager
def _datasets(where: str, todo: str | None = None) -> Iterator[None]:
    """Use the library `datasets`: it neither logs nor counts downloads, and its errors become one line."""
    import datasets
    import huggingface_hub

    counts = datasets.config.HF_UPDATE_DOWNLOAD_COUNTS
    loggers = [library.utils.logging for library in (datasets, huggingface_hub)]
    levels = [logging.get_verbosity() for logging in loggers]
    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = False  # release 3 ran code, or asked
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # else a local file is reported over the network, too
    for logging in loggers:
        logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the library raises whatever its file systems, parsers and HTTP client raise
        deepest: BaseException = error
        while deepest.__cause__ is not None:
            deepest = deepest.__cause__
        what = f"cannot be read: {first_line(deepest)}"
        if "script" in what:
            what = "needs a loading script, and no program of a data set is run here"
            todo = f"fetch its files (`hf download {where} --repo-type dataset --local-dir DIR`) and import those"
        raise UserError(what, where=where, todo=todo) from error
    finally:
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = counts
        for logging, level in zip(loggers, levels, strict=True):
            logging.set_verbosity(level)
