"""What blind rows ask: the question for a key, for the items of a list, and the tokens that may answer it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from pipedec_cli.data.fields import Field
from pipedec_cli.data.objects import path_name
from pipedec_cli.model.text import TextCodec

#: The answer that means "no value".
NONE: Final = "none"
_HINTS: Final = {
    "boolean": " Answer true or false.",
    "number": " Answer with a number.",
    "integer": " Answer with a whole number.",
    "list": " Write all of them, with | between them.",
}

#: The tokens that may follow those that a row has made; see `Opening`.
Choice = Callable[[Sequence[int]], Sequence[int]]


def question_of(field: Field) -> str:
    """The question for a key, with its description and choices."""
    meaning = f" ({field.description})" if field.description else ""
    choices = f" One of: {', '.join(field.enum)}." if field.enum else _HINTS.get(field.kind, "")
    return f"What is the {field.name}{meaning}?{choices}"


def is_none(text: str) -> bool:
    """Whether an answer means that there is no value."""
    return text.strip(" .\"'").lower() == NONE


class Asked:
    """What a row asks for that starts at once: the value of a key, or the names of all items of a list of objects.

    `row` is the field that the row answers, and `key` the one that holds the value, or the name of each item. The
    `others` are the keys of an item whose rows start once the names are known.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        """Take a key, or all keys of a list."""
        self.key = self.row = min(fields, key=lambda field: (field.kind != "string", field.kind == "list"))
        self.others = [field for field in fields if field is not self.key]
        self.listed = self.key.listed
        if self.listed:
            path, described = self.key.path[: self.key.path.index(0)], self.key.description
            self.row = Field(path_name(path), "list", self.key.enum, path=path, description=described)

    def question(self) -> str:
        """The question for the value, or for the names of all items."""
        name = f"{_inner(self.key)} of each of the {self.row.name}" if self.listed else self.row.name
        return question_of(replace(self.row, name=name))

    def of_item(self, item: int, name: str, *, chat: bool) -> list[str]:
        """What the rows of an item begin with: a question for each key, or the line of its name and a key."""
        if chat:
            return [question_of(replace(field, name=f"{_inner(field)} of {name}")) for field in self.others]
        line = f"{self.key.opening_of(item)} {name}\n"
        return [line + field.opening_of(item) for field in self.others]


def _inner(field: Field) -> str:
    """The name of a key within an item."""
    return path_name(field.path[field.path.index(0) + 1 :])


def with_none(field: Field) -> Field:
    """The field with the answer for "no value" among its choices, unless the schema wants a value."""
    texts = field.enum or (("true", "false") if field.kind == "boolean" else ())
    return replace(field, enum=(*texts, NONE)) if texts and not field.forced else field


class LineCodec:
    """A codec for the values in a line of a key: they begin with the space behind the colon, and a line break ends them."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec, self.tokenizer, self.decode = codec, codec.tokenizer, codec.decode
        self._key = codec.ids([":"])[0]
        self.eos = codec.ids(["a\n"])[0][-1]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts behind a colon and a space."""
        found = self._codec.ids([f": {text}" for text in texts])
        return [ids[len(self._key) :] if ids[: len(self._key)] == self._key else ids for ids in found]


class NumberOrNone:
    """The tokens that may follow in a number, or in the answer for "no value"."""

    def __init__(self, number: Choice, none: Sequence[int]) -> None:
        self._number, self._none, self._first = number, tuple(none), frozenset(number(()))

    def __call__(self, made: Sequence[int]) -> Sequence[int]:
        """The tokens that may follow those that were made, in rising order; () for any."""
        if not self._first:  # any token may follow
            return ()
        allowed = set(self._number(made)) if not made or made[0] in self._first else set[int]()
        if tuple(made) == self._none[: len(made)]:
            allowed.add(self._none[len(made)])
        return sorted(allowed)


class NamesOnce:
    """The tokens that may follow in the names of items: the end alone where a name has come for the third time.

    A small model that repeats itself would not end; two items may have the same name.
    """

    def __init__(self, names: Choice, decode: Callable[[Sequence[int]], str], end: int) -> None:
        self._names, self._decode, self._end = names, decode, end

    def __call__(self, made: Sequence[int]) -> Sequence[int]:
        """The tokens that may follow those that were made, in rising order; () for any."""
        if "|" in self._decode(made[-1:]):  # a name has come to its end
            *_, last, _ = names = [name.strip() for name in self._decode(made).split("|")]
            if last and names[:-1].count(last) > 2:
                return (self._end,)
        return self._names(made)
