"""A loaded decoder: checkpoint, method and engine together, from texts to `Generated`."""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import psutil
import torch
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import FieldSegmenter, Keys, list_places, path_name
from pipedec_cli.data.json_schema import Check
from pipedec_cli.data.records import Delay, Generated
from pipedec_cli.data.tree import lacking
from pipedec_cli.model.arguments import (
    INT4,
    check_positive_int,
    check_texts,
    choose_device,
    choose_dtype,
)
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint, fingerprint, load_checkpoint
from pipedec_cli.model.engine.engine import DecoderWeights, Engine, lay_out, require_ids
from pipedec_cli.model.families import backbone_of
from pipedec_cli.model.fields import Answers, FieldCodec, row_text
from pipedec_cli.model.text import TextCodec, usual_prompt
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped, decode
from pipedec_cli.pipeline.grid import (
    SEQUENTIAL_LIMITS,
    EmptyRows,
    ItemRows,
    Limits,
    Method,
    Opening,
    mask_of,
)
from pipedec_cli.pipeline.schedule import (
    Fixed,
    Listed,
    Schedule,
    Together,
    Waiting,
    Whole,
)

if TYPE_CHECKING:
    from pipedec_cli.model.exact import Drafter
    from pipedec_cli.model.rows import BlindPlan

#: Sources are sorted by length within windows of this many batches, which evens the
#: lengths out in bounded memory.
SORTED_BATCHES: Final = 16


