"""Files that are either whole or not there, and files that grow by one whole line at a time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Record


@contextmanager
def atomic_writer(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 text file that takes its name only once all of it is on disk.

    It is written under a temporary name in the same folder (made if need be), synchronised, and renamed at the
    end. On any exception, Ctrl-C and a full disk among them, it is removed and what stood at `path` stays.

    Args:
        path: the file to make or replace.

    Yields:
        The open file; line ends are written as given.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    temporary = Path(name)
    try:
        with naming(path), os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(_usual_mode())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put a file's name to an error of the operating system that has none: a full disk does not say for which file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def to_json(value: object, *, indent: int | None = None) -> str:
    """The value as JSON that can always be encoded as UTF-8.

    Text stays readable; only a value that holds half a surrogate pair, which no encoding can store, is written
    with escapes instead. NaN and the infinities are written as Python's `json` reads them back.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, indent=indent)
    return text


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with atomic_writer(path) as file:
        file.write(text)


def write_json(path: Path, value: object) -> None:
    """Write one value as an indented JSON file, whole."""
    write_text(path, to_json(value, indent=2) + "\n")


def write_json_lines(path: Path, objects: Iterable[Mapping[str, Any]]) -> int:
    """Write one object a line, the file whole; returns how many there were."""
    count = 0
    with atomic_writer(path) as file:
        for item in objects:
            file.write(to_json(item) + "\n")
            count += 1
    return count


def record_fields(record: Record) -> dict[str, Any]:
    """What a record looks like in a file, so that `read_records` gives it back: its own object, its fields made plain.

    ``source``, ``target`` and ``target_segments`` are there under these names whatever they were called in the
    input. An id that was read from the input stays as it was, a number for example; other ids are added.
    """
    fields = dict(record.fields)
    if str(fields.get("id")) != record.id:
        fields["id"] = record.id
    fields["source"] = record.source
    if record.target is not None:
        fields["target"] = record.target
    if record.target_segments is not None:
        fields["target_segments"] = list(record.target_segments)
    if record.references and "references" not in fields:
        fields["references"] = list(record.references)
    return fields


def read_json(path: Path) -> Any:
    """Read a JSON file of ours.

    Raises:
        UserError: it is not there, or not JSON.
    """
    try:
        return json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise UserError("no such file", where=str(path)) from None
    except ValueError as error:
        raise UserError(f"not a JSON file: {error}", where=str(path)) from None


class JsonLinesAppender:
    """A JSON-lines file that grows by one flushed line at a time, so that a kill costs at most the line in hand.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        """Open the file.

        Args:
            path: the file; its folder is made if need be.
            resume: keep the whole lines that are there and cut off a torn last one; otherwise start empty.

        Raises:
            OSError: the file cannot be written to.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if resume and path.exists():
            os.truncate(path, whole_lines_size(path))
        # Unbuffered: what a full disk has refused must not be tried again when the file is closed.
        self._file: RawIOBase = path.open("ab" if resume else "wb", buffering=0)

    def write(self, item: Mapping[str, Any]) -> None:
        """Append one object as a line and hand it to the operating system.

        A line that could not be written in full (a full disk) is taken back, so that the file ends in a whole one.
        """
        line = (to_json(item) + "\n").encode("utf-8")
        size = os.fstat(self._file.fileno()).st_size
        try:
            with naming(self.path):
                while line:  # a nearly full disk takes a part before it refuses the rest
                    line = line[self._file.write(line) or 0 :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(size)
                self._file.seek(size)  # the next line, if there is one, must not leave a hole
            raise

    def close(self) -> None:
        """Close the file. Lines were flushed as they came; nothing is left to write."""
        with suppress(OSError):
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def whole_lines_size(path: Path) -> int:
    """Bytes of a JSON-lines file up to the end of its last whole line.

    A line is whole if a line feed ends it and it is JSON. A torn last line, left by a kill or a full disk, is
    not counted.
    """
    size = torn_from = 0
    with path.open("rb") as file:
        for line in file:
            torn_from = size
            size += len(line)
    if size == 0:
        return 0
    with path.open("rb") as file:
        file.seek(torn_from)
        last = file.read()
    if not last.endswith(b"\n"):
        return torn_from
    try:
        json.loads(last)
    except ValueError:
        return torn_from
    return size


def read_whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file of ours that may have been cut short: all whole lines, a torn last one left out.

    Raises:
        UserError: a line before the last is not a JSON object, which no kill explains.
    """
    end = whole_lines_size(path)
    position = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            position += len(line)
            if position > end:
                return
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            if not isinstance(value, dict):
                raise UserError(
                    "not a JSON object", where=f"{path}:{number}", todo="this file was not written by pipedec"
                )
            yield value


def _usual_mode() -> int:
    """The mode that a file opened the plain way would get; `mkstemp` makes files that only the owner can read."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
