"""Objects as rows: the text of each key's value, the object of such texts, and all of it as one plain text.

In the grid a row is a key's `opening` and the text of its value, or nothing without a value. A sequential model writes the
same as one text, ``key: value; key: value``, without the keys that have no value. A separator that belongs to a key or a
value is doubled: ``|`` in the items of a list, ``:`` in the keys of a plain text, and ``;`` anywhere in it.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct

from pipedec_cli.data.errors import UserError

Kind = Literal["string", "number", "integer", "boolean", "list"]
Value = str | int | float | bool | list[str]

#: The separators between two items of a list, two keys of a plain text, and a key and its value.
_ITEM: Final = "|"
_PAIR: Final = ";"
_KEY: Final = ":"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]{1,999})?(?:[eE][+-]?[0-9]{1,3})?")


class Field(Struct, frozen=True):
    """A key of a schema."""

    name: str
    kind: Kind = "string"  # a list is of strings
    enum: tuple[str, ...] = ()  # the texts that a value, or each item of a list, may have; () for any
    share: float = 0.0  # the share of the training records that have a value

    @property
    def opening(self) -> str:
        """The known beginning of its row; it is tokenized apart from the value."""
        return f"{self.name}{_KEY}"

    def parsed(self, text: str, *, unconstrained: bool = False) -> Value | None:
        """The value of a text; None if it is of another kind or, unless `unconstrained`, not in the enum."""
        items = list(filter(None, _items(text))) if self.kind == "list" else [text.strip()]
        if not items or not (unconstrained or self.enum_holds(items)):
            return None
        if self.kind in ("string", "list"):
            return items if self.kind == "list" else items[0]
        if self.kind == "boolean":
            return {"true": True, "false": False}.get(items[0])
        number = json.loads(items[0]) if _NUMBER.fullmatch(items[0]) else math.inf
        if isinstance(number, float) and (self.kind == "integer" or not math.isfinite(number)):
            return None
        return number

    def enum_holds(self, items: Iterable[str]) -> bool:
        """Whether there is no enum, or all of these texts are in it."""
        return not self.enum or set(items) <= set(self.enum)


def kind_of(value: object) -> Kind | Literal["other"] | None:
    """The kind of a JSON value: ``other`` if no row can hold it; None for null, white space, and a list of such items."""
    if value is None or isinstance(value, str):
        return "string" if value and value.strip() else None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number" if math.isfinite(value) else "other"
    if not isinstance(value, list) or not all(isinstance(item, str | None) for item in value):
        return "other"
    return "list" if any(map(kind_of, value)) else None


def require_kind(key: str, value: object, where: str) -> Kind:
    """The kind of a filled value, see `kind_of`. Raises a UserError if no row can hold it."""
    kind = kind_of(value)
    if kind is None or kind == "other":
        todo = "a value is a string, a number, true or false, or a list of strings"
        raise UserError(f"{key!r} is {json.dumps(value)[:80]}", where=where, todo=todo)
    return kind


def text_of(value: object) -> str:
    """The text of a value in its row: numbers and booleans as in JSON, the items of a list with `|` between them."""
    if kind_of(value) is None:
        return ""
    if isinstance(value, list):
        return f" {_ITEM} ".join(_doubled(item.strip(), _ITEM) for item in value if kind_of(item))
    return value.strip() if isinstance(value, str) else json.dumps(value)


def value_texts(target: Mapping[str, object], fields: Sequence[Field], where: str) -> tuple[str, ...]:
    """The text of each key's value, "" without one. Raises a UserError for a wrong kind or a value not in the enum."""
    texts = []
    for field in fields:
        value = target.get(field.name)
        if kind_of(value) is None:
            texts.append("")
            continue
        kind = require_kind(field.name, value, where)
        if kind != field.kind and (kind, field.kind) != ("integer", "number"):
            what = f"{field.name!r} is of kind {kind} here and {field.kind} in the schema"
            raise UserError(what, where=where, todo="give all values of a key the same kind")
        text = text_of(value)
        items = _items(text) if kind == "list" else [text]
        if not field.enum_holds(items):
            wrong = next(item for item in items if item not in field.enum)
            raise UserError(f"{field.name!r} is {wrong!r}, which is not in the schema's enum", where=where)
        texts.append(text)
    return tuple(texts)


