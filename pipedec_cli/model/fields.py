"""Fields in a checkpoint's tokens: how each row begins, which tokens may follow, and the object that was written."""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from pipedec_cli.data.fields import (
    Field,
    Keys,
    alike,
    list_places,
    path_name,
    plain_opening,
    plain_text,
    read_plain,
    rows_of,
    rows_with,
    texts_of,
)
from pipedec_cli.data.tree import ObjectOf, Part, numbers_at, tree_of
from pipedec_cli.model.grammar import allowed_of, is_free, plain_allowed_of
from pipedec_cli.model.text import TextCodec
from pipedec_cli.pipeline.grid import Allowed, Grid, Opening
from pipedec_cli.pipeline.schedule import Schedule, Subsequence, place


def row_text(codec: TextCodec, row: Subsequence) -> str:
    """The text of a row. A row that has not ended may stop within a character, which is left out."""
    text = codec.decode(row.text_tokens)
    return text if row.ended else text.rstrip("\ufffd").rstrip()


#: The rows and the texts of a finished grid by the places of their values; the text of a value that was cut is None.
Answers = Callable[[Grid], tuple[Mapping[Keys, Subsequence], Mapping[Keys, str | None]]]


class FieldCodec:
    """The fields of a checkpoint in the tokens of its codec."""

    def __init__(self, codec: TextCodec, fields: Sequence[Field], tree: Part | None = None) -> None:
        """Objects are read as the `tree` says, by default as that of the fields."""
        self.codec, self.fields = codec, fields
        self.tree = tree_of(fields) if tree is None else tree
        rows = dict.fromkeys((*fields, *(part.field for part in self.tree.inner())))
        # A tokenizer may write other forms of letters: decoded enum values, and the values that they stand for.
        self._forms = {
            field: dict(zip(map(codec.decode, codec.ids(field.enum)), field.enum, strict=True))
            for field in rows
        }
        self._known: dict[int, list[list[int]]] = {}
        self.source: str | None = None  # of which free values are parts

    def known_of(self, item: int) -> list[list[int]]:
        """The known tokens of the row of each field behind <bos>, for an item of the lists."""
        if item not in self._known:
            self._known[item] = self.codec.ids([field.opening(item) for field in self.fields])
        return self._known[item]

    def openings(self, places: Sequence[int], item: int = 1) -> tuple[Opening, ...]:
        """How the rows of these fields begin, those of lists for an item."""
        made = []
        for number in places:
            field, known = self.fields[number], tuple(self.known_of(item)[number])
            end = self.codec.eos if self.source is not None and is_free(field) else -1
            at = field.at(item)
            made.append(Opening(known, self.allowed[number], at, path_name(at), end))
        return tuple(made)

    def held_to(self, source: str | None) -> Self:
        """The same codec, for a source of which free values are parts; without a source they are any text."""
        made = copy.copy(self)
        made.source = source
        made.__dict__.pop("allowed", None)
        return made

    def answers(self, grid: Grid) -> tuple[Mapping[Keys, Subsequence], Mapping[Keys, str | None]]:
        """See `Answers`: each row is a value."""
        placed = grid.placed
        items = max((key for place in placed for key in place if isinstance(key, int)), default=1)
        rows = {
            at: placed[at]
            for field, item in rows_with(self.fields, items)
            if (at := field.at(item)) in placed
        }
        found = {at: row.value_tokens for at, row in rows.items()}
        return rows, {
            at: None if tokens is None else self.codec.decode(tokens) for at, tokens in found.items()
        }

    def plain_answers(self, grid: Grid) -> tuple[Mapping[Keys, Subsequence], Mapping[Keys, str | None]]:
        """See `Answers`, of an object that a sequential model has written in words: no value has a row of its own."""
        texts = read_plain(self.whole(grid), self.fields, cut=grid.truncated is not None)
        rows = zip(rows_of(self.fields, len(texts)), texts, strict=True)
        return {}, {field.at(item): text for (field, item), text in rows}

    def whole(self, grid: Grid) -> str:
        """The text of all rows."""
        return self.codec.decode([token for row in grid.subsequences for token in row.text_tokens])

    def object_of(
        self, texts: Mapping[Keys, str | None], dropped: Collection[Keys] = ()
    ) -> tuple[dict[str, Any], int]:
        """The object that the texts of all rows give, and the number of lost values; see `ObjectOf`."""
        reading = ObjectOf(self.tree, texts, self._forms, dropped)
        return reading.read(), reading.lost

    def label(self, choice: Field, text: str) -> str:
        """The label that a row has written; "" if it is none."""
        return self._forms[choice].get(text.strip(), "")

    def of_rows(
        self,
        values: Mapping[str, Any],
        rows: Mapping[Keys, Subsequence],
        number: Callable[[Subsequence], float],
    ) -> Any:
        """A number of the row of each value: an object of the same shape, to four digits."""
        return numbers_at(values, {at: float(f"{number(row):.4g}") for at, row in rows.items()})

    def plain(self, values: Mapping[str, Any]) -> str:
        """An object as the sequential model writes it."""
        return plain_text(texts_of(values, self.fields), self.fields)

    @cached_property
    def of_whole(self) -> Opening:
        """What a sequential model's object is held to; anything is allowed if the tokenizer cannot spell a key."""
        keys = [*map(plain_opening, self.fields)]
        spelled = [*map(self.codec.decode, self.codec.ids(keys))]
        if [*map(alike, spelled)] != [*map(alike, keys)]:
            return Opening(())
        texts = [tuple(self._forms[field]) for field in self.fields]
        return Opening(
            (), plain_allowed_of(self.codec.tokenizer, self.codec.eos, self.fields, spelled, texts)
        )

    @cached_property
    def allowed(self) -> list[Allowed]:
        """Which tokens may follow in the row of each field."""
        return self.allowed_with("", self.codec.eos)

    def allowed_with(self, none: str, end: int) -> list[Allowed]:
        """The same for rows that may say `none` where there is no value, and that `end` as this token says."""
        tokenizer, made = self.codec.tokenizer, list[Allowed]()
        for field in self.fields:
            source, must = self.source if is_free(field) else None, field.absent if field.forced else ()
            alike = Field("", field.kind, absent=must, keywords=field.keywords)  # these share a grammar
            held = field if source is None else alike
            made.append(allowed_of(tokenizer, end, held, tuple(self._forms[field]), none, source))
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
