"""The schema of objects: the keys and kinds of training targets, chosen keys of them, or a JSON Schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, field

from pipedec_cli.data.checking import checked, some_names
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, Kind, alike, kind_of, require_kind, text_of
from pipedec_cli.data.reading import as_json, contents
from pipedec_cli.data.records import Record

#: Each key is a row, and all rows are decoded at the same time.
MOST_KEYS: Final = 5_000
#: Our kinds by the types of JSON Schema.
_KINDS: Final[Mapping[str, Kind]] = {
    "string": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "array": "list",
}


class _Property(Struct):
    """The parts of a property that are read."""

    type: str | tuple[str, ...] | None = None
    enum: tuple[Any, ...] | None = None
    const: Any | UnsetType = UNSET
    items: _Property | None = None
    any_of: tuple[_Property, ...] = field(default=(), name="anyOf")
    reference: str | None = field(default=None, name="$ref")


class _Schema(Struct):
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = field(default={}, name="$defs")


def learn_schema(
    records: Iterable[Record], known: Mapping[str, Field | None] | None = None, keep: float = 0.0
) -> tuple[tuple[Field, ...], Counter[str]]:
    """The schema of targets, in the order in which their keys first have values, and the number of values of other keys.

    Its keys are the `known` ones if they are given, each with its description or, for None, with the kind of its values;
    else the keys that at least the share `keep` of the records fill.
    """
    filled, kinds, total = Counter[str](), dict[str, tuple[Kind, str]](), 0
    for record in records:
        total += 1
        for name, value in object_of(record).items():
            if kind_of(value) is None:
                continue
            filled[name] += 1
            if known is not None and name not in known:
                continue
            kind = require_kind(name, value, record.where)
            kind = "number" if kind == "integer" else kind
            before, place = kinds.setdefault(name, (kind, record.where))
            if before != kind and (known is None or known[name] is None):
                what = f"{name!r} is of kind {kind} here and {before} at {place}"
                raise UserError(what, where=record.where, todo="give all values of a key the same kind")
    if known is None:
        known = {name: None for name in filled if filled[name] >= keep * total}
    elif lacking := [name for name, described in known.items() if not (filled[name] or described)]:
        what = f"no training target has a value for {lacking[0]!r}"
        raise UserError(what, todo=f"its keys are: {some_names(filled)}")
    elif filled and not any(filled[name] for name in known):
        what = "no training target has a value for any key of the schema"
        raise UserError(what, todo=f"the targets' keys are: {some_names(filled)}")
    if not known:
        todo = "lower the key keep, or give --schema FILE" if filled else "give --schema FILE"
        raise UserError("no key of the training targets has values enough", todo=todo)
    _check_names({name: kinds[name][1] if name in kinds else None for name in known})
    fields = []
    for name, described in known.items():
        like = described or Field(name, kinds[name][0])
        fields.append(Field(name, like.kind, like.enum, round(filled[name] / max(1, total), 6)))
    return tuple(fields), Counter({name: times for name, times in filled.items() if name not in known})


def _check_names(names: Mapping[str, str | None]) -> None:
    """Refuse too many keys, a blank key, and keys that read alike; each key comes with its place."""
    if len(names) > MOST_KEYS:
        what = f"{len(names):,} keys would be as many rows"
        raise UserError(what, todo="choose with --fields, or leave rare ones out with --set keep=0.01")
    seen: dict[str, str] = {}
    for name, where in names.items():
        if not alike(name):
            raise UserError(f"the key {name!r} is blank", where=where, todo="rename it")
        if (other := seen.setdefault(alike(name), name)) != name:
            raise UserError(f"the keys {other!r} and {name!r} read alike", where=where, todo="rename one")


def object_of(record: Record) -> Mapping[str, Any]:
    """A record's target, which must be an object."""
    if record.target_fields is None:
        todo = 'write {"key": "value", …}, or choose another --level'
        raise UserError("the target is not an object", where=record.where, todo=todo)
    return record.target_fields


def read_json_schema(path: Path) -> dict[str, Field | None]:
    """The properties of a JSON Schema in order, each with its kind and enum; None for a property without any.

    It may use ``type``, ``enum`` and ``const``, also with null as an alternative, and references into ``$defs``.
    """
    where = str(path)
    schema = checked(as_json(contents(path), where), _Schema, where)
    if not schema.properties:
        todo = 'write {"properties": {"name": {"type": "string"}, …}}'
        raise UserError("the schema has no properties", where=where, todo=todo)
    properties, defined = (
        {name: checked(part, _Property, f"{where} {what} {name!r}") for name, part in found.items()}
        for what, found in (("property", schema.properties), ("$defs", schema.definitions))
    )
    return {name: _field(name, part, defined, where) for name, part in properties.items()}


def _field(name: str, part: _Property, defined: Mapping[str, _Property], where: str) -> Field | None:
    part = _resolved(part, defined)
    types = [part.type] if isinstance(part.type, str) else part.type or ()
    kinds = {_KINDS.get(one, "other") for one in types if one != "null"}
    items = part
    if kinds == {"list"}:
        items = _resolved(part.items or _Property(type="string"), defined)
        kinds |= {"list" if items.type in ("string", None) else "other"}
    allowed = items.enum if items.const is UNSET else (items.const,)
    if allowed is None and not types and not (part.any_of or part.reference):
        return None
    found = {kind_of(value) for value in allowed or ()} - {None}
    if "number" in found | kinds:
        found = {"number" if kind == "integer" else kind for kind in found}
    wanted = {"string"} if kinds == {"list"} else kinds or found
    if len(kinds or found) != 1 or "other" in kinds | found or not found <= wanted:
        what = f"the property {name!r} is no string, number, boolean or list of strings"
        raise UserError(what, where=where, todo="give it one `type`, and an `enum` of values of that type")
    kind = next(iter(kinds or found))
    texts = dict.fromkeys(text_of(value) for value in allowed or ())
    return Field(name, kind, tuple(filter(None, texts)))  # type: ignore[arg-type]


def _resolved(part: _Property, defined: Mapping[str, _Property]) -> _Property:
    """The property that a reference names; of alternatives the only one that is not null."""
    others = [one for one in part.any_of if one.type != "null"]
    part = others[0] if len(others) == 1 else part
    return defined.get((part.reference or "").removeprefix("#/$defs/"), part)
