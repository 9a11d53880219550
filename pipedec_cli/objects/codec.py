"""Fields in a checkpoint's tokens: how each row begins, which tokens may follow, and the object that was written."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pipedec_cli.data.fields import (
    Field,
    Keys,
    alike,
    any_item,
    items_of,
    list_places,
    path_name,
    plain_opening,
    plain_text,
    read_plain,
    rows_of,
    text_of,
    texts_of,
)
from pipedec_cli.data.places import places_in
from pipedec_cli.model.text import TextCodec
from pipedec_cli.objects.candidates import (
    Known,
    Reading,
    as_number,
    candidates,
    choices,
    is_worded,
)
from pipedec_cli.objects.grammar import allowed_of, is_free, plain_allowed_of
from pipedec_cli.objects.tree import ObjectOf, Part, numbers_at, tree_of
from pipedec_cli.pipeline.answers import Answer
from pipedec_cli.pipeline.grid import Allowed, Grid, Opening, any_token, mask_of
from pipedec_cli.pipeline.schedule import Schedule, Subsequence, place


def row_text(codec: TextCodec, row: Subsequence) -> str:
    """The text of a row. A row that has not ended may stop within a character, which is left out."""
    text = codec.decode(row.text_tokens)
    return text if row.ended else text.rstrip("\ufffd").rstrip()


@dataclass
class Answered:
    """What the rows of a finished grid say, by the places of their values."""

    rows: dict[Keys, Subsequence] = dataclasses.field(default_factory=dict)
    texts: dict[Keys, str | None] = dataclasses.field(
        default_factory=dict
    )  # None of a value that was cut
    #: By their paths the values that must be there and that the model finds nowhere:
    #: how probable "no value" is.
    missing: dict[str, float] = dataclasses.field(default_factory=dict)


Answers = Callable[[Grid], Answered]


@dataclass(frozen=True, slots=True, eq=False)
class RowRule:
    """How the row of a field is answered for a source: the known answers, or which tokens may follow."""

    known: tuple[Known, ...] | None = None  # None: the row writes its answer
    allowed: Allowed = any_token
    end: int = -1  # see `Opening`
    #: What the texts of a list's items mean.
    items: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def list_text(self, names: Iterable[str], source: str) -> str:
        """The text of a list whose row has these items, each as often as it stands in the source."""
        return text_of([self.items.get(name, name) for name in as_often(names, source)])


def times_in(name: str, source: str) -> int:
    """How many items of a list may have a name: as many as the source says it, one at least."""
    return max(1, len(places_in(name, source)))


def as_often(names: Iterable[str], source: str) -> list[str]:
    """The names of items, without those that come more often than they stand in the source."""
    counts = Counter[str]()
    kept = list[str]()
    for name in names:
        counts[name] += 1
        if counts[name] <= times_in(name, source):
            kept.append(name)
    return kept


def names_as_often(
    names: Allowed, decode: Callable[[Sequence[int]], str], end: int, source: str
) -> Allowed:
    """Allows the items of a list, and the end alone where a name has come more often than it stands in the source.

    A small model that repeats itself would not end.
    """

    def allowed(made: Sequence[int]) -> bytes:
        if "|" in decode(made[-1:]):  # a name has come to its end
            items = [item.strip() for item in decode(made).split("|")][:-1]
            if items[-1] and items.count(items[-1]) > times_in(items[-1], source):
                return mask_of([end])
        return names(made)

    return allowed


class FieldCodec:
    """The fields of a checkpoint in the tokens of its codec."""

    def __init__(
        self, codec: TextCodec, fields: Sequence[Field], tree: Part | None = None
    ) -> None:
        """Objects are read as the `tree` says, by default as that of the fields."""
        self.codec = codec
        self.fields = fields
        self.tree = tree_of(fields) if tree is None else tree
        rows = dict.fromkeys((*fields, *(part.field for part in self.tree.inner())))
        #: The texts of enums as the tokenizer spells them: it may write other forms of
        #: letters.
        self._spelled: dict[Field, tuple[str, ...]] = {}
        #: The values that these texts, and those of the enum itself, stand for.
        self._forms: dict[Field, dict[str, str]] = {}
        for row in rows:
            spelled = tuple(codec.decode(ids) for ids in codec.ids(row.enum))
            self._spelled[row] = spelled
            self._forms[row] = {choice: choice for choice in row.enum}
            self._forms[row] |= dict(zip(spelled, row.enum, strict=True))
        self._known: dict[int, list[list[int]]] = {}

    def known_of(self, item: int) -> list[list[int]]:
        """The known tokens of the row of each field behind <bos>, for an item of the lists."""
        if item not in self._known:
            self._known[item] = self.codec.ids(
                [field.opening(item) for field in self.fields]
            )
        return self._known[item]

    def rule(
        self,
        field: Field,
        end: int,
        source: str,
        learnt: Reading | None = None,
        *,
        grounded: bool,
        may_be_empty: bool = False,
    ) -> RowRule:
        """How the row of a field is answered for a source.

        Where it is `grounded`, numbers, dates and free values are parts of the source.
        Strings may be `learnt` to be dates or prices, say. An answer ends with the
        token `end`. A row that `may_be_empty` has no value then.
        """
        named = choices(field)
        if named:
            return RowRule(tuple(named))
        stand = (
            candidates(field, source, learnt)
            if grounded and not is_worded(field)
            else None
        )
        if stand is not None and (field.kind != "list" or not stand):
            return RowRule(tuple(stand))
        make = partial(allowed_of, self.codec.tokenizer, end, may_be_empty=may_be_empty)
        if stand:
            texts = tuple(known.text for known in stand)
            allowed = make(Field("", "list", keywords=_counts(field)), texts)
            allowed = names_as_often(allowed, self.codec.decode, end, source)
            return RowRule(
                allowed=allowed, items={known.text: known.means for known in stand}
            )
        return self._written_rule(
            field, end, source, make, in_source=grounded and is_free(field)
        )

    def _written_rule(
        self,
        field: Field,
        end: int,
        source: str,
        make: Callable[..., Allowed],
        *,
        in_source: bool,
    ) -> RowRule:
        """How the row of a field is written: as a part of the source, or as the schema says. `make` makes `Allowed`.

        A single part of the source ends where that is most probable. A list has all
        items that the model writes: the more they are, the less probable is each end.
        """
        if in_source:
            span = Field(
                "", field.kind, keywords=_counts(field)
            )  # fields with such values share a grammar
            allowed = make(span, (), source)
        else:
            allowed = make(field, self._spelled[field])
        if field.kind == "list":
            return RowRule(
                allowed=names_as_often(allowed, self.codec.decode, end, source)
            )
        return RowRule(allowed=allowed, end=end if in_source else -1)

    def openings(
        self, places: Sequence[int], item: int = 1, source: str | None = None
    ) -> tuple[Opening, ...]:
        """How the rows of these fields begin, those of lists for an item; with values out of a source, if one is given."""
        openings = list[Opening]()
        for number in places:
            field = self.fields[number]
            known = tuple(self.known_of(item)[number])
            at = field.at(item)
            opening = Opening(known, self.allowed[number], at, path_name(at))
            openings.append(
                opening if source is None else self._held(opening, field, source)
            )
        return tuple(openings)

    def _held(self, opening: Opening, field: Field, source: str) -> Opening:
        """The opening of a trained row whose value is a part of a source. An empty row has no value."""
        end = self.codec.eos
        rule = self.rule(
            field, end, source, grounded=True, may_be_empty=not field.forced
        )
        if rule.known is None:
            return replace(opening, allowed=rule.allowed, end=rule.end)
        ids = self.codec.ids([known.text for known in rule.known])
        answers = [
            Answer((*tokens, end), known.means)
            for tokens, known in zip(ids, rule.known, strict=True)
        ]
        answers.append(Answer((end,), ""))
        return replace(opening, answers=tuple(answers), written=False, must=field.must)

    def answers(self, grid: Grid) -> Answered:
        """See `Answers`: each row is a value."""
        answered = Answered()
        fields = {any_item(field.keys): field for field in self.fields}
        for opening, row in zip(grid.openings, grid.subsequences, strict=True):
            place = opening.place
            field = fields[any_item(place)]
            answered.rows[place] = row
            answered.texts[place] = self._text(opening, row, field, grid.method.source)
            if opening.must and opening.lacks(row):
                answered.missing[path_name(place)] = float(
                    f"{opening.absence(row):.4g}"
                )
        return answered

    def _text(
        self, opening: Opening, row: Subsequence, field: Field, source: str
    ) -> str | None:
        """The text of a row's value; None if it was cut."""
        if opening.chooses:
            return opening.text(row) if row.ended else None
        if row.value_tokens is None:
            return None
        text = self.codec.decode(row.value_tokens)
        if not source:
            return text
        if field.kind != "list":
            return as_number(field, text)
        rule = self.rule(field, self.codec.eos, source, grounded=True)
        return rule.list_text(items_of(text), source)

    def plain_answers(self, grid: Grid) -> Answered:
        """See `Answers`, of an object that a sequential model has written in words: no value has a row of its own."""
        texts = read_plain(
            self.whole(grid), self.fields, cut=grid.truncated is not None
        )
        rows = zip(rows_of(self.fields, len(texts)), texts, strict=True)
        return Answered(texts={field.at(item): text for (field, item), text in rows})

    def whole(self, grid: Grid) -> str:
        """The text of all rows."""
        return self.codec.decode(
            [token for row in grid.subsequences for token in row.text_tokens]
        )

    def object_of(
        self, texts: Mapping[Keys, str | None], dropped: Collection[Keys] = ()
    ) -> tuple[dict[str, Any], int]:
        """The object that the texts of all rows give, and the number of lost values; see `ObjectOf`."""
        reading = ObjectOf(self.tree, texts, self._forms, dropped)
        return reading.read(), reading.lost

    def of_rows(
        self,
        values: Mapping[str, Any],
        rows: Mapping[Keys, Subsequence],
        number: Callable[[Subsequence], float],
    ) -> Any:
        """A number of the row of each value: an object of the same shape, to four digits."""
        return numbers_at(
            values, {at: float(f"{number(row):.4g}") for at, row in rows.items()}
        )

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
        texts = [self._spelled[field] for field in self.fields]
        return Opening(
            (),
            plain_allowed_of(
                self.codec.tokenizer, self.codec.eos, self.fields, spelled, texts
            ),
        )

    @cached_property
    def allowed(self) -> list[Allowed]:
        """Which tokens may follow in the row of each field. A row may be empty unless there must be a value."""
        rows = list[Allowed]()
        for field in self.fields:
            texts = self._spelled[field]
            empty = not field.forced
            rows.append(
                allowed_of(
                    self.codec.tokenizer,
                    self.codec.eos,
                    field,
                    texts,
                    may_be_empty=empty,
                )
            )
        return rows


