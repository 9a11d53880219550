"""Objects as rows: the text of each key's value, the object of such texts, and all of it as one plain text.

In the grid a row is a key's `opening` and the text of its value, or nothing without a
value. A sequential model writes the same as one text, ``key: value; key: value``,
without the keys that have no value. A separator that belongs to a key or a value is
doubled: ``|`` in the items of a list, ``:`` in the keys of a plain text, and ``;``
anywhere in it.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec import Struct

from pipedec_cli.data.errors import UserError

#: The keys that lead to a value. A number is the place of an item in a list, from 1; in
#: a schema it is 0, for any item.
Keys = tuple[str | int, ...]
#: What a schema wants where a key has no value: the key is left out, it is null, or it
#: must have a value.
Absent = Literal["omit", "null", "never"]
#: An object that is deeper is no object of values.
DEEPEST: Final = 64


def path_name(keys: Keys) -> str:
    """The path in writing: ``menu[2].price``, and ``menu[].price`` for any item."""
    name = ""
    for key in keys:
        part = f"[{key or ''}]" if isinstance(key, int) else f".{key}"
        name += part if name else str(key)
    return name


def any_item(keys: Keys) -> Keys:
    """The path in a schema of a path in an object."""
    return tuple(0 if isinstance(key, int) else key for key in keys)


def shapes(keys: Keys) -> Iterator[tuple[Keys, str]]:
    """The paths to all objects and lists above a value, and to the value, each with what stands there."""
    for depth in range(1, len(keys)):
        if not isinstance(keys[depth - 1], int):
            yield (
                keys[:depth],
                "a list of objects" if isinstance(keys[depth], int) else "an object",
            )
    yield keys, "a value"


def leaves(value: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """The values that are no objects, each with its path. Items of a list of objects are counted without empty ones."""
    for key, part in value.items():
        here, number = (*above, key), 0
        if len(here) > DEEPEST:
            yield here, part
        elif isinstance(part, Mapping):
            yield from leaves(part, here)
        elif _lists_objects(part):
            for item in part:
                found = [*leaves(item or {}, (*here, number + 1))]
                number += any(_says_something(one) for _, one in found)
                yield from (pair for pair in found if pair[0][len(here)] == number)
        else:
            yield here, part


def _lists_objects(value: Any) -> bool:
    fits = isinstance(value, list) and all(
        isinstance(item, Mapping | None) for item in value
    )
    return fits and any(item is not None for item in value)


def _says_something(value: Any) -> bool:
    """Whether it is neither null nor blank, nor a list of such items."""
    if isinstance(value, list):
        return any(map(_says_something, value))
    return value is not None and not (isinstance(value, str) and not value.strip())


def mapped(
    values: Mapping[str, Any], change: Callable[[Keys, Any], Any], above: Keys = ()
) -> dict[str, Any]:
    """An object of the same shape, whose values are `change`, called with each path and value."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        here = (*above, key)
        if isinstance(value, Mapping):
            made[key] = mapped(value, change, here)
        elif _lists_objects(value):
            made[key] = [
                mapped(item, change, (*here, number))
                for number, item in enumerate(value, 1)
            ]
        else:
            made[key] = change(here, value)
    return made


def by_path(values: Mapping[str, Any]) -> dict[Keys, Any]:
    """The values of an object by their paths; each item of a list has its own number, also an empty one."""
    found: dict[Keys, Any] = {}
    mapped(values, found.setdefault)
    return found


#: ``any`` is to be learnt from the targets. A list is of scalars. ``json`` is one of an
#: enum of JSON texts.
Kind = Literal["string", "number", "integer", "boolean", "list", "json", "any"]
Value = str | int | float | bool | list[Any]
#: The kinds of scalars, in the order in which a text that may be of several is read.
SCALARS: Final[tuple[Kind, ...]] = ("integer", "number", "boolean", "string")

#: The separators between two items of a list, two keys of a plain text, and a key and
#: its value.
_ITEM: Final = "|"
_PAIR: Final = ";"
_KEY: Final = ":"
_ITEM_NUMBER: Final = re.compile(r"\[\s*([1-9][0-9]{0,3})\s*\]")
_NUMBER: Final = re.compile(
    r"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]{1,999})?(?:[eE][+-]?[0-9]{1,3})?"
)


