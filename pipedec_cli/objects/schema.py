"""The keys and kinds of objects, learnt from training targets or given as ``name, age int``."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

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
    same_word,
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
    """Learn from training targets which keys objects have, and of which kinds.

    Its keys are the `known` ones if they are given, each with its kind or, for ``any``,
    with the kind of its values; else the keys that at least the share `keep` of the
    records fill, in the order in which they first have values. Returns the fields, and
    of each key that is none of them how many records fill it. A UserError if the
    targets do not agree, or have no key that counts.
    """
    targets = _Targets(known)
    for record in records:
        targets.add(record)
    if known is None:
        wanted = [Field(name, "any") for name in targets.filled_in(keep)]
    else:
        wanted = [*known.values()]
        _require_values(wanted, targets.filled)
    if not wanted:
        todo = "give --schema FILE"
        if targets.filled:
            todo = f"lower the key keep, or {todo}"
        raise UserError("no key of the training targets has values enough", todo=todo)
    fields = tuple(map(targets.learnt, wanted))
    check_names(fields, {name: place for name, (_, place) in targets.kinds.items()})
    others = targets.filled.copy()
    for field in fields:
        del others[field.name]
    return fields, others


class _Targets:
    """What training targets say of the keys that are `known`, or of all if this is None, by the names of the keys."""

    def __init__(self, known: Mapping[str, Field] | None) -> None:
        """Begin with no target."""
        self.filled = Counter[str]()  # the number of records that have a value
        self.kinds: dict[str, tuple[Kind, str]] = {}  # each with its first place
        self._known = known
        self._total = 0
        self._items = defaultdict[str, set[str | None]](set)  # the kinds of items
        self._paths: dict[str, Keys] = {}
        #: Which paths are objects or lists, each with its first place.
        self._shapes: dict[Keys, tuple[str, str]] = {}

    def add(self, record: Record) -> None:
        """Add a record. Raises a UserError if it does not go with those before."""
        self._total += 1
        names = dict[str, None]()
        for keys, value in leaves(object_of(record)):
            name = path_name(any_item(keys))
            if kind_of(value) is None:
                continue
            names[name] = None
            if self._known is None or name in self._known:
                self._add_value(name, keys, value, record.where)
        self.filled.update([*names])

    def _add_value(self, name: str, keys: Keys, value: object, where: str) -> None:
        """Note the kind and the path of a value.

        `name` is its key, `keys` the path with the numbers of items, `where` the record
        for messages. A UserError if it does not go with the values before.
        """
        kind = require_kind(path_name(keys), value, where)
        if kind == "integer":
            kind = "number"
        if isinstance(value, list):
            self._items[name].update(map(kind_of, value))
        before, place = self.kinds.setdefault(name, (kind, where))
        is_open = self._known is None or self._known[name].kind == "any"
        if before != kind and is_open:
            what = f"{name!r} is of kind {kind} here and {before} at {place}"
            raise UserError(what, where=where, todo=_SAME)
        path = any_item(keys)
        if name not in self._paths:
            _check_shapes(path, self._shapes, where)
        if self._paths.setdefault(name, path) != path:
            what = f"two keys read {name!r}, one of them with a point in it"
            raise UserError(what, where=where, todo="rename one")

    def filled_in(self, share: float) -> list[str]:
        """The keys that at least such a share of the records fill."""
        least = share * self._total
        return [name for name, count in self.filled.items() if count >= least]

    def learnt(self, field: Field) -> Field:
        """A copy of a field that has what its values say of it: kind, path, kinds of items, and the share that fills it."""
        name = field.name
        path = self._paths.get(name, field.keys)
        return replace(
            field,
            kind=self.kinds[name][0] if field.kind == "any" else field.kind,
            share=round(self.filled[name] / max(1, self._total), 6),
            path=path if len(path) > 1 else (),
            scalars=field.scalars or scalars_of(self._items[name]),
        )


def _require_values(fields: Iterable[Field], filled: Mapping[str, int]) -> None:
    """Raise a UserError if no target has a value for any key, or for one whose kind is to be learnt."""
    todo = f"keys are: {some_names(filled)}"
    lacking = [field for field in fields if field.name not in filled]
    for field in lacking:
        if field.kind == "any":
            what = f"no training target has a value for {field.name!r}"
            raise UserError(what, todo=f"its {todo}")
    if filled and len(lacking) == len([*fields]):
        what = "no training target has a value for any key of the schema"
        raise UserError(what, todo=f"the targets' {todo}")


def _check_shapes(path: Keys, places: dict[Keys, tuple[str, str]], where: str) -> None:
    """Raise a UserError if a path takes a key for an object or a list which an earlier path took for something else.

    `places` has the shape of each path so far ("an object", say) and where it was first
    seen; those of this path, which stands at `where`, are added.
    """
    for above, shape in shapes(path):
        before, place = places.setdefault(above, (shape, where))
        if before != shape:
            what = f"{path_name(above)!r} is {shape} here and {before} at {place}"
            raise UserError(what, where=where, todo=_SAME)
    if path.count(0) > 1:  # 0 stands for the items of a list
        what = f"{path_name(path)!r} is a list of objects within another"
        todo = "leave it out with --fields, or make it a list of values"
        raise UserError(what, where=where, todo=todo)


def check_names(fields: Sequence[Field], places: Mapping[str, str]) -> None:
    """Raise a UserError for too many keys, a blank key, keys that read alike, and a key that is a value and an object.

    `places` says for a key where it stands, for the message.
    """
    if len(fields) > MOST_KEYS:
        what = f"{len(fields):,} keys would be as many rows"
        raise UserError(what, todo="choose with --fields")
    seen = dict[str, Field]()
    shapes_so_far = dict[Keys, tuple[str, str]]()
    for field in fields:
        name = field.name
        where = places.get(name)
        if not alike(name):
            raise UserError(f"the key {name!r} is blank", where=where, todo="rename it")
        other = seen.setdefault(alike(name), field)
        if other is not field:
            what = f"the keys {other.name!r} and {name!r} read alike"
            raise UserError(what, where=where, todo="rename one")
        _check_shapes(field.keys, shapes_so_far, where or name)


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
_TODO: Final = (
    'write for example --fields "name, age int, tags list, kind: pub|restaurant"'
)


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
            what = f"--fields names {field.name!r} twice"
            raise UserError(what, todo="leave one of the two out")
        fields[field.name] = field
    if not fields:
        raise UserError("--fields names no key", todo="write --fields NAME,NAME")
    check_names([*fields.values()], {})
    return fields


def _unquoted(text: str, mark: str) -> list[str]:
    """Split a text at each `mark` that does not stand in double quotes; parts are stripped, and blank ones left out."""
    parts = re.findall(rf'(?:"[^"]*"|[^"{mark}])+', text)
    return [*filter(None, map(str.strip, parts))]


def _short_field(entry: str) -> Field:
    """The key that an entry of the short form says: a name, and perhaps a kind, and behind a colon choices.

    A UserError for what cannot be read.
    """
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
    if len(path) == 1:
        path = ()
    if word in _FORMATS:
        keywords = (("format", _FORMATS[word]),)
        return Field(name, "string", enum, path=path, keywords=keywords)
    return Field(name, _WORDS.get(word, "any"), enum, path=path)


def _refuse_entry(entry: str, why: str, todo: str) -> NoReturn:
    raise UserError(f"--fields has {entry!r}, {why}", todo=todo)


def _short_name(head: str, entry: str) -> tuple[str, str]:
    """The name in an entry, without its quotes, and the word of its kind, which is "" without one.

    `head` is the entry without its choices. A UserError for a word that is no kind.
    """
    quoted = re.fullmatch(r'"([^"]*)"(?:\s+(\S+))?', head)
    if quoted:
        name, word = quoted.groups("")
    elif '"' in head:
        todo = 'put the whole name in quotes, such as "menu[].unit price", and the kind behind it'
        _refuse_entry(entry, "which has quotes within a name", todo)
    else:
        name, word = (*head.rsplit(maxsplit=1), "", "")[:2]
    if word and word not in _WORDS and word not in _FORMATS:
        todo = f"write one of {_KINDS_TOLD}"
        if not quoted:
            in_quotes = f"""--fields '"{head}"'"""
            todo += f", or put a name of several words in quotes: {in_quotes}"
        _refuse_entry(entry, f"and {word!r} is no kind", todo)
    return name.strip(), word


def _short_path(name: str, entry: str) -> Keys:
    """The path that a name such as ``menu[].price`` says: ("menu", 0, "price"), where 0 stands for the items of a list."""
    path: list[str | int] = []
    for step in name.split("."):
        key = step.removesuffix("[]")
        if not key.strip():
            _refuse_entry(entry, "in which a name is empty", _TODO)
        path.append(key)
        if step != key:
            path.append(0)
    if path[-1] == 0:
        todo = f'write "{name[:-2]} list" for a list of values, or "{name}.price" for a key of its objects'
        _refuse_entry(entry, "which names no key of the list's objects", todo)
    return tuple(path)


def _short_choices(text: str, entry: str) -> tuple[str, ...]:
    """The choices in an entry, which are all that stands behind its colon, without their quotes and each once."""
    choices = dict[str, str]()
    for choice in _unquoted(text, "|"):
        whole = re.fullmatch(r'"([^"]*)"', choice)
        if '"' in choice and not whole:
            todo = "put the whole choice in quotes, or give it in a --schema"
            _refuse_entry(entry, "which has quotes within a choice", todo)
        text = whole[1].strip() if whole else choice
        other = choices.setdefault(same_word(text), text)
        if other != text:
            why = f"whose choices {other!r} and {text!r} read alike"
            _refuse_entry(entry, why, "leave one of the two out")
    choices.pop("", None)
    if not choices:
        _refuse_entry(entry, "which names no choices", _TODO)
    return tuple(choices.values())


def settled(field: Field) -> Field:
    """The same key; one of any kind is a string."""
    return replace(field, kind="string") if field.kind == "any" else field
