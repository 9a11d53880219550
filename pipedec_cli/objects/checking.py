"""What an object violates in a JSON Schema."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final

from pipedec_cli.data.errors import first_line, log
from pipedec_cli.data.fields import Keys
from pipedec_cli.objects.notes import owner_of, some_of

#: What an object violates, each with the path to it.
Check = Callable[[Any], Sequence[tuple[Keys, str]]]
#: Under these keywords a value may be held to what depends on another one.
_CONDITIONS: Final = frozenset(("if", "dependencies", "dependentSchemas"))
_MOST_VIOLATIONS: Final = 10
_MOST_FAULTS: Final = 500
_LONGEST_MESSAGE: Final = 200
_LATEST: Final = "https://json-schema.org/draft/2020-12/schema"
#: The keys under which the parts of a schema have names.
_NAMING: Final = ("properties", "$defs", "definitions")
#: Without a part of these keywords, they would say something else.
_WHOLE: Final = ("not", "if", "oneOf", "patternProperties")


@dataclass(frozen=True, slots=True)
class Checker:
    """Says what an object violates in a JSON Schema. What `of_class` says of an object comes first; the schema then says nothing of the same values."""

    validator: Any  # None: nothing is checked
    of_class: Check | None
    #: Whether what is said of a value depends on this value alone.
    is_local: bool

    def __call__(self, value: Any) -> Sequence[tuple[Keys, str]]:
        """The first violations, at most ten."""
        return [*islice(self._violations(value), _MOST_VIOLATIONS)]

    def wrong(self, value: Any) -> set[Keys]:
        """The places of all violations."""
        return {keys for keys, _ in self._violations(value)}

    def _violations(self, value: Any) -> Iterator[tuple[Keys, str]]:
        found = [*self.of_class(value)] if self.of_class else []
        yield from found
        named = {keys for keys, _ in found}
        for error in self.validator.iter_errors(value) if self.validator else ():
            keys = _path_of(error)
            if not _is_among(named, error, keys):
                yield keys, error.message[:_LONGEST_MESSAGE]


def checker(
    schema: Any,
    where: str = "the schema",
    warn: Callable[[str], None] = log.warning,
    of_class: Check | None = None,
) -> Checker:
    """What checks objects against a JSON Schema, and by `of_class`. Nothing is fetched.

    Without a schema it says nothing. It warns of keywords that the validator cannot
    use, and checks all others.
    """
    validator = None if schema is None else _validator(schema, where, warn)
    return Checker(validator, of_class, not _has_conditions(schema))


def _has_conditions(part: Any) -> bool:
    """Whether a part of a schema says something of a value that depends on another one."""
    if isinstance(part, list):
        return any(_has_conditions(inner) for inner in part)
    if not isinstance(part, dict):
        return False
    if not _CONDITIONS.isdisjoint(part):
        return True
    return any(_has_conditions(inner) for inner in part.values())


def _path_of(error: Any) -> Keys:
    """The path to what an error is about. Items count from 1."""
    steps = error.instance_path
    return tuple(step + 1 if isinstance(step, int) else step for step in steps)


def _is_among(named: Collection[Keys], error: Any, keys: Keys) -> bool:
    """Whether a class has named, by its paths, what an error at these keys is about."""
    from jsonschema_rs import ValidationErrorKind as Kinds

    if isinstance(error.kind, Kinds.Required):
        return keys in named or (*keys, error.kind.property) in named
    if isinstance(error.kind, Kinds.AnyOf | Kinds.OneOfNotValid):
        return any(place[: len(keys)] == keys for place in named)
    return keys in named


def _validator(schema: Any, where: str, warn: Callable[[str], None]) -> Any:
    """What validates objects; None if nothing can, which is said."""
    schema = _with_null(schema)
    with suppress(ValueError):
        return _validator_of(schema)
    faults = _faults_in(schema)
    if faults:
        warn(f"{where}: {some_of([*faults.values()])}, which cannot be checked")
    for path in faults:
        with suppress(LookupError):  # it went with another
            _take_out(schema, path)
    try:
        return _validator_of(schema)
    except ValueError as error:
        what = "objects are not checked at the end, since the schema is not valid"
        warn(f"{where}: {what}: {first_line(error)}")
        return None


def _validator_of(schema: Any) -> Any:
    """The validator of the draft that a schema names, else of one that allows it.

    A ValueError if none does.
    """
    from jsonschema_rs import Draft7Validator, validator_for

    fetch = dict[str, Any]().__getitem__  # nothing is fetched
    try:
        return validator_for(schema, validate_formats=True, retriever=fetch)
    except ValueError:
        return Draft7Validator(schema, validate_formats=True, retriever=fetch)


def _take_out(schema: Any, path: Keys) -> None:
    """Take a faulty keyword out of a schema, or what it stands in and needs all its parts."""
    for step in path[:-1]:
        if step in _WHOLE:
            break
        schema = schema[step]
    else:
        step = path[-1]
    del schema[step]
    if step == "patternProperties":
        schema[step] = {"": {}}  # any key may fit


def _faults_in(schema: Any) -> dict[Keys, str]:
    """The faults of a schema by their paths. In older drafts `items` may be a list."""
    faults = dict[Keys, str]()
    for error in islice(_errors_in(schema), _MOST_FAULTS):
        path = (*error.instance_path,)
        if not path or path[-1] == "items":
            continue
        steps = pairwise(path[:-1])
        names = (name for before, name in steps if before in _NAMING)
        what = f"the {path[-1]} {error.message[:_LONGEST_MESSAGE]}"
        faults[path] = f"{owner_of(tuple(names))}: {what}"
    return faults


def _errors_in(schema: Any) -> Iterator[Any]:
    """What the latest draft forbids in a schema; nothing is said of what is no JSON."""
    from jsonschema_rs import validator_for

    with suppress(ValueError):
        yield from validator_for({"$ref": _LATEST}, validate_formats=True).iter_errors(
            schema
        )


def _with_null(part: Any) -> Any:
    """A copy of a schema in which ``nullable``, a word of OpenAPI, is the type null."""
    if isinstance(part, list):
        return [_with_null(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    copy = {name: _with_null(inner) for name, inner in part.items()}
    if copy.get("nullable") is True and isinstance(copy.get("type"), str):
        copy["type"] = [copy["type"], "null"]
        if isinstance(copy.get("enum"), list):
            copy["enum"].append(None)
    return copy
