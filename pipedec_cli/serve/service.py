"""The job of `pipedec serve`: a thread decodes all requests, newcomers join between two calls, others read schemas."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count, takewhile
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from msgspec import structs
from msgspec.json import decode as parsed

from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decisions import deciding
from pipedec_cli.decoding.decoder import Decoder, Source
from pipedec_cli.decoding.exact import measured
from pipedec_cli.jobs.loading import load_model
from pipedec_cli.jobs.run import method_of
from pipedec_cli.model.text import QUESTION
from pipedec_cli.objects.codec import FieldCodec, row_text
from pipedec_cli.objects.json_schema import keys_of, tree_in
from pipedec_cli.objects.questions import Question
from pipedec_cli.objects.reader import ObjectReader
from pipedec_cli.objects.rows import Rows
from pipedec_cli.objects.so_far import ObjectSoFar
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped, decode
from pipedec_cli.pipeline.grid import Method, Slot
from pipedec_cli.serve.settings import MAX_CHOICES, MAX_QUESTIONS, ServeSettings


class TooLongError(UserError):
    """A text has more tokens than the model reads."""


class FullError(Exception):
    """A request that is not taken, because so many run and wait already."""

    def __init__(self, running: int, waiting: int) -> None:
        self.running = running
        self.waiting = waiting
        super().__init__(
            f"the server is full, with {running} running and {waiting} waiting requests; ask again later"
        )


class EndingError(Exception):
    """A request that is not taken, or is cut, because the service ends."""

    def __init__(self) -> None:
        super().__init__("the server ends")


class More(NamedTuple):
    """What a decoder call has added to a streamed text."""

    text: str  # goes on behind all before it
    rows: Sequence[dict[str, Any]] = ()  # the new tokens, if they are wanted
    #: All values of an object that are final, if rows are wanted and there are new
    #: ones.
    values: dict[str, Any] | None = None


@dataclass(eq=False)
class Request:
    """A text to generate. `tell` takes what comes of it, in the service's thread.

    This is `Admitted`; if `streamed`, `More`; at last a `Generated` or an error.
    """

    source: str
    turns: tuple[tuple[str, str], ...] = ()  # a role and a text of each earlier message
    schema: bytes | None = None  # JSON; empty for the keys of the model
    where: str = "response_format"  # the parameter that has the schema
    questions: tuple[Question, ...] = ()  # what is decided about the text
    max_tokens: int | None = None
    streamed: bool = False
    rows: bool = False  # whether the tokens of rows are wanted
    strict: bool = (
        False  # whether a schema is refused that values are not held to in all
    )
    unchecked: Sequence[str] = ()  # what values are not held to
    warnings: Sequence[str] = ()  # what was asked for and is taken for something else
    tell: Callable[[Any], Any] = print
    stop: tuple[str, ...] = ()  # texts before which the text ends
    stopped: bool = False  # one of them has come
    top: int = (
        -1
    )  # so many alternatives of each token are wanted; −1: not even its probability
    gone: bool = False  # nobody waits for it
    read: Source = field(default_factory=lambda: Source([], False, ""))
    sent: str = ""
    draft: Sequence[int] = ()
    decoder: Any = None
    method: Any = None
    grid: Any = None
    so_far: ObjectSoFar | None = None  # of an object that is streamed

    @property
    def prompt_tokens(self) -> int:
        """The tokens that were read: the prompt, and what the rows begin with."""
        return len(self.read.ids) + sum(
            len(opening.known) for opening in self.grid.openings
        )

    def ended(self, text: str) -> str:
        """The text up to the first of the texts that end it."""
        return text[
            : min(
                (place for stop in self.stop if (place := text.find(stop)) >= 0),
                default=None,
            )
        ]


class Service:
    """A model that serves requests. `submit` and `close` may be called in any thread."""

    def __init__(self, settings: ServeSettings) -> None:
        decoder = load_model(settings.decoding)
        if (
            (prompt := decoder.text.prompt)
            and settings.chat is None
            and decoder.checkpoint.settings is None
        ):
            decoder.read_sources(
                chat=prompt.chat or bool(decoder.checkpoint.tokenizer.chat_template)
            )
        self.settings, self.decoder = settings, decoder
        self.engine, self.usual = (
            decoder.engine(settings.batch_size),
            method_of(settings.decoding, decoder),
        )
        self.kept = self.engine.stepper.kept
        self.kept.most = settings.cache_mb << 20
        self.name = settings.name or Path(decoder.checkpoint.name).name
        if decoder.drafter:
            decoder.drafter.costs = measured(decoder, settings.batch_size)
        self._drafter = (
            decoder.drafter if decoder.drafter and decoder.drafter.decoder else None
        )
        self._of = lru_cache(32)(self._decoder_of)
        self._of_questions = lru_cache(32)(self._deciding)
        self.closing, self._wake = False, threading.Event()
        self.waiting, self.running = deque[Request](), dict[int, Request]()
        self._unread = SimpleQueue[Request]()
        self.thread = threading.Thread(target=self._work, daemon=True)
        readers = (threading.Thread(target=self._read, daemon=True) for _ in range(2))
        for thread in (*readers, self.thread):
            thread.start()

    def submit(self, request: Request) -> None:
        """Let a request wait for its place. A `FullError` if too many wait, an `EndingError` if the service ends."""
        if self.closing:
            raise EndingError
        running = set(self.running.values())
        # One that is admitted just now is in both.
        waiting = [
            other
            for other in [*self.waiting]
            if not other.gone and other not in running
        ]
        if (
            len(running) + len(waiting)
            >= self.settings.batch_size + self.settings.queue
        ):
            raise FullError(len(running), len(waiting))
        is_text = request.schema is None and not request.questions
        if is_text and not self._drafter:
            request.decoder, request.method = self.decoder, self.usual
        self.waiting.append(request)
        self._wake.set() if request.method else self._unread.put(request)

    def _read(self) -> None:
        """Read the schemas of requests, or draft their texts, for those that somebody still waits for."""
        while True:
            request = self._unread.get()
            try:
                if request.gone:
                    raise EndingError
                if request.questions:
                    request.decoder, method = self._of_questions(request.questions)
                elif request.schema is None and self._drafter:
                    request.decoder, method, how = (
                        self.decoder,
                        self.usual,
                        _limited(self.usual, request),
                    )
                    request.draft = self._drafter.guess(
                        request.source, request.turns, how
                    )
                else:
                    request.decoder, method, request.unchecked = self._of(
                        request.schema, request.where
                    )
                if request.strict and request.unchecked:
                    what = request.unchecked[0].removeprefix(f"{request.where}: ")
                    raise UserError(
                        what,
                        where=request.where,
                        todo="leave them out, or leave strict out",
                    )
                request.method = (
                    method.of_source(method, request.source)
                    if method.of_source
                    else method
                )
            except Exception as error:  # of this request alone
                with suppress(ValueError):  # an ending server has refused it
                    self.waiting.remove(request)
                request.tell(error)
            self._wake.set()

    def close(self, *, at_once: bool = False) -> None:
        """Admit nothing more: what waits is refused. What runs goes on or, `at_once`, is refused as well."""
        self.closing = True
        self._wake.set()
        for request in [*self.running.values(), *self.waiting] if at_once else ():
            request.gone = True
            request.tell(EndingError())

    def _work(self) -> None:
        """What the decoding thread does until the service ends: decode all requests, and tell each what comes of it."""
        running = self.running
        over = lambda number: running[number].gone or running[number].stopped  # noqa: E731
        how: Any = {"gone": over, "sequences": self.settings.batch_size}
        while not self.closing or self.waiting:
            try:
                for event in decode(
                    self.engine, self._arrivals(), lambda n: running[n].method, **how
                ):
                    self._take(running[event.example], event)
            except (
                Exception
            ) as error:  # all that run have failed; the next ones find every place free
                while running:
                    running.popitem()[1].tell(
                        RuntimeError(f"{type(error).__name__}: {error}")
                    )

    def _arrivals(self) -> Iterator[tuple[int, Sequence[int]] | None]:
        """The requests as they come; None while none waits and others run, or when the service ends."""
        for number in count():
            while not ((request := self._next()) or self.running or self.closing):
                self._wake.wait()
                self._wake.clear()
            if not request:
                yield None
                continue
            self.running[number] = request
            try:
                self.waiting.remove(request)
                if self.closing or request.gone:
                    raise EndingError
                self._begin(number, request)
            except Exception as error:  # of this request alone
                self.running.pop(number).tell(error)
            else:
                yield number, request.read.ids

    def _next(self) -> Request | None:
        """The first request that is read; at the end of the service each, to be refused."""
        return next(
            (one for one in [*self.waiting] if one.method or self.closing), None
        )

    def _begin(self, number: int, request: Request) -> None:
        """Make ids of a request's text, and settle its decoding method. A `UserError` if it cannot be decoded.

        `number` is its number among the sequences that are decoded.
        """
        decoder, how = request.decoder, request.method
        chat, turns = decoder.text.prompt and decoder.text.prompt.chat, request.turns
        with _advising("messages", "send the user's message alone"):
            text = decoder.text.after(
                turns if chat else [turn for turn in turns if turn[1].strip()]
            )
        with _advising(None, "send a shorter text"):
            ids, cut = text.source(request.source)
        request.read = Source(ids, cut, request.source)
        if request.read.cut:
            most = decoder.text.max_source_tokens
            what = f"the text is too long: with the prompt it may have {most:,} tokens"
            raise TooLongError(what, todo="send a shorter text")
        request.method = how = _limited(how, request)
        if request.top >= 0:
            request.method = how = replace(how, confident=True, top=max(1, request.top))
        if drafter := decoder.drafter:
            request.method = drafter.check(how.limits.max_tokens, drafter.costs or ())
            request.method.drafts[number] = request.draft

    def _decoder_of(
        self, schema: bytes, where: str
    ) -> tuple[Decoder, Method, Sequence[str]]:
        """What writes the objects of a schema, and what they are not held to. A `UserError` if nothing does."""
        plain = self.decoder
        own = None if plain.drafter else plain.fields
        if own:
            return plain, self.usual, self._unchecked(own, schema, where)
        if not self._is_ordinary:
            raise UserError("the model does not write such objects", where=where)
        if not schema:
            raise UserError(
                "the model has no keys of its own",
                where=where,
                todo="send a json_schema",
            )
        return self._blind(schema, where)

    @property
    def _is_ordinary(self) -> bool:
        """Whether the model can answer in rows that it was not trained for."""
        plain = self.decoder
        is_sequential = plain.settings.decoder == "sequential"
        return plain.checkpoint.bos is None and is_sequential and not plain.drafter

    def _unchecked(self, own: FieldCodec, schema: bytes, where: str) -> list[str]:
        """What a model with keys of its own does not hold to in a schema. A `UserError` if the keys are others."""
        unchecked = list[str]()
        if not schema:
            return unchecked
        most = self.settings.max_keys, MAX_CHOICES
        wanted = keys_of(parsed(schema), where, unchecked.append, most)
        if not wanted:
            return unchecked
        own.require_keys(wanted, where)
        for key in own.fields:
            asked = wanted[key.name]
            is_of_kind = asked.kind in ("any", key.kind)
            is_free = is_of_kind and {*asked.absent} <= {"omit"}
            if not is_free or asked.enum not in ((), key.enum):
                unchecked.append(
                    f"{where}: {key.name!r} is written as the model has learnt it"
                )
        return unchecked

    def _blind(
        self, schema: bytes, where: str
    ) -> tuple[Decoder, Method, Sequence[str]]:
        """The same of an ordinary model, which is asked for each key."""
        settings = self.settings
        unchecked = list[str]()
        given = parsed(schema)
        most = settings.max_keys, MAX_CHOICES
        tree = tree_in(given, where, unchecked.append, most)
        rows = Rows(tree, schema=given, where=where, warn=unchecked.append)
        make = partial(blind_decoder, self.decoder, rows)
        decoder, method = self._of_rows(make, 32 * settings.max_keys, where)
        # What rows open costs as well: a list of many items with many keys is cut.
        limits = replace(method.limits, sub_max=2 * settings.max_keys)
        return decoder, replace(method, limits=limits), unchecked

    def _of_rows(
        self, make: Callable[..., Decoder], room: int, where: str
    ) -> tuple[Decoder, Method]:
        """A decoder of rows without training, whose questions have `room` for so many tokens, and how it decodes."""
        prompt = self.decoder.text.prompt
        template = self.settings.prompt_template
        if QUESTION not in (template or ""):  # a prompt may be meant for texts
            template = None
        with _advising(where, None):
            decoder = make(template=template, chat=prompt is not None and prompt.chat)
            method = method_of(self.settings.decoding, decoder)
        known = sum(len(opening.known) for opening in method.openings)
        if known > room:
            what = f"the questions take {known:,} tokens, and may take {room:,}"
            todo = "ask for less, or in shorter words"
            raise UserError(what, where=where, todo=todo)
        return decoder, method

    def _deciding(self, questions: tuple[Question, ...]) -> tuple[Decoder, Method]:
        """What answers questions about a text. A `UserError` if nothing does."""
        where = "questions"
        if not self._is_ordinary:
            raise UserError("the model answers no questions", where=where)
        choices = sum(len(question.options) for question in questions)
        if choices > MAX_CHOICES:
            what = (
                f"all questions have {choices:,} answers, and may have {MAX_CHOICES:,}"
            )
            raise UserError(what, where=where, todo="ask in several requests")
        make = partial(deciding, self.decoder, questions)
        return self._of_rows(make, 64 * MAX_QUESTIONS, where)

    def _take(self, request: Request, event: Event) -> None:
        """Tell a request what a decoder call or its end has made."""
        if isinstance(event, Admitted):
            request.grid = event.grid
            reader = request.decoder.reader
            if request.streamed and isinstance(reader, ObjectReader):
                request.so_far = ObjectSoFar(reader, event.grid)
            request.tell(event)
        elif isinstance(event, Finished):
            self._finish(request, event)
        elif request.streamed or request.stop:
            self._send_on(request, event)

    def _finish(self, request: Request, event: Finished) -> None:
        """Tell a request its result. A streamed request is told the rest of the text first.

        A text ends at the first stop string, and was then not cut by a limit. A client
        that has gone away gets an error in place of the result.
        """
        generated = request.decoder.result(event, request.read)
        text = request.ended(generated.text)
        if text != generated.text:
            generated = structs.replace(generated, text=text, truncated=None)
        del self.running[event.example]
        if request.streamed:
            request.tell(More(generated.text.removeprefix(request.sent)))
        request.tell(EndingError() if request.gone else generated)

    def _send_on(self, request: Request, event: Stepped) -> None:
        """Send what a call has added to a text, and end the text where one of `stop` stands."""
        values = None
        if request.so_far is None:
            text = settled(request)
        else:
            has_more = request.so_far.update()
            text = request.so_far.text
            if has_more and request.rows:
                values = request.so_far.values
        rows = [*_rows(request, event.step.made)] if request.rows else []
        whole = request.ended(text)
        request.stopped = whole != text
        # What may be the beginning of a text that ends it is held back.
        held = max((len(stop) - 1 for stop in request.stop), default=0)
        sure = whole[: len(whole) - held]
        more = ""
        if sure.startswith(request.sent):
            more = sure.removeprefix(request.sent)
        request.sent += more
        if request.streamed and (more or rows):
            request.tell(More(more, rows, values))


@contextmanager
def _advising(where: str | None, todo: str | None) -> Iterator[None]:
    """Give an error the place and the advice that fit a client: no client can change an option or a setting."""
    try:
        yield
    except UserError as error:
        raise UserError(error.what, where=where, todo=todo) from None


def _limited(method: Method, request: Request) -> Method:
    """The method with the tokens of a text bounded as the request asks."""
    wanted = filter(None, (method.limits.max_tokens, request.max_tokens))
    return replace(
        method, limits=replace(method.limits, max_tokens=min(wanted, default=None))
    )


def settled(request: Request) -> str:
    """The beginning of a text that no later token changes."""
    rows, decoder = request.grid.subsequences, request.decoder
    ended = [*takewhile(attrgetter("ended"), rows)]
    # Where a text ends when it repeats itself, the last row that has ended may be
    # dropped.
    shown = ended[:-1] if request.method.stop_on_repeat else rows[: len(ended) + 1]
    texts = [row_text(decoder.text, row) for row in shown]
    return str(decoder.settings.segmentation.joiner.join(filter(None, texts)))


def _rows(request: Request, made: Sequence[Slot]) -> Iterator[dict[str, Any]]:
    """The tokens that a decoder call made, for a client that draws the grid: each with its row, time-step, text and label."""
    openings, rows = request.grid.openings, request.grid.subsequences
    for number, at, token, *_ in made:
        label = openings[number - 1].label if openings else ""
        ended = False
        for row in rows[number - 1 : number]:  # a row that repeats others is dropped
            ended = row.ended and at == row.start + len(row.tokens)
        text = "" if ended else request.decoder.text.decode([token])
        yield {"row": number, "time": at, "text": text, "ended": ended, "label": label}
