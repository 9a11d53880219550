"""Reads what a job is given as records: a file, a folder with splits, standard input or the hub; and the shards of a job.

All records are read and checked once before a job begins. `file_formats` and `hub` read
their rows.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from msgspec import structs

from pipedec_cli.data.errors import OnInvalid, UserError, log, many, skipping_invalid
from pipedec_cli.data.file_formats import SUFFIXES, RawRow, file_rows, line_rows
from pipedec_cli.data.hub import hub_data_set, hub_match
from pipedec_cli.data.reading import mended, mended_text, missing_field
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
        """The positions of its records among all `count`, from 0: of the first one, and behind the last one."""
        return count * (self.number - 1) // self.of, count * self.number // self.of

    @classmethod
    def parse(cls, value: object) -> Self:
        """The shard that a command line names, such as ``3/16``; a ValueError if it names none."""
        shard = cls._matched(_WRITTEN.fullmatch(str(value)))
        if shard is None:
            raise ValueError(
                f"{value!r} is no shard; write K/N, such as 1/4 for the first of four"
            )
        return shard

    @classmethod
    def named(cls, file: str) -> Self | None:
        """The shard whose file has this name, see `file`; None if it is no such name."""
        return cls._matched(_NAMED.fullmatch(file))

    @classmethod
    def _matched(cls, match: re.Match[str] | None) -> Self | None:
        """The shard of a match whose groups are the two numbers; None without a match, and for 0/4 or 5/4."""
        if match is None:
            return None
        shard = cls(int(match[1]), int(match[2]))
        return shard if 1 <= shard.number <= shard.of else None


@dataclass(frozen=True, slots=True)
class Inputs:
    """The valid records of a job or of one shard of it, counted. They can be read again and again."""

    count: int
    sha256: str  # of all records of the job, in order
    longest: int  # characters of the longest source
    names: FieldNames
    # `read(first, end)`: the records from position `first` (0) up to `end` (None: all).
    read: Callable[..., Iterator[Record]]
    file: Mapping[str, str | None]  # where they come from, as a manifest lists it
    invalid: InvalidRecords | None = None  # those that are skipped; None: none may be
    shard: Shard | None = None  # the part of the job; None for all of it
    total: int = 0  # the job's records, where this is a shard

    def part(self, shard: Shard) -> Inputs:
        """The records of one shard."""
        first, end = shard.records(self.count)
        count = end - first
        read = partial(self.read, first, end)
        return replace(self, count=count, read=read, shard=shard, total=self.count)

    def skipped(self) -> Iterator[dict[str, Any]]:
        """What is wrong with each skipped record that stands between these: ``where``, ``what`` and ``todo``."""
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
    """Read all records once to check and count them.

    Args:
        read: reads them from their beginning, each time it is called.
        names: the fields that each record must have.
        limit: the first so many valid records are taken; None: all.
        keep: for records from a pipe, which can be read but once: the folder in or near
            which they are kept on disk.
        location: where they come from, for messages and the manifest.
        invalid: takes the errors of invalid records, which are skipped. `read` must
            give it those that it finds. None: such a record is a UserError.

    Raises:
        UserError: there is no valid record.
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
        identity = [record.id, record.source, dict(record.fields)]
        digest.update(to_json(identity).encode() + b"\n")
        if kept is not None:
            kept.append(record)
        if invalid:
            invalid.valid = count
    if invalid:
        invalid.closed = True
        if not count:
            raise _none_valid(invalid, location)
    return Inputs(
        count, digest.hexdigest(), longest, names, read_again, hashed(location), invalid
    )


def _none_valid(invalid: InvalidRecords, location: str) -> UserError:
    """The error of data without a valid record, with what is wrong with the first record."""
    first = next(invalid.between(), None)
    if first is None:
        return UserError("is empty", where=location)
    what = "none of its records can be used; the first: {where}: {what}"
    return UserError(what.format(**first), where=location)


STDIN: Final = "-"

_SPLIT_FILE: Final = re.compile(rf"^({'|'.join(SPLIT_NAMES)})(?=[-_.])", re.IGNORECASE)
#: What to do about a folder without such a file.
_NAME_FILES: Final = (
    "name its files train.jsonl, dev.jsonl, test.jsonl, or give a single file"
)
#: How the names of a corpus' files end: of a folder of records without splits.
_CORPUS: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".parquet")


def given_splits(
    location: str | Path, todo: str = _NAME_FILES
) -> tuple[SplitName, ...]:
    """The splits that a folder or hub data set brings; () for a file and standard input.

    A UserError for a folder without any says what `todo` about it.
    """
    path = Path(location)
    if path.is_dir():
        return tuple(split_files(path, todo))
    if str(location) == STDIN or path.exists():
        return ()
    return tuple(hub_data_set(location).splits)


