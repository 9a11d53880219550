"""Objects as rows: the text of each key's value, the object of such texts, and all of it as one plain text.

The grid is what a pipelined decoder writes: all its rows at the same time. A row is
here a key's `opening` (``name:``) and the text of its value, or nothing without a value. A sequential model writes the same as one text, ``key: value; key: value``,
without the keys that have no value. A separator that belongs to a key or a value is
doubled: ``|`` in the items of a list, ``:`` in the keys of a plain text, and ``;``
anywhere in it.
"""

import json
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from pipedec_cli.data.errors import UserError

#: The keys that lead to a value. A number is the place of an item in a list, from 1; in
#: a schema it is `ANY_ITEM`.
Keys = tuple[str | int, ...]
ANY_ITEM: Final = 0

#: An object; its values may be objects, and lists of objects.
Object = Mapping[str, Any]
#: Values that are no objects, each with its path.
Leaves = Iterator[tuple[Keys, Any]]
#: What a schema wants where a key has no value: the key is left out, it is null, or it
#: must have a value.
Absent = Literal["omit", "null", "never"]
#: ``any`` is to be learnt from the targets. A list is of scalars. ``json`` is one of an
#: enum of JSON texts.
Kind = Literal["string", "number", "integer", "boolean", "list", "json", "any"]
Value = str | int | float | bool | list[Any]
#: The kinds of scalars, in the order in which a text that may be of several is read.
SCALARS: Final[tuple[Kind, ...]] = ("integer", "number", "boolean", "string")
#: An object that is deeper is no object of values.
DEEPEST: Final = 64

#: The separators between two items of a list, two keys of a plain text, and a key and
#: its value.
_ITEM: Final = "|"
_PAIR: Final = ";"
_KEY: Final = ":"
_ITEM_NUMBER: Final = re.compile(r"\[\s*([1-9][0-9]{0,3})\s*\]")
_NUMBER: Final = re.compile(
    r"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]{1,999})?(?:[eE][+-]?[0-9]{1,3})?"
)
_KIND_OF_TYPE: Final[dict[type, Kind]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
}
_ONE_KIND: Final = "give all values of a key the same kind"


# --- Paths


class RowAddress(NamedTuple):
    """Where the answer of a row belongs: a value, the names of a list's items or of a map's entries, or a choice's label."""

    path: Keys
    role: Literal["value", "names", "label"] = "value"


def path_name(keys: Keys) -> str:
    """The path in writing: ``menu[2].price``, and ``menu[].price`` for any item."""
    name = ""
    for key in keys:
        if not name:
            name = str(key)
        elif isinstance(key, int):
            name += f"[{key or ''}]"
        else:
            name += f".{key}"
    return name


def any_item(keys: Keys) -> Keys:
    """The path in a schema of a path in an object."""
    return tuple(ANY_ITEM if isinstance(key, int) else key for key in keys)


def item_number(keys: Keys) -> int:
    """The number of the item that a path leads into; 0 outside of lists of objects."""
    return max((key for key in keys if isinstance(key, int)), default=0)


def shapes(keys: Keys) -> Iterator[tuple[Keys, str]]:
    """The paths to all objects and lists above a value, and to the value, each with what stands there in words.

    Of ``menu[2].price``: ``menu`` is a list of objects, ``menu[2].price`` a value.
    """
    for depth in range(1, len(keys)):
        if isinstance(keys[depth - 1], int):  # the item of a list
            continue
        if isinstance(keys[depth], int):
            yield keys[:depth], "a list of objects"
        else:
            yield keys[:depth], "an object"
    yield keys, "a value"


def leaves(value: Object, above: Keys = ()) -> Leaves:
    """The values that are no objects, each with its path, behind the keys `above` the object.

    Items of a list of objects are counted without empty ones. What lies deeper than
    `DEEPEST` is given as it is.
    """
    for key, inner in value.items():
        here = (*above, key)
        if len(here) > DEEPEST:
            yield here, inner
        elif isinstance(inner, Mapping):
            yield from leaves(inner, here)
        elif _lists_objects(inner):
            yield from _leaves_of_items(inner, here)
        else:
            yield here, inner


def _leaves_of_items(items: Sequence[Any], above: Keys) -> Leaves:
    """The leaves of a list of objects, to which the keys `above` lead; items without a value get no number."""
    number = 1
    for item in items:
        values = list(leaves(item or {}, (*above, number)))
        if any(kind_of(value) for _, value in values):
            yield from values
            number += 1


