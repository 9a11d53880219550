"""Fields in a checkpoint's tokens: how each row begins, which tokens may follow, and the object that was written."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as set_field
from functools import cached_property
from typing import Any, NamedTuple

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import (
    Field,
    Keys,
    Row,
    RowAddress,
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
    is_choice,
    is_worded,
)
from pipedec_cli.objects.grammar import allowed_of, is_free, plain_allowed_of
from pipedec_cli.objects.tree import ObjectOf, Part, numbers_at, tree_of
from pipedec_cli.pipeline.answers import Answer
from pipedec_cli.pipeline.grid import Allowed, Grid, Opening, any_token, mask_of
from pipedec_cli.pipeline.schedule import Schedule, Subsequence, place

#: The keywords that say how long values are, and how many.
_COUNTS = frozenset(["minLength", "maxLength", "minItems", "maxItems"])


def row_text(codec: TextCodec, row: Subsequence) -> str:
    """The text of a row. A row that has not ended may stop within a character, which is left out."""
    text = codec.decode(row.text_tokens)
    return text if row.ended else text.rstrip("\ufffd").rstrip()


def four_digits(number: float) -> float:
    """A number rounded to four significant digits, as files have it."""
    return float(f"{number:.4g}")


@dataclass
class Answered:
    """What the rows of a finished grid say, by where their answers belong."""

    rows: dict[RowAddress, Subsequence] = set_field(default_factory=dict)
    #: None of a value that was cut.
    texts: dict[RowAddress, str | None] = set_field(default_factory=dict)
    #: By their paths the values that must be there and that the model finds nowhere:
    #: how probable "no value" is.
    missing: dict[str, float] = set_field(default_factory=dict)
    #: By their paths, of the values that a schema names: how probable each one is, ""
    #: being no value.
    probabilities: dict[str, dict[str, float]] = set_field(default_factory=dict)

    def add(
        self,
        at: RowAddress,
        opening: Opening,
        row: Subsequence,
        text: str | None,
        *,
        is_named: bool,
    ) -> None:
        """Note the text of a finished row, None if it was cut, and whether it lacks the value that it must have.

        `at` is where its answer belongs, `opening` how the row began. If the schema names
        its values (`is_named`), their probabilities are noted as well.
        """
        self.rows[at] = row
        self.texts[at] = text
        shares = opening.probabilities(row)
        if opening.must and (opening.lacks(row) or not text):
            absence = shares.get("", opening.absence(row))
            self.missing[path_name(at.path)] = four_digits(absence)
        if shares and at.role == "value" and is_named:
            self.probabilities[path_name(at.path)] = shares


Answers = Callable[[Grid], Answered]


@dataclass(frozen=True, slots=True, eq=False)
class RowRule:
    """How the row of a field is answered for a source: the known answers, or which tokens may follow."""

    #: None: the row writes its answer.
    known: tuple[Known, ...] | None = None
    allowed: Allowed = any_token
    end: int = -1  # see `Opening`
    #: What the texts of a list's items mean.
    items: Mapping[str, str] = set_field(default_factory=dict)

    def list_text(self, names: Iterable[str], source: str) -> str:
        """The text of a list whose row has the items `names`: each at most as often as it stands in the source.

        An item whose meaning is known (`items`) becomes what it means.
        """
        counts = Counter[str]()
        kept = []
        for name in names:
            counts[name] += 1
            if counts[name] <= _most_items(name, source):
                kept.append(self.items.get(name, name))
        return text_of(kept)


def _most_items(name: str, source: str) -> int:
    """How many items of a list may have a name: as many as the source says it, one at least."""
    return max(1, len(places_in(name, source)))


def names_as_often(
    names: Allowed, decode: Callable[[Sequence[int]], str], end: int, source: str
) -> Allowed:
    """Make an `Allowed` function for a row that writes a list's items, `|` between them, which ends rows that repeat items.

    Where the newest item has come more often than it stands in the `source`, only the
    token `end` may follow; else what `names` allows. A small model that repeats itself
    would not end. `decode` makes text of tokens.
    """

    def allowed(tokens: Sequence[int]) -> bytes:
        """The bit mask of the tokens that may follow those that the row has made."""
        if "|" not in decode(tokens[-1:]):  # no name has come to its end
            return names(tokens)
        *items, _ = [item.strip() for item in decode(tokens).split("|")]
        last = items[-1]
        if last and items.count(last) > _most_items(last, source):
            return mask_of([end])
        return names(tokens)

    return allowed


class FieldCodec:
    """The fields of a checkpoint in the tokens of its codec."""

    def __init__(
        self, codec: TextCodec, fields: Sequence[Field], tree: Part | None = None
    ) -> None:
        """Prepare the fields, one a row of the schema, for a tokenizer.

        `tree` says how objects are read: by default it is made of the fields.
        """
        self.codec = codec
        self.fields = fields
        self.tree = tree or tree_of(fields)
        #: The texts of enums as the tokenizer spells them: it may write other forms of
        #: letters.
        self._spelled: dict[Field, tuple[str, ...]] = {}
        #: The values that these texts, and those of the enum itself, stand for.
        self.forms: dict[Field, dict[str, str]] = {}
        for row in {*fields, *(part.field for part in self.tree.inner())}:
            spelled = tuple(codec.decode(ids) for ids in codec.ids(row.enum))
            self._spelled[row] = spelled
            forms = zip((*row.enum, *spelled), row.enum * 2, strict=True)
            self.forms[row] = dict(forms)
        self._known: dict[int, list[list[int]]] = {}

    def require_keys(self, names: Collection[str], where: str) -> None:
        """Raise a UserError, at `where`, unless the keys of the fields are those `names`."""
        own = {field.name for field in self.fields}
        if own != {*names}:
            listed = ", ".join(sorted(own))
            what = f"the model writes the keys {listed}"
            raise UserError(what, where=where, todo="give a schema of these")

    def known_of(self, item: int) -> list[list[int]]:
        """The known tokens of each field's row, such as those of ``key:``, for item number `item` (from 1) of lists."""
        if item not in self._known:
            openings = [field.opening(item) for field in self.fields]
            self._known[item] = self.codec.ids(openings)
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
        """How the row of a field is answered for a source: by one of several known answers, or token by token.

        A single part of the source ends where that is most probable. A list has all
        items that the model writes: the more they are, the less probable is each end.

        Args:
            field: What the row is to answer.
            end: The token that ends an answer.
            source: The text that the values are taken from.
            learnt: What a string's right values were found to be, such as dates.
            grounded: Whether numbers, dates and free values are parts of the source.
            may_be_empty: Whether an empty row is an answer: it then has no value.
        """
        known = _known_answers(field, source, learnt, grounded=grounded)
        if known is not None and (field.kind != "list" or not known):
            return RowRule(tuple(known))
        items = dict(known or ())
        in_source = not items and grounded and is_free(field)
        held = field
        texts = self._spelled[field]
        if items or in_source:
            held = _counted(field)
            texts = tuple(items)
        span = source if in_source else None
        tokenizer = self.codec.tokenizer
        allowed = allowed_of(
            tokenizer, end, held, texts, span, may_be_empty=may_be_empty
        )
        if field.kind != "list":
            return RowRule(allowed=allowed, end=end if in_source else -1)
        allowed = names_as_often(allowed, self.codec.decode, end, source)
        return RowRule(allowed=allowed, items=items)

    def openings(
        self, places: Sequence[int], item: int = 1, source: str | None = None
    ) -> tuple[Opening, ...]:
        """How the rows of some fields begin in trained decoding, and what may follow.

        `places` are the numbers of the fields. In lists the rows are those of item
        number `item`, from 1. If a `source` is given, values must stand in it.
        """
        openings = []
        for number in places:
            field = self.fields[number]
            known = tuple(self.known_of(item)[number])
            at = field.at(item)
            opening = Opening(known, self.allowed[number], at, path_name(at))
            if source is not None or is_choice(field):
                opening = self._held(opening, field, source or "")
            openings.append(opening)
        return tuple(openings)

    def _held(self, opening: Opening, field: Field, source: str) -> Opening:
        """The opening of a trained row that takes a choice, or whose value is a part of a source. An empty row has no value."""
        end = self.codec.eos
        empty = not field.forced
        rule = self.rule(field, end, source, grounded=True, may_be_empty=empty)
        if rule.known is None:
            return replace(opening, allowed=rule.allowed, end=rule.end)
        answers = []
        ids = self.codec.ids([known.text for known in rule.known])
        for known, tokens in zip(rule.known, ids, strict=True):
            answers.append(Answer((*tokens, end), known.means))
        answers.append(Answer((end,), ""))
        return replace(opening, answers=tuple(answers), written=False, must=field.must)

    def answers(self, grid: Grid) -> Answered:
        """What the rows of a finished grid say, where each row is the value of a field."""
        answered = Answered()
        fields = {any_item(field.keys): field for field in self.fields}
        for opening, row in zip(grid.openings, grid.subsequences, strict=True):
            at = RowAddress(opening.place)
            field = fields[any_item(opening.place)]
            text = self._text(opening, row, field, grid.method.source)
            answered.add(at, opening, row, text, is_named=is_choice(field))
        return answered

    def _text(
        self, opening: Opening, row: Subsequence, field: Field, source: str
    ) -> str | None:
        """The text of a finished row's value, None if it was cut. `source` is "" where rows are not held to one."""
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
        """What a finished grid says whose rows are one text: an object as a sequential model has written it, key by key.

        No value has a row of its own, so there are texts alone.
        """
        is_cut = grid.truncated is not None
        texts = read_plain(self.whole(grid), self.fields, cut=is_cut)
        rows = rows_of(self.fields, len(texts))
        places = [RowAddress(field.at(item)) for field, item in rows]
        return Answered(texts=dict(zip(places, texts, strict=True)))

    def whole(self, grid: Grid) -> str:
        """The text of all rows of a grid, one behind the other."""
        tokens: list[int] = []
        for row in grid.subsequences:
            tokens += row.text_tokens
        return self.codec.decode(tokens)

    def object_of(
        self,
        texts: Mapping[RowAddress, str | None],
        dropped: Collection[Keys] = (),
    ) -> tuple[dict[str, Any], int]:
        """The object that the texts of all rows give, and the number of lost values; see `ObjectOf`."""
        reading = ObjectOf(self.tree, texts, self.forms, dropped)
        return reading.read(), reading.lost

    def of_rows(
        self,
        values: Mapping[str, Any],
        rows: Mapping[RowAddress, Subsequence],
        number: Callable[[Subsequence], float],
    ) -> Any:
        """An object shaped like `values` in which each value is replaced by a number of its row, to four digits.

        `number` takes the number, such as the confidence, from a row.
        """
        numbers = {}
        for at, row in rows.items():
            if at.role == "value":
                numbers[at.path] = four_digits(number(row))
        return numbers_at(values, numbers)

    def plain(self, values: Mapping[str, Any]) -> str:
        """An object as the sequential model writes it."""
        return plain_text(texts_of(values, self.fields), self.fields)

    @cached_property
    def of_whole(self) -> Opening:
        """How the only row of a sequential model begins, and which tokens its object may have.

        Any token is allowed if the tokenizer cannot spell one of the keys.
        """
        keys = [plain_opening(field) for field in self.fields]
        spelled = [self.codec.decode(ids) for ids in self.codec.ids(keys)]
        if [alike(key) for key in spelled] != [alike(key) for key in keys]:
            return Opening(())
        texts = [self._spelled[field] for field in self.fields]
        codec = self.codec
        allowed = plain_allowed_of(
            codec.tokenizer, codec.eos, self.fields, spelled, texts
        )
        return Opening((), allowed)

    @cached_property
    def allowed(self) -> list[Allowed]:
        """For each field, which tokens may follow in its row. A row may be empty unless there must be a value."""
        tokenizer = self.codec.tokenizer
        eos = self.codec.eos
        rows = []
        for field in self.fields:
            texts = self._spelled[field]
            empty = not field.forced
            rows.append(allowed_of(tokenizer, eos, field, texts, may_be_empty=empty))
        return rows


