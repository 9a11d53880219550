"""A schema as a tree: which rows it asks for, and the object that the texts of these rows make.

There are five shapes of parts. A value has a row of its own. An object has a part for
each property. A list or a map has a row that names its items. A choice has a row that
says which of its parts there is.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as set_field
from itertools import takewhile
from typing import Any, Final, Literal

from msgspec.structs import replace

from pipedec_cli.data.fields import (
    Absent,
    Field,
    Keys,
    RowAddress,
    Value,
    path_name,
    rows_of,
    scalars_of,
)

Shape = Literal["value", "object", "list", "map", "choice"]
#: The value of a key that has none, and of an object that lacks a value which it must
#: have.
NOTHING: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a schema. Its `field` is its path, and what its row may say: a value, names, or a label."""

    field: Field
    shape: Shape = "value"
    #: The properties of an object, or the alternatives of a choice by their labels; of
    #: a list or map the item, as "". An object whose keys are the numbers from 1 is a
    #: list with a part for each place.
    parts: Mapping[Any, "Part"] = set_field(default_factory=dict)

    @property
    def item(self) -> "Part":
        """The part of each item or entry."""
        return self.parts[""]

    @property
    def name_key(self) -> Field | None:
        """The key of a list's items that the row of names gives: a string if there is one; None without keys."""
        keys = (
            self.item.values(listed=True)
            if self.shape == "list" and self.item.shape == "object"
            else ()
        )
        return naming_key(keys)

    @property
    def absent(self) -> Absent:
        """What stands for it in an object without a value."""
        return self.field.absent[-1] if self.field.absent else "omit"

    def inner(self) -> "Iterator[Part]":
        """The part and all parts within it."""
        yield self
        for part in self.parts.values():
            yield from part.inner()

    @property
    def is_plain(self) -> bool:
        """Whether it has values and lists of objects alone, which a model can be trained for."""
        has_places = any(
            isinstance(key, int) for part in self.inner() for key in part.parts
        )
        lists = (part for part in self.inner() if part.shape not in ("value", "object"))
        return not has_places and all(
            part.shape == "list"
            and 0 not in part.field.path
            and part.item.shape == "object"
            for part in lists
        )

    def values(self, *, listed: bool = False) -> Iterator[Field]:
        """The values that a trained model can have: those of objects and, unless it is `listed`, of lists of objects."""
        if self.shape == "value":
            yield self.field
        for part in self.parts.values() if self.shape == "object" else ():
            yield from part.values(listed=listed)
        if self.shape == "list" and self.item.shape == "object" and not listed:
            yield from self.item.values(listed=True)


def naming_key(keys: Iterable[Field]) -> Field | None:
    """The key that tells the items of a list apart: the first string, else the first that is no list."""
    return min(
        (key for key in keys if key.kind != "list"),
        key=lambda key: key.kind != "string",
        default=None,
    )


def list_part(item: Part, row: Field, names: Field | None = None) -> Part:
    """A list whose `row` gives the names of all items or, with a field of `names`, a map."""
    made = Part(row, "map" if names else "list", {"": item})
    key = names or made.name_key or Field("")
    kinds, said = (
        scalars_of({key.kind} - {"string", "list", "any"}),
        key.description or row.description,
    )
    keywords = (*key.keywords, *row.keywords)
    row = replace(
        row,
        kind="list",
        enum=key.enum,
        description=said,
        scalars=kinds,
        keywords=keywords,
    )
    return Part(row, made.shape, made.parts)


def tree_of(fields: Sequence[Field]) -> Part:
    """The tree of the fields of a trained model: objects, and lists of objects that are in no other list."""
    return _grouped([(one.keys, one) for one in fields], ())


def _grouped(fields: Sequence[tuple[Keys, Field]], path: Keys) -> Part:
    """The part at a path; each field comes with its keys below the path."""
    keys, first = fields[0] if fields else ((), Field(""))
    if fields and not keys:
        return Part(first)
    row = Field(path_name(path), path=path, absent=first.absent[: len(path)])
    if keys[:1] == (0,):
        return list_part(
            _grouped([(keys[1:], one) for keys, one in fields], (*path, 0)), row
        )
    groups: dict[str, list[tuple[Keys, Field]]] = {}
    for keys, one in fields:
        groups.setdefault(str(keys[0]), []).append((keys[1:], one))
    parts = {key: _grouped(group, (*path, key)) for key, group in groups.items()}
    return Part(row, "object", parts)


