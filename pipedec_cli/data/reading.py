"""Reads text, JSON and TOML, and checks paths and types. Every fault is a `UserError` with its place."""

import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from pipedec_cli.data.errors import UserError

Shape = TypeVar("Shape")

#: A validation error of msgspec: the expected types, the found type, the field, and the
#: item of a list. It has no attributes: nothing but its words tells these.
_ERROR: Final = re.compile(
    r"Expected `(.+?)`, got `(.+?)`(?: - at `\$\.?(.*?)(?:\[(\d+)\])?`)?"
)
_MISSING: Final = re.compile("Object missing required field `(.+)`")
_TYPES: Final = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def checked(
    value: object,
    shape: type[Shape],
    where: str,
    *,
    field: str = "",
    renamed: Mapping[str, str] = {},
    example: str | None = None,
) -> Shape:
    """Convert decoded JSON to a type, a Struct for example; fields that the Struct does not have are ignored.

    Args:
        value: the JSON value.
        shape: the type.
        where: the value's place, such as file:line, for the error.
        field: its name, if the value is a field of an object.
        renamed: the names in the file of the fields that we call otherwise, by ours.
        example: what to write instead, said where the value is no such object.

    Raises:
        UserError: the value does not fit.
    """
    if renamed and isinstance(value, dict):
        value = value | {ours: value.get(theirs) for ours, theirs in renamed.items()}
    try:
        return msgspec.convert(value, shape)
    except UnicodeEncodeError:
        # Half a surrogate pair, in a string where another type belongs.
        return checked(
            mended(value), shape, where, field=field, renamed=renamed, example=example
        )
    except msgspec.ValidationError as error:
        problem = str(error)
        types = _ERROR.fullmatch(problem)
        if types is None:  # a number out of range, for example
            raise _misfit(problem, where, field, example) from None
        raise _other_type(types, where, field, renamed, example) from None


def _misfit(problem: str, where: str, field: str, example: str | None) -> UserError:
    """The error of a field that is missing, or whose value has the type but does not fit; see `checked`.

    The `problem` is msgspec's sentence, which ends in the path: ``… - at `$.a.b` ``.
    """
    what, _, path = problem.partition(" - at `$")
    name = (field + path.removesuffix("`")).removeprefix(".")
    missing = _MISSING.fullmatch(what)
    if missing:
        inner = f"{name}.{missing[1]}".removeprefix(".")
        return UserError(f"field {inner!r} is missing", where=where, todo=example)
    if name:
        what = f"field {name!r} does not fit: {what}"
    return UserError(what, where=where)


def _other_type(
    types: re.Match[str],
    where: str,
    field: str,
    renamed: Mapping[str, str],
    example: str | None,
) -> UserError:
    """The error of a value of another type than the expected ones; see `checked`.

    `types` is what `_ERROR` matches in msgspec's sentence.
    """
    expected, found, path, item = types.groups()
    what = f"expected {_kind_names(expected)}, found {_kind_name(found)}"
    name = field or path
    if not name:
        return UserError(what, where=where, todo=example)
    in_item = ""
    if item:
        in_item = f", item {int(item) + 1}"
    given_name = renamed.get(name, name)
    todo = None
    if example and f'"{given_name}"' in example:
        todo = example
    return UserError(f"field {given_name!r}{in_item}: {what}", where=where, todo=todo)


def _kind_names(expected: str) -> str:
    """The expected types in words. A whole number is a number."""
    kinds = [_TYPES.get(kind, kind) for kind in expected.split(" | ") if kind != "null"]
    if "a number" in kinds and "a whole number" in kinds:
        kinds.remove("a whole number")
    return " or ".join(kinds)


def _kind_name(found: str) -> str:
    """The type of a value in words. A whole number that does not fit is called a number."""
    if found == "int":
        return "a number"
    return _TYPES.get(found, found)