def scalars_of(kinds: Collection[str | None]) -> tuple[Kind, ...]:
    """The `SCALARS` among some kinds; () for strings alone, as `Field.scalars` has it."""
    found = tuple(kind for kind in SCALARS if kind in kinds)
    return () if found == ("string",) else found


class Field(Struct, frozen=True):
    """A key of a schema whose value is a row: ``name``, ``address.city``; ``menu[].price`` has a row for each item."""

    name: str
    kind: Kind = "string"
    enum: tuple[
        str, ...
    ] = ()  # the texts that a value, or each item of a list, may have; () for any
    share: float = 0.0  # the share of the training records that have a value
    path: Keys = ()  # the keys that lead to it; () if there is one, the name
    description: str = ""
    absent: tuple[
        Absent, ...
    ] = ()  # what each key of the path has without a value; () wants nothing
    #: The `SCALARS` that a string, or an item of a list, is read as, the first that
    #: fits; () for strings alone.
    scalars: tuple[Kind, ...] = ()
    keywords: tuple[
        tuple[str, Any], ...
    ] = ()  # what else a schema says of its values; see `HELD`

    @property
    def keys(self) -> Keys:
        """The keys that lead to it."""
        return self.path or (self.name,)

    @property
    def listed(self) -> bool:
        """Whether it belongs to the items of a list of objects."""
        return 0 in self.path

    @property
    def may_be_empty(self) -> bool:
        """Whether "" or [] is a value of it."""
        words = dict(self.keywords)
        filled = (
            {"pattern", "format"} & words.keys()
            or words.get("minLength")
            or words.get("minItems")
        )
        chosen = self.kind == "string" and (
            self.enum or (self.scalars and "string" not in self.scalars)
        )
        return self.kind in ("string", "list", "any") and not (filled or chosen)

    @property
    def forced(self) -> bool:
        """Whether its row must have a value: the schema wants one, and nothing else can stand for it."""
        return {*self.absent} == {"never"} and not self.may_be_empty

    @property
    def must(self) -> bool:
        """Whether the schema wants a value, and neither null nor an empty list can stand for it."""
        return {*self.absent} == {"never"} and not (
            self.kind == "list" and self.may_be_empty
        )

    def opening(self, item: int = 1) -> str:
        """The known beginning of the row of an item of a list, from 1. It is tokenized apart from the value."""
        return f"{path_name(self.at(item))}{_KEY}"

    def at(self, item: int) -> Keys:
        """The keys that lead to its value in an item of a list."""
        return tuple(item if key == 0 else key for key in self.keys)

    def parsed(self, text: str) -> Value | None:
        """The value of a text; None if it is of another kind, or not in the enum."""
        items = (
            list(filter(None, items_of(text)))
            if self.kind == "list"
            else [text.strip()]
        )
        if not items or not self.enum_holds(items):
            return None
        if self.kind in ("string", "list"):
            values = [
                next((one for one in self._scalars(item) if one is not None), None)
                for item in items
            ]
            return (
                None if None in values else values if self.kind == "list" else values[0]
            )
        if self.kind == "boolean":
            return {"true": True, "false": False}.get(items[0])
        if self.kind == "json":
            return json.loads(items[0])  # type: ignore[no-any-return]
        number = json.loads(items[0]) if _NUMBER.fullmatch(items[0]) else math.inf
        if isinstance(number, float) and (
            self.kind == "integer" or not math.isfinite(number)
        ):
            return None
        return number

    @property
    def item_kinds(self) -> tuple[str, ...]:
        """The kinds that an item of a list may have."""
        return (
            *(self.scalars or ("string",)),
            *(["integer"] if "number" in self.scalars else []),
        )

    def _scalars(self, text: str) -> Iterator[Any]:
        """The values of a text that is a string or an item, by the kinds that it may have; None where it has none."""
        for kind in self.scalars or ("string",):
            yield text if kind == "string" else Field("", kind).parsed(text)

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
    if not isinstance(value, list) or any(
        isinstance(item, list | dict) or kind_of(item) == "other" for item in value
    ):
        return "other"
    return "list" if any(map(kind_of, value)) else None


