"""Puts the references, `allOf` and alternatives of a JSON Schema in place."""

import json
import re
from itertools import chain
from typing import Any, Final

from pipedec_cli.data.fields import Keys
from pipedec_cli.objects.keyword_values import is_usable, is_wrong
from pipedec_cli.objects.keywords import (
    CHECKED,
    FREE,
    HELD,
    KNOWN,
    METRIC,
    REFUSED,
    Said,
)
from pipedec_cli.objects.merging import (
    ALTERNATIVES,
    allows_null,
    common_types,
    common_values,
    merged,
    without_null,
)
from pipedec_cli.objects.notes import Notes, blame, refuse
from pipedec_cli.objects.references import target_of
from pipedec_cli.objects.schema import KINDS
from pipedec_cli.objects.subschemas import Absents, Subschema, Trail, subschema

#: What a user is told who has given no schema at all.
EXAMPLE: Final = '{"properties": {"name": {"type": "string"}, …}}'
#: The keywords that say what is put in place.
_COMBINING: Final = frozenset(["type", "const", "$ref", "anyOf", "oneOf", "allOf"])
_TYPES: Final = KINDS.keys() | {"object", "null"}
#: What to do about values that are wrong.
_REMEDIES: Final = {
    FREE: "write true or false",
    METRIC: "write exact, words, or a tolerance such as 0.5 or 5%",
    "required": "write a list of names in their object",
}
_ALTERNATIVES: Final = (
    "has several alternatives, or none",
    "give it one that is not null",
)
_NO_VALUE: Final = "allows no value"
_LEAVE_OUT: Final = "leave it out"
#: A part counts as so many characters, however short it is.
_PART: Final = 30
#: In these drafts what stands beside ``$ref`` does not count.
_REF_ALONE: Final = re.compile("draft-0[3-7]")


