"""Fields in a checkpoint's tokens: how each row begins, which tokens may follow, and the object that was written."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from pipedec_cli.data.fields import (
    Field,
    list_places,
    mapped,
    path_name,
    plain_text,
    read_plain,
    read_values,
    rows_of,
    rows_with,
    text_of,
    texts_of,
)
from pipedec_cli.model.text import TextCodec
from pipedec_cli.pipeline.grid import Allowed, Grid, Opening, any_token
from pipedec_cli.pipeline.schedule import Schedule, Subsequence, place

#: The beginnings of a number, by kind.
_BEGUN: Final = {
    "number": re.compile(r"-?(?:(?:0|[1-9]\d*)(?:\.\d*|(?:\.\d+)?[eE][+-]?\d{0,3})?)?"),
    "integer": re.compile(r"-?(?:0|[1-9]\d*)?"),
}
_NUMBER: Final = re.compile(r"(-?\d?)\d*(\.?\d?)\d*(.*)")
#: A token within a number; a tokenizer may mark a space before it with a character of its own.
_PIECE: Final = re.compile(r".?[0-9eE.+-]*")

_Tree = dict[int, Any]  # each token, and the tree of what may follow it


def row_text(codec: TextCodec, row: Subsequence) -> str:
    """The text of a row. A row that has not ended may stop within a character, which is left out."""
    text = codec.decode(row.text_tokens)
    return text if row.ended else text.rstrip("\ufffd").rstrip()


#: The rows of a finished grid, and the text of each value in the order of `rows_of`; None for a value that was cut.
Answers = Callable[[Grid], tuple[Sequence[Subsequence], Sequence[str | None]]]


class FieldCodec:
    """The fields of a checkpoint in the tokens of its codec."""

    def __init__(self, codec: TextCodec, fields: Sequence[Field]) -> None:
        self.codec, self.fields = codec, fields
        self.unconstrained = False  # whether values may be any text, rather than what the schema allows
        # A tokenizer may write other forms of letters: decoded enum values, and the values that they stand for.
        self._forms = {
            field.name: dict(zip(map(codec.decode, codec.ids(field.enum)), field.enum, strict=True))
            for field in fields
        }
        self._known: dict[int, list[list[int]]] = {}
        self._spelled = [replace(field, enum=tuple(self._forms[field.name])) for field in fields]

    def known_of(self, item: int) -> list[list[int]]:
        """The known tokens of the row of each field behind <bos>, for an item of the lists."""
        if item not in self._known:
            self._known[item] = self.codec.ids([field.opening(item) for field in self.fields])
        return self._known[item]

    def openings(self, places: Sequence[int], before: Sequence[Any] = ()) -> tuple[Opening, ...]:
        """How the rows of these fields begin and, unless `unconstrained`, which tokens may follow.

        Rows of lists are those of the item that follows the items `before`.
        """
        item, made = len(before) + 1, []
        for number in places:
            field, known = self.fields[number], tuple(self.known_of(item)[number])
            allowed = any_token if self.unconstrained else self.allowed[number]
            place = field.name, item if field.listed else 0
            made.append(Opening(known, allowed, place, path_name(field.at(item))))
        return tuple(made)

    def answers(self, grid: Grid) -> tuple[Sequence[Subsequence], Sequence[str | None]]:
        """See `Answers`: each row is a value, an empty row where a list is shorter than another."""
        rows: Sequence[Subsequence] = grid.subsequences
        if grid.method.lists:
            placed, nothing = grid.placed, Subsequence(0, [self.codec.eos], ended=True)
            items = max(item for _, item in placed)
            rows = [placed.get((field.name, item), nothing) for field, item in rows_with(self.fields, items)]
        return rows, [self.codec.decode(row.text_tokens) if row.ended else None for row in rows]

    def plain_answers(self, grid: Grid) -> tuple[Sequence[Subsequence], Sequence[str | None]]:
        """See `Answers`, of an object that a sequential model has written in words: no value has a row of its own."""
        return (), read_plain(self.whole(grid), self.fields, cut=grid.truncated is not None)

    def whole(self, grid: Grid) -> str:
        """The text of all rows."""
        return self.codec.decode([token for row in grid.subsequences for token in row.text_tokens])

    def read(self, texts: Sequence[str | None]) -> tuple[dict[str, Any], int]:
        """The object that the texts of all rows give, and the number of lost values; see `read_values`."""
        return read_values(texts, self._spelled, unconstrained=self.unconstrained, forms=self._forms)

    def confidence(self, values: Mapping[str, Any], rows: Sequence[Subsequence]) -> dict[str, Any]:
        """How sure each value of an object is, from its row: an object of the same shape."""
        placed = zip(rows_of(self.fields, len(rows)), rows, strict=True)
        sure = {field.at(item): float(f"{row.confidence:.4g}") for (field, item), row in placed}
        return mapped(values, lambda keys, _: sure.get(keys))

    def plain(self, values: Mapping[str, Any]) -> str:
        """An object as the sequential model writes it."""
        return plain_text(texts_of(values, self.fields), self.fields)

    @cached_property
    def allowed(self) -> list[Allowed]:
        """Which tokens may follow in the row of each field."""
        choices = list[Allowed]()
        for field in self.fields:
            choice: Allowed = any_token
            if field.enum or field.kind == "boolean":
                choice = _Choices(self.codec, field)
            elif field.kind in _BEGUN and self._pieces:
                choice = _Number(self._pieces, field, self.codec.eos)
            choices.append(choice)
        return choices

    @cached_property
    def _pieces(self) -> Sequence[tuple[int, str, str]]:
        """The tokens of numbers: id, text at the beginning, text behind a digit."""
        tokenizer, decode = self.codec.tokenizer, self.codec.decode
        digit = self.codec.ids(["1"])[0][-1]
        if decode([digit]) != "1":
            return ()
        pieces = {id_ for piece, id_ in tokenizer.get_vocab().items() if _PIECE.fullmatch(piece)}
        ids = sorted(pieces - set(tokenizer.all_special_ids))
        return [(id_, decode([id_]), decode([digit, id_])[1:]) for id_ in ids]


def place_rows(
    plan: Schedule, lengths: Sequence[int], fields: Sequence[Field]
) -> list[tuple[int, int, int, int | None]]:
    """The rows of an object on the grid, as they are established, for texts with these many tokens in the order of `rows_of`.

    Each has its start, the place of its field, the item, and the place of its text. An empty item, whose rows have no
    text, closes each list. The items of a list lie as the `plan` lays subsequences as long as they are.
    """
    at = {(field.name, item): place for place, (field, item) in enumerate(rows_of(fields, len(lengths)))}
    rows: list[tuple[int, int, int, int | None]] = [
        (0, number, 0, at[field.name, 0]) for number, field in enumerate(fields) if not field.listed
    ]
    for places in list_places(fields):
        longest, item = list[int](), 1
        while most := max(
            lengths[at[name, item]] if (name := fields[n].name, item) in at else 0 for n in places
        ):
            longest.append(most)
            item += 1
        for number, start in enumerate(place(plan, [*longest, 0]), start=1):
            rows += ((start, n, number, at.get((fields[n].name, number))) for n in places)
    return sorted(rows, key=lambda row: row[:2])


class _Choices:
    """The tokens that may follow if a value, or each item of a list, is one of some texts."""

    def __init__(self, codec: TextCodec, field: Field) -> None:
        self._eos, self._forced = codec.eos, field.forced
        self._first, self._more = _Tree(), _Tree()
        listed, texts = field.kind == "list", field.enum or ("true", "false")
        for ids in codec.ids([text_of([text]) if listed else text for text in texts]):
            self._add(self._first, ids)
        if listed:
            before = codec.ids([text_of([texts[0]])])[0]
            for ids in codec.ids([text_of([texts[0], text]) for text in texts]):
                if ids[: len(before)] == before:
                    self._add(self._more, ids[len(before) :])

    def _add(self, tree: _Tree, ids: Sequence[int]) -> None:
        for token in (*ids, self._eos) if ids else ():
            tree = tree.setdefault(token, _Tree())

    def __call__(self, made: Sequence[int]) -> Sequence[int]:
        places = [self._first]
        for token in made:
            places = [place[token] for place in places if token in place]
            if any(self._eos in place for place in places):  # an item is complete, and another may follow
                places.append(self._more)
        following = {token for place in places for token in place}
        must = following and (made or self._forced)
        return sorted(following if must else {*following, self._eos})


class _Number:
    """The tokens that may follow in a number as JSON writes it."""

    def __init__(self, pieces: Sequence[tuple[int, str, str]], field: Field, eos: int) -> None:
        self._field, self._eos = field, eos
        self._first = {id_: text for id_, text, _ in pieces}
        self._later = {id_: text for id_, _, text in pieces}
        self._known: dict[tuple[bool, str], list[int]] = {}

    def __call__(self, made: Sequence[int]) -> Sequence[int]:
        text = "".join((self._later if at else self._first).get(token, "") for at, token in enumerate(made))
        # What may follow depends on the form of the number alone: one digit stands for many. The first may be 0.
        whole, part, power = _NUMBER.fullmatch(text).groups()  # type: ignore[union-attr]
        key = bool(made), whole + re.sub(r"\d", "0", part + power)
        if key not in self._known:
            self._known[key] = self._following(*key)
        return self._known[key]

    def _following(self, begun: bool, number: str) -> list[int]:
        form, texts = _BEGUN[self._field.kind], self._later if begun else self._first
        fitting = (id_ for id_, text in texts.items() if form.fullmatch(number + text))
        goes_on = [id_ for id_ in fitting if texts[id_] or not begun]
        is_empty = not begun and not self._field.forced
        may_end = is_empty or not goes_on or self._field.parsed(number) is not None
        return sorted([*goes_on, self._eos] if may_end else goes_on)