def _lists_objects(value: Any) -> bool:
    """Whether a value is a list of objects; some of them may be null, but not all."""
    if not isinstance(value, list):
        return False
    items = [item for item in value if item is not None]
    are_objects = all(isinstance(item, Mapping) for item in items)
    return bool(items) and are_objects


def mapped(
    values: Object, change: Callable[[Keys, Any], Any], above: Keys = ()
) -> dict[str, Any]:
    """An object of the same shape whose values are what `change` makes of each path and value.

    The keys `above` lead to the object. Each item of a list has its own number, also an
    empty one, which becomes {}.
    """
    changed: dict[str, Any] = {}
    for key, value in values.items():
        here = (*above, key)
        if isinstance(value, Mapping):
            changed[key] = mapped(value, change, here)
        elif _lists_objects(value):
            items = []
            for number, item in enumerate(value, start=1):
                items.append(mapped(item or {}, change, (*here, number)))
            changed[key] = items
        else:
            changed[key] = change(here, value)
    return changed


def by_path(values: Object) -> dict[Keys, Any]:
    """The values of an object by their paths; each item of a list has its own number, also an empty one."""
    paths: dict[Keys, Any] = {}
    mapped(values, paths.setdefault)
    return paths


# --- Object and their texts


def scalars_of(kinds: Collection[str | None]) -> tuple[Kind, ...]:
    """The kinds of scalars among some kinds, in the order of `SCALARS`; () for strings alone, as `Field.scalars` has it."""
    scalars = tuple(kind for kind in SCALARS if kind in kinds)
    return () if scalars == ("string",) else scalars


class Field(Struct, frozen=True):
    """A key of a schema whose value is a row: ``name``, ``address.city``; ``menu[].price`` has a row for each item."""

    name: str
    kind: Kind = "string"
    #: The texts that a value, or each item of a list, may have; () for any.
    enum: tuple[str, ...] = ()
    #: The share of the training records that have a value.
    share: float = 0.0
    #: The keys that lead to it; () if there is one, the name.
    path: Keys = ()
    description: str = ""
    #: What each key of the path has without a value; () wants nothing.
    absent: tuple[Absent, ...] = ()
    #: The `SCALARS` that a string, or an item of a list, is read as, the first that
    #: fits; () for strings alone.
    scalars: tuple[Kind, ...] = ()
    #: What else a schema says of its values; see `HELD`.
    keywords: tuple[tuple[str, Any], ...] = ()

    @property
    def keys(self) -> Keys:
        """The keys that lead to it."""
        return self.path or (self.name,)

    @property
    def listed(self) -> bool:
        """Whether it belongs to the items of a list of objects."""
        return ANY_ITEM in self.path

    @property
    def list_path(self) -> Keys:
        """The keys that lead to the list whose items have it; () if there is no such list."""
        if not self.listed:
            return ()
        end = self.path.index(ANY_ITEM)
        return self.path[:end]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that a value, or each item of a list, is read as, the first that fits."""
        if self.kind in ("string", "list"):
            return self.scalars or ("string",)
        return (self.kind,)

    @property
    def may_be_empty(self) -> bool:
        """Whether "" or [] is a value of it."""
        words = dict(self.keywords)
        if "pattern" in words or "format" in words:
            return False
        if words.get("minLength") or words.get("minItems"):
            return False
        if self.kind == "string":
            return not self.enum and "string" in self.kinds
        return self.kind in ("list", "any")

    @property
    def must(self) -> bool:
        """Whether the schema wants a value, and neither null nor an empty list can stand for it."""
        if self.kind == "list" and self.may_be_empty:
            return False
        return {*self.absent} == {"never"}

    @property
    def forced(self) -> bool:
        """Whether its row may not be empty: it `must` have a value, which is not ""."""
        return self.must and not self.may_be_empty

    def opening(self, item: int = 1) -> str:
        """The known beginning of the row of an item of a list, from 1. It is tokenized apart from the value."""
        return f"{path_name(self.at(item))}{_KEY}"

    def at(self, item: int) -> Keys:
        """The keys that lead to its value in an item of a list."""
        return tuple(item if key == ANY_ITEM else key for key in self.keys)

    def parsed(self, text: str) -> Value | None:
        """The value that a row's text stands for; None if it is of another kind, or not among the texts of `enum`."""
        items = [text.strip()]
        if self.kind == "list":
            items = [item for item in items_of(text) if item]
        if not items or not self.enum_holds(items):
            return None
        if self.kind == "json":
            return json.loads(items[0])  # type: ignore[no-any-return]
        values = [_first_read(item, self.kinds) for item in items]
        if None in values:
            return None
        return values if self.kind == "list" else values[0]

    def enum_holds(self, items: Iterable[str]) -> bool:
        """Whether there is no enum, or all of these texts are in it."""
        if not self.enum:
            return True
        return set(items) <= set(self.enum)


