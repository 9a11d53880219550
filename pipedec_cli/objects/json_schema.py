"""Rows of a JSON Schema or of a pydantic class, and what an object violates in a schema."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial, reduce
from itertools import islice, pairwise, permutations
from operator import getitem
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError, first_line, log
from pipedec_cli.data.fields import (
    DEEPEST,
    SCALARS,
    Absent,
    Field,
    Keys,
    Kind,
    kind_of,
    path_name,
    scalars_of,
    text_of,
)
from pipedec_cli.data.reading import BYTE_ORDER_MARK, as_json, contents
from pipedec_cli.objects.classes import load_class, refusing
from pipedec_cli.objects.schema import KINDS, MOST_KEYS, check_names
from pipedec_cli.objects.tree import Part, list_part

#: The most keys of a schema, and the most choices of all its keys.
MOST: Final = (MOST_KEYS, 20_000)
#: The keywords that are read, that say nothing of what rows write, that no row is held
#: to, and that refuse a part.
_READ, _SILENT, _CHECKED, _REFUSED = (
    frozenset(words.split())
    for words in (
        "type enum const properties required items prefixItems description $ref anyOf oneOf allOf",
        "title default example examples $schema $id $comment $defs definitions $anchor nullable x-metric x-free "
        "deprecated readOnly writeOnly discriminator additionalProperties patternProperties propertyNames "
        "minProperties maxProperties uniqueItems unevaluatedProperties unevaluatedItems additionalItems "
        "then else contentSchema",
        "not if dependentRequired dependentSchemas dependencies contains minContains maxContains "
        "contentEncoding contentMediaType",
        "$dynamicRef $recursiveRef",
    )
)
_NO_PROPERTIES: Final = "the schema has no properties"
_EXAMPLE: Final = '{"properties": {"name": {"type": "string"}, …}}'
#: Alternatives that are no single value, each without references, in a part that
#: `_Reader._flat` has made.
_CHOICE: Final = " alternatives"
#: What tells of the entries of a map.
#: How alike a required name is to the property that is meant.
_LIKE: Final = 0.75
_ENTRIES: Final = ("additionalProperties", "patternProperties")
#: So many times a part may stand within itself, itself included.
_LEVELS: Final = 2
#: The keywords that `_Reader._flat` puts together.
_COMBINING: Final = {*str.split("type enum const $ref anyOf oneOf allOf")}


#: What an object violates, each with the path to it.
Check = Callable[[Any], Sequence[tuple[Keys, str]]]


class GivenSchema(NamedTuple):
    """A JSON Schema that a user gave, and its place. Of a class also what an object violates in it."""

    schema: Any
    where: str
    of_class: Check | None = None


def schema_file(fields: str | None) -> str | None:
    """The file that says which keys objects have, if that is no list of keys.

    It is called .json or FILE.py:CLASS, or it is there and has a dot or a slash in its
    name.
    """
    if fields is None or re.fullmatch(r".+\.(json|py(:\w*)?)", fields, re.DOTALL):
        return fields
    is_path = re.search(r"[./]", fields) is not None
    return fields if is_path and os.path.lexists(fields) else None


def read_schema(location: str) -> dict[str, Field]:
    """The keys of a JSON Schema, or of the pydantic class ``FILE.py:CLASS``; see `keys_of`."""
    given = load_schema(location)
    return keys_of(given.schema, given.where)


def load_schema(location: str) -> GivenSchema:
    """A JSON Schema, or that of a pydantic class. A UserError for a broken file or class."""
    if found := re.fullmatch(r"(.+\.py):?(\w*)", location):
        made = load_class(found[1], found[2])
        with refusing(found[1], found[2]):
            return GivenSchema(made.json_schema(), location, made.violations)
    where = str(Path(location))
    text = contents(Path(location)).removeprefix(BYTE_ORDER_MARK)
    return GivenSchema(as_json(text, where), where)


def keys_of(
    schema: Any,
    where: str,
    warn: Callable[[str], None] = log.warning,
    most: tuple[int, int] = MOST,
) -> dict[str, Field]:
    """The keys of a JSON Schema, by name and in order, that a model can be trained for; see `tree_in`.

    Nested objects and lists of objects give paths. A key without a type has the kind
    ``any``. Maps, alternatives and lists within lists cannot be held.
    """
    return {
        field.name: field
        for field in tree_in(schema, where, warn, most, trained=True).values()
    }


def tree_in(
    schema: Any,
    where: str,
    warn: Callable[[str], None] = log.warning,
    most: tuple[int, int] = MOST,
    *,
    trained: bool = False,
) -> Part:
    """The tree of a JSON Schema that was read from `where`; if it is `trained`, of what a model can be trained for.

    Optional parts that no row can hold are left out. Warns of them, and of the keywords
    that no row is held to. A UserError for a schema that no rows can hold to, and for
    more keys or choices than `most`.
    """
    _refuse_envelope(schema, where)
    _refuse_faults(schema, where)
    reader, known = (
        _Reader(schema, where, *most, trained=trained),
        {*_READ, *_SILENT, *_CHECKED, *HELD},
    )
    tree = reader.tree()
    has_rows = tree.parts and any(part.shape != "object" for part in tree.inner())
    if not has_rows and reader.left_out:
        raise reader.left_out[0]
    given = schema if isinstance(schema, dict) else {}
    if tree.shape == "object" and tree.parts and not has_rows:
        what = "the schema leaves nothing to write: each property is null or [] whatever the text says"
        raise UserError(what, where=where, todo="add a property with another type")
    near = (
        get_close_matches("properties", given.keys() - known, 1, 0.75)
        if tree.shape != "object"
        else []
    )
    if not has_rows or tree.shape == "list" or near:
        todo = f"not {near[0]!r}, but " if near else ""
        raise UserError(_NO_PROPERTIES, where=where, todo=f"write {todo}{_EXAMPLE}")
    check_names(
        fields := [*tree.values()],
        dict.fromkeys((field.name for field in fields), where),
    )
    if left_out := [*dict.fromkeys(error.what for error in reader.left_out)]:
        warn(f"{where}: left out: {_some(left_out)}")
    for name, meant in reader.misnamed.items():
        what = f"requires {name!r}, which is none of its properties"
        warn(f"{where}: {what}; is {meant!r} meant?")
    mistyped = {
        word
        for word in sorted(reader.unknown)[:_NAMED_WORDS]
        if get_close_matches(word, known, 1, 0.85)
    }
    if passed := sorted(reader.passed | mistyped):
        warn(f"{where}: no row is held to these keywords: {', '.join(passed)}")
    return tree


def _refuse_envelope(schema: Any, where: str) -> None:
    """Raise a UserError if the schema stands within a tool, a function or a response format, as APIs take it."""
    envelopes = (
        "parameters",
        "function.parameters",
        "schema",
        "json_schema.schema",
        "input_schema",
    )
    for path in (
        envelopes if isinstance(schema, dict) and "properties" not in schema else ()
    ):
        with suppress(LookupError, TypeError):
            reduce(getitem, [*path.split("."), "properties"], schema)
            raise UserError(
                _NO_PROPERTIES, where=where, todo=f"take what stands under {path!r}"
            )


def _refuse_faults(schema: Any, where: str) -> None:
    """Raise a UserError for a keyword whose value is wrong in every draft and for every engine."""
    for path, fault in _faults(schema).items():
        word, value = path[-1], reduce(getitem, path, schema)
        signs = Counter(
            _ATOM.sub("", value)
            if word == "pattern" and isinstance(value, str)
            else "("
        )
        # Engines differ in patterns, but not in parentheses, and each class must end.
        # Exclusive bounds are booleans in draft 4.
        is_whole = signs["("] == signs[")"] and not signs["["]
        is_odd = isinstance(value, list | bool | None) or is_whole
        is_checked = (
            word in (*HELD, "minProperties", "maxProperties", "required") and not is_odd
        )
        if is_checked or (value, word) in (([], "type"), (True, "required")):
            todo = (
                "name it in the list `required` of its object"
                if value is True
                else "mend or leave it out"
            )
            raise UserError(fault, where=where, todo=todo)


def _some(faults: Sequence[str]) -> str:
    """The first of some faults, and the number of the others."""
    more = f"; and {len(faults) - _NAMED:,} more" if len(faults) > _NAMED else ""
    return "; ".join(faults[:_NAMED]) + more


def checker(
    schema: Any,
    where: str = "the schema",
    warn: Callable[[str], None] = log.warning,
    of_class: Check | None = None,
) -> Check:
    """A function that says what an object violates in a JSON Schema, at most ten violations. Nothing is fetched.

    Without a schema it says nothing. It warns of keywords that the validator cannot
    use, and checks all others. What `of_class` says of an object comes first; the JSON
    Schema then says nothing of the same values.
    """
    validator = None if schema is None else _validator(schema, where, warn)

    def violations(value: Any) -> Sequence[tuple[Keys, str]]:
        found = [*of_class(value)] if of_class else []
        named = {keys for keys, _ in found}
        errors = validator.iter_errors(value) if validator else ()
        for error in islice(errors, _MOST_VIOLATIONS):
            keys = _counted(error.instance_path)
            if not _is_among(named, error, keys):
                found.append((keys, error.message[:200]))
        return found[:_MOST_VIOLATIONS]

    return violations


def _is_among(named: Collection[Keys], error: Any, keys: Keys) -> bool:
    """Whether a class has named, by its paths, what an error of its JSON Schema at these keys is about."""
    from jsonschema_rs import ValidationErrorKind

    if (
        isinstance(error.kind, ValidationErrorKind.Required)
        and (*keys, error.kind.property) in named
    ):
        return True
    if isinstance(
        error.kind, ValidationErrorKind.AnyOf | ValidationErrorKind.OneOfNotValid
    ):
        return any(place[: len(keys)] == keys for place in named)
    return keys in named


def _validator(schema: Any, where: str, warn: Callable[[str], None]) -> Any:
    """What validates objects; None if nothing can, which is said."""
    from jsonschema_rs import Draft7Validator, validator_for

    more: dict[str, Any] = {
        "validate_formats": True,
        "retriever": {}.__getitem__,
    }  # it fetches nothing
    read = _with_null(schema)

    def validating() -> Any:
        try:
            return validator_for(read, **more)
        except ValueError:
            return Draft7Validator(read, **more)

    with suppress(ValueError):
        return validating()
    if faults := _faults(read):
        warn(f"{where}: {_some([*faults.values()])}, which cannot be checked")
    # Without a part of these keywords, they would say something else.
    whole = ("not", "if", "oneOf", "patternProperties")
    for path in faults:
        end = next(
            (number for number, step in enumerate(path, 1) if step in whole), len(path)
        )
        *above, last = path[:end]
        with suppress(LookupError):  # it went with another
            del (part := reduce(getitem, above, read))[last]
            if last == "patternProperties":  # any key may fit
                part[last] = {"": {}}
    try:
        return validating()
    except ValueError as error:
        what = "objects are not checked at the end, since the schema is not valid"
        warn(f"{where}: {what}: {first_line(error)}")
        return None


def _counted(path: Iterable[str | int]) -> Keys:
    """A path whose items count from 1."""
    return tuple(key + 1 if isinstance(key, int) else key for key in path)


def _faults(schema: Any) -> dict[Keys, str]:
    """The faults of a schema by their paths. In older drafts `items` may be a list."""
    from jsonschema_rs import validator_for

    found, latest = (
        dict[Keys, str](),
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    )
    with suppress(ValueError):  # it is no JSON
        faults = validator_for(latest, validate_formats=True).iter_errors(schema)
        for fault in islice(faults, _MOST_FAULTS):
            *above, word = path = (*fault.instance_path,)
            parts = ("properties", "$defs", "definitions")
            name = path_name(
                tuple(step for before, step in pairwise(above) if before in parts)
            )
            of = f"the property {name!r}" if name else "the schema"
            found |= (
                {path: f"{of}: the {word} {fault.message[:200]}"}
                if word != "items"
                else {}
            )
    return found


def _with_null(part: Any) -> Any:
    """A schema in which ``nullable``, a word of OpenAPI, is the type null."""
    if isinstance(part, list):
        return [*map(_with_null, part)]
    if not isinstance(part, dict):
        return part
    made = {name: _with_null(inner) for name, inner in part.items()}
    if made.get("nullable") is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
        made |= (
            {"enum": [*made["enum"], None]}
            if isinstance(made.get("enum"), list)
            else {}
        )
    return made


class _UnwritableError(UserError):
    """No row can hold a part of a schema."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a schema without references and alternatives. The `trail` are the references that led to it."""

    schema: Mapping[str, Any]
    types: set[str]  # without null
    nullable: bool
    allowed: list[Any] | None  # the values that it may have
    trail: tuple[str, ...]

    @property
    def is_object(self) -> bool:
        described = any(
            self.schema.get(word) for word in ("properties", "required", *_ENTRIES)
        )
        return self.allowed is None and (
            "object" in self.types or (described and not self.types)
        )


