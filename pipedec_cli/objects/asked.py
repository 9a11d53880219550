"""What the rows of a schema ask for without training: a value, the names of all items of a list, or which alternative.

Rows of items and alternatives are known when the row that names them has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from msgspec import structs

from pipedec_cli.data.fields import Field, Keys, RowAddress, path_name
from pipedec_cli.objects.tree import Part

#: The answer that means "no value".
NONE: Final = "none"
_HINTS: Final = {
    "boolean": " Answer true or false.",
    "number": " Answer with a number.",
    "integer": " Answer with a whole number.",
    "list": " Write all of them, with | between them.",
}
#: A question names so many choices at most, in some so many characters. The row may
#: have any choice.
_NAMED: Final = 40
_NAMED_CHARACTERS: Final = 1_000


def question_of(field: Field) -> str:
    """The question that asks a model for the value of a field, with its description and choices.

    Of many choices it names some short ones, evenly spread.
    """
    meaning = f" ({field.description})" if field.description else ""
    hint = _HINTS.get(field.kind, "")
    named = named_choices(field.enum)
    if named:
        end = "." if len(named) == len(field.enum) else ", …"
        hint = f" One of: {', '.join(named)}{end}"
    return f"What is the {field.name}{meaning}?{hint}"


def named_choices(choices: Sequence[str]) -> Sequence[str]:
    """The choices that a question names."""
    short = []
    length = 0
    for choice in choices:
        if len(choice) <= _NAMED_CHARACTERS:
            short.append(choice)
            length += len(choice)
    too_many = (len(short) - 1) // _NAMED
    too_long = length // _NAMED_CHARACTERS
    every = 1 + max(too_many, too_long)
    return short[::every]


class Name(NamedTuple):
    """The name of an item or an entry."""

    key: int | str  # the last key of its place
    name: str
    number: int = 1  # of this name among the items of the same name

    @property
    def printed(self) -> str:
        """What the item is called in its rows: the second one of a name is ``name (2)``."""
        if self.number == 1:
            return self.name
        return f"{self.name} ({self.number})"


def numbered(names: Iterable[tuple[int | str, str]]) -> list[Name]:
    """Names of items, given as (key, name), in order; those of the same name get the numbers 1, 2, 3 and so on."""
    counts = Counter[str]()
    items = []
    for key, name in names:
        counts[name] += 1
        items.append(Name(key, name, counts[name]))
    return items


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A row: what it asks for, where its answer belongs, and the item or entry that it is a part of."""

    part: Part  # of the schema: a value, a list, a map or a choice between alternatives
    place: Keys = ()  # the path of its value in the object
    item: Keys = ()  # the beginning of this path that leads to the item
    of: str = ""  # what the item is called, and those that it stands in
    lines: str = ""  # outside a chat, what stands before the line of the row

    @property
    def name(self) -> str:
        """What a question calls the value: its path within the item, or what stands around it if that is empty."""
        if not self.place:
            return "object"
        inner = path_name(self.place[len(self.item) :])
        return inner or path_name(self.place[:-1]) or "value"

    @property
    def at(self) -> RowAddress:
        """Where its answer belongs: the path, and whether it is the value, the names of items, or an alternative's label."""
        if self.part.shape == "value":
            return RowAddress(self.place)
        is_choice = self.part.shape == "choice"
        return RowAddress(self.place, "label" if is_choice else "names")

    @property
    def must(self) -> bool:
        """Whether its row must have a value. An object that is a map is always there, and so are its names if there must be some."""
        field = self.part.field
        is_whole_map = self.part.shape == "map" and not self.place
        return field.must or (is_whole_map and not field.may_be_empty)

    @property
    def label(self) -> str:
        """Its name where a user sees it."""
        return path_name(self.place) or self.name

    def question(self) -> str:
        """The question of the row: for the value, for the names of all items, or for the kind of what there is."""
        name = self.name
        if self.part.shape in ("list", "map"):
            item = len(self.place) + 1
            within = path_name(self.named(1)[item:]) or "name"
            name = f"{within} of each of the {name}"
        elif self.part.shape == "choice":
            name = f"kind of the {name}"
        if self.of:
            name = f"{name} of {self.of}"
        return question_of(structs.replace(self.part.field, name=name))

    def opening(self) -> str:
        """What stands before the answer where a row is no question: the lines before it, and ``key:``."""
        kind = "kind of " if self.part.shape == "choice" else ""
        return f"{self.lines}{kind}{self.label}:"

    def chosen(self, label: str) -> Iterator[Asked]:
        """The rows of the alternative that a label chooses; none if no alternative has this label."""
        part = self.part.parts.get(label)
        if part:
            yield from asked_of(replace(self, part=part))

    def items(self, names: Iterable[Name]) -> Iterator[Asked]:
        """The rows of the items of a list, or the entries of a map, once their names are known.

        The row that would ask for the name itself is left out.
        """
        for name in names:
            place = (*self.place, name.key)
            called = name.printed
            if self.of:
                called += f" of {self.of}"
            lines = self.lines
            if self.part.shape == "list":
                lines += f"{self.line_of(name)}\n"
            for row in asked_of(Asked(self.part.item, place, place, called, lines)):
                if not self.part.name_key or row.place != self.named(name.key):
                    yield row

    def line_of(self, name: Name) -> str:
        """The line that says what an item is called."""
        place = self.named(name.key)
        return f"{path_name(place)}: {name.printed}"

    def named(self, key: int | str) -> Keys:
        """The path of the name of the item `key`: of the value that names it, or of the item itself if none does."""
        item = (*self.place, key)
        name = self.part.name_key
        if name is None:
            return item
        return (*item, *name.path[len(self.part.field.path) + 1 :])


def asked_of(asked: Asked) -> Iterator[Asked]:
    """The rows with which a part of a schema starts: the part's own, or for an object those of all its properties."""
    if asked.part.shape != "object":
        yield asked
        return
    for key, part in asked.part.parts.items():
        place = (*asked.place, key)
        yield from asked_of(replace(asked, part=part, place=place))


def sample_of(asked: Asked) -> Iterator[Asked]:
    """Rows such as a row may open when its answer is known: those of an item called "a", or of all alternatives.

    A row for a single value opens none.
    """
    if asked.part.shape == "choice":
        for label in asked.part.parts:
            yield from asked.chosen(label)
    elif asked.part.shape != "value":
        key = 1 if asked.part.shape == "list" else "a"
        yield from asked.items([Name(key, "a")])


def names_in(answer: str) -> list[str]:
    """The names of items in an answer, in order; none in an answer that means that there is no value."""
    if answer.strip(" .\"'").lower() == NONE:
        return []
    names = Field("", "list").parsed(answer)
    return names if isinstance(names, list) else []
