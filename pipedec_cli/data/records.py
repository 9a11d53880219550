"""The records that travel between the commands, and the manifest of a run.

`segment` writes what `train`, `generate` and `report` read. `generate` writes what `score` and `report` read. A file holds
JSON lines. Fields that the commands do not know belong to the user; the commands carry them along unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from pipedec_cli.data.fields import Field, pairs_of

Level = Literal["sentence", "phrase", "clause", "field"]
SplitName = Literal["train", "dev", "test"]
#: How a checkpoint was trained: ``sequential`` is the ordinary model.
DecoderKind = Literal["pipelined", "sequential"]
#: The families of models that training can start from fresh weights.
Family = Literal["t5", "llama", "qwen2", "qwen3", "smollm3", "gemma3", "t5gemma", "bart"]
#: Δt in time-steps, or ``wait``: a subsequence starts when the one before has ended.
Delay = int | Literal["wait"]
#: The drafter in exact mode: a pipelined decoder, n-grams of the source and the text so far, or the model's own guesses.
Draft = Literal["pipelined", "source", "jacobi"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "dev", "test")

#: Our name of a split by the names in published data sets.
SPLIT_NAMES: Final[Mapping[str, SplitName]] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}
#: A count; JSON holds it exactly in any language.
Count = Annotated[int, Meta(ge=0, le=2**53)]


class Record(Struct, frozen=True):
    """One example of a file."""

    id: str  # unique within the file; the line number in decimal where the input has none
    source: str  # never empty in an input; "" beside a prediction that lacks it
    target: str | None  # the right answer as one string: a list joined with spaces, an object as JSON
    #: None before segmentation, () for an empty target. At level ``field`` the text of each key's value, "" for none.
    target_segments: tuple[str, ...] | None
    references: tuple[str, ...]  # all right answers; if the target is one of them, it is the first
    where: str  # file:line, for messages
    fields: Mapping[str, Any] = {}  # the object as it was read, in its own order
    target_fields: Mapping[str, Any] | None = None  # the target itself if it is an object


class Segmentation(Struct, frozen=True):
    """How the targets of a data set were split. It is saved beside the data and in a checkpoint's config.json."""

    level: Level
    separators: tuple[str, ...]  # they end a phrase at level phrase; () at the other levels
    joiner: str  # between two segments of a text: a space, "; " for phrases, "" for scripts without spaces
    #: The most subsequences of a text, with the empty subsequence that closes every target.
    sub_max: Annotated[int, Meta(ge=2, le=1_000_000)] = 20
    fields: tuple[Field, ...] = ()  # the schema at level field: one row a key, in this order


class Generated(Struct, frozen=True, kw_only=True):
    """The text generated from one source. The decoder makes it, `generate` writes it, and `score` reads it back."""

    text: str  # the segments put together with the joiner
    segments: tuple[str, ...]  # the subsequences as text, without the empty ones
    steps: int = 0  # the decoder calls that this example took part in
    draft_steps: int | None = None  # in exact mode, those of the calls that made a draft
    tokens: int = 0  # the tokens generated, without <eos> and <bos>
    truncated: str | None = None  # the limit that cut the text short: time_max, sub_max or max_tokens
    seconds: float = 0.0  # wall time from admission to exit
    #: Start time and token ids of every subsequence: without <bos>, with <eos>, with empty explorations.
    grid: tuple[tuple[int, tuple[int, ...]], ...] = ()
    #: The newest token's time after each call. In exact mode there is one for each call that checks a draft. Other texts have
    #: them only if they were stopped on a repeat; else the grid says it.
    calls: tuple[int, ...] = ()
    #: In exact mode, the wrong guesses: decoder call (from 1), subsequence, time and id of each.
    taken_back: tuple[tuple[int, int, int, int], ...] = ()
    source_ids: tuple[int, ...] = ()  # the encoder's input
    index: int = 0  # the source's place in the input, from 0
    empty: int = 0  # the empty explorations in the grid
    row_budget_exhausted: bool = False  # whether empty explorations took a row that a subsequence needed
    stopped_on_repeat: bool = False  # whether the text was ended where it began to repeat itself
    source_cut: bool = False  # whether the source had more tokens than the model takes
    record: Record | None = None  # the record of the source; None from the decoder, which gets texts
    confidence: Mapping[str, Any] | None = (
        None  # of each value of `fields`, 0 to 1: the product of its tokens' probabilities
    )
    fields: Mapping[str, Any] | None = None  # the generated object, at level field
    values_lost: int = 0  # of the object: cut short, or none that the schema allows

    @property
    def id(self) -> str:
        """The record's identifier; without a record the place from 1."""
        return str(self.index + 1) if self.record is None else self.record.id

    def _repr_html_(self) -> str:
        """For notebooks: the subsequences or an object's pairs, each in its own writing direction, and the cost."""
        segments = self.segments if self.fields is None else pairs_of(self.fields)
        rows = (escape(segment) for segment in segments or (self.text,))
        listed = "".join(f'<li dir="auto" style="white-space: pre-wrap">{row}</li>' for row in rows)
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
    costs: Annotated[tuple[Annotated[float, Meta(gt=0)], ...], Meta(max_length=64)] | None = None
    stopped: _Stopped | None = None  # of a generation: the lines that were there, and their hash
    shard: dict[str, Count] | None = None
    result: _Result | None = None  # of a training or a shard that is complete
    task: str | None = None
    from_scratch: bool | None = None  # of a training: whether it, or one before it, began with fresh weights
