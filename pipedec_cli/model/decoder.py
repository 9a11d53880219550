"""A loaded decoder: checkpoint, method and engine together, from texts to `Generated`."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Final, get_args

import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import FieldSegmenter, plain_text, read_plain
from pipedec_cli.data.reading import contents
from pipedec_cli.data.records import Delay, Generated
from pipedec_cli.data.writing import file_sha256
from pipedec_cli.model.arguments import choose_device, choose_dtype, several, whole
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint, load_checkpoint
from pipedec_cli.model.engine.engine import DecoderWeights, Engine, lay_out, require_ids
from pipedec_cli.model.engine.native.bare import weights_suffice
from pipedec_cli.model.fields import FieldCodec
from pipedec_cli.model.text import usual_prompt
from pipedec_cli.model.training import lora
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped, decode
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, EmptyRows, Grid, Limits, Method
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Together, Waiting, Whole
from pipedec_cli.pipeline.verify import Verify

#: Sources are sorted by length within this many batches: far enough to even the lengths out, and bounded.
SORTED_BATCHES: Final = 16

#: Files that have no say in what is generated: logs and manifests of the training, and the decoding defaults of others.
_SILENT: Final = frozenset({"generation_config.json", "trainer_state.json", "training.json"})
_TELLING: Final = frozenset({".bin", ".jinja", ".json", ".model", ".safetensors", ".txt"})


@dataclass(slots=True)
class _Open:  # a source that has been read and not yet given back
    ids: list[int]
    cut: bool
    admitted: float = 0.0
    calls: list[int] = field(default_factory=list)  # the time after each
    taken_back: list[tuple[int, int, int, int]] = field(default_factory=list)
    result: Generated | None = None


class Decoder:
    """A checkpoint ready to generate, in its dtype and on its device.

    Its output does not depend on the batch size, which is the number of examples in flight where `run` is not told
    otherwise: in float32 the tokens are those of one at a time, near-ties apart. The settings are those of an ordinary
    model where the checkpoint has none.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        batch_size: int = 1,
        max_source_tokens: int | None = None,
        consume: bool = False,
        quantize: bool = False,
    ) -> None:
        """Lay the weights out when they are first needed.

        With `consume` the model's own matrices are emptied then, so that they are in memory once; of the model only its
        config is of use afterwards. With `quantize` they are rounded to int8; a UserError then where that cannot be.
        `max_source_tokens` is another limit than the checkpoint's.
        """
        self.checkpoint = checkpoint
        self.settings = checkpoint.settings or PLAIN
        self.text = checkpoint.codec()
        if (longest := whole("max_source_tokens", max_source_tokens)) is not None:
            self.text.max_source_tokens = longest
        self.batch_size = whole("batch_size", batch_size) or 1
        #: Whether values of fields may be any text, rather than what the schema allows.
        self.unconstrained = False
        self._consume, self._quantize = consume, quantize
        self._engines: dict[int, Engine] = {}

    @cached_property
    def weights(self) -> DecoderWeights:
        """What all engines share."""
        return lay_out(self.checkpoint.model, consume=self._consume, quantize=self._quantize)

    @cached_property
    def fields(self) -> FieldCodec | None:
        """What is written, where it is objects: by its own schema or, for a model from elsewhere, by that of the data beside it."""
        cut, fields = self.checkpoint.segmenter, self.settings.segmentation.fields
        fields = cut.fields if isinstance(cut, FieldSegmenter) else fields
        return FieldCodec(self.text, fields) if fields else None

    def read_sources(self, prompt: str | None = None, *, chat: bool | None = None) -> None:
        """Put another prompt around sources than the checkpoint's; None leaves either as it is.

        In a `chat` the texts of a model from elsewhere end where its turns do. A UserError where the model is not
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
        size = whole("batch_size", batch_size) or self.batch_size
        if size not in self._engines:
            self._engines[size] = Engine(self.checkpoint.model, size, weights=self.weights)
        return self._engines[size]

    @cached_property
    def sha256(self) -> str | None:
        """Of the weights, the configuration and the tokenizer of a folder, wherever it lies; a hub model's commit.

        Folders within, a training's ``checkpoint-N`` among them, are left out.
        """
        folder = Path(self.checkpoint.name)
        if not folder.is_dir():
            return getattr(self.checkpoint.model.config, "_commit_hash", None)
        silent, digest = _SILENT, hashlib.sha256()
        if b'"decoder_start_token_id"' not in contents(folder / "config.json"):
            silent -= {"generation_config.json"}  # which then tells <bos>
        base = lora.base_of(folder)
        for file in [*sorted(folder.iterdir()), *sorted(base.glob("*.safetensors") if base else ())]:
            if file.is_file() and file.suffix in _TELLING and file.name not in silent:
                digest.update(f"{file.name} {file_sha256(file)}\n".encode())
        return digest.hexdigest()

    def method(
        self,
        delay: Delay | None = None,
        *,
        empty_rows: EmptyRows | None = None,
        stop_on_repeat: bool | None = None,
        min_start_prob: float | None = None,
        time_max: int | None = None,
        sub_max: int | None = None,
        max_tokens: int | None = None,
        force: bool = False,
    ) -> Method:
        """How to decode: by the checkpoint's own settings where nothing is given.

        The delay is Δt, or ``wait`` for the schedule that waits; by default as trained, 2 if trained for any. An
        ordinary model takes none. `empty_rows` and `stop_on_repeat` are the checkpoint's by default, but ``retract`` with
        a `min_start_prob`, a probability from 0 to 1, which needs that rule. sub_max is the checkpoint's by default (an
        ordinary model has none); so is time_max under a fixed delay with any rule but ``retract``, where max_tokens is
        not bounded; else max_tokens is 512 by default, and time_max has no bound. A model that writes fields starts all
        rows together, within time_max. A UserError where the checkpoint was not trained for that delay or, trained for
        a single delay, is to start rows at other times, unless `force` allows it.
        """
        usual, ends = self.settings, (self.checkpoint.bos, self.checkpoint.eos)
        for name, limit in {"time_max": time_max, "sub_max": sub_max, "max_tokens": max_tokens}.items():
            whole(name, limit)
        if self.checkpoint.together:
            given = {
                "delay": delay,
                "empty_rows": empty_rows,
                "stop_on_repeat": stop_on_repeat,
                "min_start_prob": min_start_prob,
                "sub_max": sub_max,
            }
            if other := next((name for name, value in given.items() if value is not None), None):
                option = f"--{other.replace('_', '-')}"
                what = f"{self.checkpoint.name} writes fields, a row for each and all at once: {option} does not apply"
                raise UserError(what, todo=f"leave {option} out")
            assert self.fields is not None
            openings = self.fields.openings(unconstrained=self.unconstrained)
            limits = Limits(time_max or usual.time_max, None, max_tokens)
            return Method(Together(), *ends, limits, openings=openings)
        if delay != "wait":
            whole("delay", delay, "wait")
        schedule = self._schedule(delay, force)
        # Where a row waits for the end of all before it, all rules for empty rows are the same.
        trained: EmptyRows = usual.empty_rows if isinstance(schedule, Fixed) else "retry"
        rule: EmptyRows = empty_rows or (trained if min_start_prob is None else "retract")
        if rule not in get_args(EmptyRows):
            todo = f"use one of {', '.join(get_args(EmptyRows))}"
            raise UserError(f"there is no rule {rule!r} for empty rows", todo=todo)
        if min_start_prob is not None:
            self._check_min_start_prob(min_start_prob, rule, schedule)
        if isinstance(schedule, Whole):
            limits = Limits(time_max, sub_max, max_tokens or SEQUENTIAL_LIMITS.max_tokens)
            return Method(schedule, *ends, limits, "retry")
        repeats = usual.stop_on_repeat if stop_on_repeat is None else stop_on_repeat
        sub_max = sub_max or usual.segmentation.sub_max
        if rule != "retract" and isinstance(schedule, Fixed):
            limits = Limits(time_max or usual.time_max, sub_max, max_tokens)
            return Method(schedule, *ends, limits, rule, repeats)
        if rule == "retract" and usual.delay != "any" and not force:
            only = f"{self.checkpoint.name} was trained for delay {usual.delay} only, and attempts start at any time"
            todo = "train with --delay any, or leave --empty-rows retract and --min-start-prob out"
            raise UserError(only, todo=todo)
        limits = Limits(time_max, sub_max, max_tokens or SEQUENTIAL_LIMITS.max_tokens)
        return Method(schedule, *ends, limits, rule, repeats, min_start_prob or 0.0)

    @staticmethod
    def _check_min_start_prob(value: float, rule: EmptyRows, schedule: Schedule) -> None:
        asked = f"--min-start-prob {value}"
        if rule != "retract":
            todo = "use --empty-rows retract, or leave one of them out"
            raise UserError(f"{asked} does not go with --empty-rows {rule}", todo=todo)
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UserError(f"{asked} is no probability", todo="use a number from 0 to 1")
        if isinstance(schedule, Waiting):
            what = f"{asked} says when to start early, and with --delay wait nothing does"
            raise UserError(what, todo="leave one of them out")

    def _schedule(self, delay: Delay | None, force: bool) -> Schedule:
        if self.settings.decoder == "sequential":
            if delay not in (None, "wait"):
                todo = "leave --delay out, or use a checkpoint that `pipedec train` made with --decoder pipelined"
                raise UserError(f"{self.checkpoint.name} is an ordinary model and has no delay", todo=todo)
            return Whole()
        trained, wanted = self.settings.delay, delay or self.settings.usual_delay
        if trained not in ("any", wanted) and not force:
            only = f"{self.checkpoint.name} was trained for delay {trained} only"
            loss = "it would take the first later exploration for the end and drop the rest of the text"
            todo = f"use delay {trained}, train with --delay any, or insist with `pipedec generate --force`"
            raise UserError(f"{only}; at {wanted} {loss}", todo=todo)
        return Fixed(wanted) if isinstance(wanted, int) else Waiting()

    def run(
        self, sources: Iterable[str], method: Method | Verify | None = None, batch_size: int | None = None
    ) -> Iterator[Event | Generated]:
        """Texts, read a window at a time, to events as they happen and each `Generated` as soon as input order allows."""
        waiting: dict[int, _Open] = {}
        due, size = 0, whole("batch_size", batch_size) or self.batch_size
        away = 0.0  # seconds that the reader of the events took
        how = method or self.method()
        if not isinstance(how, Method | Verify):
            raise UserError(f"the method is {how!r}", todo="give what decoder.method(...) gives")
        ends = (how.eos if how.bos is None else how.bos, how.eos)
        require_ids("the method", ends, self.weights.vocabulary)
        window = 1 if size == 1 else size * SORTED_BATCHES
        for event in decode(self.engine(size), self._sorted(sources, waiting, window), how, size):
            if isinstance(event, Admitted):
                waiting[event.example].admitted = time.perf_counter() - away
            elif isinstance(event, Stepped):
                number, gone = event.step.number, event.step.taken_back
                waiting[event.example].calls.append(event.step.time)
                waiting[event.example].taken_back += [
                    (number, slot.subsequence, slot.time, slot.token) for slot in gone
                ]
            left = time.perf_counter()
            yield event
            away += time.perf_counter() - left
            if isinstance(event, Finished):
                waiting[event.example].result = self._result(event, waiting[event.example], away)
            while due in waiting and (result := waiting[due].result):
                del waiting[due]
                due += 1
                yield result

    def texts(
        self, sources: Iterable[str], method: Method | Verify | None = None, batch_size: int | None = None
    ) -> Iterator[Generated]:
        """Generate from texts, the results alone."""
        return (item for item in self.run(sources, method, batch_size) if isinstance(item, Generated))

    def _sorted(
        self, sources: Iterable[str], waiting: dict[int, _Open], size: int
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Sources as ids, longest first within a window, so that those in flight together are alike."""
        numbered = enumerate(several(sources))
        while window := list(islice(numbered, size)):
            for index, text in window:
                waiting[index] = _Open(*self.text.source(text))
            for index in sorted((index for index, _ in window), key=lambda i: -len(waiting[i].ids)):
                yield index, waiting[index].ids

    def joined(self, event: Finished) -> tuple[str, tuple[str, ...]]:
        """What was written, its subsequences put together, and each of them; an object as the plain model writes it."""
        if self.fields and self.checkpoint.together:
            values = tuple(text or "" for text in self._values(event, self.fields))
            return plain_text(values, self.fields.fields), values
        segments = tuple(filter(None, (self.text.decode(ids) for ids in event.texts)))
        return self.settings.segmentation.joiner.join(segments), segments

    def worded(self, generated: Generated) -> str:
        """What was generated as the plain model writes it: an object in words, not as JSON."""
        return self.fields.plain(generated.fields) if self.fields and generated.fields else generated.text

    def _values(self, event: Finished, fields: FieldCodec) -> Sequence[str | None]:
        """The text of each value, as the rows or a plain model have it; None for one that was cut."""
        if self.checkpoint.together:
            return [
                self.text.decode(row.text_tokens) if row.ended else None for row in event.grid.subsequences
            ]
        whole = self.text.decode([token for text in event.texts for token in text])
        return read_plain(whole, fields.fields, cut=event.grid.truncated is not None)

    def _result(self, event: Finished, source: _Open, away: float) -> Generated:
        values = None
        if self.fields is not None:
            texts = self._values(event, self.fields)
            values = self.fields.read(texts, unconstrained=self.unconstrained)
            text, segments = json.dumps(values, ensure_ascii=False), tuple(filter(None, texts))
        else:
            text, segments = self.joined(event)
            if self.settings.decoder == "sequential" and self.checkpoint.segmenter is not None:
                text = "".join(
                    segments
                )  # the whole target came as one; it is cut as the training targets were
                segments = self.checkpoint.segmenter.cut(text)
        # What is there tells when there was a call, but for rows that were dropped and calls that make several tokens.
        told = isinstance(event.grid, Grid) and not event.grid.stopped_on_repeat
        return Generated(
            index=event.example,
            text=text,
            segments=segments,
            steps=event.grid.steps,
            tokens=event.grid.tokens,
            truncated=event.grid.truncated,
            seconds=time.perf_counter() - away - source.admitted,
            grid=tuple((row.start, tuple(row.tokens)) for row in event.grid.subsequences),
            empty=event.grid.empty,
            row_budget_exhausted=event.grid.row_budget_exhausted,
            stopped_on_repeat=event.grid.stopped_on_repeat,
            calls=() if told else tuple(source.calls),
            taken_back=tuple(source.taken_back),
            source_ids=tuple(source.ids),
            source_cut=source.cut,
            fields=values,
        )


def load(
    name: str | Path,
    *,
    batch_size: int = 1,
    dtype: str = "float32",
    device: str = "auto",
    max_source_tokens: int | None = None,
    consume: bool = True,
) -> Decoder:
    """Load a folder that `pipedec train` made, another local folder or a hub model, and make it ready to generate.

    The dtype is ``float32``, ``bfloat16``, on a CPU ``int8`` or, on a GPU, ``float16``; the device ``auto``, ``cpu``, ``cuda`` or
    ``cuda:N``; the rest is as in `Decoder`. A UserError where the checkpoint or the device is not there, or its family is none of those served.
    """
    where = choose_device(device)
    kind = choose_dtype(dtype, where)
    quantize = kind == torch.int8
    loaded = torch.float32 if quantize else kind
    bare = partial(weights_suffice, dtype=kind) if consume and where.type == "cpu" else None
    checkpoint = load_checkpoint(str(name), dtype=loaded, device=str(where), bare=bare)
    return Decoder(
        checkpoint,
        batch_size=batch_size,
        max_source_tokens=max_source_tokens,
        consume=consume,
        quantize=quantize,
    )
