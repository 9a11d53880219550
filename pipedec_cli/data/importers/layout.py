"""What a published row must look like, checked field by field, and the example that comes out of it.

A row in another layout is refused with the place, the field, what was expected and what was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.rows import Row

_SHOWN_FIELDS = 8
_SHOWN_CHARACTERS = 40
_KINDS = {type(None): "null", bool: "true or false", dict: "an object"}


@dataclass(frozen=True, slots=True)
class Example:
    """One example of a data set, as it is written.

    Attributes:
        where: ``file:line`` or the like, of the row that it came from.
        id: the data set's own identifier; None where it has none.
        source: what the target is generated from; may be empty in published data, see `cleaning`.
        target: the right answer: text; its segments, where the data set has them apart; None in an unlabelled split.
        extra: further fields to be kept beside these.
    """

    where: str
    id: str | None
    source: str
    target: str | tuple[str, ...] | None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Fields:
    """The fields of one published row, each read with its type checked."""

    def __init__(self, row: Row) -> None:
        """Wrap a row.

        Raises:
            UserError: it is not an object.
        """
        self.where = row.where
        if not isinstance(row.value, Mapping):
            raise UserError(f"expected an object, found {kind(row.value)}", where=row.where)
        self.values: Mapping[str, Any] = row.value

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def first_of(self, names: Iterable[str]) -> str:
        """The first of several names that a field has among the published layouts.

        Raises:
            UserError: none of them is there.
        """
        known = tuple(names)
        for name in known:
            if self.has(name):
                return name
        wanted = " or ".join(repr(name) for name in known)
        have = ", ".join(list(map(str, self.values))[:_SHOWN_FIELDS]) or "none"
        raise UserError(f"expected a field {wanted}, found the fields {have}", where=self.where)

    def text(self, name: str) -> str:
        """A field that must hold a string."""
        value = self._required(name)
        return value if isinstance(value, str) else self.refuse(name, "a string", value)

    def strings(self, name: str, what: str = "a list of strings") -> tuple[str, ...]:
        """A field that must hold a list of strings; a string where the list belongs is refused."""
        value = self._required(name)
        if not isinstance(value, list):
            self.refuse(name, what, value)
        for place, item in enumerate(value, start=1):
            if not isinstance(item, str):
                self.refuse(name, what, item, place)
        return tuple(value)

    def identifier(self, *names: str) -> str | None:
        """The first of these fields that is there, as a string; None if none is."""
        for name in names:
            value = self.values.get(name)
            if value is None or value == "":
                continue
            if isinstance(value, bool) or not isinstance(value, str | int):
                self.refuse(name, "a string or a whole number", value)
            return str(value)
        return None

    def refuse(self, name: str, expected: str, found: object, place: int | None = None) -> NoReturn:
        """Say what a field, or the item of a list at a place counted from 1, should have been.

        Raises:
            UserError: always.
        """
        at = "" if place is None else f", item {place}"
        raise UserError(f"field {name!r}{at}: expected {expected}, found {kind(found)}", where=self.where)

    def _required(self, name: str) -> Any:
        self.first_of([name])
        return self.values[name]


def kind(value: object) -> str:
    """What a value is, in words for a message; a number or a short string is shown."""
    if isinstance(value, str):
        return (
            f"the string {value!r}"
            if len(value) <= _SHOWN_CHARACTERS
            else f"a string of {len(value)} characters"
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {value}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def one_line(text: str) -> str:
    """The text with each run of white space made one space, and none at its ends."""
    return " ".join(text.split())


def question_and_context(question: str, context: str) -> str:
    """Question and passage as one source, marked as T5 was trained on SQuAD (Raffel et al. 2020, appendix D)."""
    return f"question: {question} context: {context}"
