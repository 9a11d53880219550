"""The keys and kinds of objects, learnt from training targets or given as ``name, age int``."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import (
    Field,
    Keys,
    Kind,
    alike,
    any_item,
    kind_of,
    leaves,
    path_name,
    require_kind,
    scalars_of,
    shapes,
)
from pipedec_cli.data.reading import some_names
from pipedec_cli.data.records import Record

#: Each key is a row, and all rows are decoded at the same time.
MOST_KEYS: Final = 5_000
_SAME: Final = "give all values of a key the same kind"


def learn_schema(
    records: Iterable[Record],
    known: Mapping[str, Field] | None = None,
    keep: float = 0.0,
) -> tuple[tuple[Field, ...], Counter[str]]:
    """The schema of targets, in the order in which their keys first have values, and the number of values of other keys.

    Its keys are the `known` ones if they are given, each with its kind or, for ``any``,
    with the kind of its values; else the keys that at least the share `keep` of the
    records fill.
    """
    filled, kinds, total = Counter[str](), dict[str, tuple[Kind, str]](), 0
    items = defaultdict[str, set[str | None]](
        set
    )  # the kinds of the items of each list
    paths, places = dict[str, Keys](), dict[Keys, tuple[str, str]]()
    for record in records:
        total += 1
        once = set[str]()
        for keys, value in leaves(object_of(record)):
            if kind_of(value) is None:
                continue
            path = any_item(keys)
            name = path_name(path)
            filled[name] += name not in once
            once.add(name)
            if known is not None and name not in known:
                continue
            kind = require_kind(path_name(keys), value, record.where)
            kind = "number" if kind == "integer" else kind
            items[name] |= {*map(kind_of, value)} if isinstance(value, list) else set()
            before, place = kinds.setdefault(name, (kind, record.where))
            if before != kind and (known is None or known[name].kind == "any"):
                what = f"{name!r} is of kind {kind} here and {before} at {place}"
                raise UserError(what, where=record.where, todo=_SAME)
            if name not in paths:
                _check_shapes(path, places, record.where)
            if paths.setdefault(name, path) != path:
                what = f"two keys read {name!r}, one of them with a point in it"
                raise UserError(what, where=record.where, todo="rename one")
    if known is None:
        known = {
            name: Field(name, "any") for name in filled if filled[name] >= keep * total
        }
    elif lacking := [
        one.name for one in known.values() if not filled[one.name] and one.kind == "any"
    ]:
        what = f"no training target has a value for {lacking[0]!r}"
        raise UserError(what, todo=f"its keys are: {some_names(filled)}")
    elif filled and not any(filled[name] for name in known):
        what = "no training target has a value for any key of the schema"
        raise UserError(what, todo=f"the targets' keys are: {some_names(filled)}")
    if not known:
        todo = (
            "lower the key keep, or give --schema FILE"
            if filled
            else "give --schema FILE"
        )
        raise UserError("no key of the training targets has values enough", todo=todo)
    fields = []
    for name, one in known.items():
        path = paths.get(name, one.keys)
        kind = kinds[name][0] if one.kind == "any" else one.kind
        share = round(filled[name] / max(1, total), 6)
        path = path if len(path) > 1 else ()
        scalars = one.scalars or scalars_of(items[name])
        fields.append(replace(one, kind=kind, share=share, path=path, scalars=scalars))
    check_names(fields, {name: place for name, (_, place) in kinds.items()})
    return tuple(fields), Counter(
        {name: times for name, times in filled.items() if name not in known}
    )


def _check_shapes(path: Keys, places: dict[Keys, tuple[str, str]], where: str) -> None:
    """Refuse a path that takes for an object or a list what another place has as something else."""
    for above, shape in shapes(path):
        before, place = places.setdefault(above, (shape, where))
        if before != shape:
            what = f"{path_name(above)!r} is {shape} here and {before} at {place}"
            raise UserError(what, where=where, todo=_SAME)
    if path.count(0) > 1:
        what = f"{path_name(path)!r} is a list of objects within another"
        raise UserError(
            what,
            where=where,
            todo="leave it out with --fields, or make it a list of values",
        )


def check_names(fields: Sequence[Field], places: Mapping[str, str]) -> None:
    """Refuse too many keys, a blank key, keys that read alike, and a key that is a value and an object; `places` are by name."""
    if len(fields) > MOST_KEYS:
        what = f"{len(fields):,} keys would be as many rows"
        raise UserError(
            what,
            todo="choose with --fields",
        )
    seen, known = dict[str, Field](), dict[Keys, tuple[str, str]]()
    for field in fields:
        name, where = field.name, places.get(field.name)
        if not alike(name):
            raise UserError(f"the key {name!r} is blank", where=where, todo="rename it")
        if (other := seen.setdefault(alike(name), field)) is not field:
            raise UserError(
                f"the keys {other.name!r} and {name!r} read alike",
                where=where,
                todo="rename one",
            )
        _check_shapes(field.keys, known, where or name)


def object_of(record: Record) -> Mapping[str, Any]:
    """A record's target, which must be an object."""
    if record.target_fields is None:
        todo = 'write {"key": "value", …}, or choose another --level'
        raise UserError("the target is not an object", where=record.where, todo=todo)
    return record.target_fields