@dataclass(slots=True)
class Source:
    """A source that has been read and whose result has not been given yet."""

    ids: list[int]
    cut: bool
    text: str
    admitted: float = 0.0
    calls: list[int] = field(default_factory=list)  # the time after each
    taken_back: list[tuple[int, int, int, int]] = field(default_factory=list)
    result: Generated | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What a caller asks of a method. None is as the checkpoint was trained.

    `delay` is Δt in time-steps, or ``wait``. `force` allows a delay that the checkpoint
    was not trained for.
    """

    delay: Delay | None = None
    empty_rows: EmptyRows | None = None
    stop_on_repeat: bool | None = None
    time_max: int | None = None
    sub_max: int | None = None
    max_tokens: int | None = None
    force: bool = False

    def __post_init__(self) -> None:
        for name in ("time_max", "sub_max", "max_tokens"):
            check_positive_int(name, getattr(self, name))

    def refuse(self, checkpoint: Checkpoint, *, listed: bool = False) -> None:
        """Raise a UserError for what says nothing where all rows are known; a delay applies to items of lists."""
        for name in ("delay", "empty_rows", "stop_on_repeat", "sub_max"):
            if getattr(self, name) is not None and not (listed and name == "delay"):
                writes = (
                    f"{checkpoint.name} writes fields, a row for each and all at once"
                )
                raise UserError(
                    f"{writes}: {name} does not apply", todo=f"leave {name} out"
                )

    def schedule(self, checkpoint: Checkpoint) -> Schedule:
        """When rows start. Raises a UserError for a delay that the checkpoint was not trained for."""
        if self.delay != "wait":
            check_positive_int("delay", self.delay, "wait")
        settings = checkpoint.settings or PLAIN
        if settings.decoder == "sequential":
            if self.delay not in (None, "wait"):
                todo = "leave --delay out, or use a checkpoint that `pipedec train` made with --decoder pipelined"
                raise UserError(
                    f"{checkpoint.name} is a sequential model and has no delay",
                    todo=todo,
                )
            return Whole()
        trained, wanted = settings.delay, self.delay or settings.usual_delay
        if trained not in ("any", wanted) and not self.force:
            only = f"{checkpoint.name} was trained for delay {trained} only"
            loss = "it would take the first later exploration for the end and drop the rest of the text"
            todo = f"use delay {trained}, or train with --delay any"
            raise UserError(f"{only}; at {wanted} {loss}", todo=todo)
        return Fixed(wanted) if isinstance(wanted, int) else Waiting()


class TextPlan:
    """Rows of text that start as a schedule says; of a sequential model one row."""

    def __init__(self, checkpoint: Checkpoint, fields: FieldCodec | None) -> None:
        """The object of a sequential model with `fields` is held to them."""
        self.checkpoint, self.settings, self.fields = (
            checkpoint,
            checkpoint.settings or PLAIN,
            fields,
        )
        #: Whether the model was trained to write several rows at a time.
        self.pipelined = self.settings.decoder == "pipelined"

    def method(self, choice: Choice) -> Method:
        """How to decode. Raises a UserError for a choice that does not apply."""
        usual, checkpoint = self.settings, self.checkpoint
        marks: Any = {
            "bos": checkpoint.bos,
            "eos": checkpoint.eos,
            "ends": frozenset(checkpoint.ends),
        }
        schedule, time_max, max_tokens = (
            choice.schedule(self.checkpoint),
            choice.time_max,
            choice.max_tokens,
        )
        # Where a row waits for the end of all rows before it, the rules for empty rows
        # are the same.
        rule = choice.empty_rows or (
            usual.empty_rows if isinstance(schedule, Fixed) else "retry"
        )
        if rule not in get_args(EmptyRows):
            todo = f"use one of {', '.join(get_args(EmptyRows))}"
            raise UserError(f"there is no rule {rule!r} for empty rows", todo=todo)
        if isinstance(schedule, Fixed):
            time_max = time_max or usual.time_max
        else:
            max_tokens = max_tokens or SEQUENTIAL_LIMITS.max_tokens
        if isinstance(schedule, Whole):
            made = Method(
                schedule, **marks, limits=Limits(time_max, choice.sub_max, max_tokens)
            )
            if (first := self.checkpoint.first) is not None:
                begins = Opening((), lambda tokens: b"" if tokens else mask_of([first]))
                return dataclasses.replace(made, free=begins)
            return (
                dataclasses.replace(made, free=self.fields.of_whole)
                if self.fields
                else made
            )
        repeats = (
            usual.stop_on_repeat
            if choice.stop_on_repeat is None
            else choice.stop_on_repeat
        )
        limits = Limits(
            time_max, choice.sub_max or usual.segmentation.sub_max, max_tokens
        )
        return Method(
            schedule, limits=limits, empty_rows=rule, stop_on_repeat=repeats, **marks
        )


class FieldPlan:
    """A row for each field, all at once, of a model that was trained for them."""

    pipelined = True

    def __init__(self, checkpoint: Checkpoint, fields: FieldCodec) -> None:
        self.checkpoint, self.fields = checkpoint, fields
        self.grounded = False  # whether values are parts of the source; see `is_free`

    def method(self, choice: Choice) -> Method:
        """See `TextPlan.method`. A delay applies to items of lists alone."""
        checkpoint, usual, fields = (
            self.checkpoint,
            self.checkpoint.settings or PLAIN,
            self.fields,
        )
        schedule, time_max, lists = (
            Together(),
            usual.time_max,
            list_places(fields.fields),
        )
        choice.refuse(checkpoint, listed=bool(lists))
        if lists:
            between = choice.schedule(checkpoint)
            assert isinstance(between, Fixed | Waiting), (
                "items of lists need a schedule"
            )
            schedule = Listed(between, usual.item_max)
            time_max *= usual.item_max if isinstance(between, Waiting) else 1
        made = Method(
            schedule,
            checkpoint.bos,
            checkpoint.eos,
            limits=Limits(choice.time_max or time_max, None, choice.max_tokens),
            ends=frozenset(checkpoint.ends),
            confident=self.grounded,
            of_source=self._with_rows if self.grounded else None,
        )
        return self._with_rows(made)

    def _with_rows(self, method: Method, source: str | None = None) -> Method:
        """The method with a row for each field, for a source if values are parts of it."""
        fields = self.fields
        openings = fields.openings(range(len(fields.fields)), source=source)
        lists = list[ItemRows]()
        for places in list_places(fields.fields):
            lists.append(
                ItemRows(places, partial(fields.openings, places, source=source))
            )
        return dataclasses.replace(
            method, openings=openings, lists=tuple(lists), source=source or ""
        )


@dataclass(frozen=True, slots=True)
class TextReader:
    """Reads texts in finished grids."""

    checkpoint: Checkpoint
    text: TextCodec

    def read(self, end: Finished) -> Generated:
        """The text and its subsequences, without what they cost."""
        segments = tuple(
            filter(None, (row_text(self.text, row) for row in end.grid.subsequences))
        )
        settings, segmenter = (
            self.checkpoint.settings or PLAIN,
            self.checkpoint.segmenter,
        )
        if settings.decoder == "sequential" and segmenter is not None:
            # The whole target came as one string. It is cut as the training targets
            # were.
            text = "".join(segments)
            return Generated(text=text, segments=segmenter.cut(text))
        return Generated(
            text=settings.segmentation.joiner.join(segments), segments=segments
        )


def in_words(violations: Iterable[tuple[Keys, str]]) -> tuple[str, ...]:
    """What an object violates in its schema, each with the path to it."""
    return tuple(
        f"{path_name(keys)}: {what}".removeprefix(": ") for keys, what in violations
    )


@dataclass(frozen=True, slots=True)
class ObjectReader:
    """Reads objects in finished grids."""

    fields: FieldCodec
    answers: Answers
    keeps_text: bool = (
        False  # whether a text that holds no value of the object is kept as it is
    )
    check: Check = lambda _: ()  # what an object violates in its schema

    def read(self, end: Finished) -> Generated:
        """The object, as JSON too, without what it cost."""
        answered = self.answers(end.grid)
        texts = answered.texts
        values, lost = self.fields.object_of(texts)
        found = self.check(values)
        if wrong := {keys for keys, _ in found}:
            # A value that its own keywords do not allow is lost, unless there must be
            # one.
            values, lost = self.fields.object_of(texts, wrong)
            found = self.check(values)
        sure = forced = None
        if end.grid.method.confident:
            rows = {
                at: row for at, row in answered.rows.items() if texts[at] is not None
            }  # else it was cut
            sure = self.fields.of_rows(values, rows, attrgetter("value_confidence"))
            forced = self.fields.of_rows(values, rows, attrgetter("forced"))
        text = json.dumps(values, ensure_ascii=False)
        if self.keeps_text and not values:
            text = self.fields.whole(end.grid) or text
        return Generated(
            text=text,
            segments=tuple(filter(None, texts.values())),
            fields=values,
            confidence=sure,
            forced=forced,
            values_lost=lost,
            violations=in_words(found),
            missing=answered.missing,
        )


class Decoder:
    """A checkpoint ready to generate, in its dtype and on its device: a plan, a reader and engines.

    The tokens do not depend on the batch size: in float32 they are those of one example
    at a time, near-ties apart.
    """

    #: In exact mode, what guesses the text; see `ExactDecoder`.
    drafter: Drafter | None = None
    #: The plan, if rows are blind; see `blind_decoder`.
    blind: BlindPlan | None = None

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        batch_size: int = 1,
        max_source_tokens: int | None = None,
        consume: bool = False,
        quantize: torch.dtype | None = None,
    ) -> None:
        """The weights are laid out for the engine when they are first needed.

        `consume` empties the model's own matrices then, so that they are in memory
        once: afterwards only the config of the model can be used. `quantize` rounds
        them to int8 or int4; a UserError if that is not possible. `batch_size` is the
        default of `run`, `max_source_tokens` replaces the checkpoint's.
        """
        self.checkpoint = checkpoint
        self.settings = checkpoint.settings or PLAIN
        self.text = checkpoint.codec()
        if (
            longest := check_positive_int("max_source_tokens", max_source_tokens)
        ) is not None:
            self.text.max_source_tokens = longest
        self.batch_size = check_positive_int("batch_size", batch_size) or 1
        self._lay_out = cache(
            partial(lay_out, checkpoint.model, consume=consume, quantize=quantize)
        )
        self._engines: dict[int, Engine] = {}

    def sharing(self, **parts: Any) -> Decoder:
        """A decoder of the same weights, with engines of its own and with these parts in place of ours."""
        made = copy.copy(self)
        vars(made).update(parts, _engines={})
        return made

    @property
    def weights(self) -> DecoderWeights:
        """The weights, which all engines share."""
        return self._lay_out()

    @cached_property
    def fields(self) -> FieldCodec | None:
        """The fields of the objects that it writes: of its own schema, else of the data beside it; None for texts."""
        segmenter, fields = self.checkpoint.segmenter, self.settings.segmentation.fields
        fields = segmenter.fields if isinstance(segmenter, FieldSegmenter) else fields
        return FieldCodec(self.text, fields) if fields else None

    @cached_property
    def plan(self) -> TextPlan | FieldPlan | BlindPlan:
        """Which rows are written, and by which method."""
        if self.fields is not None and self.checkpoint.together:
            return FieldPlan(self.checkpoint, self.fields)
        return TextPlan(
            self.checkpoint, self.fields if self.checkpoint.settings else None
        )

    @cached_property
    def reader(self) -> TextReader | ObjectReader:
        """What a finished grid says."""
        if self.fields is None:
            return TextReader(self.checkpoint, self.text)
        tree = self.fields.tree

        def check(values: Any) -> Sequence[tuple[Keys, str]]:
            return [*lacking(tree, values)]

        if self.checkpoint.together:
            return ObjectReader(self.fields, self.fields.answers, check=check)
        is_foreign = self.checkpoint.settings is None
        return ObjectReader(
            self.fields, self.fields.plain_answers, is_foreign, check=check
        )

    @cached_property
    def sha256(self) -> str | None:
        """See `fingerprint`."""
        return fingerprint(self.checkpoint)

    def read_sources(
        self, prompt: str | None = None, *, chat: bool | None = None
    ) -> None:
        """Change the prompt, and whether it stands in the chat template; None leaves either as it is.

        In a chat the texts of a model from elsewhere end where its turns end. A
        UserError if the model is not decoder-only, or the template does not fit.
        """
        if prompt is None and chat is None:
            return
        if (before := self.text.prompt) is not None:
            chat = before.chat if chat is None else chat
            if prompt is None and before.template != usual_prompt(chat=before.chat):
                prompt = before.template
        chat = bool(chat)
        prompt = usual_prompt(chat=chat) if prompt is None else prompt
        self.text.prompt = self.checkpoint.prompt(prompt, chat=chat)
        if self.checkpoint.settings is None:
            self.checkpoint.end_as_usual(chat=chat)

    def engine(self, batch_size: int | None = None) -> Engine:
        """The engine with room for so many examples; it is made once for each number."""
        size = check_positive_int("batch_size", batch_size) or self.batch_size
        if size not in self._engines:
            self._engines[size] = Engine(self.weights, size)
        return self._engines[size]

    def method(self, delay: Delay | None = None, **chosen: Any) -> Method:
        """How to decode; in exact mode, how the draft is made. The arguments are those of `Choice`.

        What is not chosen is as the checkpoint was trained; the delay is 2 if it was
        trained for any. A sequential model takes none. At a fixed delay time_max and
        sub_max are the checkpoint's by default, and max_tokens has no bound. Else
        max_tokens is 512 by default, and time_max has no bound. A model for fields
        starts all rows together and takes only time_max and max_tokens. A UserError for
        a choice that does not apply.
        """
        return self.plan.method(Choice(delay, **chosen))

    def run(
        self,
        sources: Iterable[str],
        method: Method | None = None,
        batch_size: int | None = None,
    ) -> Iterator[Event | Generated]:
        """Generate from texts, read a window at a time: yields events as they happen, each `Generated` in order.

        In exact mode the events are those of checking.
        """
        size, how = (
            check_positive_int("batch_size", batch_size) or self.batch_size,
            method or self.method(),
        )
        if not isinstance(how, Method):
            raise UserError(
                f"the method is {how!r}", todo="give what decoder.method(...) gives"
            )
        if self.drafter is not None and not how.guesses:
            yield from self.drafter.run(self, sources, how, size)
            return
        require_ids(
            "the method",
            (how.eos if how.bos is None else how.bos, how.eos),
            self.weights.vocabulary,
        )
        known: dict[int, Source] = {}
        due, away = (
            0,
            0.0,
        )  # the next result's index; seconds that the reader of the events took
        held = how.of_source
        of = (lambda index: held(how, known[index].text)) if held else how
        for event in decode(
            self.engine(size), self._sorted(sources, known, size), of, size
        ):
            source = known[event.example]
            if isinstance(event, Admitted):
                source.admitted = time.perf_counter() - away
            elif isinstance(event, Stepped):
                step = event.step
                source.calls.append(step.time)
                gone = (
                    (step.number, slot.subsequence, slot.time, slot.token)
                    for slot in step.taken_back
                )
                source.taken_back.extend(gone)
            left = time.perf_counter()
            yield event
            away += time.perf_counter() - left
            if isinstance(event, Finished):
                source.result = self.result(event, source, away)
            while due in known and (result := known[due].result):
                del known[due]
                due += 1
                yield result

    def texts(
        self,
        sources: Iterable[str],
        method: Method | None = None,
        batch_size: int | None = None,
    ) -> Iterator[Generated]:
        """Generate from texts: the results alone, in the order of the sources."""
        return (
            item
            for item in self.run(sources, method, batch_size)
            if isinstance(item, Generated)
        )

    def _sorted(
        self, sources: Iterable[str], known: dict[int, Source], batch_size: int
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Sources as (index, ids), the longest first within a window, so that a batch holds sources of like lengths."""
        numbered = enumerate(check_texts(sources))
        while window := list(islice(numbered, window_of(batch_size))):
            known |= {
                index: Source(*self.text.source(text), text) for index, text in window
            }
            for index, _ in sorted(window, key=lambda item: -len(known[item[0]].ids)):
                yield index, known[index].ids

    def result(self, event: Finished, source: Source, away: float = 0.0) -> Generated:
        """What a finished grid says; `away` are seconds since the source was admitted that were not the decoder's."""
        grid = event.grid
        return replace(
            self.reader.read(event),
            index=event.example,
            steps=grid.steps,
            tokens=grid.tokens,
            truncated=grid.truncated,
            seconds=time.perf_counter() - away - source.admitted,
            grid=tuple((row.start, tuple(row.tokens)) for row in grid.subsequences),
            empty=grid.empty,
            row_budget_exhausted=grid.row_budget_exhausted,
            stopped_on_repeat=grid.stopped_on_repeat,
            calls=() if grid.is_regular else tuple(source.calls),
            taken_back=tuple(source.taken_back),
            source_ids=tuple(source.ids),
            source_cut=source.cut,
        )


