"""A loaded decoder: checkpoint, method and engine together, from texts to `Generated`."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import torch
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.fields import FieldSegmenter, Keys
from pipedec_cli.data.records import Delay, Generated
from pipedec_cli.data.trained import is_gguf
from pipedec_cli.decoding.plans import FieldPlan, TextPlan
from pipedec_cli.decoding.text_reader import TextReader
from pipedec_cli.model.arguments import (
    DTYPES,
    STORED,
    check_positive_int,
    check_texts,
    choose_device,
    choose_dtype,
    computes_bfloat16,
)
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint, fingerprint, load_checkpoint
from pipedec_cli.model.choice import Choice
from pipedec_cli.model.engine.engine import DecoderWeights, Engine, lay_out, require_ids
from pipedec_cli.model.engine.native.kinds import INTEGERS
from pipedec_cli.model.engine.native.library import BuildError, library
from pipedec_cli.model.size import is_bfloat16
from pipedec_cli.model.text import usual_prompt
from pipedec_cli.objects.chunks import Chunks
from pipedec_cli.objects.codec import FieldCodec
from pipedec_cli.objects.reader import ObjectReader
from pipedec_cli.objects.tree import lacking
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped, decode
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import (
    Method,
)

if TYPE_CHECKING:
    from pipedec_cli.decoding.whole import WholePlan, WholeReader
    from pipedec_cli.objects.rows import BlindPlan


class Drafting(Protocol):
    """What guesses the texts of exact mode; see `pipedec_cli.decoding.exact`."""

    kind: Literal["pipelined", "source", "jacobi"]
    plain: Decoder  # the sequential model
    decoder: Decoder | None  # which drafts, if there is one
    costs: tuple[float, ...] | None  # of a call, by its number of guesses

    def run(
        self, exact: Decoder, sources: Iterable[str], method: Method, batch_size: int
    ) -> Iterator[Event | Generated]:
        """Draft and check; see `Decoder.run`."""
        ...

    def check(self, max_tokens: int | None, costs: Sequence[float]) -> Verify:
        """How to decode on the model's engine, with guesses of these costs."""
        ...

    def guess(
        self, source: str, turns: Sequence[tuple[str, str]], method: Method
    ) -> list[int]:
        """Draft one text: ids of the sequential model with <eos>."""
        ...

    def ids(self, draft: Generated) -> list[int]:
        """What the drafting decoder wrote, as ids of the sequential model."""
        ...


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


