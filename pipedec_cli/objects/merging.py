"""Parts of a schema without references: what two parts say together, and what alternatives have in common.

A part is a dict of keywords in which ``type`` and ``enum`` are lists and ``const`` is
an ``enum``.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import add, and_
from typing import Any, Final

from pipedec_cli.data.fields import SCALARS, kind_of
from pipedec_cli.objects.keyword_values import GREATER_HOLDS, SMALLER_HOLDS
from pipedec_cli.objects.keywords import Said

#: The keyword of alternatives that are no single value, each without references.
ALTERNATIVES: Final = " alternatives"


def merged(first: Said, second: Said) -> Said:
    """Merge two parts of a schema into one that holds a value to both.

    Titles, descriptions and all else that cannot be merged are those of the `second`.
    """
    both = {**first, **second}
    for word in first.keys() & second.keys() & _MERGED.keys():
        both[word] = _MERGED[word](first[word], second[word])
    return both


def _types_of_both(types: Sequence[str], others: Sequence[str]) -> list[str]:
    allowed = with_integer(types) & with_integer(others)
    return [kind for kind in dict.fromkeys((*types, *others)) if kind in allowed]


def _values_of_both(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    known = {*map(_exact, others)}
    return [value for value in values if _exact(value) in known]


def _properties_of_both(properties: Said, others: Said) -> Said:
    both = {**properties, **others}
    for name in properties.keys() & others.keys():
        both[name] = _both_hold(properties[name], others[name])
    return both


def _both_hold(part: Any, other: Any) -> Said:
    return {"allOf": [part, other]}


#: What two values of a keyword say together. Of other keywords the second value counts.
_MERGED: Final[dict[str, Any]] = {
    "type": _types_of_both,
    "enum": _values_of_both,
    "required": add,
    "properties": _properties_of_both,
    "items": _both_hold,
    "nullable": and_,
    **dict.fromkeys(GREATER_HOLDS, max),
    **dict.fromkeys(SMALLER_HOLDS, min),
}


def with_integer(types: Iterable[str]) -> set[str]:
    """The types, and integer beside number: each integer is a number."""
    kinds = {*types}
    if "number" in kinds:
        kinds.add("integer")
    return kinds


def fitting(part: Said) -> list[Any] | None:
    """The values that the enum of a part lists and its type allows; None if it has no enum."""
    if "enum" not in part:
        return None
    types = part.get("type")
    if types is None:
        return [*part["enum"]]
    allowed = with_integer(types)
    values = [value for value in part["enum"] if _type_of(value) in allowed]
    if "integer" not in types or "number" in types:
        return values
    # 1.0 is an integer.
    return [int(value) if isinstance(value, float) else value for value in values]


def _type_of(value: Any) -> str:
    """The type of a JSON value; of a number without a fraction integer."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return kind_of(value) or "null"


def _exact(value: Any) -> tuple[Any, Any]:
    """A value in a form that can be looked up, in which true is not 1."""
    if isinstance(value, list | dict):
        return list, json.dumps(value, sort_keys=True)
    return isinstance(value, bool), value


def allows_null(part: Said) -> bool:
    """Whether a part of a schema allows null. One that says nothing of types, values and ``nullable`` does."""
    if not part.get("nullable", True) or "null" not in part.get("type", ["null"]):
        return False
    return None in part.get("enum", [None])


def without_null(parts: Iterable[Said]) -> list[Said]:
    """The alternatives `parts` without those that allow null and nothing else.

    An alternative that is itself a choice is replaced by its own alternatives.
    """
    others = list[Said]()
    for part in parts:
        if part.get("type") == ["null"] or part.get("enum") == [None]:
            continue
        is_choice = part.keys() == {ALTERNATIVES}
        others += part[ALTERNATIVES] if is_choice else [part]
    return others


def common_types(parts: Sequence[Said], *, once: bool) -> list[str]:
    """The types that alternatives of scalars (strings, numbers, booleans) allow together, each once, without null.

    [] where they say more than types: where one is no scalar, or where a type has only
    the values of an enum. With `once` (for ``oneOf``) also where a value may fit two
    alternatives.
    """
    free = set[str]()  # types of which any value is allowed
    types = list[str]()
    for part in parts:
        own = _scalar_types(part)
        if not own:
            return []
        types += [kind for kind in own if kind != "null"]
        if "enum" not in part:
            free.update(own)
    is_twice = len({*types}) < len(types) or {"integer", "number"} <= {*types}
    if (once and is_twice) or not {*types} <= with_integer(free):
        return []
    return [*dict.fromkeys(types)]


def _scalar_types(part: Said) -> list[str]:
    """The types of a part that allows scalars and null alone; [] if it may hold lists or objects, or says no types."""
    types = part.get("type")
    if not types:
        types = [kind_of(value) or "null" for value in part.get("enum", ())]
    if ALTERNATIVES in part or {*types} - {"null", *SCALARS}:
        return []
    return types


def common_values(parts: Iterable[Said], *, once: bool) -> list[Any]:
    """The values that alternatives with an enum allow together; with `once` only those that a single one allows."""
    allowed = [fitting(part) or [] for part in parts]
    times = Counter[Any]()  # in how many alternatives each value stands
    for values in allowed:
        times.update({*map(_exact, values)})
    every = chain.from_iterable(allowed)
    different = {_exact(value): value for value in every}
    return [value for form, value in different.items() if not once or times[form] == 1]