def window_of(batch_size: int) -> int:
    """How many sources are read and sorted at once."""
    return 1 if batch_size == 1 else batch_size * SORTED_BATCHES


def load(
    name: str | Path,
    *,
    batch_size: int = 1,
    dtype: str = "float32",
    device: str = "auto",
    max_source_tokens: int | None = None,
    consume: bool = True,
) -> Decoder:
    """Load a folder that `pipedec train` made, another local folder, a GGUF file or a hub model, ready to generate.

    `dtype` is ``float32``, ``bfloat16``, on a CPU ``int8`` or ``int4``, on a GPU
    ``float16``; `device` is ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; see `Decoder`
    for the rest. A UserError if the checkpoint or the device is not there, or the
    model's family is not supported.
    """
    where = choose_device(device)
    kind = choose_dtype(dtype, where)
    quantize = kind if kind in (torch.int8, INT4) else None
    computed = kind if consume and where.type == "cpu" else None
    loaded = torch.float32 if quantize else kind
    checkpoint = load_checkpoint(
        str(name), dtype=loaded, device=str(where), computed=computed
    )
    longest = max_source_tokens
    return Decoder(
        checkpoint,
        batch_size=batch_size,
        max_source_tokens=longest,
        consume=consume,
        quantize=quantize,
    )


