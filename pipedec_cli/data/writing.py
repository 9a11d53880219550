"""Files that are whole or not there, files that grow by a line, the lock of their only writer, and what made a result."""

import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import shlex
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from io import RawIOBase
from itertools import count
from pathlib import Path
from secrets import token_hex
from time import strftime
from typing import Any, Final, Literal, Self, TextIO

from pipedec_cli.data.errors import UserError, log, naming
from pipedec_cli.data.reading import as_json, real, require_writable
from pipedec_cli.data.records import Record

#: What a file system without locks answers.
_UNSUPPORTED: Final = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
#: The most bytes that a lock file holds.
_LONGEST: Final = 400


@contextmanager
def only_writer(path: Path, *, todo: str, folder: bool = False) -> Iterator[None]:
    """Be the only one that writes to a file or, with `folder`, to a folder.

    A `UserError` if there is another writer: it says who, and what `todo`. The folder
    that holds the lock is made if need be, and removed again if it is still empty.
    Warns if the file system has no locks. Nothing is locked where nothing can be
    written.
    """
    path = real(path)
    lock = path / ".lock" if folder else path.with_name(f".{path.name}.lock")
    is_new = not lock.parent.exists()
    if is_new:
        require_writable(lock.parent)
    lock.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if os.access(lock.parent, os.W_OK):
            with naming(path, instead=True):
                file, holder = _lock(lock)
            held.callback(os.close, file)
            if holder == "nobody can":
                unlocked = f"there are no locks in {lock.parent}"
                log.warning(
                    f"{unlocked}: make sure that no other command writes to {path}"
                )
            if holder == "another":
                what = f"is being written by {_told(file)}"
                raise UserError(what, where=path, todo=f"wait for it, or {todo}")
            # Removed before it is released: then it may be another's.
            held.callback(_remove, lock, folder=is_new)
            command = shlex.join(["pipedec", *sys.argv[1:]])[:100]
            since = strftime("%Y-%m-%d %H:%M")
            told = f"process {os.getpid()} on {socket.gethostname()} since {since} ({command})"
            os.truncate(file, 0)
            os.pwrite(file, told.encode(errors="replace")[:_LONGEST], 0)
        yield


