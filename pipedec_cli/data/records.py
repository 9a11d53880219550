"""What travels between the commands, and the one schema that an object in a file is held to.

A file is JSON lines. What `segment` writes, `train`, `generate` and `report` read; what `generate` writes,
`score` and `report` read. Unknown fields are the user's: they are carried along untouched. What is not as it must be
is a `UserError` that names the place (``file:line``), the field and what stands there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, Value, pairs_of

Level = Literal["sentence", "phrase", "clause", "field"]
SplitName = Literal["train", "dev", "test"]
#: What a checkpoint was trained as: ``sequential`` is the ordinary model.
DecoderKind = Literal["pipelined", "sequential"]
#: What fresh weights are of.
Family = Literal["t5", "llama", "qwen3", "smollm3", "gemma3", "t5gemma", "bart"]
#: Δt in time-steps, or ``wait``: a subsequence starts when the one before has ended.
Delay = int | Literal["wait"]
#: What drafts in exact mode: a pipelined decoder, n-grams of the source and the text so far, or the model's own guesses.
Draft = Literal["pipelined", "source", "jacobi"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "dev", "test")

#: What data sets call their splits, and what they are called here.
SPLIT_NAMES: Final[Mapping[str, SplitName]] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}


class Record(Struct, frozen=True):
    """One example as read from a file."""

    id: str  # unique within the file; the line number in decimal where the input has none
    source: str  # never empty in an input; "" beside a prediction that lacks it
    target: str | None  # the right answer as one string, a list joined with spaces, an object as JSON
    #: () for an empty target, None before segmentation; at level ``field`` the text of each key's value, "" for none.
    target_segments: tuple[str, ...] | None
    references: tuple[str, ...]  # every right answer, the target first if it is among them
    where: str  # file:line, for messages
    fields: Mapping[str, Any] = {}  # the whole object as it was read, in its own order, to be passed through
    target_fields: Mapping[str, Any] | None = None  # the target itself, where it is an object

    @property
    def is_whole(self) -> bool:
        """Whether there is no half of a surrogate pair in the text that models see."""
        listed = (*(self.target_segments or ()), *self.references)
        text = "".join((self.id, self.source, self.target or "", *listed))
        return text.isascii() or whole_text(text) == text


class Segmentation(Struct, frozen=True):
    """How the targets of a data set were split, as saved beside the data and in a checkpoint's config.json."""

    level: Level
    separators: tuple[str, ...]  # what ends a phrase at level phrase; () at the other levels
    joiner: str  # between two segments of a text: a space, "; " for phrases, "" for scripts without spaces
    #: The decoder's bound on subsequences, with the empty one that closes every target.
    sub_max: Annotated[int, Meta(ge=2, le=1_000_000)] = 20
    fields: tuple[Field, ...] = ()  # at level field the schema: a row for each, in this order


class Generated(Struct, frozen=True, kw_only=True):
    """What was generated from one source: made by the decoder, written by `generate`, read back by `score`."""

    text: str  # the segments put together with the joiner
    segments: tuple[str, ...]  # the subsequences as text, empty ones dropped
    steps: int = 0  # decoder calls that this example took part in
    draft_steps: int | None = None  # those of them that made a draft, in exact mode
    tokens: int = 0  # tokens generated, <eos> and <bos> not counted
    truncated: str | None = None  # what cut the text short: time_max, sub_max or max_tokens
    seconds: float = 0.0  # wall time from admission to exit
    #: Start time and token ids of every subsequence, <bos> left out, <eos> kept, empty explorations included.
    grid: tuple[tuple[int, tuple[int, ...]], ...] = ()
    #: The newest token's time after each call that checks, in exact mode, and after each of a text that was ended where it
    #: began to repeat itself; elsewhere the grid tells.
    calls: tuple[int, ...] = ()
    #: What was fed in vain, attempts and wrong guesses: decoder call, from 1, then subsequence, time and id of each token.
    taken_back: tuple[tuple[int, int, int, int], ...] = ()
    source_ids: tuple[int, ...] = ()  # what the encoder saw
    index: int = 0  # the source's place in the input, from 0
    empty: int = 0  # the empty explorations in the grid
    row_budget_exhausted: bool = (
        False  # whether they had taken up places of sub_max when another subsequence was due
    )
    stopped_on_repeat: bool = False  # whether the text was ended where it began to repeat itself
    source_cut: bool = False  # whether the source had more tokens than the model takes
    record: Record | None = None  # what it was generated from; the decoder, which is given texts, has none
    fields: Mapping[str, Value | None] | None = None  # the object that was written, at level field

    @property
    def id(self) -> str:
        """The record's identifier; without a record the place from 1, as for records that have none."""
        return str(self.index + 1) if self.record is None else self.record.id

    def _repr_html_(self) -> str:
        """What a notebook shows: the subsequences, or an object's pairs, each in its own direction, and what they took."""
        segments = self.segments if self.fields is None else pairs_of(self.fields)
        rows = (escape(segment) for segment in segments or (self.text,))
        listed = "".join(f'<li dir="auto" style="white-space: pre-wrap">{row}</li>' for row in rows)
        cut = f", cut short by {escape(self.truncated)}" if self.truncated else ""
        return f"<ol>{listed}</ol><p>{self.tokens:,} tokens in {self.steps:,} decoder calls{cut}</p>"