def require_kind(key: str, value: object, where: str) -> Kind:
    """The kind of a filled value, see `kind_of`. Raises a UserError if no row can hold it."""
    kind = kind_of(value)
    if kind is None or kind == "other":
        fits = "a string, a number, true or false, a list of these, an object or a list of objects"
        raise UserError(
            f"{key!r} is {json.dumps(value)[:80]}",
            where=where,
            todo=f"a value is {fits}",
        )
    return kind


def text_of(value: object) -> str:
    """The text of a value in its row: numbers and booleans as in JSON, the items of a list with `|` between them."""
    if kind_of(value) is None:
        return ""
    if isinstance(value, list):
        return f" {_ITEM} ".join(
            doubled(text_of(item), _ITEM) for item in value if kind_of(item)
        )
    return value.strip() if isinstance(value, str) else json.dumps(value)


def rows_of(fields: Sequence[Field], texts: int) -> list[tuple[Field, int]]:
    """The key and the item of each of so many texts; a ValueError if they make no whole items.

    All keys come first, those of lists with item 1; then item 2 of all lists; and so
    on.
    """
    listed = sum(field.listed for field in fields)
    more, left = (
        divmod(texts - len(fields), listed) if listed else (0, texts - len(fields))
    )
    if left or more < 0:
        raise ValueError(f"{texts} texts for {len(fields)} keys")
    return rows_with(fields, 1 + more)


def rows_with(fields: Sequence[Field], items: int) -> list[tuple[Field, int]]:
    """The key and the item of each row of an object whose lists have so many items; see `rows_of`."""
    later = [
        (field, item)
        for item in range(2, items + 1)
        for field in fields
        if field.listed
    ]
    return [(field, int(field.listed)) for field in fields] + later


def list_places(fields: Sequence[Field]) -> list[tuple[int, ...]]:
    """The places of the fields of each list of objects."""
    places: dict[Keys, tuple[int, ...]] = {}
    for place, field in enumerate(fields):
        if field.listed:
            places[_list_of(field)] = (*places.get(_list_of(field), ()), place)
    return [*places.values()]


def value_texts(
    target: Mapping[str, object], fields: Sequence[Field], where: str
) -> tuple[str, ...]:
    """The text of each row's value, see `rows_of`, "" without one; a UserError for a value that does not fit."""
    values = dict(leaves(target))
    known = {keys: shape for field in fields for keys, shape in shapes(field.keys)}
    for keys in (keys for keys, value in values.items() if kind_of(value)):
        for above, shape in shapes(any_item(keys)):
            if known.get(above, shape) != shape:
                what = f"{path_name(above)!r} is {shape} here and {known[above]} in the fields"
                raise UserError(
                    what, where=where, todo="give all values of a key the same kind"
                )
    for field, item in _rows_in(values, fields):
        value, name = values.get(field.at(item)), path_name(field.at(item))
        if kind_of(value) is None:
            continue
        kind = require_kind(name, value, where)
        kinds = (field.kind, *(field.item_kinds if field.kind == "string" else ()))
        if kind not in kinds and (kind, field.kind) != ("integer", "number"):
            what = f"{name!r} is of kind {kind} here and {field.kind} in the fields"
            raise UserError(
                what, where=where, todo="give all values of a key the same kind"
            )
        if isinstance(value, list) and not {*map(kind_of, value)} <= {
            None,
            *field.item_kinds,
        }:
            what, fits = (
                f"{name!r} is {json.dumps(value)[:80]}",
                " or ".join(field.item_kinds),
            )
            raise UserError(what, where=where, todo=f"give its items the kind {fits}")
        items = items_of(text_of(value)) if kind == "list" else [text_of(value)]
        if not field.enum_holds(items):
            wrong = next(item for item in items if item not in field.enum)
            what = f"{name!r} is {wrong!r}, which is not among the field's choices"
            raise UserError(
                what,
                where=where,
                todo="add it (to a schema's enum), or change the record",
            )
    return texts_of(target, fields)


def texts_of(target: Mapping[str, object], fields: Sequence[Field]) -> tuple[str, ...]:
    """The texts of an object that fits; see `value_texts`."""
    values = dict(leaves(target))
    return tuple(
        text_of(values.get(field.at(item))) for field, item in _rows_in(values, fields)
    )