#: Parts that a warning names, violations of an object, words that are compared with
#: keywords, alternatives with each other, and faults.
_NAMED, _MOST_VIOLATIONS, _NAMED_WORDS, _COMPARED, _MOST_FAULTS = 3, 10, 50, 50, 500
#: A part counts as so many characters, however short it is. A name is read in a
#: question.
_PART, _LONGEST_NAME = 30, 1_000
#: What is wanted at a key that leads to a part which a row has named: there is one.
_NEVER: Final[tuple[Absent, ...]] = ("never",)
#: Faults and their remedies.
_NOTHING: Final = ("allows no value", "leave it out")
#: The largest bound of a number, and the largest step, that llguidance holds a row to.
_WIDEST: Final = (10**16, 10**5)
#: What bounds a value of one type.
_BOUNDED: Final = {
    "string": "Length",
    "array": "Items",
    "number": "imum",
    "integer": "imum",
}
#: The values of `type`, `const` and `enum` of a part that allows null alone.
_NULLS: Final = (None, "null", ["null"], [None])
_OTHER_KIND: Final = (
    "is no string, number, boolean, object, or list of these",
    "give it one `type`, and an `enum` of values of that type",
)
#: The keywords that a row is held to while it is written, beside type and enum; see
#: `grammar_of`.
OF_NUMBERS: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
)
HELD: Final = (
    *OF_NUMBERS,
    *str.split("pattern format minLength maxLength minItems maxItems uniqueItems"),
)
#: How the values of a key are scored; see `parse_metrics`.
METRIC: Final = "x-metric"
METRICS: Final = re.compile(r"exact|words|\d+(\.\d+)?%?", re.ASCII)
#: Says that a value may be worded by the model: it need not stand in the text.
FREE: Final = "x-free"
#: Keywords that a row is not held to; a list keeps each of its items once.
HOLD_NOTHING: Final = frozenset([METRIC, FREE, "uniqueItems"])
#: The formats that a row is held to.
HELD_FORMATS: Final = frozenset(
    str.split(
        "date time date-time duration email idn-email hostname idn-hostname ipv4 ipv6 uuid uri uri-reference "
        "uri-template iri iri-reference json-pointer relative-json-pointer regex"
    )
)
#: What llguidance cannot read in a pattern.
_LOOKING: Final = re.compile(r"\(\?[=!<]|\\[1-9bB]")
#: What a pattern has that is no sign of its own: an escaped character, or a class.
_ATOM: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
#: Digits and letters of words are those of ASCII in JSON Schema, as in ECMA-262.
_ASCII: Final = {r"\d": "[0-9]", r"\w": "[0-9A-Za-z_]"}
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)