#: With more examples than this, arithmetic bounds a call, and more examples gain
#: little.
MOST_ON_CPU, MOST_ON_GPU = 8, 64
#: The share of the free memory that a batch may take, and the tokens of a grid for
#: which it must have room.
_SHARE, _GRID_TOKENS = 0.25, 512


def choose_batch_size(model: Any, source_tokens: int, examples: int) -> int:
    """The batch size for so many examples, with sources of up to `source_tokens` tokens."""
    if model.device.type == "cuda":
        most, free = MOST_ON_GPU, torch.cuda.mem_get_info(model.device)[0]
    else:
        most, free = MOST_ON_CPU, psutil.virtual_memory().available
    return max(
        1,
        min(
            most, int(_SHARE * free / bytes_per_example(model, source_tokens)), examples
        ),
    )


def bytes_per_example(model: Any, source_tokens: int) -> int:
    """The most bytes that one example takes in the encoder and in the decoder's cache."""
    sizes, width = (
        backbone_of(model.config).sizes(model.config),
        torch.finfo(model.dtype).bits // 8,
    )
    # The scores of every head over all pairs of source tokens, before and after the
    # softmax, which is in float32.
    attention = 3 * sizes.heads * source_tokens**2 * 4
    hidden = source_tokens * (4 * sizes.width + 2 * sizes.feed_width) * 4
    column = 2 * sizes.layers * sizes.heads * sizes.head_width * width
    return int(attention + hidden + column * (source_tokens + _GRID_TOKENS))
