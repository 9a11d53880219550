"""Fields in a checkpoint's tokens: how each row begins, which tokens may follow, and the object that was written."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

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
    texts_of,
)
from pipedec_cli.model.grammar import Grammar, allowed_of, is_free, span_grammar
from pipedec_cli.model.text import TextCodec
from pipedec_cli.pipeline.grid import Allowed, Grid, Opening
from pipedec_cli.pipeline.schedule import Schedule, Subsequence, place


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
        # A tokenizer may write other forms of letters: decoded enum values, and the values that they stand for.
        self._forms = {
            field.name: dict(zip(map(codec.decode, codec.ids(field.enum)), field.enum, strict=True))
            for field in fields
        }
        self._known: dict[int, list[list[int]]] = {}
        self.source: str | None = None  # of which free values are parts
        self._spelled = [replace(field, enum=tuple(self._forms[field.name])) for field in fields]

    def known_of(self, item: int) -> list[list[int]]:
        """The known tokens of the row of each field behind <bos>, for an item of the lists."""
        if item not in self._known:
            self._known[item] = self.codec.ids([field.opening(item) for field in self.fields])
        return self._known[item]

    def openings(self, places: Sequence[int], before: Sequence[Any] = ()) -> tuple[Opening, ...]:
        """How the rows of these fields begin, those of lists for the item that follows the items `before`."""
        item, made = len(before) + 1, []
        for number in places:
            field, known = self.fields[number], tuple(self.known_of(item)[number])
            place = field.name, item if field.listed else 0
            end = self.codec.eos if self.source is not None and is_free(field) else -1
            made.append(Opening(known, self.allowed[number], place, path_name(field.at(item)), end))
        return tuple(made)

    def held_to(self, source: str | None) -> Self:
        """The same codec, for a source of which free values are parts; without a source they are any text."""
        made = copy.copy(self)
        made.source = source
        made.__dict__.pop("allowed", None)
        return made

    def answers(self, grid: Grid) -> tuple[Sequence[Subsequence], Sequence[str | None]]:
        """See `Answers`: each row is a value, an empty row where a list is shorter than another."""
        rows: Sequence[Subsequence] = grid.subsequences
        if grid.method.lists:
            placed, nothing = grid.placed, Subsequence(0, [self.codec.eos], ended=True)
            items = max(item for _, item in placed)
            rows = [placed.get((field.name, item), nothing) for field, item in rows_with(self.fields, items)]
        found = [row.value_tokens for row in rows]
        return rows, [None if tokens is None else self.codec.decode(tokens) for tokens in found]

    def plain_answers(self, grid: Grid) -> tuple[Sequence[Subsequence], Sequence[str | None]]:
        """See `Answers`, of an object that a sequential model has written in words: no value has a row of its own."""
        return (), read_plain(self.whole(grid), self.fields, cut=grid.truncated is not None)

    def whole(self, grid: Grid) -> str:
        """The text of all rows."""
        return self.codec.decode([token for row in grid.subsequences for token in row.text_tokens])

    def read(self, texts: Sequence[str | None]) -> tuple[dict[str, Any], int]:
        """The object that the texts of all rows give, and the number of lost values; see `read_values`."""
        return read_values(texts, self._spelled, self._forms)

    def of_rows(
        self, values: Mapping[str, Any], rows: Sequence[Subsequence], number: Callable[[Subsequence], float]
    ) -> dict[str, Any]:
        """A number of the row of each value: an object of the same shape, to four digits."""
        placed = zip(rows_of(self.fields, len(rows)), rows, strict=True)
        numbers = {field.at(item): float(f"{number(row):.4g}") for (field, item), row in placed}
        return mapped(values, lambda keys, _: numbers.get(keys))

    def plain(self, values: Mapping[str, Any]) -> str:
        """An object as the sequential model writes it."""
        return plain_text(texts_of(values, self.fields), self.fields)

    @cached_property
    def allowed(self) -> list[Allowed]:
        """Which tokens may follow in the row of each field."""
        return self.allowed_with("", self.codec.eos)

    def allowed_with(self, none: str, end: int) -> list[Allowed]:
        """The same for rows that may say `none` where there is no value, and that `end` as this token says."""
        tokenizer, made = self.codec.tokenizer, list[Allowed]()
        parts = {
            listed: Grammar(tokenizer, end, span_grammar(self.source, listed=listed, none=none))
            for listed in {field.kind == "list" for field in self.fields if is_free(field)}
            if self.source is not None
        }
        for field in self.fields:
            held = parts.get(field.kind == "list") if is_free(field) else None
            made.append(held or allowed_of(tokenizer, end, field, tuple(self._forms[field.name]), none))
        return made


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