def _known_answers(
    field: Field, source: str, learnt: Reading | None, *, grounded: bool
) -> list[Known] | None:
    """All answers that a field can have, where they are known beforehand; None where the row has to be written.

    They are the choices of its schema, or, if it is `grounded` (its values are parts of
    the source), the numbers or dates of the source.
    """
    named = choices(field)
    if named:
        return named
    if grounded and not is_worded(field):
        return candidates(field, source, learnt)
    return None


def _counted(field: Field) -> Field:
    """A field without a name that has only the lengths and numbers of another's values, so that such fields share a grammar."""
    counts = tuple(pair for pair in field.keywords if pair[0] in _COUNTS)
    return Field("", field.kind, keywords=counts)


class PlacedRow(NamedTuple):
    """A row of an object on the grid in training."""

    start: int  # its time-step
    field: int  # the number of its field, from 0
    item: int  # the number of its item, from 1; 0 outside lists
    text: int | None  # the number of its text, from 0; None for an empty row


def place_rows(
    plan: Schedule, lengths: Sequence[int], fields: Sequence[Field]
) -> list[PlacedRow]:
    """Lay the rows of a training object on the grid, in the order in which they are established.

    `lengths` are the tokens of its texts, in the order of `rows_of`. Single values
    start at time 0. The items of a list start where the `plan` starts subsequences as
    long as they are; an empty item, whose rows have no text, closes each list.
    """
    texts = {row: number for number, row in enumerate(rows_of(fields, len(lengths)))}
    rows = []
    for number, field in enumerate(fields):
        if not field.listed:
            rows.append(PlacedRow(0, number, 0, texts[field, 0]))
    sizes = {row: lengths[text] for row, text in texts.items()}
    for numbers in list_places(fields):
        listed = [fields[number] for number in numbers]
        starts = place(plan, _item_lengths(listed, sizes))
        for item, start in enumerate(starts, start=1):
            for number in numbers:
                text = texts.get((fields[number], item))
                rows.append(PlacedRow(start, number, item, text))
    return sorted(rows, key=lambda row: row[:2])


def _item_lengths(fields: Sequence[Field], sizes: Mapping[Row, int]) -> list[int]:
    """How long each item of a list is: the tokens of its longest text. The last one is 0, of the item that has none.

    `sizes` are the tokens of each row's text.
    """
    lengths: list[int] = []
    while not lengths or lengths[-1]:
        item = len(lengths) + 1
        lengths.append(max(sizes.get((field, item), 0) for field in fields))
    return lengths