#: A key, and the item whose row it has: 0 of a key that no list has.
Row = tuple[Field, int]


def _first_read(text: str, kinds: Iterable[Kind]) -> Any:
    """The value of a text as the first of some kinds that it fits; None if it fits none."""
    for kind in kinds:
        value = _read_as(text, kind)
        if value is not None:
            return value
    return None


def _read_as(text: str, kind: Kind) -> Any:
    """The value of a text as a scalar of a kind; None if it is none."""
    if kind == "string":
        return text
    if kind == "boolean":
        return {"true": True, "false": False}.get(text)
    if not _NUMBER.fullmatch(text):
        return None
    number = json.loads(text)
    if isinstance(number, int):
        return number
    if kind == "integer" or math.isinf(number):
        return None
    return number


def kind_of(value: object) -> Kind | Literal["other"] | None:
    """The kind of a JSON value: ``other`` if no row can hold it; None for null, white space, and a list of such items."""
    if value is None:
        return None
    if isinstance(value, str):
        is_blank = not value.strip()
        return None if is_blank else "string"
    if isinstance(value, list):
        return _kind_of_list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "other"
    return _KIND_OF_TYPE.get(type(value), "other")


def _kind_of_list(items: Sequence[object]) -> Literal["list", "other"] | None:
    """The kind of a list of scalars; "other" for a list of lists or objects, None for a list without values."""
    kinds = set()
    for item in items:
        kinds.add("other" if isinstance(item, list) else kind_of(item))
    if "other" in kinds:
        return "other"
    has_values = kinds - {None}  # null and "" are no values
    return "list" if has_values else None


def require_kind(key: str, value: object, where: str) -> Kind:
    """The kind of a filled value, see `kind_of`. Raises a UserError if no row can hold it."""
    kind = kind_of(value)
    if kind is None or kind == "other":
        todo = "a value is a string, a number, true or false, a list of these, an object or a list of objects"
        raise UserError(f"{key!r} is {json.dumps(value)[:80]}", where=where, todo=todo)
    return kind


def text_of(value: object) -> str:
    """The text of a value in its row: numbers and booleans as in JSON, the items of a list with `|` between them."""
    if kind_of(value) is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if not isinstance(value, list):
        return json.dumps(value)
    texts = [text_of(item) for item in value if kind_of(item)]
    return f" {_ITEM} ".join(doubled(text, _ITEM) for text in texts)


def items_of(text: str) -> list[str]:
    """The texts of a list's items, which ``|`` separates."""
    items = []
    for item in _split(text, _ITEM):
        single = item.replace(_ITEM * 2, _ITEM)
        items.append(single.strip())
    return items


# --- The rows of an object


