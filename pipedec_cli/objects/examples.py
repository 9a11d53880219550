"""Right answers: what the rows of a schema say of a record with a target, as few-shot examples show it and training learns it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from pipedec_cli.data.fields import (
    Field,
    Keys,
    any_item,
    leaves,
    text_of,
    value_texts,
)
from pipedec_cli.data.records import Record
from pipedec_cli.objects.asked import NONE, Asked, Name, numbered
from pipedec_cli.objects.candidates import as_it_stands
from pipedec_cli.objects.tree import Part

#: The texts of an object's values by their paths.
Texts = Mapping[Keys, str]


class RightAnswer(NamedTuple):
    """A row, and what it should answer: `NONE` for no value."""

    asked: Asked
    text: str


def target_texts(tree: Part, record: Record) -> dict[Keys, str]:
    """The texts of the values of a record's target, an object as the `tree` has it, by their paths.

    Numbers and dates stand there as the record's source has them. White space is one
    space. A UserError for a target that does not fit.
    """
    target = record.target_fields or {}
    fields = {field.keys: field for field in tree.values()}
    value_texts(target, [*fields.values()], record.where)
    texts = {}
    for place, value in leaves(target):
        field = fields.get(any_item(place), Field(""))
        words = as_it_stands(field, value, record.source).split()
        texts[place] = " ".join(words)
    return texts


def right_answers(asked: Asked, texts: Texts) -> Iterator[RightAnswer]:
    """The right answer of a row, and those of all rows that this answer opens.

    `texts` has those of the right object by their paths.
    """
    if asked.part.shape == "value":
        yield RightAnswer(asked, texts.get(asked.place) or NONE)
    elif asked.part.shape == "choice":
        label = _right_label(asked, texts)
        yield RightAnswer(asked, label or NONE)
        for row in asked.chosen(label):
            yield from right_answers(row, texts)
    else:
        names = _right_names(asked, texts)
        yield RightAnswer(asked, _listed(names))
        for row in asked.items(names):
            yield from right_answers(row, texts)


def example_lines(asked: Asked, texts: Texts) -> Iterator[str]:
    """The lines by which a few-shot example shows the answer of a row, and of all rows that this answer opens.

    `texts` has those of the example's object by their paths.
    """
    asked = replace(asked, lines="")
    opening = asked.opening()
    if asked.part.shape == "value":
        yield f"{opening} {texts.get(asked.place) or NONE}"
    elif asked.part.shape == "choice":
        label = _right_label(asked, texts)
        yield f"{opening} {label or NONE}"
        for row in asked.chosen(label):
            yield from example_lines(row, texts)
    else:
        names = _right_names(asked, texts)
        yield f"{opening} {_listed(names)}"
        for name in names:
            if asked.part.shape == "list":
                yield asked.line_of(name)
            for row in asked.items([name]):
                yield from example_lines(row, texts)


def example_text(rows: Iterable[Asked], tree: Part, record: Record) -> str:
    """All lines by which a few-shot example shows the answers of rows; `record` has a target as the `tree` has it."""
    texts = target_texts(tree, record)
    lines: list[str] = []
    for asked in rows:
        lines += example_lines(asked, texts)
    return "\n".join(lines)


def _right_label(asked: Asked, texts: Texts) -> str:
    """The label of the alternative that most of an object's texts fit; "" if there is nothing."""
    is_there = texts.get(asked.place) or _keys_below(asked.place, texts)
    if not is_there:
        return ""

    def fit(label: str) -> int:
        return sum(_fit(row, texts) for row in asked.chosen(label))

    labels: list[str] = [*asked.part.parts]
    return max(labels, key=fit)


def _right_names(asked: Asked, texts: Texts) -> list[Name]:
    """The names of the items of an object's list, or of the entries of its map."""
    names = []
    for key in _keys_below(asked.place, texts):
        text = str(key)
        if asked.part.shape == "list":
            text = texts.get(asked.named(key), text)
        if text:
            names.append((key, text))
    return numbered(names)


def _listed(names: list[Name]) -> str:
    """What a row answers that asks for all names."""
    return text_of([name.name for name in names]) or NONE


def _keys_below(place: Keys, texts: Texts) -> list[int | str]:
    """The keys right below a path that lead to a text that is not empty, in order, each once."""
    depth = len(place)
    keys: dict[int | str, None] = {}
    for path, text in texts.items():
        if text and len(path) > depth and path[:depth] == place:
            keys[path[depth]] = None
    return list(keys)


def _fit(asked: Asked, texts: Texts) -> int:
    """Whether a row's text can be read as its value: 1 if so, −1 if not, 0 if it has no text or no value."""
    text = texts.get(asked.place, "")
    if not text or asked.part.shape != "value":
        return 0
    value = asked.part.field.parsed(text)
    return -1 if value is None else 1
