"""What the rows of a schema ask for without training: a value, the names of all items of a list, or which alternative.

Rows of items and alternatives are known when the row that names them has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from msgspec import structs

from pipedec_cli.data.fields import Field, Keys, RowAddress, path_name, text_of
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
    """The question for a key, with its description and choices. Of many choices it names some short ones, evenly spread."""
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
    """Items with these keys and names, those of one name counted."""
    counts = Counter[str]()
    items = []
    for key, name in names:
        counts[name] += 1
        items.append(Name(key, name, counts[name]))
    return items


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A row: what it asks for, where its answer belongs, and the item or entry that it is a part of."""

    part: Part
    place: Keys = ()  # of its value
    item: Keys = ()  # the beginning of the place that leads to the item
    of: str = ""  # what the item is called, and those that it stands in
    lines: str = ""  # outside a chat, what stands before the line of the row

    @property
    def name(self) -> str:
        """The path of its value within the item."""
        if not self.place:
            return "object"
        inner = path_name(self.place[len(self.item) :])
        return inner or path_name(self.place[:-1]) or "value"

    @property
    def at(self) -> RowAddress:
        """Where its answer belongs."""
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
        """Its name in the live view."""
        return path_name(self.place) or self.name

    def question(self) -> str:
        """The question for the value, for the names of all items, or for the kind of what there is."""
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
        """The line that the answer goes on, and those before."""
        kind = "kind of " if self.part.shape == "choice" else ""
        return f"{self.lines}{kind}{self.label}:"

    def chosen(self, label: str) -> Iterator[Asked]:
        """The rows of the alternative with a label."""
        part = self.part.parts.get(label)
        if part:
            yield from asked_of(replace(self, part=part))

    def items(self, names: Iterable[Name]) -> Iterator[Asked]:
        """The rows of items and entries, whose names are known."""
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
        """The place of the name of an item; of the item itself if no key of it is the name."""
        name = self.part.name_key
        if name is None:
            return (*self.place, key)
        item = len(self.part.field.path) + 1
        return (*self.place, key, *name.path[item:])


def asked_of(asked: Asked) -> Iterator[Asked]:
    """The rows that a part starts with: for an object those of all properties."""
    if asked.part.shape != "object":
        yield asked
        return
    for key, part in asked.part.parts.items():
        place = (*asked.place, key)
        yield from asked_of(replace(asked, part=part, place=place))


def sample_of(asked: Asked) -> Iterator[Asked]:
    """Rows that a row may open: of one item, or of all alternatives."""
    if asked.part.shape == "choice":
        for label in asked.part.parts:
            yield from asked.chosen(label)
    elif asked.part.shape != "value":
        key = 1 if asked.part.shape == "list" else "a"
        yield from asked.items([Name(key, "a")])


def example_lines(asked: Asked, values: Mapping[Keys, str]) -> Iterator[str]:
    """The lines of a row in an example whose object has these texts."""
    asked = replace(asked, lines="")
    if asked.part.shape == "value":
        text = values.get(asked.place) or NONE
        yield f"{asked.opening()} {text}"
    elif asked.part.shape == "choice":
        yield from _shown_choice(asked, values)
    else:
        yield from _shown_items(asked, values)


def _shown_choice(asked: Asked, values: Mapping[Keys, str]) -> Iterator[str]:
    """The line that says which alternative there is, and those of the alternative."""
    is_there = values.get(asked.place) or _keys_below(asked.place, values)
    if not is_there:
        yield f"{asked.opening()} {NONE}"
        return

    def fit(label: str) -> int:
        return sum(_fit(row, values) for row in asked.chosen(label))

    label = max(asked.part.parts, key=fit)
    yield f"{asked.opening()} {label}"
    for row in asked.chosen(label):
        yield from example_lines(row, values)


def _shown_items(asked: Asked, values: Mapping[Keys, str]) -> Iterator[str]:
    """The line with the names of all items, and those of each item."""
    names = []
    for key in _keys_below(asked.place, values):
        text = values.get(asked.named(key), str(key))
        if text:
            names.append((key, text))
    answer = text_of([text for _, text in names]) or NONE
    yield f"{asked.opening()} {answer}"
    for name in numbered(names):
        if asked.part.shape == "list":
            yield asked.line_of(name)
        for row in asked.items([name]):
            yield from example_lines(row, values)


def _keys_below(place: Keys, values: Mapping[Keys, str]) -> list[int | str]:
    """The keys right below a place, as far as they lead to texts, in order."""
    depth = len(place)
    keys: dict[int | str, None] = {}
    for path, text in values.items():
        if text and len(path) > depth and path[:depth] == place:
            keys[path[depth]] = None
    return list(keys)


def _fit(asked: Asked, values: Mapping[Keys, str]) -> int:
    """1 if the text of a row is a value of it, −1 if it is none, 0 without a text."""
    text = values.get(asked.place, "")
    if not text or asked.part.shape != "value":
        return 0
    value = asked.part.field.parsed(text)
    return -1 if value is None else 1


def names_in(answer: str) -> list[str]:
    """The names of items in an answer, in order; none in an answer that means that there is no value."""
    if answer.strip(" .\"'").lower() == NONE:
        return []
    names = Field("", "list").parsed(answer)
    return names if isinstance(names, list) else []
