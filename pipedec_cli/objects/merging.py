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
    """A part that says what two parts say.

    Titles and descriptions are those of the `second`.
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
    """The values that a part may have and that are of its type.

    None if it has no list of them.
    """
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
    """Whether a part allows null, which one without types and values does."""
    if not part.get("nullable", True) or "null" not in part.get("type", ["null"]):
        return False
    return None in part.get("enum", [None])


def without_null(parts: Iterable[Said]) -> list[Said]:
    """The alternatives that are not null alone.

    Those within an alternative stand beside the others.
    """
    others = list[Said]()
    for part in parts:
        if part.get("type") == ["null"] or part.get("enum") == [None]:
            continue
        is_choice = part.keys() == {ALTERNATIVES}
        others += part[ALTERNATIVES] if is_choice else [part]
    return others


def common_types(parts: Sequence[Said], *, once: bool) -> list[str]:
    """The types of alternatives that are any scalars; [] for other alternatives.

    With `once` there are none if a value may fit two alternatives.
    """
    free = set[str]()
    types = list[str]()
    for part in parts:
        own = _scalar_types(part)
        if not own:
            return []
        types += own
        if "enum" not in part:
            free.update(own)
    kinds = [kind for kind in types if kind != "null"]
    is_twice = len({*kinds}) < len(kinds) or {"integer", "number"} <= {*kinds}
    if (once and is_twice) or not {*kinds} <= with_integer(free):
        return []
    return [*dict.fromkeys(kinds)]


def _scalar_types(part: Said) -> list[str]:
    """The types of a part; none if it may hold lists or objects, or has no types."""
    types = part.get("type")
    if not types:
        types = [kind_of(value) or "null" for value in part.get("enum", ())]
    if ALTERNATIVES in part or {*types} - {"null", *SCALARS}:
        return []
    return types


def common_values(parts: Iterable[Said], *, once: bool) -> list[Any]:
    """The values of all alternatives; with `once` those of one of them alone."""
    allowed = [fitting(part) or [] for part in parts]
    times = Counter[Any]()
    for values in allowed:
        times.update({*map(_exact, values)})
    every = chain.from_iterable(allowed)
    return [value for value in every if not once or times[_exact(value)] == 1]
