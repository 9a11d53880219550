"""The records that travel between the commands, the fields of a line, and the manifest of a run.

`segment` writes what `train`, `generate` and `report` read. `generate` writes what
`score` and `report` read. A file holds JSON lines. Fields that the commands do not know
belong to the user; the commands carry them along unchanged.
"""

import json
from collections.abc import Mapping
from html import escape
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, pairs_of
from pipedec_cli.data.reading import checked, missing_field

Level = Literal["sentence", "phrase", "clause", "field"]
SplitName = Literal["train", "dev", "test"]
#: How a checkpoint was trained: ``sequential`` writes one token a call, as usual.
DecoderKind = Literal["pipelined", "sequential"]
#: The families of models that training can start from fresh weights.
Family = Literal[
    "t5", "llama", "qwen2", "qwen3", "smollm3", "gemma3", "t5gemma", "bart"
]
#: Δt in time-steps, or ``wait``: a subsequence starts when the one before has ended.
Delay = int | Literal["wait"]
#: The drafter in exact mode: a pipelined decoder, n-grams of the source and the text so
#: far, or the model's own guesses.
Draft = Literal["pipelined", "source", "jacobi"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "dev", "test")

#: Our name of a split by the names in published data sets.
SPLIT_NAMES: Final[Mapping[str, SplitName]] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}
#: A larger number of examples, tokens or time-steps is a mistake.
MOST: Final = 1_000_000
#: A count; JSON holds it exactly in any language.
Count = Annotated[int, Meta(ge=0, le=2**53)]


class Record(Struct, frozen=True):
    """One example of a file."""

    id: str  # unique within the file; the line number in decimal where the input has none
    source: str  # never empty in an input; "" beside a prediction that lacks it
    #: The right answer as one string: a list joined with spaces, an object as JSON.
    target: str | None
    #: None before segmentation, () for an empty target. At level ``field`` the text of
    #: each key's value, "" for none.
    target_segments: tuple[str, ...] | None
    #: All right answers; if the target is one of them, it is the first.
    references: tuple[str, ...]
    where: str  # file:line, for messages
    fields: Mapping[str, Any] = {}  # the object as it was read, in its own order
    target_fields: Mapping[str, Any] | None = None  # the target, if it is an object

    @property
    def set_name(self) -> str:
        """The name of the record's set, where there are sets: its identifier begins with it and a slash."""
        name, _, _ = self.id.partition("/")
        return name


class Segmentation(Struct, frozen=True):
    """How the targets of a data set were split. It is saved beside the data and in a checkpoint's config.json."""

    level: Level
    separators: tuple[str, ...]  # they end a phrase; () at the other levels
    joiner: str  # between two segments of a text: a space, "; " for phrases, "" for scripts without spaces
    #: The most subsequences of a text, with the empty subsequence that closes every
    #: target.
    sub_max: Annotated[int, Meta(ge=2, le=MOST)] = 20
    fields: tuple[Field, ...] = ()  # at level field: one row a key, in this order
    #: The keys of records of several sorts, by the names of their sets: each key is
    #: then a question of its own.
    sets: Mapping[str, tuple[Field, ...]] = {}

    def fields_of(self, record: Record) -> tuple[Field, ...]:
        """The keys of a record's object: those of its set, if there are sets."""
        if not self.sets:
            return self.fields
        return self.sets[record.set_name]