def _counts(field: Field) -> tuple[tuple[str, Any], ...]:
    """The keywords of a field that say how long its values are, and how many."""
    words = ("minLength", "maxLength", "minItems", "maxItems")
    return tuple(pair for pair in field.keywords if pair[0] in words)


def place_rows(
    plan: Schedule, lengths: Sequence[int], fields: Sequence[Field]
) -> list[tuple[int, int, int, int | None]]:
    """The rows of an object on the grid, as they are established, for texts with these many tokens in the order of `rows_of`.

    Each has its start, the place of its field, the item, and the place of its text. An
    empty item, whose rows have no text, closes each list. The items of a list lie as
    the `plan` lays subsequences as long as they are.
    """
    at = {
        (field.name, item): place
        for place, (field, item) in enumerate(rows_of(fields, len(lengths)))
    }
    rows: list[tuple[int, int, int, int | None]] = [
        (0, number, 0, at[field.name, 0])
        for number, field in enumerate(fields)
        if not field.listed
    ]
    for places in list_places(fields):
        longest, item = list[int](), 1
        while most := max(
            lengths[at[name, item]] if (name := fields[n].name, item) in at else 0
            for n in places
        ):
            longest.append(most)
            item += 1
        for number, start in enumerate(place(plan, [*longest, 0]), start=1):
            rows += (
                (start, n, number, at.get((fields[n].name, number))) for n in places
            )
    return sorted(rows, key=lambda row: row[:2])
