"""Rows of a JSON Schema, or of a pydantic class."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipedec_cli.data.errors import UserError, first_line, log
from pipedec_cli.data.fields import Field
from pipedec_cli.data.reading import BYTE_ORDER_MARK, as_json, contents
from pipedec_cli.objects.checking import Check
from pipedec_cli.objects.classes import class_of, load_class, refusing
from pipedec_cli.objects.keywords import KNOWN
from pipedec_cli.objects.notes import Notes, some_of
from pipedec_cli.objects.references import inner_of
from pipedec_cli.objects.resolver import EXAMPLE
from pipedec_cli.objects.schema import MOST_KEYS, check_names
from pipedec_cli.objects.schema_reader import SchemaReader
from pipedec_cli.objects.tree import Part

#: The most keys of a schema, and the most choices of all its keys.
MOST: Final = (MOST_KEYS, 20_000)
_NO_PROPERTIES: Final = "the schema has no properties"
#: Where schemas stand within a tool, a function or a response format, as APIs take it.
_ENVELOPES: Final = (
    "parameters",
    "function.parameters",
    "schema",
    "json_schema.schema",
    "input_schema",
)
#: So many unknown words are compared with keywords.
_COMPARED: Final = 50


class GivenSchema(NamedTuple):
    """A JSON Schema that a user gave, and its place.

    Of a class also what an object violates in it.
    """

    schema: Any
    where: str
    of_class: Check | None = None


def schema_file(fields: str | None) -> str | None:
    """The file that the setting `fields` names; None if it is a list of keys, or not given.

    A file is called .json or FILE.py:CLASS, or it is there and has a dot or a slash in
    its name.
    """
    if fields is None or re.fullmatch(r".+\.(json|py(:\w*)?)", fields, re.DOTALL):
        return fields
    is_path = re.search(r"[./]", fields) is not None
    return fields if is_path and os.path.lexists(fields) else None


def read_schema(location: str) -> dict[str, Field]:
    """The keys that a model can be trained for, by name, of a JSON Schema's file or a pydantic class ``FILE.py:CLASS``."""
    given = load_schema(location)
    return keys_of(given.schema, given.where)


def load_schema(location: str) -> GivenSchema:
    """Read a JSON Schema from its file, or make that of the pydantic class ``FILE.py:CLASS``.

    A UserError for a broken file or class.
    """
    of_class = re.fullmatch(r"(.+\.py):?(\w*)", location)
    if of_class:
        file, name = of_class.groups()
        loaded = load_class(file, name)
        with refusing(file, f"the file or its class {name!r}"):
            return GivenSchema(loaded.json_schema(), location, loaded.violations)
    path = Path(location)
    text = contents(path).removeprefix(BYTE_ORDER_MARK)
    return GivenSchema(as_json(text, str(path)), str(path))


def schema_of(given: object) -> GivenSchema:
    """The JSON Schema of a pydantic class of the running program, or one that is a table.

    Raises a UserError for a class that has none, and for what is no JSON object.
    """
    if isinstance(given, type):
        of_user = class_of(given)
        where = f"{given.__module__}.{given.__qualname__}"
        with refusing(where, "the class"):
            return GivenSchema(of_user.json_schema(), where, of_user.violations)
    if not isinstance(given, Mapping):
        todo = "give a class, a JSON Schema, or keys such as 'name, age int'"
        raise UserError(f"a {type(given).__name__} is no schema", todo=todo)
    try:
        text = json.dumps(dict(given))
    except (TypeError, ValueError, RecursionError) as error:
        what = f"is no JSON: {first_line(error)}"
        raise UserError(what, where="the schema") from None
    return GivenSchema(as_json(text.encode(), "the schema"), "the schema")


