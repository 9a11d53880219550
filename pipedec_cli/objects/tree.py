"""A schema as a tree: which rows it asks for, and the object that the texts of these rows make.

There are five shapes of parts. A value has a row of its own. An object has a part for
each property. A list or a map has a row that names its items. A choice has a row that
says which of its parts there is.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as set_field
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple

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
    """A part of a schema.

    Its `field` is its path, and what its row may say: a value, names, or a label.
    """

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
        """The key of a list's items whose values the row of names writes: a string if there is one; None if it has none.

        None for what is no list of objects as well.
        """
        if not self.lists_objects:
            return None
        return naming_key(self.item.values(listed=True))

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
        """Whether it has values and lists of objects alone, as a trained model can have."""
        return all(part._is_plain_itself for part in self.inner())

    @property
    def _is_plain_itself(self) -> bool:
        if self.shape == "object":
            return 1 not in self.parts
        is_outermost = 0 not in self.field.path
        return self.shape == "value" or (self.lists_objects and is_outermost)

    @property
    def lists_objects(self) -> bool:
        """Whether it is a list of objects."""
        return self.shape == "list" and self.item.shape == "object"

    def values(self, *, listed: bool = False) -> Iterator[Field]:
        """The fields of the values that a trained model writes for a part: its own, those of an object, of a list's objects.

        Lists are left out if the part itself is `listed`, which means it stands in one.
        """
        if self.shape == "value":
            yield self.field
        elif self.shape == "object":
            for part in self.parts.values():
                yield from part.values(listed=listed)
        elif self.lists_objects and not listed:
            yield from self.item.values(listed=True)


def naming_key(keys: Iterable[Field]) -> Field | None:
    """The key that tells the items of a list apart: the first string, else the first that is no list; None if all are."""
    single = [key for key in keys if key.kind != "list"]
    return min(single, key=lambda key: key.kind != "string", default=None)


def list_part(item: Part, row: Field, names: Field | None = None) -> Part:
    """The part of a list with such items or, if there is a field for the `names` of its entries, of a map.

    Its `row` writes all names. So it is held to what holds for a name: to the field
    `names`, or that of the items' key that names them.
    """
    part = Part(row, "map" if names else "list", {"": item})
    key = names or part.name_key or Field("")
    row = replace(
        row,
        kind="list",
        enum=key.enum,
        description=key.description or row.description,
        scalars=scalars_of({key.kind} - {"string", "list", "any"}),
        keywords=key.keywords + row.keywords,
    )
    return Part(row, part.shape, part.parts)


def tree_of(fields: Sequence[Field]) -> Part:
    """The tree of the fields of a trained model: objects, and lists of objects that are in no other list."""
    return _grouped(fields, 0)


def _grouped(fields: Sequence[Field], depth: int) -> Part:
    """The part that holds these fields, whose paths begin with the same keys, as many as the `depth`.

    A single field that ends there is a value. The others are grouped by their next
    key: 0 makes a list of objects, and names make an object.
    """
    first = fields[0] if fields else Field("")
    if fields and len(first.keys) == depth:
        return Part(first)
    path = first.keys[:depth]
    absent = first.absent[:depth]
    row = Field(path_name(path), path=path, absent=absent)
    groups = defaultdict[str | int, list[Field]](list)
    for field in fields:
        groups[field.keys[depth]].append(field)
    parts = {}
    for key, group in groups.items():
        parts[key] = _grouped(group, depth + 1)
    if 0 in parts:
        return list_part(parts[0], row)
    return Part(row, "object", parts)


#: The text of a row that has not said all, and a value of which nothing is sure yet.
PENDING: Final = object()


class Said(NamedTuple):
    """What is known of a value."""

    value: Any  # or `NOTHING`, or `PENDING`
    filled: bool = False  # whether a row has said any of it
    #: How many lists and objects are open at its end: more of them may come.
    open: int = 0

    @property
    def final(self) -> bool:
        """Whether all of it is known."""
        return self.value is not PENDING and not self.open

    @property
    def has_value(self) -> bool:
        """Whether there is a value, of which some is known."""
        return self.value is not PENDING and self.value is not NOTHING


#: The values of an enum by the texts that stand for them.
Meant = Mapping[str, str]


@dataclass
class ObjectOf:
    """The object of the texts of rows, by the places of the rows; a text is None if it was cut.

    `forms` has for each field the values of its enum by the texts that stand for them.
    The values at the places `dropped` count as lost, unless there must be a value.

    Where texts are `PENDING`, it reads what they cannot change any more: a value whose
    text is known, in an object that is sure to be there.
    """

    tree: Part
    texts: Mapping[RowAddress, Any]
    forms: Mapping[Field, Meant] = set_field(default_factory=dict)
    dropped: Collection[Keys] = ()
    lost: int = 0  # values that were cut, or that are of another kind
    #: The places of lists that may get more items.
    growing: Collection[Keys] = ()
    #: The places of values that may still be dropped; None: any value may.
    held: Collection[Keys] | None = ()
    #: Whether a value is pending while a value before it is.
    in_order: bool = False

    def __post_init__(self) -> None:
        # The steps right below each place, in order.
        self._below = defaultdict[Keys, dict[Any, None]](dict)
        for address in self.texts:
            for depth, step in enumerate(address.path):
                self._below[address.path[:depth]][step] = None

    def read(self) -> dict[str, Any]:
        """The object, without keys that have no value, unless the schema wants something else."""
        return dict(self.said().value)

    def said(self) -> Said:
        """The object as far as it is known, {} if it is none."""
        said = self._read(self.tree, (), must=True)
        return Said({}) if said.value is NOTHING else said

    def _read(self, part: Part, place: Keys, *, must: bool) -> Said:
        """The value at a place.

        Where no row has said a value that `must` be there, it is empty if the schema
        allows an empty one. A choice without a known label has no value in any case.
        """
        if part.shape == "object":
            return self._object(part, place, must=must)
        if part.shape in ("list", "map"):
            return self._items(part, place, must=must)
        if part.shape == "choice":
            label = self._parsed(part.field, RowAddress(place, "label"))
            if label not in part.parts:
                return Said(label if label is PENDING else NOTHING)
            return self._read(part.parts[label], place, must=must)
        value = self._value(part, place)
        field = part.field
        if value is NOTHING and must and field.absent and field.may_be_empty:
            return Said([] if field.kind == "list" else "")
        return Said(value, Said(value).has_value)

    def _value(self, part: Part, place: Keys) -> Any:
        """The value that a row has written at a path: `NOTHING` without one, or if it is dropped or lost.

        A lost one is null only where the schema does not say what stands for it.
        """
        value = self._parsed(part.field, RowAddress(place))
        is_listed = any(isinstance(step, int) for step in place)
        may_go = part.absent != "never" and not is_listed
        if may_go and value is not NOTHING and value is not PENDING:
            if place in self.dropped:
                self.lost += 1
                return NOTHING
            if self.held is None or place in self.held:
                return PENDING
        # A lost value is null where nothing else is wanted.
        return NOTHING if value is None and part.field.absent else value

    def _object(self, part: Part, place: Keys, *, must: bool) -> Said:
        """An object. One that lacks a value is none, unless there must be one.

        One that lacks a value which it must have, or of which nothing is said, is
        `NOTHING`, unless there `must` be one: then what there is of it is kept.
        """
        said = {}
        needed = []
        filled = False
        final = True
        for key, inner in part.parts.items():
            is_needed = inner.absent == "never"
            each = self._read(inner, (*place, key), must=is_needed)
            said[key] = each
            filled |= each.filled
            final &= each.final
            if is_needed:
                needed.append(each.value)
        absence = _absence(needed, filled=filled, final=final)
        if place and not must and absence:
            return absence
        if 1 not in part.parts:
            values, behind = self._values(part, said)
            return Said(values, filled, behind)
        if not final:
            return Said(PENDING)
        values, _ = self._values(part, said)
        numbers = takewhile(values.__contains__, part.parts)
        return Said([values[number] for number in numbers], filled)

    def _values(self, part: Part, said: Mapping[Any, Said]) -> tuple[Any, int]:
        """The known values of an object by their keys, out of what rows have `said` of each key.

        Also returns how many objects and lists are still open at the end of the last of
        these values, this one among them: how many brackets would close them. It is 0
        where all keys are final.
        """
        values = {}
        is_known = True
        unclosed = 1
        for key, each in said.items():
            # In the order of the keys nothing counts behind one that is not final.
            is_due = is_known or not self.in_order
            is_null = each.value is NOTHING and part.parts[key].absent == "null"
            if is_due and each.has_value:
                values[key] = each.value
                unclosed = 1 + each.open
            elif is_due and is_null:  # there is no value, for which the schema has null
                values[key] = None
                unclosed = 1
            is_known = is_known and each.final
        return values, 0 if is_known else unclosed

    def _items(self, part: Part, place: Keys, *, must: bool) -> Said:
        """A list or a map, of the items that a row has said something of, up to one that is pending."""
        items: dict[Any, Any] = {}
        filled = False
        names = RowAddress(place, "names")
        of_names = self.texts.get(names, "")
        if of_names is PENDING:
            return Said(PENDING)
        self.lost += of_names is None
        # A row has named these items: they are there, even without a value.
        are_named = part.item.shape != "value" and names in self.texts
        behind = 1
        final = place not in self.growing
        for step in self._steps(part, place):
            said = self._read(part.item, (*place, step), must=True)
            filled |= said.filled
            if said.has_value and (said.filled or are_named):
                items[step] = said.value
                behind = 1 + said.open
            if not said.final:
                final = False
                break
        if not items and not must:
            return Said(NOTHING if final else PENDING, filled)
        value = items if part.shape == "map" else [*items.values()]
        return Said(value, filled, 0 if final else behind)

    def _steps(self, part: Part, place: Keys) -> list[Any]:
        """The steps to the items of a list or a map."""
        steps = [*self._below[place]]
        return sorted(steps) if part.shape == "list" else steps

    def _parsed(self, field: Field, address: RowAddress) -> Value | Any:
        """The value of a row's text: `NOTHING` without a text, `PENDING` if it is not known yet, None if it is lost (cut, or no such value), which is counted."""
        text = self.texts.get(address, "")
        if text is PENDING:
            return PENDING
        if text is not None and not text.strip():
            return NOTHING
        meant = self.forms.get(field) or {choice: choice for choice in field.enum}
        value = _meant_value(field, text, meant) if text else None
        if value is None:
            self.lost += 1
        return value