def _has_known_format(file: Path) -> bool:
    """Whether a file's name ends as that of a format that can be read."""
    return file.name.lower().endswith(SUFFIXES)


def files_by_split(
    folder: Path,
    pattern: re.Pattern[str] = _SPLIT_FILE,
    accepts: Callable[[Path], bool] = _has_known_format,
) -> dict[SplitName, list[Path]]:
    """The files of each split that a folder has, by the files' names.

    Files are taken in whose name the pattern is found, its first group being a name of
    a split, and that `accepts` takes.
    """
    by_split: dict[SplitName, list[Path]] = {name: [] for name in SPLIT_NAMES.values()}
    for file in sorted(folder.iterdir()):
        match = pattern.search(file.name)
        if match and file.is_file() and accepts(file):
            by_split[SPLIT_NAMES[match[1].lower()]].append(file)
    return {split: files for split, files in by_split.items() if files}


def split_files(folder: Path, todo: str = _NAME_FILES) -> dict[SplitName, list[Path]]:
    """The files of each split, by names such as ``train.jsonl`` and ``validation-00000-of-00001.parquet``.

    A UserError for a model's folder, and for one without any such file, which says what
    `todo` about it.
    """
    refuse_model(folder)
    by_split = files_by_split(folder)
    if not by_split:
        what = "a folder without a file for any split"
        raise UserError(what, where=folder, todo=todo)
    return by_split


def refuse_model(folder: Path) -> None:
    """Raise a UserError for a model's folder."""
    weights = (*folder.glob("*.safetensors"), *folder.glob("*.bin"))
    if weights and (folder / "config.json").is_file():
        todo = "name it with --model, and give a file or a folder of records"
        raise UserError("is a model, and no data", where=folder, todo=todo)


def corpus_files(folder: Path) -> list[Path]:
    """The JSON lines and parquet files of a folder by name; none if a file is named after a split."""
    if files_by_split(folder):
        return []
    files = []
    for file in sorted(folder.iterdir()):
        is_shown = file.is_file() and not file.name.startswith(".")
        if is_shown and file.name.lower().endswith(_CORPUS):
            files.append(file)
    return files


def is_hub_name(location: str | Path) -> bool:
    """Whether nothing of that name is here, so that the hub is asked for it."""
    if str(location) == STDIN or Path(location).exists():
        return False
    return hub_match(location) is not None


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
    """Read the records of a place in order, and check each.

    Half surrogate pairs, which no model can be given, become U+FFFD in the text;
    `Record.fields` keeps the object unchanged.

    Args:
        location: the place, see `read_rows`.
        split: of a folder or hub data set, the split to read; None: train.
        plain: the place is text, and each line a source.
        names: the fields that hold source, target and the rest; None: the usual names.
        allow_empty: no record at all is no error.
        say_mended: a warning at the end counts the records whose text was mended.
        invalid: takes the error of each record that cannot be used, which is skipped.
            None: the error is raised.
        skippable: the command can skip such records, so that the error says how.
    """
    names = names or FieldNames()
    first_places = FirstPlaces()
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
                _require_own_id(record, first_places)
                yield record
        if not count and not allow_empty:
            where = "standard input" if location == STDIN else str(location)
            todo = "it must hold at least one record"
            raise UserError("is empty", where=where, todo=todo)
    finally:
        first_places.close()
        if mended_count and say_mended:
            what = "half a surrogate pair replaced by U+FFFD"
            log.warning(f"{first_mended}: {what}, in {many(mended_count, 'record')}")


def _record_in(row: RawRow, names: FieldNames) -> tuple[Record, bool]:
    """The record in a row, and whether half surrogate pairs in its text had to be replaced."""
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


def _require_own_id(record: Record, first_places: FirstPlaces) -> None:
    """Raise a UserError if an earlier record has the same identifier, and note that this record has it."""
    before = first_places.before(record.id, record.where)
    if before is not None:
        raise UserError(
            f"id {record.id!r} was already used at {before}",
            where=record.where,
            todo="give each record an id of its own",
        )


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
        yield from line_rows(sys.stdin.buffer, "stdin", plain)
    elif path.is_dir():
        files = corpus_files(path) or split_files(path).get(split or "train", [])
        rows = (row for file in files for row in file_rows(file, plain))
        for number, row in enumerate(rows, start=1):
            yield replace(row, number=number)
    elif path.exists() or plain:
        yield from file_rows(path, plain)
    else:
        yield from hub_data_set(location).rows(split or "train")