@dataclass
class ObjectOf:
    """The object of the texts of rows, by the places of the rows; a text is None if it was cut.

    `forms` has for each field the values of its enum by the texts that stand for them.
    The values at the places `dropped` count as lost, unless there must be a value.
    """

    tree: Part
    texts: Mapping[RowAddress, str | None]
    forms: Mapping[Field, Mapping[str, str]] = set_field(default_factory=dict)
    dropped: Collection[Keys] = ()
    lost: int = 0  # values that were cut, or that are of another kind
    _below: dict[Keys, dict[str | int, None]] = set_field(default_factory=dict)

    def __post_init__(self) -> None:
        for address in self.texts:
            for depth, step in enumerate(address.path):
                self._below.setdefault(address.path[:depth], {})[step] = None

    def read(self) -> dict[str, Any]:
        """The object, without the keys that have no value where the schema wants nothing else."""
        made, _ = self._read(self.tree, (), must=True)
        return {} if made is NOTHING else dict(made)

    def _read(self, part: Part, place: Keys, *, must: bool) -> tuple[Any, bool]:
        """The value at a place, or `NOTHING`, and whether a row has said any of it. With `must` there is an empty one, at least."""
        if part.shape == "object":
            return self._object(part, place, must=must)
        if part.shape in ("list", "map"):
            return self._items(part, place, must=must)
        if part.shape == "choice":
            label = self._parsed(part.field, RowAddress(place, "label"))
            chosen = part.parts.get(str(label))
            return self._read(chosen, place, must=must) if chosen else (NOTHING, False)
        value = self._value(part, place)
        if must and value is NOTHING and part.field.absent and part.field.may_be_empty:
            return ([] if part.field.kind == "list" else ""), False
        return value, value is not NOTHING

    def _value(self, part: Part, place: Keys) -> Any:
        value = self._parsed(part.field, RowAddress(place))
        listed = any(isinstance(step, int) for step in place)
        if (
            place in self.dropped
            and value is not NOTHING
            and not listed
            and part.absent != "never"
        ):
            self.lost += 1
            return NOTHING
        # A lost value is null where nothing else is wanted.
        return NOTHING if value is None and part.field.absent else value

    def _object(self, part: Part, place: Keys, *, must: bool) -> tuple[Any, bool]:
        # An object that lacks a value is none, unless there must be one: then the rest
        # is kept, and what it violates is named.
        made, filled, is_whole = dict[Any, Any](), False, True
        for key, inner in part.parts.items():
            wanted = inner.absent
            value, is_filled = self._read(inner, (*place, key), must=wanted == "never")
            filled = filled or is_filled
            if value is NOTHING and wanted == "null":
                value = None
            if value is not NOTHING:
                made[key] = value
            elif wanted == "never":
                is_whole = False
        is_kept = not place or must or (is_whole and filled)
        whole = (
            [made[n] for n in takewhile(made.__contains__, part.parts)]
            if 1 in part.parts
            else made
        )
        return (whole if is_kept else NOTHING), filled

    def _items(self, part: Part, place: Keys, *, must: bool) -> tuple[Any, bool]:
        """A list or a map, of the items that a row has said something of."""
        made, filled = dict[str | int, Any](), False
        naming = RowAddress(place, "names")
        self.lost += self.texts.get(naming, "") is None
        # A row has named these items: they are there, even without a value.
        are_named = part.item.shape != "value" and naming in self.texts
        for step in self._below.get(place, ()):
            value, is_filled = self._read(part.item, (*place, step), must=True)
            filled = filled or is_filled
            if (is_filled or are_named) and value is not NOTHING:
                made[step] = value
        whole = made if part.shape == "map" else [made[step] for step in sorted(made)]
        return (whole if must or made else NOTHING), filled

    def _parsed(self, of: Field, address: RowAddress) -> Value | Any:
        """The value of a row's text; None if it is lost, `NOTHING` without a text."""
        text = self.texts.get(address, "")
        if text is not None and not text.strip():
            return NOTHING
        meant = self.forms.get(of) or {choice: choice for choice in of.enum}
        spelled = of
        if of.kind == "json":
            text = meant.get((text or "").strip())
        else:
            spelled = replace(of, enum=tuple(meant))
        parsed = spelled.parsed(text) if text else None
        self.lost += parsed is None
        if isinstance(parsed, list):
            return _items_once(parsed, meant, of)
        return meant.get(parsed, parsed) if isinstance(parsed, str) else parsed


def _items_once(items: Sequence[Any], meant: Mapping[str, str], of: Field) -> list[Any]:
    """The items of a list as the schema has them; each once if it wants them unique."""
    values = [meant.get(item, item) for item in items]
    if ("uniqueItems", True) not in of.keywords:
        return values
    once = {(isinstance(value, bool), value): value for value in values}
    return [*once.values()]


def lacking(part: Part, value: Any, place: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """The keys that must be there and that a value lacks, in the words of a validator, each with the place of its object."""
    if part.shape == "list":
        for number, item in enumerate(value or (), start=1):
            yield from lacking(part.item, item, (*place, number))
    if part.shape != "object" or not isinstance(value, Mapping):
        return
    for key, inner in part.parts.items():
        if key in value:
            yield from lacking(inner, value[key], (*place, key))
        elif inner.absent == "never":
            yield place, f'"{key}" is a required property'


def read_values(
    texts: Sequence[str | None],
    fields: Sequence[Field],
    forms: Mapping[Field, Mapping[str, str]] | None = None,
) -> tuple[dict[str, Any], int]:
    """The object of the texts of all rows, in the order of `rows_of`, and the number of lost values; see `ObjectOf`."""
    places = (RowAddress(one.at(item)) for one, item in rows_of(fields, len(texts)))
    reading = ObjectOf(
        tree_of(fields), dict(zip(places, texts, strict=True)), forms or {}
    )
    return reading.read(), reading.lost


def numbers_at(values: Any, numbers: Mapping[Keys, float], place: Keys = ()) -> Any:
    """A structure of the same shape as the values, with the numbers of their places; None where there is no number."""
    if place in numbers:
        return numbers[place]
    if isinstance(values, Mapping):
        return {
            key: numbers_at(value, numbers, (*place, key))
            for key, value in values.items()
        }
    parts = (
        [isinstance(item, Mapping | list) for item in values]
        if isinstance(values, list)
        else []
    )
    if any(parts) or (parts and (*place, 1) in numbers):
        return [
            numbers_at(item, numbers, (*place, number))
            for number, item in enumerate(values, 1)
        ]
    return None
