"""The parts of a JSON Schema without references: what they are, and what they allow."""

from dataclasses import dataclass
from typing import Any, Final

from pipedec_cli.data.fields import SCALARS, Absent, Keys, text_of
from pipedec_cli.objects.keywords import Said
from pipedec_cli.objects.merging import ALTERNATIVES, allows_null, fitting
from pipedec_cli.objects.notes import OnlyNullError, refuse

#: The keywords that make an object of a part without a type.
OF_OBJECTS: Final[tuple[str, ...]] = (
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
)
#: What bounds a value of one type.
_BOUNDS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
}
_NO_VALUE: Final = "allows no value"
_LEAVE_OUT: Final = "leave it out"
_ONLY_NULL: Final = (f"{_NO_VALUE} but null", _LEAVE_OUT, OnlyNullError)
#: The references that led to a part.
Trail = tuple[str, ...]
Absents = tuple[Absent, ...]
#: What is wanted at a key that leads to a part which a row has named: there is one.
NEVER: Final[Absents] = ("never",)


@dataclass(slots=True)
class Subschema:
    """A part of a schema without references; alternatives that are no single value stand under `ALTERNATIVES`."""

    keys: Keys  # the path to it
    said: Said  # its keywords
    types: set[str]  # without null
    nullable: bool
    values: list[Any] | None  # the values that it may have; None for any
    trail: Trail
    absent: Absents  # see `Field`

    @property
    def is_object(self) -> bool:
        """Whether it is an object, by its type or without a type by its keywords."""
        if self.values is not None or self.types:
            return self.values is None and "object" in self.types
        return any(self.said.get(word) for word in OF_OBJECTS)


def subschema(said: Said, keys: Keys, trail: Trail, absent: Absents) -> Subschema:
    """Make a `Subschema` of the keywords `said` of a part without references: find out which types and values it allows.

    `keys` is its path in the object, `trail` the references that led to it, `absent`
    what stands for a missing value at each key. It is refused if it allows no value but
    null or an empty one.
    """
    types = said.get("type", [])
    values = fitting(said)
    if values is not None:
        _refuse_empty(values, keys)
    if types == ["null"]:
        refuse(keys, *_ONLY_NULL)
    if len(types) == 1 and types[0] in _BOUNDS:
        least, most = _BOUNDS[types[0]]
        if least in said and most in said and said[least] > said[most]:
            refuse(keys, _NO_VALUE, _LEAVE_OUT)
    names_null = "null" in types or None in (values or ())
    if ALTERNATIVES in said:  # they say themselves whether one of them is null
        names_null = False
    nullable = (names_null or "nullable" in said) and allows_null(said)
    return Subschema(keys, said, {*types} - {"null"}, nullable, values, trail, absent)


def _refuse_empty(values: list[Any], keys: Keys) -> None:
    """Refuse a part at the path `keys` if no row can write one of its `values`: there are none, or all are null or empty."""
    if not values:
        refuse(keys, _NO_VALUE, _LEAVE_OUT)
    if all(value is None for value in values):
        refuse(keys, *_ONLY_NULL)
    if not any(map(text_of, values)):
        refuse(keys, f"{_NO_VALUE} that is not empty", _LEAVE_OUT)


def has_alternatives(part: Subschema) -> bool:
    """Whether a part has several alternatives, or types that no single row can hold."""
    if ALTERNATIVES in part.said:
        return True
    if part.values is not None or len(part.types) < 2:
        return False
    return "array" in part.types or "object" in part.types


def split_alternatives(part: Subschema) -> tuple[list[Said], Said]:
    """The alternatives of a part, and the keywords that stand beside them and hold for all.

    A part with several types has one alternative for each, and one for all scalars
    (strings, numbers, booleans).
    """
    beside = {**part.said}
    for word in ("oneOf", "nullable"):
        beside.pop(word, None)
    if ALTERNATIVES in beside:
        return beside.pop(ALTERNATIVES), beside
    types = beside.pop("type")
    alternatives: list[Said] = []
    scalars = [kind for kind in types if kind in SCALARS]
    if scalars:
        alternatives.append({"type": scalars})
    if "array" in types:
        alternatives.append({"type": ["array"]})
    if "object" in types:
        alternatives.append({"type": ["object"]})
    return alternatives, beside


def allows_no_item(part: Subschema) -> bool:
    """Whether a part is a list that is always empty."""
    said = part.said
    is_closed = said.get("items") is False and not said.get("prefixItems")
    is_empty = is_closed or said.get("maxItems") == 0
    return part.types == {"array"} and is_empty and not said.get("minItems")


def bounds_of(part: Subschema, least: str, most: str) -> Said:
    """The bounds of a part's number of entries, under the names that lists have for them.

    `least` and `most` are the part's own keywords, such as ``minProperties``.
    """
    bounds = {}
    if least in part.said:
        bounds["minItems"] = part.said[least]
    if most in part.said:
        bounds["maxItems"] = part.said[most]
    return bounds


def absents_of_named(part: Subschema) -> Absents:
    """What is wanted at the keys of an item or entry which a row has named."""
    return NEVER * (len(part.keys) + 1)