def missing_field(
    fields: Mapping[str, Any], name: str, where: str, hint: str | None = None
) -> UserError:
    """The error of a field that is absent or null. It lists the fields of the object and gives the `hint`."""
    what = "is null" if name in fields else "is missing"
    todo = f"its fields are: {some_names(fields)}" + (f"; {hint}" if hint else "")
    return UserError(f"field {name!r} {what}", where=where, todo=todo)


def some_names(fields: Iterable[str]) -> str:
    """The first names of an object's fields, for a message."""
    return ", ".join(list(map(str, fields))[:8]) or "none"


def mended_text(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair. JSON can hold halves; UTF-8 and tokenizers cannot."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def mended(value: object) -> Any:
    """A decoded JSON value with U+FFFD for each half of a surrogate pair in its texts."""
    return json.loads(mended_text(json.dumps(value, ensure_ascii=False, default=str)))


BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # some editors begin a file with it
#: The deepest nesting of a value: writing it again takes several of Python's calls a
#: level.
DEEPEST: Final = 100
#: The first line of a table: names of columns with separators between them.
_HEADER: Final = re.compile(r"""["']?\w+["']?([,;\t]["']?\w+["']?)+\s*$""")


#: How files begin that hold no text: what such a file is, and what to do.
_NO_TEXT: Final = (
    (rb"\x1f\x8b", "is compressed with gzip", "end its name in .gz, or unpack it"),
    (rb"BZh[1-9]1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd", "is compressed", "unpack it"),
    (
        rb"PK\x03\x04",
        "is a ZIP file, as .xlsx and .zip are",
        "save a table as CSV, and unpack other files",
    ),
    (rb"PAR1[\0-\x1f]", "is a parquet file", "end its name in .parquet"),
    (rb"\xff\xfe|\xfe\xff", "is UTF-16", "save the file as UTF-8"),
)


def require_text(beginning: bytes, where: str) -> None:
    """Raise a UserError if this is how a file begins that holds no text, as gzip and Excel make them."""
    for pattern, what, todo in _NO_TEXT:
        if re.match(pattern, beginning):
            raise UserError(what, where=where, todo=todo)


def as_text(content: bytes, where: str, todo: str = "save the file as UTF-8") -> str:
    """Bytes as UTF-8 text."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        what = (
            f"not UTF-8: byte {content[error.start]:#04x} at position {error.start + 1}"
        )
        raise UserError(what, where=where, todo=todo) from None


def as_json(content: bytes, file: str, line: int | None = None) -> Any:
    """The JSON value of the bytes of a file or, with its number from 1, of a line of it.

    A UserError names the file and the line: what is no JSON, nested more than `DEEPEST`
    deep, or an object that has a name twice.
    """
    where = f"{file}:{line}" if line else file
    text = as_text(content.rstrip(b"\r\n") if line else content, where)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """The object of these names and values; json calls this for each object, the inner ones first."""
        values = dict(pairs)
        if len(values) < len(pairs):
            times = Counter(name for name, _ in pairs)
            twice = next(name for name in times if times[name] > 1)
            what = f"{twice!r} is there twice"
            raise UserError(what, where=where, todo="leave one of them")
        return values

    try:
        value = json.loads(text, object_pairs_hook=unique)
        if text.count("[") + text.count("{") > DEEPEST and _is_deeper(value, DEEPEST):
            raise RecursionError
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        place = f"{file}:{line or error.lineno}"
        todo = _instead_of(text) if line else ""
        raise UserError(what, where=place, todo=todo) from None
    except RecursionError:
        what = f"not JSON that can be read: nested more than {DEEPEST} deep"
        raise UserError(what, where=where) from None
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"not JSON that can be read: {error}", where=where) from None
    return value


def _instead_of(line: str) -> str:
    """What to do about a line that is no JSON."""
    if _HEADER.match(line):
        return "it looks like a table: rename it to .csv or .tsv"
    todo = "write one JSON object a line"
    if not line.lstrip().startswith(("{", "[")):
        todo += "; a table's name must end in .csv or .tsv"
        todo += "; `pipedec generate` reads plain text with --plain"
    return todo


def _is_deeper(value: object, most: int) -> bool:
    """Whether lists and objects are nested more than `most` deep."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return most == 0 or any(_is_deeper(inner, most - 1) for inner in value)


def read_json(path: Path, shape: type[Struct], made_by: str) -> dict[str, Any]:
    """The object of a JSON file that the command `made_by` writes. It must fit the shape."""
    where = str(path)
    value = as_json(contents(path), where)
    try:
        checked(value, shape, where)
    except UserError as error:
        what = f"not what `{made_by}` writes: {error.what}"
        raise UserError(what, where=where, todo=f"run `{made_by}` again") from None
    return dict(value)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(as_text(contents(path), str(path)))
    except RecursionError:
        raise UserError(
            "not a TOML file that can be read: nested too deep", where=path
        ) from None
    except ValueError as error:
        todo = "write lines KEY = VALUE, each key once, with quotes around text"
        raise UserError(f"not a TOML file: {error}", where=path, todo=todo) from None


def contents(path: Path) -> bytes:
    """The bytes of a file; a UserError if it cannot be read, or begins like one that holds no text."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    require_text(content, str(path))
    return content


def unreadable(path: Path, error: OSError) -> UserError:
    """The error of a file that cannot be opened."""
    what = f"cannot read: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        what = "no such file"
    return UserError(what, where=path, todo="name a file that can be read")


def real(path: Path | str) -> Path:
    """The path with links followed; a loop of links stays (`Path.resolve` fails on it before Python 3.13)."""
    return Path(os.path.realpath(path))


def is_same_place(first: Path | str, second: Path | str) -> bool:
    """Whether two names are those of one file or folder."""
    return Path(first).exists() and real(first) == real(second)


def keep_apart(
    read: Iterable[Path | str],
    written: Iterable[Path],
    todo: str = "give another --out",
) -> None:
    """Raise a UserError, with what `todo`, if a file that is `read` would be `written` over, whatever names both go by."""
    paths = [real(path) for path in written]
    for given in read:
        if str(given) != "-" and real(given) in paths:
            raise UserError("would be written over", where=given, todo=todo)


#: Endings of files that hold something else than the JSON that we write.
_NO_JSON: Final = (".gz", ".csv", ".tsv", ".parquet", ".xlsx", ".xls")


def require_place(
    path: Path | None, *, folder: bool = False, endings: str = ".jsonl or .json"
) -> None:
    """Raise a UserError if no file can be written at `path`, or with `folder` no folder be made there.

    A file stands in the place of a folder, or the reverse. A file that we write holds
    JSON: no name is taken that promises a table or compressed text, and the error tells
    the `endings` that names may have. None, a path that was not given, is fine.
    """
    if path is None:
        return
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    is_folder = there.is_dir()
    if there != path:
        if not is_folder:
            raise UserError(f"{there} is a file", where=path, todo="name another place")
    elif folder and not is_folder:
        raise UserError("is a file", where=path, todo="name a folder")
    elif is_folder and not folder:
        raise UserError("is a folder", where=path, todo="name a file in it")
    if not folder and path.suffix.lower() in _NO_JSON:
        what = f"JSON is written, and {path.suffix} is no name for it"
        raise UserError(what, where=path, todo=f"end the name in {endings}")


def require_writable(path: Path) -> None:
    """Raise a UserError if the user may not write a file, or make a folder, of that path. It names --out and the permission.

    Devices and pipes are left to whoever writes to them.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        return
    above = next(place for place in (real(path), *real(path).parents) if place.is_dir())
    if os.access(above, os.W_OK | os.X_OK):
        return
    raise UserError(
        f"there is no permission to write in {above}",
        where=path,
        todo="give another --out, or change it (`chmod u+w`)",
    )
