"""A loaded decoder: checkpoint, method and engine together, from texts to `Generated`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_args

import psutil
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import FieldSegmenter, plain_text, read_plain
from pipedec_cli.data.records import Delay, Generated
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
from pipedec_cli.model.fields import FieldCodec
from pipedec_cli.model.text import usual_prompt
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped, decode
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, EmptyRows, Grid, Limits, Method
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Subsequence, Waiting, Whole

#: Sources are sorted by length within windows of this many batches, which evens the lengths out in bounded memory.
SORTED_BATCHES: Final = 16


@dataclass(slots=True)
class Source:
    """A source that has been read and whose result has not been given yet."""

    ids: list[int]
    cut: bool
    admitted: float = 0.0
    calls: list[int] = field(default_factory=list)  # the time after each
    taken_back: list[tuple[int, int, int, int]] = field(default_factory=list)
    result: Generated | None = None


class Decoder:
    """A checkpoint ready to generate, in its dtype and on its device.

    The tokens do not depend on the batch size: in float32 they are those of one example at a time, near-ties apart.
    Where the checkpoint has no settings, they are those of a sequential model.
    """

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

        `consume` empties the model's own matrices then, so that they are in memory once: afterwards only the config of
        the model can be used. `quantize` rounds them to int8 or int4; a UserError if that is not possible. `batch_size` is the
        default of `run`, `max_source_tokens` replaces the checkpoint's.
        """
        self.checkpoint = checkpoint
        self.settings = checkpoint.settings or PLAIN
        self.text = checkpoint.codec()
        if (longest := check_positive_int("max_source_tokens", max_source_tokens)) is not None:
            self.text.max_source_tokens = longest
        self.batch_size = check_positive_int("batch_size", batch_size) or 1
        #: Whether values of fields may be any text, rather than what the schema allows.
        self.unconstrained = False
        self._consume, self._quantize = consume, quantize
        self._engines: dict[int, Engine] = {}

    @cached_property
    def weights(self) -> DecoderWeights:
        """The weights, which all engines share."""
        return lay_out(self.checkpoint.model, consume=self._consume, quantize=self._quantize)

    @cached_property
    def fields(self) -> FieldCodec | None:
        """The fields of the objects that it writes: by its own schema, else by that of the data beside it; None for texts."""
        segmenter, fields = self.checkpoint.segmenter, self.settings.segmentation.fields
        fields = segmenter.fields if isinstance(segmenter, FieldSegmenter) else fields
        return FieldCodec(self.text, fields) if fields else None

    @cached_property
    def sha256(self) -> str | None:
        """See `fingerprint`."""
        return fingerprint(self.checkpoint)

    def read_sources(self, prompt: str | None = None, *, chat: bool | None = None) -> None:
        """Change the prompt, and whether it stands in the chat template; None leaves either as it is.

        In a chat the texts of a model from elsewhere end where its turns end. A UserError if the model is not
        decoder-only, or the template does not fit.
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
            self._engines[size] = Engine(self.checkpoint.model, size, weights=self.weights)
        return self._engines[size]

    def method(
        self,
        delay: Delay | None = None,
        *,
        empty_rows: EmptyRows | None = None,
        stop_on_repeat: bool | None = None,
        time_max: int | None = None,
        sub_max: int | None = None,
        max_tokens: int | None = None,
        force: bool = False,
    ) -> Method:
        """How to decode. What is not given is as the checkpoint was trained.

        `delay` is Δt in time-steps, or ``wait``; by default as trained, 2 if trained for any. A sequential model takes
        none. At a fixed delay time_max and sub_max are the checkpoint's by default, and max_tokens has no bound. Else
        max_tokens is 512 by default, and time_max has no bound. A model for fields starts all rows together and takes
        only time_max and max_tokens.

        Raises UserError for a delay that the checkpoint was not trained for, unless `force` allows it.
        """
        usual, ends = self.settings, (self.checkpoint.bos, self.checkpoint.eos)
        for name, limit in {"time_max": time_max, "sub_max": sub_max, "max_tokens": max_tokens}.items():
            check_positive_int(name, limit)
        if self.checkpoint.together:
            rules = {"empty_rows": empty_rows, "stop_on_repeat": stop_on_repeat}
            assert self.fields is not None
            listed = usual.decoder != "sequential" and any(field.listed for field in self.fields.fields)
            for name, value in {"delay": delay, **rules, "sub_max": sub_max}.items():
                if value is not None and not (name == "delay" and listed):
                    writes = f"{self.checkpoint.name} writes fields, a row for each and all at once"
                    raise UserError(f"{writes}: {name} does not apply", todo=f"leave {name} out")
            items = self._schedule(delay, force) if listed else None
            most = usual.time_max * (usual.item_max if isinstance(items, Waiting) else 1)
            limits = Limits(time_max or most, None, max_tokens)
            return self.fields.method(ends, limits, items, usual.item_max, unconstrained=self.unconstrained)
        schedule = self._schedule(delay, force)
        # Where a row waits for the end of all before it, the rules for empty rows are all the same.
        trained: EmptyRows = usual.empty_rows if isinstance(schedule, Fixed) else "retry"
        rule = empty_rows or trained
        if rule not in get_args(EmptyRows):
            todo = f"use one of {', '.join(get_args(EmptyRows))}"
            raise UserError(f"there is no rule {rule!r} for empty rows", todo=todo)
        if isinstance(schedule, Fixed):
            time_max = time_max or usual.time_max
        else:
            max_tokens = max_tokens or SEQUENTIAL_LIMITS.max_tokens
        if isinstance(schedule, Whole):
            return Method(schedule, *ends, limits=Limits(time_max, sub_max, max_tokens))
        repeats = usual.stop_on_repeat if stop_on_repeat is None else stop_on_repeat
        limits = Limits(time_max, sub_max or usual.segmentation.sub_max, max_tokens)
        return Method(schedule, *ends, limits, rule, repeats)

    def _schedule(self, delay: Delay | None, force: bool) -> Schedule:
        if delay != "wait":
            check_positive_int("delay", delay, "wait")
        if self.settings.decoder == "sequential":
            if delay not in (None, "wait"):
                todo = "leave --delay out, or use a checkpoint that `pipedec train` made with --decoder pipelined"
                raise UserError(f"{self.checkpoint.name} is a sequential model and has no delay", todo=todo)
            return Whole()
        trained, wanted = self.settings.delay, delay or self.settings.usual_delay
        if trained not in ("any", wanted) and not force:
            only = f"{self.checkpoint.name} was trained for delay {trained} only"
            loss = "it would take the first later exploration for the end and drop the rest of the text"
            todo = f"use delay {trained}, train with --delay any, or insist with `pipedec generate --set force=true`"
            raise UserError(f"{only}; at {wanted} {loss}", todo=todo)
        return Fixed(wanted) if isinstance(wanted, int) else Waiting()

    def run(
        self, sources: Iterable[str], method: Method | Verify | None = None, batch_size: int | None = None
    ) -> Iterator[Event | Generated]:
        """Generate from texts, read a window at a time: yields events as they happen, each `Generated` in order."""
        known: dict[int, Source] = {}
        due, size = 0, check_positive_int("batch_size", batch_size) or self.batch_size
        away = 0.0  # seconds that the reader of the events took
        how = method or self.method()
        if not isinstance(how, Method | Verify):
            raise UserError(f"the method is {how!r}", todo="give what decoder.method(...) gives")
        require_ids("the method", (how.eos if how.bos is None else how.bos, how.eos), self.weights.vocabulary)
        for event in decode(self.engine(size), self._sorted(sources, known, size), how, size):
            source = known[event.example]
            if isinstance(event, Admitted):
                source.admitted = time.perf_counter() - away
            elif isinstance(event, Stepped):
                step = event.step
                source.calls.append(step.time)
                gone = ((step.number, slot.subsequence, slot.time, slot.token) for slot in step.taken_back)
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
        self, sources: Iterable[str], method: Method | Verify | None = None, batch_size: int | None = None
    ) -> Iterator[Generated]:
        """Generate from texts: the results alone, in the order of the sources."""
        return (item for item in self.run(sources, method, batch_size) if isinstance(item, Generated))

    def _sorted(
        self, sources: Iterable[str], known: dict[int, Source], batch_size: int
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Sources as (index, ids), the longest first within a window, so that a batch holds sources of like lengths."""
        numbered = enumerate(check_texts(sources))
        while window := list(islice(numbered, window_of(batch_size))):
            known |= {index: Source(*self.text.source(text)) for index, text in window}
            for index, _ in sorted(window, key=lambda item: -len(known[item[0]].ids)):
                yield index, known[index].ids

    def joined(self, event: Finished) -> tuple[str, tuple[str, ...]]:
        """The whole text and its subsequences. An object is written as the sequential model writes it."""
        if self.fields and self.checkpoint.together:
            values = tuple(text or "" for text in self._answers(event, self.fields)[1])
            return plain_text(values, self.fields.fields), values
        segments = tuple(filter(None, (self.text.decode(ids) for ids in event.texts)))
        return self.settings.segmentation.joiner.join(segments), segments

    def worded(self, generated: Generated) -> str:
        """The text as the sequential model writes it: an object in words, not as JSON."""
        return self.fields.plain(generated.fields) if self.fields and generated.fields else generated.text

    def _answers(
        self, event: Finished, fields: FieldCodec
    ) -> tuple[Sequence[Subsequence], Sequence[str | None]]:
        """The rows, and the text of each value in the order of `rows_of`; None for a value that was cut."""
        rows = fields.rows_in(event.grid)
        if self.checkpoint.together:
            return rows, [self.text.decode(row.text_tokens) if row.ended else None for row in rows]
        whole = self.text.decode([token for text in event.texts for token in text])
        return rows, read_plain(whole, fields.fields, cut=event.grid.truncated is not None)

    def result(self, event: Finished, source: Source, away: float = 0.0) -> Generated:
        """What a finished grid says; `away` are seconds since the source was admitted that were not the decoder's."""
        grid, values, confidence, lost = event.grid, None, None, 0
        if self.fields is not None:
            rows, texts = self._answers(event, self.fields)
            values, lost = self.fields.read(texts, unconstrained=self.unconstrained)
            if isinstance(grid, Grid) and grid.method.confident:
                confidence = self.fields.confidence(values, rows)
            text, segments = json.dumps(values, ensure_ascii=False), tuple(filter(None, texts))
            if not values and self.checkpoint.settings is None:  # a text of a model from elsewhere is kept
                text = self.joined(event)[0] or text
        else:
            text, segments = self.joined(event)
            if self.settings.decoder == "sequential" and self.checkpoint.segmenter is not None:
                # The whole target came as one string. It is cut as the training targets were.
                text = "".join(segments)
                segments = self.checkpoint.segmenter.cut(text)
        # The rows tell the time of every call, unless rows were dropped, or a call makes several tokens.
        return Generated(
            index=event.example,
            text=text,
            segments=segments,
            steps=grid.steps,
            tokens=grid.tokens,
            truncated=grid.truncated,
            seconds=time.perf_counter() - away - source.admitted,
            grid=tuple((row.start, tuple(row.tokens)) for row in grid.subsequences),
            empty=grid.empty,
            row_budget_exhausted=grid.row_budget_exhausted,
            stopped_on_repeat=grid.stopped_on_repeat,
            calls=() if isinstance(grid, Grid) and not grid.stopped_on_repeat else tuple(source.calls),
            taken_back=tuple(source.taken_back),
            source_ids=tuple(source.ids),
            source_cut=source.cut,
            fields=values,
            confidence=confidence,
            values_lost=lost,
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

    `dtype` is ``float32``, ``bfloat16``, on a CPU ``int8`` or ``int4``, on a GPU ``float16``; `device` is ``auto``, ``cpu``,
    ``cuda`` or ``cuda:N``; see `Decoder` for the rest. A UserError if the checkpoint or the device is not there, or
    the model's family is not supported.
    """
    where = choose_device(device)
    kind = choose_dtype(dtype, where)
    quantize = kind if kind in (torch.int8, INT4) else None
    computed = kind if consume and where.type == "cpu" else None
    loaded = torch.float32 if quantize else kind
    checkpoint = load_checkpoint(str(name), dtype=loaded, device=str(where), computed=computed)
    return Decoder(
        checkpoint,
        batch_size=batch_size,
        max_source_tokens=max_source_tokens,
        consume=consume,
        quantize=quantize,
    )


#: With more examples than this, arithmetic bounds a call, and more examples gain little.
MOST_ON_CPU, MOST_ON_GPU = 8, 64
#: The share of the free memory that a batch may take, and the tokens of a grid for which it must have room.
_SHARE, _GRID_TOKENS = 0.25, 512


def choose_batch_size(model: Any, source_tokens: int, examples: int) -> int:
    """The batch size for so many examples, with sources of up to `source_tokens` tokens."""
    if model.device.type == "cuda":
        most, free = MOST_ON_GPU, torch.cuda.mem_get_info(model.device)[0]
    else:
        most, free = MOST_ON_CPU, psutil.virtual_memory().available
    return max(1, min(most, int(_SHARE * free / bytes_per_example(model, source_tokens)), examples))


def bytes_per_example(model: Any, source_tokens: int) -> int:
    """The most bytes that one example takes in the encoder and in the decoder's cache."""
    sizes, width = backbone_of(model.config).sizes(model.config), torch.finfo(model.dtype).bits // 8
    # The scores of every head over all pairs of source tokens, before and after the softmax, which is in float32.
    attention = 3 * sizes.heads * source_tokens**2 * 4
    hidden = source_tokens * (4 * sizes.width + 2 * sizes.feed_width) * 4
    column = 2 * sizes.layers * sizes.heads * sizes.head_width * width
    return int(attention + hidden + column * (source_tokens + _GRID_TOKENS))
