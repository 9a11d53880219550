"""The kinds of values of a schema, and the keywords that no row is held to."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from pipedec_cli.data.fields import (
    SCALARS,
    Field,
    Keys,
    Kind,
    kind_of,
    same_word,
    scalars_of,
    text_of,
)
from pipedec_cli.objects.keywords import (
    HELD_FORMATS,
    HOLD_NOTHING,
    OF_NUMBERS,
)
from pipedec_cli.objects.notes import blame, refuse
from pipedec_cli.objects.patterns import holds
from pipedec_cli.objects.schema import KINDS
from pipedec_cli.objects.subschemas import Subschema

#: The largest bounds of a number, and the largest step, that llguidance holds a row to.
_WIDEST: Final = {**dict.fromkeys(OF_NUMBERS, 10**16), "multipleOf": 10**5}
#: Writes a value as JSON.
_quoted: Final = partial(json.dumps, ensure_ascii=False)
_NO_SCALAR: Final = (
    "is no string, number, boolean, object, or list of these",
    "give it one `type`, and an `enum` of values of that type",
)


class ValueKind(NamedTuple):
    """The kind, the choices and the scalars of a `Field`."""

    kind: Kind
    enum: tuple[str, ...] = ()
    scalars: tuple[Kind, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether it is any text, or a list of such texts."""
        return self.kind in ("string", "list") and not (self.enum or self.scalars)


def value_kind(part: Subschema, *, is_item: bool, may_be_json: bool) -> ValueKind:
    """The kind of a value, or of a list of such values if the part `is_item`.

    Choices that are no scalars (strings, numbers, booleans), or whose texts are not
    told apart, are refused, unless a row `may_be_json`: then they are written as JSON.
    """
    if not (part.values or part.types or is_item):
        return ValueKind("any")
    values = [value for value in part.values or () if value is not None]
    _check_labels(part.keys, values)
    types, scalars = _types_and_scalars(part, values)
    fault = _fault_of_choices(values, scalars)
    if fault and may_be_json:
        return ValueKind("json", tuple(dict.fromkeys(map(_quoted, values))))
    if fault:
        refuse(part.keys, *fault)
    if not types <= {*SCALARS}:
        refuse(part.keys, *_NO_SCALAR)
    enum = tuple(dict.fromkeys(map(text_of, values)))
    if is_item:
        return ValueKind("list", enum, scalars)
    if len(types) == 1:
        return ValueKind(KINDS[types.pop()], enum)
    return ValueKind("string", enum, scalars)


def _check_labels(keys: Keys, values: Sequence[Any]) -> None:
    """Raise a UserError unless each of the choices at the path `keys` is told apart from the others, and none is empty."""
    read = dict[object, object]()
    for value in values:
        word = same_word(value) if isinstance(value, str) else _quoted(value)
        if not word:
            todo = "leave it out, and make the key optional: it then has no value"
            blame(keys, f"has the empty choice {value!r}", todo)
        form = (kind_of(value), word)
        if form in read:
            what = f"has the choices {read[form]!r} and {value!r}, which read alike"
            blame(keys, what, "leave one of the two out")
        read[form] = value


def _types_and_scalars(
    part: Subschema, values: Sequence[Any]
) -> tuple[set[str], tuple[Kind, ...]]:
    """The types that a part names (else those of its `values`, else string), and the kinds of scalars it may have.

    Where numbers are allowed, an integer is a number.
    """
    kinds: set[str] = {kind for kind in map(kind_of, values) if kind}
    types = {*part.types} or {*kinds} or {"string"}
    if "number" in types:
        types.discard("integer")
        kinds = {"number" if kind == "integer" else kind for kind in kinds}
    return types, scalars_of(kinds or types)


def _fault_of_choices(
    values: Sequence[Any], scalars: Sequence[Kind]
) -> tuple[str, str] | None:
    """Why some choices cannot be written as texts that are told apart, and what to do about it; None if they can.

    `scalars` are the kinds as which a row's text is read.
    """
    if any(isinstance(value, list | dict) for value in values):
        return _NO_SCALAR
    words = [value for value in values if isinstance(value, str)]
    for word in words:
        if word != word.strip():
            fault = f"has the choice {word!r} with spaces around it"
            return fault, "leave the spaces out"
    for kind in scalars:
        texts = words if kind != "string" else ()
        if any(Field("", kind).parsed(text) is not None for text in texts):
            fault = "has a choice that reads like one of another type"
            return fault, "leave one of the two out"
    return None


def unheld_words(value: ValueKind, keywords: Mapping[str, Any]) -> set[str]:
    """Which of a schema's keywords a row with such a value is not held to; the object is checked for them at the end."""
    words = set[str]()
    if value.kind == "any" or "string" in value.scalars:
        words.update(keywords.keys() - HOLD_NOTHING)
    if value.is_text and keywords.get("format", "date") not in HELD_FORMATS:
        words.add("format")
    if keywords.get("maxItems") == 0:  # the row writes an item
        words.add("maxItems")
    if "pattern" in keywords and not holds(keywords["pattern"]):
        words.add("pattern")
    for word, widest in _WIDEST.items():
        if abs(keywords.get(word, 0)) > widest:
            words.add(word)
    if "uniqueItems" in keywords and keywords.get("minItems", 0) > 1:
        words.add("uniqueItems")  # too few may remain without doubles
    return words