class Generated(Struct, frozen=True, kw_only=True):
    """The text generated from one source. The decoder makes it, `generate` writes it, and `score` reads it back."""

    text: str  # the segments put together with the joiner
    segments: tuple[str, ...]  # the subsequences as text, without the empty ones
    steps: int = 0  # the decoder calls that this example took part in
    draft_steps: int | None = None  # in exact mode, the calls that made a draft
    tokens: int = 0  # the tokens generated, without <eos> and <bos>
    #: The limit that cut the text short: time_max, sub_max or max_tokens.
    truncated: str | None = None
    seconds: float = 0.0  # wall time from admission to exit, in which the rest of the batch ran as well
    #: Start time and token ids of every subsequence: without <bos>, with <eos>, with
    #: empty explorations.
    grid: tuple[tuple[int, tuple[int, ...]], ...] = ()
    #: The newest token's time after each call: in exact mode of calls that check a
    #: draft, else of texts stopped on a repeat.
    calls: tuple[int, ...] = ()
    #: In exact mode, the wrong guesses: decoder call (from 1), subsequence, time and id
    #: of each.
    taken_back: tuple[tuple[int, int, int, int], ...] = ()
    source_ids: tuple[int, ...] = ()  # the encoder's input
    index: int = 0  # the source's place in the input, from 0
    empty: int = 0  # the empty explorations in the grid
    #: Whether empty explorations took a row that a subsequence needed.
    row_budget_exhausted: bool = False
    stopped_on_repeat: bool = False  # ended where it began to repeat itself
    source_cut: bool = False  # whether the source had more tokens than the model takes
    record: Record | None = None  # None from the decoder, which gets texts alone
    #: Of each value of `fields`, 0 to 1: the product of its tokens' probabilities.
    confidence: Mapping[str, Any] | None = None
    #: The largest share of probability, 0 to 1, that the schema took away in a step:
    #: near 1, the model did not want the value.
    forced: Mapping[str, Any] | None = None
    fields: Mapping[str, Any] | None = None  # the generated object, at level field
    values_lost: int = 0  # of the object: cut short, or none that the schema allows
    violations: tuple[str, ...] = ()  # what of the schema does not hold of the object
    #: By their paths the values that must be there and that the text lacks: how
    #: probable "no value" is.
    missing: Mapping[str, float] = {}
    #: By their paths, of the values that a schema names and that were scored: how
    #: probable each one is, "" being no value.
    probabilities: Mapping[str, Mapping[str, float]] = {}

    @property
    def id(self) -> str:
        """The record's identifier; without a record the place from 1."""
        return str(self.index + 1) if self.record is None else self.record.id

    def _repr_html_(self) -> str:
        """For notebooks: the subsequences or an object's pairs, each in its own writing direction, and the cost."""
        segments = self.segments if self.fields is None else pairs_of(self.fields)
        rows = (escape(segment) for segment in segments or (self.text,))
        listed = "".join(
            f'<li dir="auto" style="white-space: pre-wrap">{row}</li>' for row in rows
        )
        cut = f", cut short by {escape(self.truncated)}" if self.truncated else ""
        return f"<ol>{listed}</ol><p>{self.tokens:,} tokens in {self.steps:,} decoder calls{cut}</p>"


class Teacher(Struct, frozen=True):
    """The model whose texts a model was trained on, as training.json names it."""

    name: Annotated[str, Meta(min_length=1)]  # a folder or a hub name
    sha256: str | None = None


class _Settings(Struct):
    limit: Count | None = None
    teacher: Teacher | None = None
    training: dict[str, Any] = {}


class _Look(Struct):
    update: Count
    loss: float | None = None
    dev_loss: float | None = None
    dev_score: float | None = None


class _Result(Struct):
    curve: tuple[_Look, ...] = ()


class _Level(Struct):
    level: str | None = None


class _Stopped(Struct):
    lines: Count
    sha256: str


class Manifest(Struct):
    """The fields that we read of the manifest of a generation or a training. Each may be missing or null."""

    settings: _Settings | None = None
    versions: dict[str, str | None] | None = None
    model: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    inputs: list[dict[str, Any]] | None = None
    segmentation: _Level | None = None
    examples: Count | None = None
    #: In exact mode.
    costs: (
        Annotated[tuple[Annotated[float, Meta(gt=0)], ...], Meta(max_length=64)] | None
    ) = None
    stopped: _Stopped | None = None  # a generation's lines that were there
    shard: dict[str, Count] | None = None
    shards: Annotated[int, Meta(ge=1, le=100_000)] | None = None  # of a job
    result: _Result | None = None  # of a training or a shard that is complete
    task: str | None = None
    #: Of a training: whether it, or one before it, began with fresh weights.
    from_scratch: bool | None = None


_Amount = Annotated[float, Meta(ge=0, le=2**53)]
#: A token's id or its place in the text.
_Id = Annotated[int, Meta(ge=0, lt=2**31)]


class _Input(Struct):
    id: str | int | float | None = None
    source: str | None = None
    target: str | tuple[str, ...] | dict[str, Any] | None = None
    target_segments: tuple[str, ...] | None = None
    references: tuple[str, ...] | None = None


class _Row(Struct):
    start: _Id
    tokens: tuple[_Id, ...]


_RENAMED: Final = {"text": "prediction", "source_ids": "source_token_ids"}