def writer_of(folder: Path) -> str | None:
    """The process that writes to a folder now, as its lock tells; None if there is none, or nobody can know."""
    with suppress(OSError):
        file = os.open(folder / ".lock", os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _told(file)
        finally:
            os.close(file)
    return None


def _told(lock: int) -> str:
    """Who holds a lock, as its file tells, whose descriptor is given."""
    told = " ".join(os.pread(lock, _LONGEST, 0).decode(errors="replace").split())
    return told if told.startswith("process ") else "another process"


def _remove(lock: Path, *, folder: bool) -> None:
    with suppress(OSError):
        lock.unlink()
        if folder:
            lock.parent.rmdir()  # fails if the folder holds anything


def new_file(path: Path) -> tuple[Path, int]:
    """A new hidden file beside a path, in which the path's content is written, and its descriptor, which holds its lock.

    What killed processes left of such files is removed.
    """
    remove_partials(path.parent, escape(path.name))
    while True:
        temporary = path.with_name(f".{path.name}.{token_hex(4)}.partial")
        file, holder = _lock(temporary)
        if holder != "another":  # another process removes it as left over
            return temporary, file
        os.close(file)


def remove_partials(folder: Path, name: str = "*") -> list[Path]:
    """Remove the hidden files in which killed processes wrote; returns them.

    They were to be files of that `name`, a pattern, in the folder.
    """
    removed = []
    for left in _partials(folder, name):
        with suppress(OSError):
            file, holder = _lock(left)
            if holder == "we":
                left.unlink()
                removed.append(left)
            os.close(file)
    return removed


def _partials(folder: Path, name: str) -> Iterator[Path]:
    return folder.glob(f".{name}.*.partial")


def _lock(path: Path) -> tuple[int, Literal["we", "another", "nobody can"]]:
    """Open a file, made if need be, and try to lock it. Returns its descriptor, and who holds the lock now."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return file, "another"
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(file)
                raise
            return file, "nobody can"
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file, "we"
        os.close(file)  # the path now is another file, or none


def backups(*paths: Path) -> list[Path]:
    """Free names for files that are to be kept: FILE.bak for each, or all with the same number, FILE.bak2, where one is taken."""
    for number in count(1):
        ending = ".bak" if number == 1 else f".bak{number}"
        kept = [path.with_name(path.name + ending) for path in paths]
        if not any(map(os.path.lexists, kept)):
            break
    return kept


PACKAGES: Final = ("pipedec", "torch", "transformers", "tokenizers", "datasets", "nltk")


@contextmanager
def atomic_writer(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 text file that takes its name only once all of it is on disk; line ends are written as given.

    Its folder is made if need be. On any exception, Ctrl-C and a full disk among them,
    what stood at `path` stays. A link is followed; a device or a pipe takes the text as
    it comes.
    """
    # Under the name that was given: what /dev/stdout leads to may have no other.
    if path.exists() and not path.is_file():
        with naming(path), path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    path = real(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path, instead=True):
        temporary, descriptor = new_file(path)
    try:
        with (
            naming(path),
            os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file,
        ):
            yield file
            file.flush()
            os.fsync(file.fileno())
            # While its lock is held: what nobody holds is cleaned away.
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_together(texts: Mapping[Path, Iterable[str]], last: Path) -> None:
    """Write text files that belong together, each from the parts of its text: all of them or, on an error, none.

    The file `last` stands for the others. It goes before they come, and comes when they
    are there: a kill in between leaves no mixture of old and new files that seems
    whole.
    """
    with ExitStack() as stack:
        files = {}
        # The first one that is entered gets its name last.
        for path in sorted(texts, key=lambda path: path != last):
            files[path] = stack.enter_context(atomic_writer(path))
        for path, parts in texts.items():
            with naming(path):
                files[path].writelines(parts)
                files[path].flush()
                # Now, so that but a moment passes until all have their names.
                os.fsync(files[path].fileno())
        real(last).unlink(missing_ok=True)


def to_json(value: object, *, indent: int | None = None) -> str:
    """The value as readable JSON, or with escapes if it holds half a surrogate pair, which UTF-8 cannot store."""
    with suppress(UnicodeEncodeError):
        text = json.dumps(value, ensure_ascii=False, indent=indent)
        text.encode("utf-8")
        return text
    return json.dumps(value, indent=indent)


def rounded(values: Mapping[str, Any], digits: int) -> dict[str, Any]:
    """The values with fractions rounded, for JSON that a person may look at."""
    return {
        name: round(value, digits) if isinstance(value, float) else value
        for name, value in values.items()
    }


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with atomic_writer(path) as file:
        file.write(text)


def write_json(path: Path, value: object) -> None:
    """Write one value as an indented JSON file, whole."""
    write_text(path, to_json(value, indent=2) + "\n")


def write_json_lines(path: Path, objects: Iterable[Mapping[str, Any]]) -> int:
    """Write one object a line, the file whole; returns how many there are."""
    with atomic_writer(path) as file:
        return sum(bool(file.write(to_json(item) + "\n")) for item in objects)


def record_fields(record: Record) -> dict[str, Any]:
    """What a record looks like in a file, so that `read_records` gives it back: its own object, its fields made plain.

    ``source``, ``target`` and ``target_segments`` are there under these names whatever
    they were called in the input. An id that was read from the input stays as it was, a
    number for example; other ids are added.
    """
    fields = dict(record.fields)
    if str(fields.get("id")) != record.id:
        fields["id"] = record.id
    fields["source"] = record.source
    if record.target is not None:
        fields["target"] = record.target
    if record.target_fields is not None:
        fields["target"] = dict(record.target_fields)
    if record.target_segments is not None:
        fields["target_segments"] = list(record.target_segments)
    if record.references:
        fields.setdefault("references", list(record.references))
    return fields


class JsonLinesAppender:
    """A JSON-lines file that grows by one flushed line at a time, so that a kill costs at most the line in hand.

    With `resume` the whole lines that are there are kept and a torn last one is cut
    off; else it starts empty.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if resume and path.exists():
            os.truncate(path, _whole_lines_size(path))
        # Unbuffered: what a full disk has refused must not be tried again when the file
        # is closed.
        self._file: RawIOBase = path.open("ab" if resume else "wb", buffering=0)

    def write(self, item: Mapping[str, Any]) -> None:
        """Append one object as a line; one that could not be written in full, on a full disk, is taken back."""
        line = (to_json(item) + "\n").encode("utf-8")
        size = os.fstat(self._file.fileno()).st_size
        try:
            with naming(self.path):
                # A nearly full disk takes a part before it refuses the rest.
                while line:
                    line = line[self._file.write(line) or 0 :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(size)
                # The next line, if there is one, must not leave a hole.
                self._file.seek(size)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # Lines were flushed as they came; nothing is left to write.
        with suppress(OSError):
            self._file.close()


def _whole_lines_size(path: Path) -> int:
    """Bytes up to the end of the last whole line: one that a line feed ends and that is JSON."""
    size = 0
    last = b""
    with path.open("rb") as file:
        for last in file:
            size += len(last)
    with suppress(UserError):
        as_json(last, str(path))
        if last.endswith(b"\n"):
            return size
    return size - len(last)


def read_whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file of ours that may have been cut short: all whole lines, a torn last one left out."""
    end = _whole_lines_size(path)
    number = 0
    with path.open("rb") as file:
        while file.tell() < end:
            number += 1
            value = None
            with suppress(UserError):
                value = as_json(file.readline(), str(path), number)
            if not isinstance(value, dict):
                where = f"{path}:{number}"
                todo = "this file was not written by pipedec"
                raise UserError("not a JSON object", where=where, todo=todo)
            yield value


def first_object(path: Path) -> dict[str, Any]:
    """The object in the first line of a JSON-lines file, or in an indented JSON file; {} for another file."""
    with path.open("rb") as file, suppress(UserError):
        content = file.readline()
        if content == b"{\n":  # an indented file
            content += file.read()
        value = as_json(content, str(path))
        if isinstance(value, dict):
            return value
    return {}


def require_own(path: Path, keys: Set[str], made_by: str) -> None:
    """Raise a UserError if a file stands there that the command `made_by` did not write: it lacks these keys."""
    if _is_filled(path) and not keys <= first_object(path).keys():
        raise _foreign(path, made_by)


def require_own_together(
    paths: Iterable[Path], last: Path, keys: Set[str], made_by: str
) -> None:
    """Raise a UserError if files stand there that the command `made_by` did not write together.

    The file `last` tells whose those at `paths` are: it has these keys, or a kill has
    left it unfinished.
    """
    require_own(last, keys, made_by)
    place = real(last)
    unfinished = _partials(place.parent, escape(place.name))
    if _is_filled(last) or any(unfinished):
        return
    for path in paths:
        if _is_filled(path):
            raise _foreign(path, made_by)


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _foreign(path: Path, made_by: str) -> UserError:
    """The error of a file that would be lost."""
    what = f"was not written by `{made_by}`"
    return UserError(what, where=path, todo="give another --out, or move it away")


def manifest(
    settings: Mapping[str, Any], *, inputs: Iterable[Path | str] = ()
) -> dict[str, Any]:
    """What made a result, to be saved beside it: versions, machine, `settings` and hashes of the `inputs` that were read.

    It holds no time of day: the same command on the same data writes the same. Paths
    are written as strings; standard input, folders and hub data sets have no hash.
    """
    return {
        "versions": package_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "inputs": [hashed(path) for path in inputs],
        "settings": json.loads(json.dumps(dict(settings), default=os.fspath)),
    }


def named_by_hash(parts: Iterable[str], identity: Mapping[str, Any]) -> str:
    """A file's name without its ending: words to read, and a short hash of what makes the file what it is."""
    words = re.sub(r"[^\w.-]+", "-", "-".join(parts))
    content = json.dumps(identity, sort_keys=True, default=str)
    return f"{words[:48]}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def hashed(path: Path | str) -> dict[str, str | None]:
    """What was read, as a manifest lists it: its path and, of a file, its hash."""
    sha256 = None
    if Path(path).is_file():
        sha256 = file_sha256(Path(path))
    return {"path": str(path), "sha256": sha256}


def package_versions(*others: str) -> dict[str, str | None]:
    """The installed versions of what results depend on, as `package_version` gives them."""
    return {name: package_version(name) for name in dict.fromkeys((*PACKAGES, *others))}


def package_version(name: str) -> str | None:
    """The installed version of a package, read without importing it; None if it is not installed, as pipedec in a source tree."""
    # Late: it takes 35 ms, which `pipedec --help` does not have.
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        return version(name)
    return None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