class Decoder:
    """A checkpoint ready to generate, in its dtype and on its device: a plan, a reader and engines.

    The tokens do not depend on the batch size: in float32 they are those of one example
    at a time, near-ties apart.
    """

    #: In exact mode, what guesses the text; see `ExactDecoder`.
    drafter: Drafting | None = None
    #: The plan, if rows are blind; see `blind_decoder`.
    blind: BlindPlan | None = None

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        batch_size: int = 1,
        max_source_tokens: int | None = None,
        consume: bool = False,
        dtype: str = "float32",
    ) -> None:
        """Take a checkpoint. Its weights are laid out for the engine when they are first needed.

        Args:
            checkpoint: The model, its tokenizer and how it was trained.
            batch_size: The default of `run`.
            max_source_tokens: Replaces the checkpoint's.
            consume: Empties the model's own matrices when they are laid out, so that
                they are in memory once: afterwards only the model's config can be used.
            dtype: As `load` takes it. int8 and int4 round matrices; a UserError if that
                is not possible.
        """
        self.checkpoint = checkpoint
        self.settings = checkpoint.settings or PLAIN
        self.text = checkpoint.codec()
        longest = check_positive_int("max_source_tokens", max_source_tokens)
        if longest is not None:
            self.text.max_source_tokens = longest
        self.batch_size = check_positive_int("batch_size", batch_size) or 1
        self.dtype = dtype
        kind = DTYPES[dtype]
        quantize = kind if kind in INTEGERS else None
        self._lay_out = cache(
            partial(lay_out, checkpoint.model, consume=consume, quantize=quantize)
        )
        self._engines: dict[int, Engine] = {}
        self._laying_out = Lock()
        self._in_use: dict[int, Lock] = {}

    def sharing(self, *, engines: bool = False, **parts: Any) -> Decoder:
        """A decoder of the same weights with these parts in place of ours.

        Its engines are its own. Where it shares ours as well, it takes over what these
        have read.
        """
        made = copy.copy(self)
        vars(made).update(parts)
        if not engines:
            vars(made).update(_engines={}, _in_use={})
        return made

    @property
    def weights(self) -> DecoderWeights:
        """The weights, which all engines share."""
        with self._laying_out:
            return self._lay_out()

    @cached_property
    def fields(self) -> FieldCodec | None:
        """The fields of the objects that it writes, None if it writes texts.

        Those of the data beside the checkpoint come before those it was trained with.
        """
        fields = self.settings.segmentation.fields
        segmenter = self.checkpoint.segmenter
        if isinstance(segmenter, FieldSegmenter):
            fields = segmenter.fields
        return FieldCodec(self.text, fields) if fields else None

    @cached_property
    def plan(self) -> TextPlan | FieldPlan | BlindPlan | WholePlan:
        """What says which rows are written and how: a row for each field if it was trained for that, else rows of text."""
        if self.fields is not None and self.checkpoint.together:
            return FieldPlan(self.checkpoint, self.fields)
        is_trained_here = self.checkpoint.settings is not None
        return TextPlan(self.checkpoint, self.fields if is_trained_here else None)

    @cached_property
    def reader(self) -> TextReader | ObjectReader | WholeReader:
        """What makes a text or an object of a finished grid."""
        if self.fields is None:
            return TextReader(self.checkpoint, self.text)
        tree = self.fields.tree

        def check(values: Any) -> Sequence[tuple[Keys, str]]:
            return [*lacking(tree, values)]

        if self.checkpoint.together:
            return ObjectReader(self.fields, self.fields.answers, check=check)
        is_foreign = self.checkpoint.settings is None  # it was not trained by pipedec
        return ObjectReader(
            self.fields, self.fields.plain_answers, is_foreign, check=check
        )

    @cached_property
    def sha256(self) -> str | None:
        """A hash of the checkpoint's files, which tells models apart."""
        return fingerprint(self.checkpoint)

    def read_sources(
        self, prompt: str | None = None, *, chat: bool | None = None
    ) -> None:
        """Change the prompt, and whether it stands in the chat template; None leaves either as it is.

        An encoder reads the text before the source as well, and no chat. In a chat the
        texts of a model from elsewhere end where its turns end. A UserError if the
        template does not fit.
        """
        if prompt is None and chat is None:
            return
        before = self.text.prompt
        if before is None:
            self._read_prefix(self.checkpoint.prefix(prompt, chat=chat))
            return
        chat = bool(before.chat if chat is None else chat)
        if prompt is None and before.template != usual_prompt(chat=before.chat):
            prompt = before.template
        if prompt is None:
            prompt = usual_prompt(chat=chat)
        self.text.prompt = self.checkpoint.prompt(prompt, chat=chat)
        if self.checkpoint.settings is None:
            self.checkpoint.end_as_usual(chat=chat)

    def _read_prefix(self, prefix: str) -> None:
        """Put a text before every source, and warn if the model was trained with another."""
        own = self.settings.source_prefix
        if self.checkpoint.settings is not None and prefix != own:
            log.warning(
                f"{self.checkpoint.name} was trained with the source prefix {own!r}, "
                f"not {prefix!r}"
            )
        self.text.prefix = prefix

    def chunks(self, size: int) -> Chunks:
        """How sources are cut into at most `size` tokens each, and their objects merged."""
        if isinstance(self.reader, ObjectReader):
            return Chunks(self.text, self.fields, size, self.reader.check)
        return Chunks(self.text, self.fields, size)

    def engine(self, batch_size: int | None = None) -> Engine:
        """The engine with room for so many examples (None: the decoder's own batch size); made once for each number."""
        size = check_positive_int("batch_size", batch_size) or self.batch_size
        if size not in self._engines:
            self._engines[size] = Engine(self.weights, size)
        return self._engines[size]

    @contextmanager
    def engine_alone(self, batch_size: int) -> Iterator[Engine]:
        """An engine that no other run has: that of `engine`, or a new one while another run has it.

        Runs overlap where threads share a decoder, and where one begins before another
        has ended.
        """
        in_use = self._in_use.setdefault(batch_size, Lock())
        if not in_use.acquire(blocking=False):
            yield Engine(self.weights, batch_size)
            return
        try:
            yield self.engine(batch_size)
        finally:
            in_use.release()

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
        """Generate from texts, which are read a window at a time.

        Yields events as they happen, and each `Generated` in the order of the sources.
        In exact mode the events are those of checking drafts.

        Args:
            sources: The texts.
            method: What `method` gives; None for the checkpoint's own.
            batch_size: The examples decoded at a time; None for the decoder's own.
        """
        size = check_positive_int("batch_size", batch_size) or self.batch_size
        method = method or self.method()
        if not isinstance(method, Method):
            raise UserError(
                f"the method is {method!r}", todo="give what decoder.method(...) gives"
            )
        if self.drafter is not None and not method.guesses:
            yield from self.drafter.run(self, sources, method, size)
            return
        opener = method.eos if method.bos is None else method.bos
        require_ids("the method", (opener, method.eos), self.weights.vocabulary)
        pending: dict[int, Source] = {}

        def method_of(index: int) -> Method:
            if method.of_source is None:
                return method
            return method.of_source(method, pending[index].text)

        with self.engine_alone(size) as engine:
            examples = self._sorted(sources, pending, size)
            events = decode(engine, examples, method_of, size)
            yield from self._events(events, pending)

    def _events(
        self, events: Iterator[Event], pending: dict[int, Source]
    ) -> Iterator[Event | Generated]:
        """Pass on the events of the loop, and add the result of each source in the order of the sources.

        `pending` has the sources that were read, by their index. They are removed when
        their result is given. Time that the reader of the events takes does not count.
        """
        due = 0  # the index of the next result
        away = 0.0  # seconds that the reader of the events took
        for event in events:
            source = pending[event.example]
            if isinstance(event, Admitted):
                source.admitted = time.perf_counter() - away
            elif isinstance(event, Stepped):
                step = event.step
                source.calls.append(step.time)
                for slot in step.taken_back:
                    token = (step.number, slot.subsequence, slot.time, slot.token)
                    source.taken_back.append(token)
            left = time.perf_counter()
            yield event
            away += time.perf_counter() - left
            if isinstance(event, Finished):
                source.result = self.result(event, source, away)
            while due in pending and (result := pending[due].result):
                del pending[due]
                due += 1
                yield result

    def texts(
        self,
        sources: Iterable[str],
        method: Method | None = None,
        batch_size: int | None = None,
    ) -> Iterator[Generated]:
        """Generate from texts: the results alone, in the order of the sources. The arguments are those of `run`."""
        events = self.run(sources, method, batch_size)
        return (event for event in events if isinstance(event, Generated))

    def _sorted(
        self, sources: Iterable[str], pending: dict[int, Source], batch_size: int
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Read sources a window at a time, and give each as (index, ids), the longest of a window first.

        So a batch holds sources of like lengths. Each is added to `pending` by its
        index.
        """
        numbered = enumerate(check_texts(sources))
        while texts := dict(islice(numbered, window_of(batch_size))):
            for index, text in texts.items():
                pending[index] = Source(*self.text.source(text), text)
            for index in sorted(texts, key=lambda index: -len(pending[index].ids)):
                yield index, pending[index].ids

    def result(self, event: Finished, source: Source, away: float = 0.0) -> Generated:
        """The result of a source whose grid is finished: what the grid says, and what it cost.

        `away` are seconds since the source was admitted that were not the decoder's.
        """
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
    dtype: str | None = None,
    device: str = "auto",
    max_source_tokens: int | None = None,
    consume: bool = True,
) -> Decoder:
    """Load a folder that `pipedec train` made, another local folder, a GGUF file or a hub model, ready to generate.

    `dtype` is ``float32``, ``bfloat16``, on a CPU ``int8``, ``int4`` or, of a GGUF
    file, ``stored``, on a GPU ``float16``. By default it is ``float32``, and of a GGUF
    file on a CPU ``stored``, if its blocks are computed here. Without compiled kernels
    it is ``bfloat16`` where files hold that, and the CPU multiplies it. `device` is
    ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; see `Decoder` for the rest. A UserError if the checkpoint or the device is not there, or the
    model's family is not supported.
    """
    where = choose_device(device)
    if dtype is None:
        dtype, checkpoint = _load_by_default(str(name), where, consume=consume)
    else:
        try:
            checkpoint = _load_in(dtype, str(name), where, consume=consume)
        except BuildError as error:
            what = f"{dtype} cannot be had here: {error}"
            todo = "use --dtype bfloat16 or float32"
            raise UserError(what, where=name, todo=todo) from error
    return Decoder(
        checkpoint,
        batch_size=batch_size,
        max_source_tokens=max_source_tokens,
        consume=consume,
        dtype=dtype,
    )


def _load_by_default(
    name: str, device: torch.device, *, consume: bool
) -> tuple[str, Checkpoint]:
    """The default dtype's name, and a checkpoint to be computed in it; see `load`."""
    dtype = usual_dtype(name, device, consume=consume)
    with suppress(BuildError):  # blocks that are not computed here
        return dtype, _load_in(dtype, name, device, consume=consume)
    return "float32", _load_in("float32", name, device, consume=consume)


def usual_dtype(name: str, device: torch.device, *, consume: bool = True) -> str:
    """The name of the dtype that a model is computed in where none is asked for; see `load`."""
    if device.type != "cpu":
        return "float32"
    if is_gguf(name):
        return "stored" if consume else "float32"
    if is_bfloat16(Path(name)) and computes_bfloat16():
        try:
            library()
        except BuildError:
            # torch multiplies it as fast, and it takes half of the memory.
            return "bfloat16"
    return "float32"


def _load_in(
    dtype: str, name: str, device: torch.device, *, consume: bool
) -> Checkpoint:
    """A checkpoint to be computed in a dtype."""
    kind = choose_dtype(dtype, device)
    if kind == STORED and not (consume and is_gguf(name)):
        what = f"stored is for GGUF files, and {name} is none"
        raise UserError(what, todo="use another --dtype")
    computed = kind if consume and device.type == "cpu" else None
    loaded = torch.float32 if kind in INTEGERS else kind
    return load_checkpoint(name, dtype=loaded, device=str(device), computed=computed)