def _rows_in(
    values: Mapping[Keys, object], fields: Sequence[Field]
) -> list[tuple[Field, int]]:
    """The rows of an object with these values: as many items as the longest of its lists has."""
    listed = {field.keys for field in fields if field.listed}
    items = (
        key
        for keys, value in values.items()
        for at, key in enumerate(keys)
        if isinstance(key, int)
        and (*keys[:at], 0, *keys[at + 1 :]) in listed
        and kind_of(value)
    )
    return rows_with(fields, max(items, default=1))


def pairs_of(values: Mapping[str, object]) -> tuple[str, ...]:
    """The pairs ``path: value`` of an object, with or without a schema; each item of a list is a pair.

    Whole numbers are written without a point, and values without a kind as JSON.
    """
    pairs = []
    for keys, value in leaves(values):
        for item in filter(kind_of, value if isinstance(value, list) else [value]):
            whole = int(item) if isinstance(item, float) and item.is_integer() else item
            text = (
                item.strip()
                if isinstance(item, str)
                else json.dumps(whole, sort_keys=True)
            )
            pairs.append(f"{doubled(path_name(keys), _KEY)}{_KEY} {text}")
    return tuple(pairs)


def split_pair(pair: str) -> tuple[str, str]:
    """Key and value of a pair; "" without a value."""
    key, *value = _parts(pair, _KEY, most=1)
    return key.replace(_KEY * 2, _KEY).strip(), "".join(value).strip()


def plain_text(texts: Sequence[str], fields: Sequence[Field]) -> str:
    """The texts of all rows as a sequential model writes them."""
    rows = zip(rows_of(fields, len(texts)), texts, strict=True)
    pairs = (
        f"{plain_opening(field, item)} {doubled(text)}"
        for (field, item), text in rows
        if text
    )
    return f"{_PAIR} ".join(pairs)


def plain_opening(field: Field, item: int = 1) -> str:
    """How the value of an item begins in a plain text."""
    return doubled(f"{doubled(path_name(field.at(item)), _KEY)}{_KEY}")


def read_plain(
    text: str, fields: Sequence[Field], *, cut: bool = False
) -> tuple[str | None, ...]:
    """The texts of all rows of a plain text, "" without one, and None for the last one of a text that was cut.

    Keys that the schema does not have are skipped, and so is the second value of a key.
    Items are numbered anew.
    """
    names = {alike(field.name): field for field in fields}
    found: dict[tuple[str, int], str | None] = {}
    pieces = list(_parts(text, _PAIR))
    for number, piece in enumerate(pieces, start=1):
        key, value = split_pair(piece.replace(_PAIR * 2, _PAIR))
        items_in = (
            (f"{key[: of.start()]}[]{key[of.end() :]}", int(of[1]))
            for of in _ITEM_NUMBER.finditer(key)
        )
        for name, item in ((key, 0), *items_in):  # `menu[].price` for `menu[2].price`
            if (field := names.get(alike(name))) and field.listed == bool(item):
                found.setdefault(
                    (field.name, item), None if cut and number == len(pieces) else value
                )
    items: dict[Keys, set[int]] = {}
    for field in fields:
        items.setdefault(_list_of(field), set()).update(
            item for name, item in found if name == field.name
        )
    places = {of: dict(enumerate(sorted(own), 1)) for of, own in items.items()}
    most = max((len(own) for of, own in places.items() if of), default=0)
    rows = rows_with(fields, most)
    return tuple(
        found.get((field.name, places[_list_of(field)].get(item, item)), "")
        for field, item in rows
    )


def _list_of(field: Field) -> Keys:
    """The keys that lead to the list whose items have the field; () if there is no such list."""
    return field.path[: field.path.index(0)] if field.listed else ()


def alike(name: str) -> str:
    """A key in the form in which it is looked up: a tokenizer may change its white space and forms of letters."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def items_of(text: str) -> list[str]:
    """The texts of a list's items, which ``|`` separates."""
    return [part.replace(_ITEM * 2, _ITEM).strip() for part in _parts(text, _ITEM)]


def doubled(text: str, mark: str = _PAIR) -> str:
    """The text with a mark that does not separate; by default that between the pairs of a plain text."""
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
