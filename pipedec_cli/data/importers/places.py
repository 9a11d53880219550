"""The files that a published data set comes in: one file, a folder with a file for each split, or the hub's."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import SPLIT_NAMES, SPLITS, SplitName
from pipedec_cli.data.rows import Row, given_splits, read_rows

_DATA_SUFFIXES: Final = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet", ".txt")

#: The name of a split, set off from the rest of a file's name: ``kp20k_training.json``, ``KPTimes.train.jsonl.gz``,
#: ``validation-00000-of-00001.parquet``.
_SPLIT_WORD: Final = re.compile(
    rf"(?<![a-z0-9])({'|'.join(sorted(SPLIT_NAMES, key=len, reverse=True))})(?![a-z0-9])", re.IGNORECASE
)


def splits_at(location: str) -> tuple[SplitName, ...]:
    """The splits that a place holds, in the order train, dev, test; () for a single file or standard input.

    Raises:
        UserError: a folder without a file for any split, or nothing there at all.
    """
    folder = Path(location)
    if folder.is_dir():
        return tuple(split_files(folder))
    with _without_programs(location):
        return given_splits(location)


def rows_at(location: str, split: SplitName | None) -> Iterator[Row]:
    """The raw rows of a file, of one split of a folder, or of one split of a hub data set.

    Args:
        location: a file, a folder, ``-``, or ``owner/name`` or ``owner/name:config`` of the hub.
        split: which split; None for a single file.

    Raises:
        UserError: there is nothing there, or it cannot be read; with the line where there is one.
    """
    path = Path(location)
    if path.is_dir():
        for file in files_of(path, split):
            yield from read_rows(file)
    elif path.exists() or location == "-":
        yield from read_rows(location)
    else:
        with _without_programs(location):
            yield from read_rows(location, split)


def files_of(folder: Path, split: SplitName | None) -> list[Path]:
    """The data files of one split of a folder; the only split there is, if none is named.

    Raises:
        UserError: the folder has no such split.
    """
    found = split_files(folder)
    if split is None and len(found) == 1:
        split = next(iter(found))
    if split not in found:
        raise UserError(
            f"has no split {split}" if split else "has several splits",
            where=str(folder),
            todo=f"it has {', '.join(found)}",
        )
    return found[split]


def split_files(folder: Path, accepts: Callable[[Path], bool] | None = None) -> dict[SplitName, list[Path]]:
    """The data files of each split in a folder, or in its folder ``data``, told by their names.

    Args:
        folder: where to look.
        accepts: whether a file is one; by its suffix if None.

    Raises:
        UserError: there is none.
    """
    accepts = accepts or _is_data
    for place in (folder, folder / "data"):
        found: dict[SplitName, list[Path]] = {split: [] for split in SPLITS}
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            name = split_of(file)
            if name is not None and file.is_file() and accepts(file):
                found[name].append(file)
        if any(found.values()):
            return {split: files for split, files in found.items() if files}
    inside = sorted(child.name for child in folder.iterdir() if child.is_dir())
    raise UserError(
        "a folder without a file for any split (train…, valid…, test…)",
        where=str(folder),
        todo=f"give one of its folders ({', '.join(inside[:8])}) or a file" if inside else "give a file",
    )


def _is_data(file: Path) -> bool:
    return file.name.lower().removesuffix(".gz").endswith(_DATA_SUFFIXES)


def split_of(file: Path) -> SplitName | None:
    """The split that a file's name tells, or None."""
    match = _SPLIT_WORD.search(file.name)
    return SPLIT_NAMES[match[1].lower()] if match else None


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, gzipped or not, each with its number from 1 and without its end.

    Only a line feed ends a line: text may hold any other separator that Unicode knows.

    Raises:
        UserError: it is not there, cannot be unzipped, or a line is not UTF-8.
    """
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield number, _decoded(line, path, number)
    except (EOFError, gzip.BadGzipFile) as error:
        raise UserError(f"cannot unzip: {error}", where=str(path), todo="is it whole?") from None
    except FileNotFoundError:
        raise UserError("no such file", where=str(path)) from None


def _decoded(line: bytes, path: Path, number: int) -> str:
    content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    try:
        return content.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8: byte {content[error.start]:#04x} at position {error.start + 1}",
            where=f"{path}:{number}",
            todo="save the file as UTF-8",
        ) from None


@contextmanager
def _without_programs(name: str) -> Iterator[None]:
    """Say how a hub data set that comes with a program can be had all the same.

    Such data sets keep plain data files beside their program; those can be read without running anything.
    """
    try:
        yield
    except UserError as error:
        if "script" not in error.what:
            raise
        raise UserError(
            "needs a loading script, and no program of a data set is run here",
            where=name,
            todo=f"fetch its files (`hf download {name.partition(':')[0]} --repo-type dataset --local-dir DIR`) "
            "and import those",
        ) from error