def rows_of(fields: Sequence[Field], texts: int) -> list[Row]:
    """The rows of an object, given the number of their `texts`: the key of each, and the item of a list that it is in.

    All keys come first, those of lists with item 1; then the keys of lists with item 2;
    and so on. So the number of texts tells how many items there are; a ValueError if it
    is that of no object.
    """
    listed = sum(field.listed for field in fields)
    later = texts - len(fields)
    rows = rows_with(fields, 1 + later // max(1, listed))
    if len(rows) != texts:
        raise ValueError(f"{texts} texts for {len(fields)} keys")
    return rows


def rows_with(fields: Sequence[Field], items: int) -> list[Row]:
    """The rows of an object whose lists have so many `items` each, in the order of `rows_of`."""
    listed = [field for field in fields if field.listed]
    rows = [(field, int(field.listed)) for field in fields]
    for item in range(2, items + 1):
        rows += [(field, item) for field in listed]
    return rows


def list_places(fields: Sequence[Field]) -> list[tuple[int, ...]]:
    """For each list of objects, the positions among the fields of those that its items have."""
    positions: dict[Keys, tuple[int, ...]] = {}
    for position, field in enumerate(fields):
        if field.listed:
            path = field.list_path
            positions[path] = (*positions.get(path, ()), position)
    return list(positions.values())


def value_texts(target: Object, fields: Sequence[Field], where: str) -> tuple[str, ...]:
    """The text of each row's value, "" without one, in the order of `rows_of`.

    A UserError that names the place `where` for a value that does not fit its field.
    """
    values = _filled(target)
    _check_shapes(values, fields, where)
    for field, item in _rows_in(values, fields):
        place = field.at(item)
        if place in values:
            _check_value(path_name(place), values[place], field, where)
    return texts_of(target, fields)


def texts_of(target: Object, fields: Sequence[Field]) -> tuple[str, ...]:
    """The text of each row's value, "" without one, in the order of `rows_of`, of an object that is known to fit."""
    values = _filled(target)
    texts = []
    for field, item in _rows_in(values, fields):
        texts.append(text_of(values.get(field.at(item))))
    return tuple(texts)


def _filled(target: Object) -> dict[Keys, Any]:
    """The values of an object by their paths, without null, blank texts and empty lists."""
    filled = {}
    for keys, value in leaves(target):
        if kind_of(value):
            filled[keys] = value
    return filled


def _check_shapes(paths: Iterable[Keys], fields: Sequence[Field], where: str) -> None:
    """Compare what stands at each path of an object, a value, an object or a list, with what the fields have there.

    A UserError if it is something else. Paths that the fields do not have are let be.
    """
    shape_at: dict[Keys, str] = {}
    for field in fields:
        shape_at.update(shapes(field.keys))
    for path in paths:
        for above, shape in shapes(any_item(path)):
            wanted = shape_at.get(above, shape)
            if shape != wanted:
                name = path_name(above)
                what = f"{name!r} is {shape} here and {wanted} in the fields"
                raise UserError(what, where=where, todo=_ONE_KIND)


def _check_value(name: str, value: object, field: Field, where: str) -> None:
    """Raise a UserError for a value of another kind than its field's, or that is not among its choices.

    `name` is its path in writing, `where` the place of its record, for the message.
    """
    kind = require_kind(name, value, where)
    kinds = field.kinds
    if "number" in kinds:  # a whole number is a number, too
        kinds = (*kinds, "integer")
    fitting: tuple[Kind, ...] = (field.kind, *kinds)
    if field.kind == "list":
        fitting = ("list",)
    if kind not in fitting:
        what = f"{name!r} is of kind {kind} here and {field.kind} in the fields"
        raise UserError(what, where=where, todo=_ONE_KIND)
    texts = [text_of(value)]
    if isinstance(value, list):
        texts = items_of(text_of(value))
        if not {kind_of(item) for item in value} <= {None, *kinds}:
            what = f"{name!r} is {json.dumps(value)[:80]}"
            todo = f"give its items the kind {' or '.join(kinds)}"
            raise UserError(what, where=where, todo=todo)
    for text in texts:
        if not field.enum_holds([text]):
            what = f"{name!r} is {text!r}, which is not among the field's choices"
            todo = "add it (to a schema's enum), or change the record"
            raise UserError(what, where=where, todo=todo)


def _rows_in(paths: Iterable[Keys], fields: Sequence[Field]) -> list[Row]:
    """The rows of an object that has values at these paths: with as many items as the longest of its lists has."""
    listed = {field.keys for field in fields if field.listed}
    items = 1
    for path in paths:
        if any_item(path) in listed:
            items = max(items, item_number(path))
    return rows_with(fields, items)


# --- Plain texts


def pairs_of(values: Object) -> tuple[str, ...]:
    """The pairs ``path: value`` of an object, with or without a schema; each item of a list is a pair.

    Whole numbers are written without a point, and values without a kind as JSON.
    """
    pairs = []
    for keys, value in leaves(values):
        key = doubled(path_name(keys), _KEY)
        for item in value if isinstance(value, list) else [value]:
            if kind_of(item):
                pairs.append(f"{key}{_KEY} {_said(item)}")
    return tuple(pairs)


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def split_pair(pair: str) -> tuple[str, str]:
    """Key and value of a pair; "" without a value."""
    key, *values = _split(pair, _KEY, most=1)
    key = key.replace(_KEY * 2, _KEY)
    value = values[0] if values else ""
    return key.strip(), value.strip()


def plain_text(texts: Sequence[str], fields: Sequence[Field]) -> str:
    """The texts of all rows as a sequential model writes them."""
    pairs = []
    rows = rows_of(fields, len(texts))
    for (field, item), text in zip(rows, texts, strict=True):
        if text:
            opening = plain_opening(field, item)
            pairs.append(f"{opening} {doubled(text)}")
    return f"{_PAIR} ".join(pairs)


def plain_opening(field: Field, item: int = 1) -> str:
    """What stands before the value of an item in a plain text: the key and its colon, their marks doubled."""
    key = doubled(path_name(field.at(item)), _KEY)
    return doubled(f"{key}{_KEY}")


def read_plain(
    text: str, fields: Sequence[Field], *, cut: bool = False
) -> tuple[str | None, ...]:
    """The texts of all rows of a plain text, "" without one.

    Keys that the schema does not have are skipped, and so is the second value of a key.
    Items of a list are numbered anew, without those that are not there. With `cut` the
    text was cut short: the text of its last row is None.
    """
    written = _written_values(text, fields, cut=cut)
    numbers = defaultdict(set)
    for field, number in written:
        numbers[field.list_path].add(number)
    values = {}
    items = 1
    for (field, number), value in written.items():
        item = 0
        if field.listed:
            item = 1 + sorted(numbers[field.list_path]).index(number)
            items = max(items, item)
        values[field, item] = value
    rows = rows_with(fields, items)
    return tuple(values.get(row, "") for row in rows)


def _written_values(
    text: str, fields: Sequence[Field], *, cut: bool
) -> dict[Row, str | None]:
    """The values of a plain text by their rows, with items as they are numbered there.

    With `cut` the last value was cut short, and is None.
    """
    names = {alike(field.name): field for field in fields}
    values: dict[Row, str | None] = {}
    pairs = list(_split(text, _PAIR))
    for number, pair in enumerate(pairs, start=1):
        key, written = split_pair(pair.replace(_PAIR * 2, _PAIR))
        is_cut = cut and number == len(pairs)
        value = None if is_cut else written
        for name, item in _names_of(key):
            field = names.get(alike(name))
            # Keys of lists have the number of an item, and others have none.
            if field and field.listed == bool(item):
                values.setdefault((field, item), value)
    return values


def _names_of(key: str) -> Iterator[tuple[str, int]]:
    """The fields' names that a key of a plain text may stand for, each with the number of the item.

    ``menu[2].price`` may be that name itself, with item 0, or ``menu[].price`` in item 2.
    """
    yield key, 0
    for match in _ITEM_NUMBER.finditer(key):
        before = key[: match.start()]
        behind = key[match.end() :]
        yield f"{before}[]{behind}", int(match[1])


def alike(name: str) -> str:
    """A key in the form in which it is looked up: a tokenizer may change its white space and forms of letters."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def same_word(label: str) -> str:
    """A label in the form in which it is another one than all others: letters of both cases are alike."""
    return alike(label).casefold()


def doubled(text: str, mark: str = _PAIR) -> str:
    """The text with each `mark` doubled, which then separates nothing; by default that between the pairs of a plain text."""
    return text.replace(mark, mark * 2)


def _split(text: str, mark: str, most: int | None = None) -> Iterator[str]:
    """The text cut at separators: at the first `most` of them, or at all.

    Of marks in a row, two stand for one in the text: an even number separates nothing,
    and of an odd number the last one separates.
    """
    once = re.escape(mark)
    odd_run = rf"(?<!{once})(?:{once}{once})*{once}(?!{once})"
    runs = re.finditer(odd_run, text)
    start = 0
    for run in islice(runs, most):
        yield text[start : run.end() - 1]
        start = run.end()
    yield text[start:]


@dataclass(frozen=True, slots=True)
class FieldSegmenter:
    """Cuts the plain text of an object into the texts of all its values, "" without one."""

    fields: tuple[Field, ...]

    def cut(self, text: str) -> tuple[str, ...]:
        """One text for each key of the schema."""
        texts = read_plain(text, self.fields)
        return tuple(text or "" for text in texts)