#: Our kinds by the types of JSON Schema, and by the words of the short form.
KINDS: Final[dict[str, Kind]] = {
    "string": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "array": "list",
}
_WORDS: Final[dict[str, Kind]] = KINDS | {
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "list",
}
#: The words of the short form for strings of a format.
_FORMATS: Final = {"date": "date", "datetime": "date-time", "time": "time"}
#: The kinds of the short form that a refusal names.
_KINDS_TOLD: Final = "string, number, integer, boolean, list, date, datetime, time"
_SHORT_EXAMPLE: Final = "name, age int, tags list, kind: pub|restaurant"


def read_short(text: str) -> dict[str, Field]:
    """The keys of a short form: ``name, age int, tags list, kind: pub|restaurant, address.city, menu[].price number``.

    A name of several words stands in double quotes, which may hold commas and colons
    too: ``"unit price" number``. So may a choice. A UserError for what is no key, and
    for a word that is no kind.
    """
    if text.count('"') % 2:
        todo = """write for example --fields '"unit price" number, name'"""
        raise UserError("--fields has a quote that does not end", todo=todo)
    if text.strip().lower().endswith((".json", ".py")):
        raise UserError(f"--fields names the file {text!r}", todo="give it to --schema")
    fields: dict[str, Field] = {}
    for entry in _unquoted(" ".join(text.split()), ","):
        field = _short_field(entry)
        if field.name in fields:
            raise UserError(
                f"--fields names {field.name!r} twice", todo="leave one of the two out"
            )
        fields[field.name] = field
    if not fields:
        raise UserError("--fields names no key", todo="write --fields NAME,NAME")
    check_names([*fields.values()], {})
    return fields


def _unquoted(text: str, mark: str) -> list[str]:
    """The parts between marks that stand in no quotes, without blank ones."""
    parts = re.findall(rf'(?:"[^"]*"|[^"{mark}])+', text)
    return [*filter(None, map(str.strip, parts))]


def _short_field(entry: str) -> Field:
    """The key of an entry of the short form: a name, a kind or none, and choices or none."""
    parts = re.fullmatch(r'((?:"[^"]*"|[^":])*)(:.*)?', entry, re.DOTALL)
    assert parts, "quotes come in pairs"
    head, choices = parts.groups("")
    name, word = _short_name(head.strip(), entry)
    enum = _short_choices(choices[1:], entry) if choices else ()
    if len(enum) == 1 and (enum[0] in _WORDS or enum[0] in _FORMATS):
        what = f"--fields has {entry!r}, whose only choice is the kind {enum[0]!r}"
        raise UserError(
            what, todo=f'write "{head.strip()} {enum[0]}" without the colon'
        )
    path = _short_path(name, entry)
    keywords = (("format", _FORMATS[word]),) if word in _FORMATS else ()
    kind = _WORDS.get(word, "string" if keywords else "any")
    return Field(
        name, kind, enum, path=path if len(path) > 1 else (), keywords=keywords
    )


def _short_name(head: str, entry: str) -> tuple[str, str]:
    """The name of an entry, without its quotes, and the word of its kind, which is "" without one."""
    if quoted := re.fullmatch(r'"([^"]*)"(?:\s+(\S+))?', head):
        name, word = quoted[1].strip(), quoted[2] or ""
    elif '"' in head:
        todo = 'put the whole name in quotes, such as "menu[].unit price", and the kind behind it'
        raise UserError(
            f"--fields has {entry!r}, which has quotes within a name", todo=todo
        )
    else:
        name, word = (*head.rsplit(maxsplit=1), "", "")[:2]
    if word and word not in _WORDS and word not in _FORMATS:
        todo = f"write one of {_KINDS_TOLD}"
        if not quoted:
            todo += (
                f""", or put a name of several words in quotes: --fields '"{head}"'"""
            )
        raise UserError(f"--fields has {entry!r}, and {word!r} is no kind", todo=todo)
    return name, word


def _short_path(name: str, entry: str) -> Keys:
    """The keys of a name such as ``menu[].price``."""
    path: list[str | int] = []
    for step in name.split("."):
        key = step.removesuffix("[]")
        if not key.strip():
            todo = f'write for example --fields "{_SHORT_EXAMPLE}"'
            raise UserError(
                f"--fields has {entry!r}, in which a name is empty", todo=todo
            )
        path.append(key)
        if step != key:
            path.append(0)
    if path[-1] == 0:
        todo = f'write "{name[:-2]} list" for a list of values, or "{name}.price" for a key of its objects'
        raise UserError(
            f"--fields has {entry!r}, which names no key of the list's objects",
            todo=todo,
        )
    return tuple(path)


def _short_choices(text: str, entry: str) -> tuple[str, ...]:
    """The choices of an entry, without their quotes and each once."""
    choices = dict[str, None]()
    for choice in _unquoted(text, "|"):
        whole = re.fullmatch(r'"([^"]*)"', choice)
        if '"' in choice and not whole:
            todo = "put the whole choice in quotes, or give it in a --schema"
            raise UserError(
                f"--fields has {entry!r}, which has quotes within a choice", todo=todo
            )
        choices[whole[1].strip() if whole else choice] = None
    choices.pop("", None)
    if not choices:
        todo = f'write for example --fields "{_SHORT_EXAMPLE}"'
        raise UserError(f"--fields has {entry!r}, which names no choices", todo=todo)
    return tuple(choices)


def settled(field: Field) -> Field:
    """The same key; one of any kind is a string."""
    return replace(field, kind="string") if field.kind == "any" else field