def searched(pattern: str) -> str | None:
    """The expression of texts in which a pattern is found; None if anchors stand within the pattern."""
    signs = _ATOM.sub("x", pattern)
    begins, ends = signs.startswith("^"), signs.endswith("$")
    inner, signs = (
        pattern[begins : len(pattern) - ends],
        signs[begins : len(signs) - ends],
    )
    if {"^", "$"} & {*signs}:
        return None
    while (outer := re.sub(r"\([^()]*\)", "x", signs)) != signs:
        signs = outer
    if (begins or ends) and "|" in signs:
        return None
    inner = _ESCAPED.sub(lambda sign: _ASCII.get(sign[0], sign[0]), inner)
    return f"{'' if begins else '.*'}(?:{inner}){'' if ends else '.*'}"


def holds(pattern: str) -> bool:
    """Whether a row can be held to a pattern."""
    return bool(searched(pattern)) and not _LOOKING.search(pattern)


def _makes_sense(keyword: str, value: Any) -> bool:
    """Whether a keyword of `HELD` has a value of its kind."""
    if keyword in ("uniqueItems", FREE):
        return value is True
    if keyword in ("pattern", "format"):
        return isinstance(value, str)
    counts = keyword.startswith(("minL", "maxL", "minI", "maxI"))
    is_metric = keyword == METRIC and isinstance(value, str)
    return is_metric or (
        isinstance(value, int if counts else int | float)
        and not isinstance(value, bool)
    )


def _with_integer(types: Sequence[str]) -> set[str]:
    """The types, and integer beside number: each integer is a number."""
    return {*types, *(["integer"] if "number" in types else [])}


def _fits(value: Any, types: Sequence[str]) -> bool:
    """Whether a value is of one of these types; of any where there are none."""
    kind: str = kind_of(value) or "null"
    if isinstance(value, str | list | dict):  # empty ones have no kind of ours
        kind = {str: "string", list: "array"}.get(type(value), "object")
    elif isinstance(value, float) and value.is_integer():
        kind = "integer"
    return not types or kind in _with_integer(types)


def _fitting(part: Mapping[str, Any]) -> list[Any] | None:
    """The values that a part may have and that are of its type; None if it has no list of them."""
    types = part.get("type", [])
    values = (
        [value for value in part["enum"] if _fits(value, types)]
        if "enum" in part
        else None
    )
    if values and "integer" in types and "number" not in types:  # 1.0 is an integer
        return [int(value) if isinstance(value, float) else value for value in values]
    return values