class _Output(
    Struct, rename=_RENAMED | {"calls": "grid_calls", "taken_back": "grid_taken_back"}
):
    """The fields that `generate` adds, named as in `Generated`. Those from `grid` on come with the key ``trace``."""

    text: str | tuple[str, ...] | dict[str, Any] | None = None
    segments: tuple[str, ...] | None = None
    fields: dict[str, Any] | None = None
    confidence: dict[str, Any] | None = None
    forced: dict[str, Any] | None = None
    spans: dict[str, Any] | None = None
    violations: tuple[str, ...] = ()
    missing: dict[str, float] = {}
    probabilities: dict[str, dict[str, float]] = {}
    steps: _Amount = 0
    draft_steps: _Amount | None = None
    tokens: _Amount = 0
    truncated: str | None = None
    source_cut: bool = False
    stopped_on_repeat: bool = False
    seconds: _Amount = 0.0
    batch_size: _Amount = 1
    grid: tuple[_Row, ...] = ()
    calls: tuple[_Id, ...] = ()
    taken_back: tuple[tuple[_Id, _Id, _Id, _Id], ...] = ()
    source_ids: tuple[Count, ...] = ()


#: An input record that already has one of these fields is refused.
OUTPUT_FIELDS: Final = _Output.__struct_encode_fields__


class FieldNames(Struct, frozen=True):
    """The names of source and target in the input. The identifier is always ``id``."""

    source: str = "source"
    target: str = "target"

    @property
    def renamed(self) -> dict[str, str]:
        """Our names and the input's, where the two differ."""
        return {ours: theirs for ours, theirs in asdict(self).items() if ours != theirs}

    def check(self, record: Record) -> None:
        """Refuse a record with a field that a later command would overwrite."""
        for name in OUTPUT_FIELDS:
            if name in record.fields:
                what = f"field {name!r} is one that `pipedec generate` writes"
                raise UserError(what, where=record.where, todo="rename it")
        for ours, theirs in self.renamed.items():
            if {ours, theirs} <= record.fields.keys():
                what = f"field {ours!r} would be written over with {theirs!r}"
                todo = f"rename {ours!r}, or leave out --{ours}-field"
                raise UserError(what, where=record.where, todo=todo)


def record_of(
    value: Any, where: str, number: int, names: FieldNames | None = None
) -> Record:
    """The record in a decoded object; a UserError if it does not fit.

    Args:
        value: the object.
        where: its place, file:line, for messages.
        number: the identifier of an object that has none.
        names: the fields that hold source and target; None: the usual names.
    """
    names = names or FieldNames()
    example = f'write {{"{names.source}": "…", "{names.target}": "…"}}'
    given = checked(value, _Input, where, renamed=names.renamed, example=example)
    target = _target_text(given)
    segments = given.target_segments
    if segments is None and isinstance(given.target, tuple):
        segments = given.target
    references = given.references or ()
    if target in references:
        others = [other for other in references if other != target]
        references = (target, *others)
    identifier = str(number)
    if given.id is not None and given.id != "":
        identifier = str(given.id)
    return Record(
        identifier,
        given.source or "",
        target,
        segments,
        references,
        where,
        value,
        given.target if isinstance(given.target, dict) else None,
    )


def _target_text(given: _Input) -> str | None:
    """The target as one string: an object as JSON, a list or else the segments joined with spaces."""
    target = given.target
    if isinstance(target, dict):
        return json.dumps(target, ensure_ascii=False)
    if isinstance(target, tuple):
        return " ".join(target)
    if target is None and given.target_segments is not None:
        return " ".join(given.target_segments)
    return target


def generated_of(value: Any, where: str, number: int) -> Generated:
    """The prediction in a decoded line, with its record; a UserError if it does not fit.

    ``prediction`` is required: a string, a list of strings (the segments), or an
    object. Without ``segments`` each line of the prediction is a segment. Counts that
    are missing are 0. `where` is the line's place, for messages; `number`, from 1, its
    position among all, and the identifier if it has none.
    """
    example = 'write {"id": "…", "prediction": "…", "segments": ["…"], "target": "…"}'
    given = checked(value, _Output, where, example=example)
    values = asdict(given)
    text = given.text
    if text is None:
        raise missing_field(
            value, "prediction", where, "`pipedec generate` writes such lines"
        )
    if isinstance(text, dict):
        values["fields"] = text
        values["text"] = json.dumps(text, ensure_ascii=False)
    elif isinstance(text, tuple):
        values["segments"] = text
        values["text"] = " ".join(text)
    if values["segments"] is None:
        values["segments"] = tuple(
            line for line in values["text"].split("\n") if line.strip()
        )
    for name in ("steps", "draft_steps", "tokens"):
        if values[name] is not None:
            values[name] = int(values[name])
    values["grid"] = tuple((row.start, row.tokens) for row in given.grid)
    del values["spans"]
    del values["batch_size"]
    return Generated(**values, index=number - 1, record=record_of(value, where, number))