def read_values(
    texts: Sequence[str | None], fields: Sequence[Field], *, unconstrained: bool = False
) -> tuple[dict[str, Value | None], int]:
    """The object of the texts of all values, without the keys that have none, and the number of lost values.

    A value is lost, and null, if its text is None, having been cut, or if `Field.parsed` gives None.
    """
    found = {
        field.name: None if text is None else field.parsed(text, unconstrained=unconstrained)
        for field, text in zip(fields, texts, strict=True)
        if text is None or text.strip()
    }
    return found, sum(value is None for value in found.values())


def pairs_of(values: Mapping[str, object]) -> tuple[str, ...]:
    """The pairs ``key: value`` of an object, with or without a schema; each item of a list is a pair.

    Whole numbers are written without a point, and values without a kind as JSON.
    """
    return tuple(
        f"{_doubled(name, _KEY)}{_KEY} {item.strip() if isinstance(item, str) else _plain_json(item)}"
        for name, value in values.items()
        for item in (value if isinstance(value, list) else [value])
        if kind_of(item)
    )


def split_pair(pair: str) -> tuple[str, str]:
    """Key and value of a pair; "" without a value."""
    key, *value = _parts(pair, _KEY, most=1)
    return key.replace(_KEY * 2, _KEY).strip(), "".join(value).strip()


def plain_text(texts: Sequence[str], fields: Sequence[Field]) -> str:
    """The texts of all values as a sequential model writes them."""
    filled = ((field.name, text) for field, text in zip(fields, texts, strict=True) if text)
    pairs = (f"{_doubled(name, _KEY)}{_KEY} {text}" for name, text in filled)
    return f"{_PAIR} ".join(_doubled(pair, _PAIR) for pair in pairs)


def read_plain(text: str, fields: Sequence[Field], *, cut: bool = False) -> tuple[str | None, ...]:
    """The texts of all values of a plain text, "" without one, and None for the last one of a text that was cut.

    Keys that the schema does not have are skipped, and so is the second value of a key.
    """
    found: dict[str, str | None] = {}
    pieces = list(_parts(text, _PAIR))
    for number, piece in enumerate(pieces, start=1):
        key, value = split_pair(piece.replace(_PAIR * 2, _PAIR))
        found.setdefault(alike(key), None if cut and number == len(pieces) else value)
    return tuple(found.get(alike(field.name), "") for field in fields)


def alike(name: str) -> str:
    """A key in the form in which it is looked up: a tokenizer may change its white space and forms of letters."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def _plain_json(value: object) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, sort_keys=True)  # type: ignore[call-overload]


def _items(text: str) -> list[str]:
    return [part.replace(_ITEM * 2, _ITEM).strip() for part in _parts(text, _ITEM)]


def _doubled(text: str, mark: str) -> str:
    return text.replace(mark, mark * 2)


def _parts(text: str, mark: str, most: int = 0) -> Iterator[str]:
    """The text cut at separators, at most `most` of them. The last of an odd run of marks separates; others are doubled."""
    start = 0
    for run in re.finditer(f"{re.escape(mark)}+", text):
        if len(run[0]) % 2:
            yield text[start : run.end() - 1]
            start, most = run.end(), most - 1
            if not most:
                break
    yield text[start:]


@dataclass(frozen=True, slots=True)
class FieldSegmenter:
    """Cuts the plain text of an object into the texts of all its values, "" without one."""

    fields: tuple[Field, ...]

    def cut(self, text: str) -> tuple[str, ...]:
        """One text for each key of the schema."""
        return tuple(value or "" for value in read_plain(text, self.fields))