def _plain(values: Iterable[Any]) -> set[tuple[Any, Any]]:
    """Values in a form in which true is not 1, and a list or an object is its text."""
    return {
        (list, json.dumps(value, sort_keys=True))
        if isinstance(value, list | dict)
        else (isinstance(value, bool), value)
        for value in values
    }


def _common(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The values that equal one of the others."""
    known = _plain(others)
    return [value for value in values if _plain([value]) & known]


def _allows_null(part: Mapping[str, Any]) -> bool:
    """Whether a part allows null, which one without types and values does."""
    listed = "null" in part.get("type", ["null"]) and None in part.get("enum", [None])
    return listed and bool(part.get("nullable", True))


def _scalar_types(part: Mapping[str, Any]) -> list[str]:
    """The types of a part; none if it may hold lists or objects, or has no types."""
    types = part.get("type") or [
        kind_of(value) or "null" for value in part.get("enum", ())
    ]
    return [] if _CHOICE in part or {*types} - {"null", *SCALARS} else types


def _allows_no_item(part: _Part) -> bool:
    """Whether a part is a list that allows no item."""
    if part.types != {"array"} or part.allowed is not None:
        return False
    closed = part.schema.get("items") is False and not part.schema.get("prefixItems")
    return (closed or part.schema.get("maxItems") == 0) and not part.schema.get(
        "minItems"
    )


def _keywords(part: Mapping[str, Any], what: str) -> tuple[tuple[str, Any], ...]:
    """The least and the most Items or Properties of a part, as those of a list."""
    pairs = ((f"{word}Items", part.get(word + what)) for word in ("min", "max"))
    return tuple((word, value) for word, value in pairs if _makes_sense(word, value))


def _labels(parts: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Labels of alternatives: a constant key, else titles, types or numbers; and whether no value fits two of them."""
    shared = set[str].intersection(
        *({*map(str, part.get("properties", ()))} for part in parts)
    )
    for key in sorted(shared):
        constants = [_constant(part["properties"][key]) for part in parts]
        if all(constants) and len({*constants}) == len(parts):
            return constants, all(key in part.get("required", ()) for part in parts)
    types = [
        part.get("type", ["object"] if "properties" in part else []) for part in parts
    ]
    times = Counter(kind for kinds in types for kind in _with_integer(kinds))
    are_apart = (all(types) and max(times.values()) == 1) or _lack(parts)
    titles = [str(part.get("title", "")).strip() for part in parts]
    if all(titles) and len({*titles}) == len(parts):
        return titles, are_apart
    numbers = [*map(str, range(1, len(parts) + 1))]
    return [*map(" or ".join, types)] if are_apart else numbers, are_apart


def _lack(parts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each object that is written for one of these parts lacks a key which every other part requires."""
    needed = [{*part.get("required", ())} for part in parts]
    written = [
        needs | {*part.get("properties", ())}
        for part, needs in zip(parts, needed, strict=True)
    ]
    pairs = permutations(range(len(parts)), 2) if len(parts) <= _COMPARED else [(0, 0)]
    return all("properties" in part for part in parts) and all(
        needed[n] - written[m] for n, m in pairs
    )


def _constant(part: Any) -> str:
    """The text of the only value of a part; "" if it has no value, or several."""
    given = part if isinstance(part, dict) else {}
    values = [given["const"]] if "const" in given else given.get("enum", ())
    return text_of(values[0]) if isinstance(values, list) and len(values) == 1 else ""


def _size(value: Any) -> int:
    """The number of values within a value, however deep, and itself."""
    inner = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )
    return 1 + sum(map(_size, inner))


def _length(part: Mapping[str, Any]) -> int:
    """The number of keywords of a part, and of what their lists and objects hold."""
    return len(part) + sum(
        len(value) for value in part.values() if isinstance(value, list | dict)
    )


class _Reader:
    """Reads the parts of a schema and counts, as references may fan out.

    It notes the keywords that it passes over, and the optional parts that it leaves
    out.
    """

    def __init__(
        self, schema: Any, where: str, max_keys: int, max_choices: int, *, trained: bool
    ) -> None:
        self.schema, self.where, self.trained = schema, where, trained
        self.passed, self.unknown = set[str](), set[str]()
        self.left_out = list[_UnwritableError]()
        self.misnamed = dict[str, str]()  # required names, and the properties like them
        draft = schema.get("$schema") if isinstance(schema, dict) else None
        # In these drafts what stands beside ``$ref`` does not count.
        self.ref_alone = bool(re.search("draft-0[3-7]", str(draft)))
        characters, self.read = 500 * max_keys + 20 * max_choices, Counter[str]()
        self.most = {"keys": max_keys, "choices": max_choices, "characters": characters}

    def tree(self) -> Part:
        """The tree of the whole schema."""
        try:
            return self._read(self._resolved(self.schema, (), ()), (), ())
        except RecursionError:
            self._blame(
                (),
                "has too many references or alternatives within each other",
                "write a flatter schema",
            )

    def _count(self, what: str, more: int) -> None:
        self.read[what] += more
        if self.read[what] > (most := self.most[what]):
            self._blame((), f"has more than {most:,} {what}", "write a smaller schema")

    def _read(self, part: _Part, keys: Keys, absent: tuple[Absent, ...]) -> Part:
        if len(keys) > DEEPEST:
            self._refuse(
                keys[:1], f"has more than {DEEPEST} levels", "write a flatter schema"
            )
        mixed = (
            part.types & {"array", "object"}
            and len(part.types) > 1
            and part.allowed is None
        )
        if not self.trained and (_CHOICE in part.schema or mixed):
            return self._choice(part, keys, absent)
        if part.is_object:
            is_map = not (
                self.trained
                or part.schema.get("properties")
                or part.schema.get("required")
            )
            is_map = is_map and bool(keys or "properties" not in part.schema)
            return (
                self._map(part, keys, absent)
                if is_map
                else self._object(part, keys, absent)
            )
        if keys and not self.trained and _allows_no_item(part):
            return self._no_item(part, keys, absent)
        if (
            (prefix := part.schema.get("prefixItems"))
            and part.allowed is None
            and part.types <= {"array"}
        ):
            return self._places(part, prefix, keys, absent)
        items = self._items(part, keys)
        has_rows = (
            items
            and not self.trained
            and (_CHOICE in items.schema or "array" in items.types)
        )
        if items and (items.is_object or has_rows):
            return self._listed(part, items, keys, absent)
        return self._value(part, items, keys, absent)

    def _listed(
        self, part: _Part, items: _Part, keys: Keys, absent: tuple[Absent, ...]
    ) -> Part:
        """A list whose items are no scalars: a row for the names of its items."""
        if self.trained and 0 in keys:
            self._refuse(
                keys, "is a list of objects within another", "make it a list of values"
            )
        if self.trained:
            self.passed |= {"minItems", "maxItems"} & part.schema.keys()
        if part.schema.get("uniqueItems"):
            self.passed.add("uniqueItems")
        # An item that a row has named is there; of a trained model one more row says
        # that there is none.
        above = (*absent, "omit") if self.trained else _NEVER * (len(keys) + 1)
        item = self._read(items, (*keys, 0), above)
        return list_part(
            item, self._row(part, keys, absent, _keywords(part.schema, "Items"))
        )

    def _value(
        self, part: _Part, items: _Part | None, keys: Keys, absent: tuple[Absent, ...]
    ) -> Part:
        """A value, or a list of scalars: a row of its own."""
        kind, enum, scalars = self._kind(part, items, keys)
        said = {**(items.schema if items else {}), **part.schema}
        words = (*HELD, METRIC, FREE)
        keywords = tuple(
            (word, said[word]) for word in words if _makes_sense(word, said.get(word))
        )
        if (
            kind == "any" or "string" in scalars
        ):  # these rows are free: what they hold is checked at the end
            self.passed |= {*HELD} & said.keys() - HOLD_NOTHING
        elif (
            kind in ("string", "list")
            and not (enum or scalars)
            and "format" in dict(keywords)
        ):
            self.passed |= {"format"} if said["format"] not in HELD_FORMATS else set()
        if said.get("maxItems") == 0:  # a trained row writes an item
            self.passed.add("maxItems")
        self._pass_bounds(dict(keywords))
        kind = "string" if kind == "any" and not self.trained else kind
        row = self._row(part, keys, absent, keywords)
        path = keys if len(keys) > 1 else ()
        return Part(replace(row, kind=kind, enum=enum, path=path, scalars=scalars))

    def _pass_bounds(self, keywords: Mapping[str, Any]) -> None:
        """Pass over the keywords of a value whose contents llguidance cannot hold a row to."""
        pattern = keywords.get("pattern")
        if pattern and not holds(pattern):
            self.passed.add("pattern")
        for word in OF_NUMBERS:
            if abs(keywords.get(word, 0)) > _WIDEST[word == "multipleOf"]:
                self.passed.add(word)
        if (
            "uniqueItems" in keywords and keywords.get("minItems", 0) > 1
        ):  # too few may remain without doubles
            self.passed.add("uniqueItems")

    def _row(
        self,
        part: _Part,
        keys: Keys,
        absent: tuple[Absent, ...],
        keywords: tuple[tuple[str, Any], ...] = (),
    ) -> Field:
        """The row of a part, which counts, and so does what its name adds to the text that is read."""
        name, described = path_name(keys), part.schema.get("description")
        if len(name) > _LONGEST_NAME:
            self._refuse(
                keys,
                f"has a name of more than {_LONGEST_NAME} characters",
                "shorten it",
            )
        self._count("keys", 1)
        self._count("characters", len(name))
        more = described if isinstance(described, str) else ""
        return Field(
            name, path=keys, description=more, absent=absent, keywords=keywords
        )

    def _choice(self, part: _Part, keys: Keys, absent: tuple[Absent, ...]) -> Part:
        """The alternatives, each by its label; the only one that a row can hold as it is."""
        gone = (_CHOICE, "oneOf", "nullable")
        rest = {word: value for word, value in part.schema.items() if word not in gone}
        several = part.schema.get(_CHOICE)
        if several is None:
            scalars = [kind for kind in rest.pop("type") if kind in SCALARS]
            several = [
                {"type": types}
                for types in (scalars, ["array"])
                if {*types} & part.types
            ]
            if "object" in part.types:
                words = [
                    word
                    for word in ("properties", "required", *_ENTRIES)
                    if word in rest
                ]
                of_objects = {word: rest.pop(word) for word in words}
                several.append({"type": ["object"], **of_objects})
        read = list[tuple[dict[str, Any], Part]]()
        for one in several:
            try:
                both = self._both(one, rest, keys)
                # Where a row has chosen it, there is one.
                made = self._read(
                    self._part_of(both, part.trail, keys), keys, _NEVER * len(keys)
                )
                if not keys and made.shape in ("value", "list"):
                    self._refuse(
                        keys, "has an alternative that is no object", "leave it out"
                    )
                read.append((both, made))
            except _UnwritableError as error:
                self.left_out.append(error)
                self._count("keys", 1)
        if not read:
            raise self.left_out[-1]
        if len(read) == 1:
            return self._read(self._part_of(read[0][0], part.trail, keys), keys, absent)
        labels, are_apart = _labels([both for both, _ in read])
        self.passed |= {"oneOf"} if "oneOf" in part.schema and not are_apart else set()
        parts = dict[str, Part]()
        for label, (_, made) in zip(labels, read, strict=True):
            # A choice within a choice is the same choice.
            inner = made.parts.items() if made.shape == "choice" else [("", made)]
            parts |= {
                ", ".join(filter(None, (label, more))): one for more, one in inner
            }
        row = self._row(
            part, keys, absent or _NEVER
        )  # at the root one of them is the object
        return Part(replace(row, enum=tuple(parts)), "choice", parts)

    def _map(self, part: _Part, keys: Keys, absent: tuple[Absent, ...]) -> Part:
        """An object that names no properties: a row for the names of its entries."""
        patterns, more = (
            part.schema.get("patternProperties"),
            part.schema.get("additionalProperties", True),
        )
        several = [*patterns.values()] if isinstance(patterns, dict) else []
        if not several and more is False:
            self._refuse(
                keys,
                "is an object without properties, or has another type",
                "give it properties",
            )
        values = (
            {"anyOf": several} if len(several) > 1 else several[0] if several else more
        )
        item = self._read(
            self._resolved(values, keys, part.trail),
            (*keys, 0),
            _NEVER * (len(keys) + 1),
        )
        named = (
            {"pattern": next(iter(patterns))} if len(several) == 1 and patterns else {}
        )
        named = {
            "allOf": [{"type": "string"} | named, part.schema.get("propertyNames", {})]
        }
        names = self._read(self._resolved(named, keys, part.trail), keys, absent)
        row = self._row(part, keys, absent, _keywords(part.schema, "Properties"))
        return list_part(item, row, names.field)

    def _object(self, part: _Part, keys: Keys, absent: tuple[Absent, ...]) -> Part:
        properties, required = (
            part.schema.get("properties", {}),
            part.schema.get("required", []),
        )
        if not isinstance(properties, dict) or not isinstance(required, list):
            self._blame(
                keys,
                "has no object of properties, or no list of required ones",
                "mend it",
            )
        if wrong := [name for name in required if not isinstance(name, str)]:
            self._blame(keys, f"requires {wrong[0]!r}, which is no name", "mend it")
        if lacking := [name for name in required if name not in properties]:
            more = part.schema.get("additionalProperties", True)
            if more is False:
                self._refuse(
                    keys,
                    f"requires {lacking[0]!r}, which it does not allow",
                    "define it there",
                )
            for name in lacking:
                if near := get_close_matches(name, properties, 1, _LIKE):
                    self.misnamed[name] = near[0]
            properties = properties | dict.fromkeys(lacking, more)
        if part.types - {"object"} or (keys and not properties):
            self._refuse(
                keys,
                "is an object without properties, or has another type",
                "give it properties",
            )
        needed, parts = set(required), dict[str, Part]()
        self._check_names(part.schema, properties, needed)
        for name, value in properties.items():
            said = (
                [value[word] for word in _COMBINING if word in value]
                if isinstance(value, dict)
                else []
            )
            if (
                name in needed
                and said
                and all(one in _NULLS for one in said)
                and not self.trained
            ):
                parts[name] = Part(
                    Field(name, path=(*keys, name), absent=(*absent, "null")), "object"
                )
                continue  # no row writes it
            try:
                inner = self._resolved(value, (*keys, name), part.trail)
                must: Absent = "null" if inner.nullable else "never"
                parts[name] = self._read(
                    inner, (*keys, name), (*absent, must if name in needed else "omit")
                )
            except _UnwritableError as error:
                if name in needed:
                    raise
                self.left_out.append(error)
                self._count("keys", 1)
        if keys and not parts:
            self._refuse(keys, "has no property that a row can hold", "leave it out")
        return Part(Field(path_name(keys), path=keys, absent=absent), "object", parts)

    def _places(
        self, part: _Part, prefix: Any, keys: Keys, absent: tuple[Absent, ...]
    ) -> Part:
        """A list with a part for each place. Behind a place without a value, which is not required, it ends."""
        if self.trained or not isinstance(prefix, list):
            self._refuse(
                keys,
                "has the keyword prefixItems, or `items` for each place",
                "give it one for all items",
            )
        least, parts = (
            dict(_keywords(part.schema, "Items")).get("minItems", 0),
            dict[int, Part](),
        )
        for number, given in enumerate(prefix, 1):
            wanted: Absent = "never" if number <= least else "omit"
            at = (*keys, number)
            parts[number] = self._read(
                self._resolved(given, at, part.trail), at, (*absent, wanted)
            )
        return Part(Field(path_name(keys), path=keys, absent=absent), "object", parts)

    def _no_item(self, part: _Part, keys: Keys, absent: tuple[Absent, ...]) -> Part:
        """A list that is always empty, which no row writes: its only place never has a value."""
        row = self._row(part, keys, (*absent[:-1], "never"))
        return Part(
            row,
            "object",
            {
                1: Part(
                    Field("", path=(*keys, 1), absent=(*row.absent, "omit")), "object"
                )
            },
        )

    def _check_names(
        self, schema: Mapping[str, Any], names: Iterable[str], needed: set[str]
    ) -> None:
        """Pass over what is said of the names of properties, unless any of these names hold to it."""
        bounds, names = dict(_keywords(schema, "Properties")), [*names]
        patterns = schema.get("patternProperties") or ()
        # A name is compared with the plainest patterns alone: others can take long.
        plain = [re.fullmatch(r"\^([\w-]+)", str(pattern)) for pattern in patterns]
        others = all(
            found and not any(name.startswith(found[1]) for name in names)
            for found in plain
        )
        holds = {
            "minProperties": bounds.get("minItems", 0) <= len(needed),
            "maxProperties": bounds.get("maxItems", len(names)) >= len(names),
            "patternProperties": others,
            "propertyNames": "propertyNames" not in schema,
        }
        self.passed |= {word for word, is_held in holds.items() if not is_held}

    def _items(self, part: _Part, keys: Keys) -> _Part | None:
        """The items of a list; None if it is no list, or one of some values."""
        if part.allowed is not None:
            return None
        given = part.schema.get("items", {"type": "string"})
        return (
            self._resolved(given, keys, part.trail) if part.types == {"array"} else None
        )

    def _kind(
        self, part: _Part, items: _Part | None, keys: Keys
    ) -> tuple[Kind, tuple[str, ...], tuple[Kind, ...]]:
        """The kind of a value, the texts that it may have, and the kinds that a string or an item is read as."""
        allowed, wanted = (items or part).allowed, (items or part).types
        if allowed is None and not part.types:
            return "any", (), ()
        words = [value for value in allowed or () if isinstance(value, str)]
        read_alike = any(
            kind_of(value) not in (None, "string") and text_of(value) in words
            for value in allowed or ()
        )
        padded = [word for word in words if word != word.strip()]
        is_deep = any(isinstance(value, list | dict) for value in allowed or ())
        if is_deep and (items or self.trained):
            self._refuse(keys, *_OTHER_KIND)
        if padded and (items or self.trained):
            self._refuse(
                keys,
                f"has the choice {padded[0]!r} with spaces around it",
                "leave the spaces out",
            )
        if (read_alike or padded or is_deep) and not (items or self.trained):
            texts = (
                json.dumps(value, ensure_ascii=False)
                for value in allowed or ()
                if value is not None
            )
            return "json", tuple(dict.fromkeys(texts)), ()
        kinds = {kind for value in allowed or () if (kind := kind_of(value))}
        kinds = {
            "number" if one == "integer" and "number" in kinds | wanted else one
            for one in kinds
        }
        wanted = wanted or kinds or {"string"}  # type: ignore[assignment]
        wanted -= {"integer"} if "number" in wanted else set()
        if not kinds <= wanted <= {*SCALARS}:
            self._refuse(keys, *_OTHER_KIND)
        scalars = scalars_of(wanted if allowed is None else kinds)
        if any(
            Field("", kind).parsed(word) is not None
            for kind in scalars
            if kind != "string"
            for word in words
        ):
            self._refuse(
                keys,
                "has a choice that reads like one of another type",
                "leave one of the two out",
            )
        enum = tuple(filter(None, dict.fromkeys(map(text_of, allowed or ()))))
        if items:
            return "list", enum, scalars
        return (
            (KINDS[wanted.pop()], enum, ())
            if len(wanted) == 1
            else ("string", enum, scalars)
        )

    def _resolved(self, part: Any, keys: Keys, trail: tuple[str, ...]) -> _Part:
        return self._part_of(*self._flat(part, keys, trail), keys)

    def _part_of(
        self, part: dict[str, Any], trail: tuple[str, ...], keys: Keys
    ) -> _Part:
        types, allowed = part.get("type", []), _fitting(part)
        words = [
            f"{end}{_BOUNDED.get(*types)}" for end in ("min", "max") if len(types) == 1
        ]
        bounds = [part[word] for word in words if _makes_sense(word, part.get(word))]
        is_empty = allowed is not None and not any(map(text_of, allowed))
        if types == ["null"] or (allowed and {*map(type, allowed)} == {type(None)}):
            self._refuse(keys, "allows no value but null", "leave it out")
        if allowed and is_empty:
            self._refuse(keys, "allows no value that is not empty", "leave it out")
        if is_empty or bounds != sorted(bounds):
            self._refuse(keys, *_NOTHING)
        # Alternatives say themselves whether one of them is null.
        named = "nullable" in part or (
            _CHOICE not in part and ("null" in types or None in (allowed or ()))
        )
        nullable = named and _allows_null(part)
        return _Part(part, {*types} - {"null"}, nullable, allowed, trail)

    def _flat(
        self, part: Any, keys: Keys, trail: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """A part without references, alternatives and parts of parts, and the references that led to it.

        All that stands side by side holds. ``type`` and ``enum`` are lists, and
        ``const`` is an ``enum``.
        """
        part = {} if part is True else {"enum": []} if part is False else part
        if not isinstance(part, dict):
            example = '{"type": "string"}' if keys else _EXAMPLE
            self._blame(keys, "is no schema", f"write for example {example}")
        if isinstance(part.get("items"), list):  # as drafts before 2020 say it
            part = {
                **part,
                "prefixItems": part["items"],
                "items": part.get("additionalItems", True),
            }
        if refused := sorted(_REFUSED & part.keys()):
            self._refuse(
                keys,
                f"has the keyword {refused[0]}, which is not supported",
                "leave it out",
            )
        self.passed |= part.keys() & _CHECKED
        self.unknown |= part.keys() - _READ - _SILENT - _CHECKED - {*HELD}
        texts = sum(len(value) for value in part.values() if isinstance(value, str))
        self._count("characters", _PART + _length(part) + len(trail) + texts)
        parts, seen = list[dict[str, Any]](), trail
        if "$ref" in part:
            if trail.count(part["$ref"]) >= (1 if self.trained else _LEVELS):
                self._refuse(
                    keys, f"refers to itself: {part['$ref']}", "write the levels out"
                )
            found = self._flat(
                self._referred(part["$ref"], keys), keys, (*trail, part["$ref"])
            )
            if self.ref_alone:
                return found
            parts.append(found[0])
            seen = found[1]
        for name in ("allOf", "anyOf", "oneOf"):
            if name not in part:
                continue
            if not isinstance(part[name], list) or not part[name]:
                self._refuse(
                    keys,
                    f"has no list as {name}, or an empty one",
                    "write a list of schemas",
                )
            flat = [self._flat(one, keys, trail) for one in part[name]]
            seen = (*seen, *(step for _, more in flat for step in more[len(trail) :]))
            several = [one for one, _ in flat]
            parts += (
                several
                if name == "allOf"
                else [self._chosen(several, keys, once=name == "oneOf")]
            )
        own = self._own(part, keys)
        for one in reversed(parts):
            own = self._both(one, own, keys)
        return own, seen

    def _own(self, part: dict[str, Any], keys: Keys) -> dict[str, Any]:
        """What a part says itself."""
        own = {name: value for name, value in part.items() if name not in _COMBINING}
        types, allowed = part.get("type", []), part.get("enum")
        types = [types] if isinstance(types, str) else types
        if FREE in part and not isinstance(part[FREE], bool):
            self._blame(
                keys,
                f"has the {FREE} {json.dumps(part[FREE])[:80]}",
                "write true or false",
            )
        if METRIC in part and not METRICS.fullmatch(str(part[METRIC])):
            todo = "write exact, words, or a tolerance such as 0.5 or 5%"
            self._blame(keys, f"has the {METRIC} {json.dumps(part[METRIC])[:80]}", todo)
        if not isinstance(types, list) or not isinstance(allowed, list | None):
            what = "has a `type` or an `enum` of the wrong kind"
            self._blame(keys, what, "give it one `type`, and a list as `enum`")
        if "const" in part:
            allowed = (
                [part["const"]]
                if allowed is None
                else _common([part["const"]], allowed)
            )
        if unknown := sorted({*map(str, types)} - {*KINDS, "object", "array", "null"}):
            todo = "take string, number, integer, boolean, object or array"
            self._blame(keys, f"has the type {unknown[0]!r}", todo)
        self._count("choices", len(allowed or ()))
        self._count(
            "characters",
            sum(len(value) for value in allowed or () if isinstance(value, str)),
        )
        types = [*dict.fromkeys(map(str, types))]
        return (
            own
            | ({"type": types} if types else {})
            | ({} if allowed is None else {"enum": allowed})
        )

    def _both(
        self, one: dict[str, Any], other: dict[str, Any], keys: Keys
    ) -> dict[str, Any]:
        """A part that says what two parts say. Titles and descriptions are those of the `other`."""
        both = {**one, **other}
        for name in one.keys() & other.keys():
            first, second = one[name], other[name]
            if name == _CHOICE:
                self.passed.add("anyOf")
            elif name == "type":
                met = _with_integer(first) & _with_integer(second)
                both[name] = [
                    kind for kind in dict.fromkeys((*first, *second)) if kind in met
                ]
            elif name == "enum":
                both[name] = _common(first, second)
            elif (
                name == "required"
                and isinstance(first, list)
                and isinstance(second, list)
            ):
                both[name] = [*first, *second]
            elif (
                name == "properties"
                and isinstance(first, dict)
                and isinstance(second, dict)
            ):
                shared = {
                    key: {"allOf": [first[key], second[key]]}
                    for key in first.keys() & second.keys()
                }
                both[name] = {**first, **second, **shared}
            elif name == "nullable":
                both[name] = first and second
            elif name == "items":
                both[name] = {"allOf": [first, second]}
            elif name[:3] in ("min", "max", "exc") and all(
                map(partial(_makes_sense, name), (first, second))
            ):
                both[name] = (min if "max" in name.lower() else max)(first, second)
        self._count("characters", _length(both))
        if both.get("type") == [] or both.get("enum") == []:
            self._refuse(keys, *_NOTHING)
        return both

    def _chosen(
        self, parts: Sequence[dict[str, Any]], keys: Keys, *, once: bool
    ) -> dict[str, Any]:
        """The only alternative that is not null, or all as one enum, or all types of scalars; null too if it is there.

        With `once` a value is not allowed by more than one alternative.
        """
        others = [
            one
            for one in parts
            if one.get("type") != ["null"] and one.get("enum") != [None]
        ]
        others = [
            one
            for part in others
            for one in (part[_CHOICE] if {*part} == {_CHOICE} else [part])
        ]
        chosen: dict[str, Any] = dict(*others[:1])
        nulls = sum(map(_allows_null, parts))
        if len(others) > 1:
            self._count("characters", len(others) * _size(chosen))
        are_same = all(one == chosen for one in others)
        kinds = [
            kind for one in others for kind in _scalar_types(one) if kind != "null"
        ]
        free = {
            kind for one in others if "enum" not in one for kind in _scalar_types(one)
        }
        # A value of `once` must fit one of them alone.
        apart = not once or (
            len({*kinds}) == len(kinds) and not {"integer", "number"} <= {*kinds}
        )
        merged = (
            apart
            and {*kinds} <= _with_integer([*free])
            and all(map(_scalar_types, others))
        )
        said = {word for one in others for word in one if word in HELD}
        if merged and not are_same and (self.trained or not said):
            self.passed |= said
            chosen = {"type": [*dict.fromkeys([*kinds, "null"])]}
        elif not others or not (
            are_same or all("enum" in one and _CHOICE not in one for one in others)
        ):
            if self.trained or not others:
                self._refuse(
                    keys,
                    "has several alternatives, or none",
                    "give it one that is not null",
                )
            chosen = {_CHOICE: others, **({"oneOf": True} if once else {})}
        elif not are_same or (once and len(others) > 1):
            fitting = [_fitting(one) or [] for one in others]
            times = Counter(value for values in fitting for value in _plain(values))
            again = {value for value in times if once and times[value] > 1}
            chosen = {
                "enum": [
                    value
                    for values in fitting
                    for value in values
                    if not _plain([value]) & again
                ]
            }
            self._count("characters", _length(chosen))
        for name, null in (("type", "null"), ("enum", None)):
            if name in chosen:
                kept = [value for value in chosen[name] if value != null]
                chosen[name] = (
                    [*kept, null] if nulls and not (once and nulls > 1) else kept
                )
        return chosen | (
            {"nullable": nulls == 1 or not once} if len(others) < len(parts) else {}
        )

    def _referred(self, reference: Any, keys: Keys) -> dict[str, Any]:
        """The part that a reference within the schema names."""
        found = self.schema
        steps = (
            unquote(str(reference)).split("/")[1:]
            if re.match("#(/|$)", str(reference))
            else ["", ""]
        )
        for step in steps:
            found = (
                found.get(step.replace("~1", "/").replace("~0", "~"))
                if isinstance(found, dict)
                else None
            )
        if not isinstance(found, dict):
            todo = "put it into $defs and refer to #/$defs/NAME"
            refuse = self._blame if str(reference).startswith("#") else self._refuse
            refuse(
                keys, f"refers to {reference!r}, which is no path in this file", todo
            )
        return found

    def _refuse(
        self, keys: Keys, what: str, todo: str, kind: type[UserError] = _UnwritableError
    ) -> NoReturn:
        """Raise the error of a part that no row can hold."""
        name = f"the property {path_name(keys)!r}" if keys else "the schema"
        raise kind(f"{name} {what}", where=self.where, todo=todo)

    def _blame(self, keys: Keys, what: str, todo: str) -> NoReturn:
        """Raise the error of a mistake, which refuses the whole schema."""
        self._refuse(keys, what, todo, UserError)