class Resolver:
    """Puts the references, `allOf` and alternatives of a schema in place, part by part.

    It notes the keywords that no row is held to.
    """

    def __init__(self, schema: Any, notes: Notes, *, trained: bool) -> None:
        """Take a schema, the notes that are added to while it is read, and whether a model is to be `trained` for it."""
        draft = schema.get("$schema") if isinstance(schema, dict) else None
        self._schema = schema
        self._notes = notes
        self._trained = trained
        # So many times a part may stand within itself, itself included.
        self._levels = 1 if trained else 2
        self._ref_alone = bool(_REF_ALONE.search(str(draft)))

    def resolved(
        self, part: Any, keys: Keys = (), trail: Trail = (), absent: Absents = ()
    ) -> Subschema:
        """A part of the schema with all that it refers to and combines put in its place.

        Args:
            part: The part as the schema has it.
            keys: The path in the object to its value.
            trail: The references that led to it, from the outside in.
            absent: What stands for a missing value at each key of the path.
        """
        seen = [*trail]
        said = self._flat(part, keys, trail, seen)
        return subschema(said, keys, tuple(seen), absent)

    def both(self, first: Said, second: Said, keys: Keys) -> Said:
        """Merge two parts at the path `keys` into one that holds a value to both.

        Refused if it allows no value. Titles and descriptions are those of the second.
        """
        if ALTERNATIVES in first and ALTERNATIVES in second:
            self._notes.passed.add("anyOf")
        both = merged(first, second)
        self._notes.count("characters", _length(both))
        if both.get("type") == [] or both.get("enum") == []:
            refuse(keys, _NO_VALUE, _LEAVE_OUT)
        return both

    def _flat(self, part: Any, keys: Keys, trail: Trail, seen: list[str]) -> Said:
        """The keywords of a part, merged with those of what it refers to and of the parts that it combines.

        `keys` and `trail` are those of `resolved`. The references that are followed are
        added to the list `seen`.
        """
        part = _opened(part, keys)
        self._note(part, len(trail), keys)
        others = list[Said]()
        if "$ref" in part:
            target = self._referred(part["$ref"], keys, trail, seen)
            if self._ref_alone:
                return target
            others.append(target)
        for word in ("allOf", "anyOf", "oneOf"):
            if word not in part:
                continue
            if not isinstance(part[word], list) or not part[word]:
                fault = f"has no list as {word}, or an empty one"
                refuse(keys, fault, "write a list of schemas")
            inner = [self._flat(entry, keys, trail, seen) for entry in part[word]]
            if word == "allOf":
                others += inner
            else:
                others.append(self._chosen(inner, keys, once=word == "oneOf"))
        # What stands side by side in a part holds together.
        flat = self._own(part, keys)
        for other in reversed(others):
            flat = self.both(other, flat, keys)
        return flat

    def _referred(
        self, reference: Any, keys: Keys, trail: Trail, seen: list[str]
    ) -> Said:
        """The keywords of the part that a reference names, as `_flat` gives them; it is added to the list `seen`.

        Refused if the part stands within itself more often than a tree has levels for.
        """
        if trail.count(reference) >= self._levels:
            refuse(keys, f"refers to itself: {reference}", "write the levels out")
        target = target_of(reference, self._schema, keys)
        seen.append(reference)
        return self._flat(target, keys, (*trail, reference), seen)

    def _note(self, part: Said, depth: int, keys: Keys) -> None:
        """Count a part, which `depth` references led to, and note its keywords that no row is held to.

        Refused for a keyword that is not supported.
        """
        for word in sorted(REFUSED & part.keys()):
            refuse(keys, f"has the keyword {word}, which is not supported", _LEAVE_OUT)
        self._notes.passed.update(part.keys() & CHECKED)
        self._notes.unknown.update(part.keys() - KNOWN)
        texts = sum(len(value) for value in part.values() if isinstance(value, str))
        self._notes.count("characters", _PART + _length(part) + depth + texts)

    def _own(self, part: Said, keys: Keys) -> Said:
        """The keywords of a part itself, without what it refers to or combines; ``const`` is an enum of one value.

        A UserError for a value that is wrong. Values that cannot be used are left out.
        """
        own = Said()
        for word, value in part.items():
            if is_wrong(word, value):
                todo = _REMEDIES.get(word, "mend or leave it out")
                blame(keys, f"has the {word} {json.dumps(value)[:80]}", todo)
            if word not in _COMBINING and is_usable(word, value):
                own[word] = value
        types = _types_in(part, keys)
        if types:
            own["type"] = types
        if "const" in part:
            own = merged({"enum": [part["const"]]}, own)
        values = own.get("enum", ())
        texts = (value for value in values if isinstance(value, str))
        self._notes.count("choices", len(values))
        self._notes.count("characters", sum(map(len, texts)))
        return own

    def _chosen(self, parts: list[Said], keys: Keys, *, once: bool) -> Said:
        """Make one part of alternatives, and say whether it allows null.

        With `once` (for ``oneOf``) a value that several alternatives allow is not
        allowed: neither is null then.
        """
        others = without_null(parts)
        nulls = sum(map(allows_null, parts))
        chosen = self._united(others, keys, once=once)
        has_null = nulls == 1 or (nulls > 1 and not once)
        for word, null in (("type", "null"), ("enum", None)):
            if word in chosen:
                values = [value for value in chosen[word] if value != null]
                chosen[word] = [*values, null] if has_null else values
        if len(others) < len(parts):
            chosen["nullable"] = nulls == 1 or not once
        return chosen

    def _united(self, others: list[Said], keys: Keys, *, once: bool) -> Said:
        """Make one part of alternatives, none of which is null alone.

        It is a plain part where that says the same: the only alternative, a list of
        types, or one enum of all values. Else the alternatives stand in it, for a row
        that chooses one of them. With `once` (for ``oneOf``) it allows no value that
        several of them allow.
        """
        if not others:
            refuse(keys, *_ALTERNATIVES)
        if all(other == others[0] for other in others):
            is_twice = once and len(others) > 1
            return {"enum": []} if is_twice else dict(others[0])
        types = common_types(others, once=once)
        held = {*chain.from_iterable(others)} & {*HELD}
        if types and (self._trained or not held):
            self._notes.passed.update(held)
            return {"type": types}
        if all(map(_is_listed, others)):
            values = common_values(others, once=once)
            self._notes.count("characters", len(values))
            return {"enum": values}
        if self._trained:
            refuse(keys, *_ALTERNATIVES)
        choice: Said = {ALTERNATIVES: others}
        if once:
            choice["oneOf"] = True
        return choice


def _opened(part: Any, keys: Keys) -> Said:
    """A part of a schema as a dict: true is {}, and false an enum without values.

    A list of `items`, one for each place, as drafts before 2020 write it, becomes
    `prefixItems`. Blamed if it is no schema.
    """
    if part is True:
        return {}
    if part is False:
        return {"enum": []}
    if not isinstance(part, dict):
        example = '{"type": "string"}' if keys else EXAMPLE
        blame(keys, "is no schema", f"write for example {example}")
    if not isinstance(part.get("items"), list):
        return part
    more = part.get("additionalItems", True)
    return {**part, "prefixItems": part["items"], "items": more}


def _types_in(part: Said, keys: Keys) -> list[str]:
    """The types that a part names, each once; [] if it names none.

    A UserError for what is no type, and for an enum that is no list.
    """
    types = part.get("type", [])
    if isinstance(types, str):
        types = [types]
    if not isinstance(types, list) or not isinstance(part.get("enum"), list | None):
        fault = "has a `type` or an `enum` of the wrong kind"
        blame(keys, fault, "give it one `type`, and a list as `enum`")
    for word in sorted({*map(str, types)} - _TYPES):
        todo = "take string, number, integer, boolean, object or array"
        blame(keys, f"has the type {word!r}", todo)
    return [*dict.fromkeys(types)]


def _is_listed(part: Said) -> bool:
    """Whether a part has a list of its values."""
    return "enum" in part and ALTERNATIVES not in part


def _length(part: Said) -> int:
    """The number of keywords of a part, and of what their lists and objects hold."""
    holders = [value for value in part.values() if isinstance(value, list | dict)]
    return len(part) + sum(map(len, holders))
