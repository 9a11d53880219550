"""Checks decoded JSON against a msgspec type. An error names the place, the field, what it should be and what it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from pipedec_cli.data.errors import UserError

Shape = TypeVar("Shape")

#: A validation error of msgspec: the expected types, the found type, the field, and the item of a list.
_ERROR: Final = re.compile(r"Expected `(.+?)`, got `(.+?)`(?: - at `\$\.?(.*?)(?:\[(\d+)\])?`)?")
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

    `field` names the value if it is a field itself. `renamed` maps our names of fields to the names in the file.
    `example` shows what to write where the value is no object. Raises a UserError if the value does not fit.
    """
    if renamed and isinstance(value, dict):
        value = value | {ours: value.get(theirs) for ours, theirs in renamed.items()}
    try:
        return msgspec.convert(value, shape)
    except UnicodeEncodeError:  # half a surrogate pair, in a string where another type belongs
        return checked(mended(value), shape, where, field=field, renamed=renamed, example=example)
    except msgspec.ValidationError as error:
        parts = _ERROR.fullmatch(str(error))
        if parts is None:  # a number out of range, for example
            problem, _, path = str(error).partition(" - at `$")
            name = (field + path.removesuffix("`")).removeprefix(".")
            if missing := _MISSING.fullmatch(problem):
                inner = f"{name}.{missing[1]}".removeprefix(".")
                raise UserError(f"field {inner!r} is missing", where=where, todo=example) from None
            what = f"field {name!r} does not fit: {problem}" if name else problem
            raise UserError(what, where=where) from None
        expected, found, path, item = parts.groups()
        kinds = [_TYPES.get(kind, kind) for kind in expected.split(" | ") if kind != "null"]
        if "a number" in kinds and "a whole number" in kinds:
            kinds.remove("a whole number")
        found = "a number" if found == "int" else _TYPES.get(found, found)
        what = f"expected {' or '.join(kinds)}, found {found}"
        if name := field or path:
            place = f", item {int(item) + 1}" if item else ""
            named = renamed.get(name, name)
            todo = example if f'"{named}"' in (example or "") else None
            raise UserError(f"field {named!r}{place}: {what}", where=where, todo=todo) from None
        raise UserError(what, where=where, todo=example) from None


def missing_field(fields: Mapping[str, Any], name: str, where: str, hint: str | None = None) -> UserError:
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
    """A decoded JSON value with all its texts mended, see `mended_text`."""
    return json.loads(mended_text(json.dumps(value, ensure_ascii=False, default=str)))