def keys_of(
    schema: Any,
    where: str,
    warn: Callable[[str], None] = log.warning,
    most: tuple[int, int] = MOST,
) -> dict[str, Field]:
    """The keys of a JSON Schema, by name and in order, that a model can be trained for.

    Nested objects and lists of objects give paths, such as ``address.city``. A key
    without a type has the kind ``any``. Maps, alternatives and lists within lists are
    left out. `where` is the file, for messages, and `warn` takes the warnings. A
    UserError for a schema without keys, and for more keys or choices than `most`.
    """
    tree = tree_in(schema, where, warn, most, trained=True)
    return {field.name: field for field in tree.values()}


def tree_in(
    schema: Any,
    where: str,
    warn: Callable[[str], None] = log.warning,
    most: tuple[int, int] = MOST,
    *,
    trained: bool = False,
) -> Part:
    """Read a JSON Schema as a tree of the rows that are decoded for it.

    Optional parts that no row can hold are left out. A UserError for a schema that no
    rows can hold to.

    Args:
        schema: The JSON Schema.
        where: The file it was read from, for messages.
        warn: Takes the warnings: of parts left out, and of keywords that no row is held
            to.
        most: The most keys and the most choices of all keys together; more raise a
            UserError.
        trained: Whether it is for a model that is trained for these keys, which can do
            less.
    """
    keys, choices = most
    characters = 500 * keys + 20 * choices
    notes = Notes({"keys": keys, "choices": choices, "characters": characters})
    with _placing(where):
        _refuse_envelope(schema)
        tree = SchemaReader(schema, notes, trained=trained).tree()
        _refuse_without_rows(tree, schema, notes)
        check_names([*tree.values()], {})
    if notes.left_out:
        faults = dict.fromkeys(error.what for error in notes.left_out)
        warn(f"{where}: left out: {some_of([*faults])}")
    for name, meant in notes.misnamed.items():
        what = f"requires {name!r}, which is none of its properties"
        warn(f"{where}: {what}; is {meant!r} meant?")
    unheld = notes.passed.union(_mistyped(notes))
    if unheld:
        words = ", ".join(sorted(unheld))
        warn(f"{where}: no row is held to these keywords: {words}")
    return tree


@contextmanager
def _placing(where: str) -> Iterator[None]:
    """Add to a UserError of the code in this context the place `where` it is."""
    try:
        yield
    except UserError as error:
        raise UserError(error.what, where=where, todo=error.todo) from None


def _refuse_envelope(schema: Any) -> None:
    """Raise a UserError if the schema stands within another object, such as the definition of a tool."""
    if not isinstance(schema, dict) or "properties" in schema:
        return
    for path in _ENVELOPES:
        if inner_of(schema, (*path.split("."), "properties")) is not None:
            raise UserError(_NO_PROPERTIES, todo=f"take what stands under {path!r}")


def _refuse_without_rows(tree: Part, schema: Any, notes: Notes) -> None:
    """Raise a UserError for a schema that no rows are written for, which says as far as possible why it has none.

    `tree` is what was read of the schema, `notes` what was left out.
    """
    is_object = tree.shape == "object"
    has_rows = tree.parts and any(part.shape != "object" for part in tree.inner())
    if not has_rows and notes.left_out:
        raise notes.left_out[0]
    if not has_rows and is_object and tree.parts:
        what = "the schema leaves nothing to write: each property is null or [] whatever the text says"
        raise UserError(what, todo="add a property with another type")
    words = schema.keys() - KNOWN if isinstance(schema, dict) else ()
    misspelled = get_close_matches("properties", words, 1, 0.75)
    if misspelled and not is_object:
        todo = f"write not {misspelled[0]!r}, but {EXAMPLE}"
        raise UserError(_NO_PROPERTIES, todo=todo)
    if not has_rows or tree.shape == "list":
        raise UserError(_NO_PROPERTIES, todo=f"write {EXAMPLE}")


def _mistyped(notes: Notes) -> Iterator[str]:
    """The unknown words of a schema that are spelled nearly as keywords are."""
    for word in sorted(notes.unknown)[:_COMPARED]:
        if get_close_matches(word, KNOWN, 1, 0.85):
            yield word