class _Input(Struct):
    """The fields of an input that are looked at, as JSON may hold them."""

    id: str | int | float | None = None
    source: str | None = None
    target: str | tuple[str, ...] | dict[str, Any] | None = None
    target_segments: tuple[str, ...] | None = None
    references: tuple[str, ...] | None = None


#: How often something was counted; a number that any language writes exactly.
Count = Annotated[int, Meta(ge=0, le=2**53)]
_Amount = Annotated[float, Meta(ge=0, le=2**53)]


#: A token's id or place, as tokenizers can take them.
_Id = Annotated[int, Meta(ge=0, lt=2**31)]


class _Row(Struct):
    start: _Id
    tokens: tuple[_Id, ...]


class _Output(Struct):
    """The fields that `generate` adds, from the grid on with ``--trace``."""

    prediction: str | tuple[str, ...] | dict[str, Any] | None = None
    segments: tuple[str, ...] | None = None
    fields: dict[str, Any] | None = None
    steps: _Amount = 0
    draft_steps: _Amount | None = None
    tokens: _Amount = 0
    truncated: str | None = None
    stopped_on_repeat: bool = False
    seconds: _Amount = 0.0
    grid: tuple[_Row, ...] = ()
    grid_calls: tuple[_Id, ...] = ()
    grid_taken_back: tuple[tuple[_Id, _Id, _Id, _Id], ...] = ()
    source_token_ids: tuple[Count, ...] = ()


#: What `generate` adds to an input record. An input that already has one of these is refused, by name.
OUTPUT_FIELDS: Final = _Output.__struct_fields__


class Teacher(Struct, frozen=True):
    """The model whose texts a model was trained on, as its training.json names it."""

    name: Annotated[str, Meta(min_length=1)]  # a folder or a hub name
    sha256: str | None = None


class _Made(Struct):
    limit: Count | None = None
    teacher: Teacher | None = None
    training: dict[str, Any] = {}


class _Part(Struct):
    number: Count = 0
    of: Count = 0
    records: Count = 0


class _Look(Struct):
    update: Count
    loss: float | None = None
    dev_loss: float | None = None
    dev_score: float | None = None


class _Result(Struct):
    curve: tuple[_Look, ...] = ()


class _Cut(Struct):
    level: str | None = None


class Manifest(Struct):
    """What is looked at of a manifest, of generating or of training; each may be missing or null."""

    settings: _Made | None = None
    versions: dict[str, str | None] | None = None
    model: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    inputs: list[dict[str, Any]] | None = None
    segmentation: _Cut | None = None
    examples: Count | None = None
    costs: Annotated[tuple[Annotated[float, Meta(gt=0)], ...], Meta(max_length=64)] | None = (
        None  # in exact mode
    )
    shard: _Part | None = None  # which of a job of so many records
    result: _Result | None = None  # of a training or a shard that has come to its end
    task: str | None = None
    from_scratch: bool | None = None  # of a training: whether it, or one before it, began with fresh weights


class FieldNames(NamedTuple):
    """What the input calls its fields."""

    source: str = "source"
    target: str = "target"
    id: str = "id"

    def check(self, record: Record) -> None:
        """Refuse a record with a field that a later command would write over."""
        for name in filter(record.fields.__contains__, OUTPUT_FIELDS):
            what = f"field {name!r} is one that `pipedec generate` writes"
            raise UserError(what, where=record.where, todo="rename it")
        for ours, theirs in self._asdict().items():
            if ours != theirs and {ours, theirs} <= record.fields.keys():
                what = f"field {ours!r} would be written over with {theirs!r}"
                raise UserError(
                    what, where=record.where, todo=f"rename {ours!r}, or leave out --{ours}-field"
                )


def record_of(value: Any, where: str, number: int, names: FieldNames | None = None) -> Record:
    """The record that a decoded object holds: its `number` is the identifier where it has none."""
    given = checked(value, _Input, where, names, 'write {"source": "…", "target": "…"}')
    target, segments, references = given.target, given.target_segments, given.references or ()
    values = target if isinstance(target, dict) else None
    if isinstance(target, dict):
        target = json.dumps(target, ensure_ascii=False)
    elif isinstance(target, tuple):
        segments = target if segments is None else segments
        target = " ".join(target)
    elif target is None and segments is not None:
        target = " ".join(segments)
    if target in references:
        references = (target, *(other for other in references if other != target))
    identifier = str(number) if given.id is None or given.id == "" else str(given.id)
    return Record(identifier, given.source or "", target, segments, references, where, value, values)