def _absence(needed: Sequence[Any], *, filled: bool, final: bool) -> Said | None:
    """What an object is that lacks a value which is needed, or all values; None if it is there."""
    if not final and (not filled or PENDING in needed):
        return Said(PENDING)
    if not filled or NOTHING in needed:
        return Said(NOTHING, filled)
    return None


def _meant_value(field: Field, text: str, meant: Meant) -> Value | None:
    """The value that a text means for a field; None if it is none.

    `meant` has the choices as the schema has them by the texts that stand for them.
    Lists with ``uniqueItems`` have each item once.
    """
    if field.kind == "json":
        return field.parsed(meant.get(text.strip(), ""))
    value = replace(field, enum=tuple(meant)).parsed(text)
    if isinstance(value, str):
        return meant.get(value, value)
    if not isinstance(value, list):
        return value
    values = [meant.get(item, item) for item in value]
    if ("uniqueItems", True) not in field.keywords:
        return values
    once = {(isinstance(item, bool), item): item for item in values}
    return [*once.values()]


def lacking(part: Part, value: Any, place: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Name the keys that must be there and that a value lacks, in the words of a validator.

    Each comes behind the path of its object. `place` is the path of the value itself.
    """
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
    forms: Mapping[Field, Meant] | None = None,
) -> tuple[dict[str, Any], int]:
    """Make the object of the texts of all rows, which come in the order of `rows_of`, None for one that was cut.

    `forms` is that of `ObjectOf`. Returns the object and the number of lost values:
    those that were cut, or that are of another kind.
    """
    rows = rows_of(fields, len(texts))
    addresses = (RowAddress(field.at(item)) for field, item in rows)
    by_address = dict(zip(addresses, texts, strict=True))
    reading = ObjectOf(tree_of(fields), by_address, forms or {})
    return reading.read(), reading.lost


def numbers_at(values: Any, numbers: Mapping[Keys, float], place: Keys = ()) -> Any:
    """A copy of an object, a list or a value in which each value is replaced by the number at its path, or None.

    `place` is the path of `values` itself.
    """
    if place in numbers:
        return numbers[place]
    if isinstance(values, Mapping):
        by_key = {}
        for key, value in values.items():
            by_key[key] = numbers_at(value, numbers, (*place, key))
        return by_key
    if not isinstance(values, list) or not values:
        return None
    is_deep = any(isinstance(item, Mapping | list) for item in values)
    if not is_deep and (*place, 1) not in numbers:
        return None
    in_order = []
    for number, item in enumerate(values, start=1):
        in_order.append(numbers_at(item, numbers, (*place, number)))
    return in_order
