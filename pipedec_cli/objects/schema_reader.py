"""Reads the parts of a JSON Schema by their kinds, such as values, objects and lists."""

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from msgspec import structs

from pipedec_cli.data.fields import DEEPEST, Absent, Field, path_name
from pipedec_cli.objects.keywords import FREE, HELD, METRIC, Said
from pipedec_cli.objects.labels import are_apart, labels_of
from pipedec_cli.objects.merging import ALTERNATIVES
from pipedec_cli.objects.notes import (
    Notes,
    OnlyNullError,
    UnwritableError,
    blame,
    refuse,
)
from pipedec_cli.objects.resolver import Resolver
from pipedec_cli.objects.subschemas import (
    NEVER,
    Subschema,
    absents_of_named,
    allows_no_item,
    bounds_of,
    has_alternatives,
    split_alternatives,
    subschema,
)
from pipedec_cli.objects.tree import Part, list_part
from pipedec_cli.objects.value_kinds import ValueKind, unheld_words, value_kind

#: A name is read in a question.
_LONGEST_NAME: Final = 1_000
_NO_ENTRIES: Final = (
    "is an object without properties, or has another type",
    "give it properties",
)

#: How alike a required name is to the property that is meant.
_LIKE: Final = 0.75


class SchemaReader:
    """Makes the tree of a schema, and notes what is left out and what no row is held to.

    If it is `trained`, the tree is one that a model can be trained for.
    """

    def __init__(self, schema: Any, notes: Notes, *, trained: bool) -> None:
        self._schema = schema
        self._notes = notes
        self._trained = trained
        self._resolver = Resolver(schema, notes, trained=trained)

    def tree(self) -> Part:
        """The tree of the whole schema."""
        try:
            return self._read(self._resolver.resolved(self._schema))
        except RecursionError:
            fault = "has too many references or alternatives within each other"
            blame((), fault, "write a flatter schema")

    def _read(self, part: Subschema) -> Part:
        """The tree of a part, by what it is: alternatives, an object, a map, a list or a value."""
        if len(part.keys) > DEEPEST:
            fault = f"has more than {DEEPEST} levels"
            refuse(part.keys[:1], fault, "write a flatter schema")
        if not self._trained and has_alternatives(part):
            return self._choice(part)
        if part.is_object:
            if self._is_map(part):
                return self._map(part)
            return self._object(part)
        if part.values is None and part.types <= {"array"}:
            return self._list(part)
        return self._value(part)

    # Lists

    def _list(self, part: Subschema) -> Part:
        """The part of a list of any kind, or of a value without types."""
        if part.keys and not self._trained and allows_no_item(part):
            return self._no_item(part)
        if part.said.get("prefixItems"):
            return self._places(part, part.said["prefixItems"])
        if not part.types:
            return self._value(part)
        given = part.said.get("items", {"type": "string"})
        # An item that a row has named is there. A trained model has no names: rows of
        # one more item, which stay empty, say that there are no more.
        absent = absents_of_named(part)
        if self._trained:
            absent = (*part.absent, "omit")
        keys = (*part.keys, 0)
        items = self._resolver.resolved(given, keys, part.trail, absent)
        is_deep = ALTERNATIVES in items.said or "array" in items.types
        if items.is_object or (is_deep and not self._trained):
            return self._listed(part, items)
        return self._value(part, items)

    def _listed(self, part: Subschema, items: Subschema) -> Part:
        """The part of a list whose `items` are objects, lists or alternatives: a row for their names, and theirs."""
        if self._trained and 0 in part.keys:
            fault = "is a list of objects within another"
            refuse(part.keys, fault, "make it a list of values")
        bounds = bounds_of(part, "minItems", "maxItems")
        if self._trained:
            self._notes.passed.update(bounds)
        if "uniqueItems" in part.said:
            self._notes.passed.add("uniqueItems")
        return list_part(self._read(items), self._row(part, bounds))

    def _places(self, part: Subschema, prefix: Any) -> Part:
        """The part of a list that says what stands in each place (`prefix`, its `prefixItems`): a part for each.

        The list ends before the first place without a value, unless there must be one.
        """
        if self._trained or not isinstance(prefix, list):
            fault = "has the keyword prefixItems, or `items` for each place"
            refuse(part.keys, fault, "give it one for all items")
        least = part.said.get("minItems", 0)
        parts = dict[int, Part]()
        for number, given in enumerate(prefix, start=1):
            keys = (*part.keys, number)
            absent: Absent = "never" if number <= least else "omit"
            absents = (*part.absent, absent)
            place = self._resolver.resolved(given, keys, part.trail, absents)
            parts[number] = self._read(place)
        return _object_of(part, parts)

    def _no_item(self, part: Subschema) -> Part:
        """A list that no row writes, as it is empty: its only place never has a value."""
        part.absent = (*part.absent[:-1], "never")
        nothing = Field("", path=(*part.keys, 1), absent=(*part.absent, "omit"))
        self._notes.count("keys", 1)
        return _object_of(part, {1: Part(nothing, "object")})

    # Values

    def _value(self, part: Subschema, items: Subschema | None = None) -> Part:
        """The part of a value, or of a list of scalars (strings, numbers, booleans), whose `items` are given: one row."""
        is_list = items is not None
        may_be_json = not is_list and not self._trained
        value = value_kind(items or part, is_item=is_list, may_be_json=may_be_json)
        said = {**items.said, **part.said} if items else part.said
        words: tuple[str, ...] = (*HELD, METRIC, FREE)
        keywords = {word: said[word] for word in words if word in said}
        self._notes.passed.update(unheld_words(value, keywords))
        if value.kind == "any" and not self._trained:
            value = ValueKind("string")
        row = self._row(part, keywords)
        path = part.keys if len(part.keys) > 1 else ()
        return Part(structs.replace(row, path=path, **value._asdict()))

    def _row(self, part: Subschema, keywords: Said | None = None) -> Field:
        """The field of a part's row, with the keywords it is held to. It counts as a key, and so does its name's length."""
        name = path_name(part.keys)
        if len(name) > _LONGEST_NAME:
            fault = f"has a name of more than {_LONGEST_NAME} characters"
            refuse(part.keys, fault, "shorten it")
        self._notes.count("keys", 1)
        self._notes.count("characters", len(name))
        description = part.said.get("description")
        return Field(
            name,
            path=part.keys,
            description=description if isinstance(description, str) else "",
            absent=part.absent,
            keywords=tuple((keywords or {}).items()),
        )

    # Objects and maps

    def _is_map(self, part: Subschema) -> bool:
        """Whether a part is an object that names no properties."""
        names = part.said.get("properties") or part.said.get("required")
        if self._trained or names:
            return False
        return bool(part.keys) or "properties" not in part.said

    def _map(self, part: Subschema) -> Part:
        """The part of a map, an object whose keys the schema does not name: a row for the names, and a part for any entry.

        Patterns of names and ``propertyNames`` hold the row of names.
        """
        patterns = part.said.get("patternProperties", {})
        values = part.said.get("additionalProperties", True)
        if not patterns and values is False:
            refuse(part.keys, *_NO_ENTRIES)
        if patterns:
            values = {"anyOf": [*patterns.values()]}
        keys = (*part.keys, 0)  # 0 stands for any entry
        absents = absents_of_named(part)
        entry = self._resolver.resolved(values, keys, part.trail, absents)
        item = self._read(entry)
        named = {"type": "string"}
        if len(patterns) == 1:
            named["pattern"] = next(iter(patterns))
        both = {"allOf": [named, part.said.get("propertyNames", {})]}
        names = self._resolver.resolved(both, part.keys, part.trail, part.absent)
        name = self._read(names).field
        row = self._row(part, bounds_of(part, "minProperties", "maxProperties"))
        return list_part(item, row, name)

    def _object(self, part: Subschema) -> Part:
        """The part of an object: a part for each property. Optional ones that no row can hold are left out."""
        required = {*part.said.get("required", ())}
        properties = self._properties(part)
        self._note_names(part.said, properties, len(required))
        parts = dict[str, Part]()
        for name, given in properties.items():
            is_required = name in required
            try:
                parts[name] = self._property(part, name, given, is_required)
            except UnwritableError as error:
                if is_required:
                    raise
                self._notes.leave_out(error)
        if part.keys and not parts:
            refuse(part.keys, "has no property that a row can hold", "leave it out")
        return _object_of(part, parts)

    def _properties(self, part: Subschema) -> Said:
        """The schemas of an object's properties by name, also of those that are named as required only.

        Refused if there are none, or if it requires one that it does not allow.
        """
        given = part.said.get("properties", {})
        properties = {**given}
        more = part.said.get("additionalProperties", True)
        for name in part.said.get("required", ()):
            if name not in properties and more is False:
                fault = f"requires {name!r}, which it does not allow"
                refuse(part.keys, fault, "define it there")
            if name not in given:
                self._note_near(name, given)
            properties.setdefault(name, more)
        if part.types - {"object"} or (part.keys and not properties):
            refuse(part.keys, *_NO_ENTRIES)
        return properties

    def _note_near(self, name: str, properties: Collection[str]) -> None:
        """Note a required name that is none of the properties, but spelled like one of them."""
        alike = get_close_matches(name, properties, 1, _LIKE)
        if alike:
            self._notes.misnamed[name] = alike[0]

    def _property(
        self, above: Subschema, name: str, given: Any, is_required: bool
    ) -> Part:
        """The part of a property: of the object `above`, with its name and its `given` schema.

        A required one that is always null has a part, but no row writes it.
        """
        keys = (*above.keys, name)
        try:
            part = self._resolver.resolved(given, keys, above.trail)
        except OnlyNullError:
            if self._trained or not is_required:
                raise
            absents = (*above.absent, "null")
            return Part(Field(path_name(keys), path=keys, absent=absents), "object")
        absent: Absent = "omit"
        if is_required:
            absent = "null" if part.nullable else "never"
        part.absent = (*above.absent, absent)
        return self._read(part)

    def _note_names(self, said: Said, names: Collection[str], required: int) -> None:
        """Note the keywords about properties to which an object may fail to hold.

        `said` are its keywords, `names` those of its properties, of which so many are
        `required`.
        """
        passed = self._notes.passed
        if said.get("minProperties", 0) > required:
            passed.add("minProperties")
        if said.get("maxProperties", len(names)) < len(names):
            passed.add("maxProperties")
        if "propertyNames" in said:
            passed.add("propertyNames")
        patterns = said.get("patternProperties", ())
        if any(_may_match(pattern, names) for pattern in patterns):
            passed.add("patternProperties")

    # Alternatives

    def _choice(self, part: Subschema) -> Part:
        """The part of alternatives: a row chooses one of them by its label. A single one that rows can hold stands alone.

        Refused if rows can hold none of them.
        """
        alternatives = self._alternatives(part)
        if not alternatives:
            raise self._notes.left_out[-1]
        schemas = [said for said, _ in alternatives]
        if len(schemas) == 1:
            only = subschema(schemas[0], part.keys, part.trail, part.absent)
            return self._read(only)
        if "oneOf" in part.said and not are_apart(schemas):
            self._notes.passed.add("oneOf")
        parts = dict[str, Part]()
        for label, (_, tree) in zip(labels_of(schemas), alternatives, strict=True):
            if tree.shape != "choice":
                parts[label] = tree
                continue
            # A choice within a choice is the same choice.
            for inner_label, inner in tree.parts.items():
                parts[f"{label}, {inner_label}"] = inner
        # At the root one of them is the object.
        part.absent = part.absent or NEVER
        row = self._row(part)
        return Part(structs.replace(row, enum=tuple(parts)), "choice", parts)

    def _alternatives(self, part: Subschema) -> list[tuple[Said, Part]]:
        """The alternatives of a part that rows can hold: of each its keywords, with those beside all of them, and its tree.

        The others are noted as left out.
        """
        alternatives = []
        schemas, beside = split_alternatives(part)
        for schema in schemas:
            try:
                said = self._resolver.both(schema, beside, part.keys)
                # Where a row has chosen it, there is one.
                absent = NEVER * len(part.keys)
                tree = self._read(subschema(said, part.keys, part.trail, absent))
                if not part.keys and tree.shape in ("value", "list"):
                    fault = "has an alternative that is no object"
                    refuse(part.keys, fault, "leave it out")
            except UnwritableError as error:
                self._notes.leave_out(error)
            else:
                alternatives.append((said, tree))
        return alternatives


def _object_of(part: Subschema, parts: Mapping[Any, Part]) -> Part:
    """The part of an object with these `parts` by their keys, or of a list with a part for each place, by its number."""
    row = Field(path_name(part.keys), path=part.keys, absent=part.absent)
    return Part(row, "object", parts)


def _may_match(pattern: str, names: Iterable[str]) -> bool:
    """Whether a pattern may match one of these names, by the plain letters that it begins with.

    The pattern is not run, as that can take long.
    """
    start = re.fullmatch(r"\^([\w-]+)", pattern)
    if start is None:
        return True
    return any(name.startswith(start[1]) for name in names)