def generated_of(value: Any, where: str, number: int) -> Generated:
    """What a decoded line of predictions holds, with its record.

    ``prediction`` is needed, a string, a list of strings for its segments, or the object that it says. ``segments`` are the prediction's lines
    where they are not given. The numbers that `generate` measures are 0 where they are missing.
    """
    example = 'write {"id": "…", "prediction": "…", "segments": ["…"], "target": "…"}'
    given = checked(value, _Output, where, example=example)
    text, segments = given.prediction, given.segments
    if text is None:
        raise missing(value, "prediction", where)
    values = given.fields
    if isinstance(text, dict):
        values = text
        text = json.dumps(text, ensure_ascii=False)
    if isinstance(text, tuple):
        segments = text
    elif segments is None:
        segments = tuple(line for line in text.split("\n") if line.strip())
    return Generated(
        text=text if isinstance(text, str) else " ".join(text),
        segments=segments,
        steps=int(given.steps),
        draft_steps=None if given.draft_steps is None else int(given.draft_steps),
        tokens=int(given.tokens),
        truncated=given.truncated,
        stopped_on_repeat=given.stopped_on_repeat,
        seconds=given.seconds,
        grid=tuple((row.start, row.tokens) for row in given.grid),
        calls=given.grid_calls,
        taken_back=given.grid_taken_back,
        source_ids=given.source_token_ids,
        index=number - 1,
        record=record_of(value, where, number),
        fields=values,
    )


def missing(
    fields: Mapping[str, Any], name: str, where: str, more: str | None = None, null: str | None = None
) -> UserError:
    """The error of a field that is not there or null; what to do is told by its object's fields, and `more`, or by `null`."""
    if name in fields and null:
        return UserError(f"field {name!r} is null", where=where, todo=null)
    have = ", ".join(list(map(str, fields))[:8]) or "none"
    todo = f"its fields are: {have}" + (f"; {more}" if more else "")
    what = "is null" if name in fields else "is missing"
    return UserError(f"field {name!r} {what}", where=where, todo=todo)


Shape = TypeVar("Shape")

#: How a validation error of msgspec looks: what was expected, what was found, and in which field or item of a list.
_MISFIT: Final = re.compile(r"Expected `(.+?)(?: \| null)?`, got `(.+?)`(?: - at `\$\.(.+?)(?:\[(\d+)\])?`)?")
_NOT: Final = {
    "str": "not a string",
    "float": "not a number",
    "int": "not a whole number",
    "array": "not a list of strings",
    "object": "not an object",
    "str | array": "neither a string nor a list of strings",
    "str | object | array": "neither a string nor a list of strings nor an object",
    "int | float | str": "not a string or a number",
}
_NUMBERS: Final = dict.fromkeys(("int", "float"), "a number")
_FOUND: Final = {"null": "null", "bool": "true or false", "str": "a string", "array": "a list", **_NUMBERS}


def checked(
    value: object, shape: type[Shape], where: str, names: FieldNames | None = None, example: str | None = None
) -> Shape:
    """A decoded JSON object as a Struct; further fields are passed over, and `names` says what the file calls ours.

    A field that is not as it must be is a `UserError`, and so is no object at all, with an `example` of what to write.
    """
    called = names._asdict() if names is not None and names != FieldNames() else {}
    if called and isinstance(value, dict):
        value = value | {ours: value.get(theirs) for ours, theirs in called.items()}
    try:
        return msgspec.convert(value, shape)
    except UnicodeEncodeError:  # half a surrogate pair, in a string where another type belongs
        return checked(whole(value), shape, where, names, example)
    except msgspec.ValidationError as error:
        misfit = _MISFIT.fullmatch(str(error))
        if misfit is None:  # a number out of range, say
            told, _, path = str(error).removesuffix("`").partition(" - at `$.")
            raise UserError(f"{path!r} does not fit: {told}", where=where) from None
        expected, kind, path, item = misfit.groups()
        found = _FOUND.get(kind, "an object")
        if path is None:
            raise UserError(f"{found} where an object belongs", where=where, todo=example) from None
        place = f"holds {found} at place {int(item) + 1}" if item else f"is {found}"
        what = f"{called.get(path, path)!r} {place}, {_NOT.get(expected, f'not {expected}')}"
        raise UserError(what, where=where) from None


def whole_text(text: str) -> str:
    """A text with U+FFFD for each half of a surrogate pair: JSON can write them, UTF-8 and tokenizers cannot take them."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def whole(value: object) -> Any:
    """A decoded JSON value, all texts in it whole."""
    return json.loads(whole_text(json.dumps(value, ensure_ascii=False, default=str)))
