"""What the rows of a schema ask for without training: a value, the names of all items of a list, or which alternative.

Rows of items and alternatives are known when the row that names them has ended.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from pipedec_cli.data.fields import Field, Keys, path_name, text_of
from pipedec_cli.objects.tree import CHOOSING, NAMING, Part

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
    named = _named_choices(field.enum)
    if named:
        end = "." if named == field.enum else ", …"
        hint = f" One of: {', '.join(named)}{end}"
    return f"What is the {field.name}{meaning}?{hint}"


def _named_choices(choices: tuple[str, ...]) -> tuple[str, ...]:
    """The choices that a question names."""
    short = [choice for choice in choices if len(choice) <= _NAMED_CHARACTERS]
    length = sum(len(choice) for choice in short)
    every = 1 + max((len(short) - 1) // _NAMED, length // _NAMED_CHARACTERS)
    return tuple(short[::every])


def is_none(text: str) -> bool:
    """Whether an answer means that there is no value."""
    return text.strip(" .\"'").lower() == NONE


class Name(NamedTuple):
    """The name of an item or an entry."""

    key: int | str  # the last key of its place
    name: str
    number: int = 1  # of this name among the items of the same name

    @property
    def printed(self) -> str:
        """What the item is called in its rows: the second one of a name is ``name (2)``."""
        return self.name if self.number == 1 else f"{self.name} ({self.number})"


def numbered(names: Iterable[tuple[int | str, str]]) -> list[Name]:
    """Items with these keys and names, those of one name counted."""
    counts = Counter[str]()
    items = list[Name]()
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
        inner = path_name(self.place[len(self.item) :]) or path_name(self.place[:-1])
        return inner or ("value" if self.place else "object")

    @property
    def at(self) -> Keys:
        """The place of its answer."""
        if self.part.shape == "value":
            return self.place
        return (*self.place, CHOOSING if self.part.shape == "choice" else NAMING)

    @property
    def label(self) -> str:
        """Its name in the live view."""
        return path_name(self.place) or self.name

    def question(self) -> str:
        """The question for the value, for the names of all items, or for the kind of what there is."""
        name = self.name
        if self.part.shape in ("list", "map"):
            within = path_name(self.named(1)[len(self.place) + 1 :]) or "name"
            name = f"{within} of each of the {name}"
        elif self.part.shape == "choice":
            name = f"kind of the {name}"
        if self.of:
            name = f"{name} of {self.of}"
        return question_of(replace(self.part.field, name=name))

    def opening(self) -> str:
        """The line that the answer goes on, and those before."""
        kind = "kind of " if self.part.shape == "choice" else ""
        return f"{self.lines}{kind}{self.label}:"

    def chosen(self, label: str) -> Iterator["Asked"]:
        """The rows of the alternative with a label."""
        part = self.part.parts.get(label)
        if part:
            yield from asked_of(dataclasses.replace(self, part=part))

    def items(self, names: Iterable[Name]) -> Iterator["Asked"]:
        """The rows of items and entries, whose names are known."""
        part = self.part
        for name in names:
            place = (*self.place, name.key)
            name_place = self.named(name.key)
            line = (
                f"{path_name(name_place)}: {name.printed}\n"
                if part.shape == "list"
                else ""
            )
            called = f"{name.printed} of {self.of}" if self.of else name.printed
            for row in asked_of(
                Asked(part.item, place, place, called, self.lines + line)
            ):
                if row.place != name_place or not part.name_key:
                    yield row

    def named(self, key: int | str) -> Keys:
        """The place of the name of an item; of the item itself if no key of it is the name."""
        name = self.part.name_key
        inner = name.path[len(self.part.field.path) + 1 :] if name else ()
        return (*self.place, key, *inner)


def asked_of(asked: Asked) -> Iterator[Asked]:
    """The rows that a part starts with: for an object those of all properties."""
    if asked.part.shape != "object":
        yield asked
        return
    for key, part in asked.part.parts.items():
        yield from asked_of(
            dataclasses.replace(asked, part=part, place=(*asked.place, key))
        )


def sample_of(asked: Asked) -> Iterator[Asked]:
    """Rows that a row may open: of one item, or of all alternatives."""
    if asked.part.shape == "choice":
        for label in asked.part.parts:
            yield from asked.chosen(label)
    elif asked.part.shape != "value":
        key: int | str = 1 if asked.part.shape == "list" else "a"
        yield from asked.items([Name(key, "a")])


def shown(asked: Asked, values: Mapping[Keys, str]) -> Iterator[tuple[str, str]]:
    """The lines of a row in an example whose object has these texts: each an opening and its answer."""
    asked = dataclasses.replace(asked, lines="")
    if asked.part.shape == "value":
        yield asked.opening(), values.get(asked.place, "")
    elif asked.part.shape == "choice":
        yield from _shown_choice(asked, values)
    else:
        yield from _shown_items(asked, values)


def _shown_choice(
    asked: Asked, values: Mapping[Keys, str]
) -> Iterator[tuple[str, str]]:
    """The line that says which alternative there is, and those of the alternative."""
    fits = {
        label: sum(_fit(row, values) for row in asked.chosen(label))
        for label in asked.part.parts
    }
    label = max(fits, key=lambda label: fits[label])
    is_there = bool(_keys_below(asked.place, values) or values.get(asked.place))
    yield asked.opening(), label if is_there else ""
    if is_there:
        for row in asked.chosen(label):
            yield from shown(row, values)


def _shown_items(asked: Asked, values: Mapping[Keys, str]) -> Iterator[tuple[str, str]]:
    """The line with the names of all items, and those of each item."""
    keys = _keys_below(asked.place, values)
    names = numbered([(key, values.get(asked.named(key), str(key))) for key in keys])
    yield asked.opening(), text_of([name.name for name in names if name.name])
    for name in names:
        if not name.name:
            continue
        if asked.part.shape == "list":
            yield f"{path_name(asked.named(name.key))}:", name.printed
        for row in asked.items([name]):
            yield from shown(row, values)


def _keys_below(place: Keys, values: Mapping[Keys, str]) -> Sequence[int | str]:
    """The keys right below a place, as far as they lead to texts, in order."""
    depth = len(place)
    keys = dict.fromkeys(
        path[depth]
        for path, text in values.items()
        if text and len(path) > depth and path[:depth] == place
    )
    return [*keys]


def _fit(asked: Asked, values: Mapping[Keys, str]) -> int:
    """1 if the text of a row is a value of it, −1 if it is none, 0 without a text."""
    text = values.get(asked.place, "")
    if not text or asked.part.shape != "value":
        return 0
    return -1 if asked.part.field.parsed(text) is None else 1


def names_in(answer: str, most: int | None = None) -> list[str]:
    """The names of items in an answer, in order; at most so many."""
    names = Field("", "list").parsed("" if is_none(answer) else answer)
    return [str(name) for name in names][:most] if isinstance(names, list) else []
