"""The job of `pipedec serve`: one thread decodes all requests, and newcomers join between two decoder calls."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count, takewhile
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.json import decode as parsed

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.schema import keys_of, settled
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.loading import check_lists, load_model
from pipedec_cli.jobs.run import method_of
from pipedec_cli.model.decoder import Decoder, Source
from pipedec_cli.model.exact import measured
from pipedec_cli.model.rows import Rows, blind_decoder
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, decode
from pipedec_cli.pipeline.grid import Method, Slot

if TYPE_CHECKING:
    from pipedec_cli.serve.command import ServeSettings


class BusyError(Exception):
    """A request that is not taken now, or that the end of the service has cut."""


@dataclass(eq=False)
class Request:
    """A text to generate. `tell` takes what comes of it, in the service's thread.

    This is `Admitted`; if `streamed`, pairs of more of the text, in order, and new tokens; at last a `Generated` or an error.
    """

    source: str
    turns: tuple[tuple[str, str], ...] = ()  # a role and a text of each earlier message
    schema: bytes | None = None  # JSON; empty for the keys of the model
    max_tokens: int | None = None
    streamed: bool = False
    rows: bool = False  # whether the tokens of rows are wanted
    tell: Callable[[Any], Any] = print
    gone: bool = False  # nobody waits for it
    read: Source = field(default_factory=lambda: Source([], False))
    sent: str = ""
    decoder: Any = None
    method: Any = None
    grid: Any = None


class Service:
    """A model that serves requests. `submit` and `close` may be called in any thread."""

    def __init__(self, settings: ServeSettings, notify: Notify) -> None:
        """Load the model, and make its engine ready."""
        decoder = load_model(replace(settings, text=("",)), notify)  # sources are as those of --text
        if (prompt := decoder.text.prompt) and settings.chat is None and decoder.checkpoint.settings is None:
            decoder.read_sources(chat=prompt.chat or bool(decoder.checkpoint.tokenizer.chat_template))
        self.settings, self.decoder = settings, decoder
        self.engine, self.usual = decoder.engine(settings.batch_size), method_of(settings, decoder)
        self.name = settings.name or Path(decoder.checkpoint.name).name
        if decoder.drafter:
            decoder.drafter.costs = measured(decoder, settings.batch_size)
        self._of = lru_cache(32)(self._decoder_of)
        self.closing, self._wake = False, threading.Event()
        self.waiting, self.running = deque[Request](), dict[int, Request]()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Let a request wait for its place. A `BusyError` if too many wait, or the service ends."""
        waiting = sum(not one.gone for one in [*self.waiting])
        if self.closing or len(self.running) + waiting >= self.settings.batch_size + self.settings.queue:
            raise BusyError("the server ends" if self.closing else f"{waiting} requests are waiting")
        self.waiting.append(request)
        self._wake.set()

    def close(self, *, at_once: bool = False) -> None:
        """Admit nothing more: what waits is refused. What runs goes on or, `at_once`, ends before its next call."""
        self.closing = True
        self._wake.set()
        for request in [*self.running.values()] if at_once else ():
            request.gone = True
        self._thread.join() if at_once else None

    def _work(self) -> None:
        running = self.running
        how: Any = {"gone": lambda number: running[number].gone, "sequences": self.settings.batch_size}
        while not self.closing or self.waiting:
            try:
                for event in decode(self.engine, self._arrivals(), lambda n: running[n].method, **how):
                    self._take(running[event.example], event)
            except Exception as error:  # all that run have failed; the next ones find every place free
                while running:
                    running.popitem()[1].tell(RuntimeError(f"{type(error).__name__}: {error}"))

    def _arrivals(self) -> Iterator[tuple[int, Sequence[int]] | None]:
        """The requests as they come; None while none waits and others run, or when the service ends."""
        for number in count():
            while not (self.waiting or self.running or self.closing):
                self._wake.wait()
                self._wake.clear()
            if not self.waiting:
                yield None
                continue
            request = self.running[number] = self.waiting.popleft()
            try:
                if self.closing or request.gone:
                    raise BusyError("the server ends")
                self._begin(number, request)
            except Exception as error:  # of this request alone
                self.running.pop(number).tell(error)
            else:
                yield number, request.read.ids

    def _begin(self, number: int, request: Request) -> None:
        """Read a request. A `UserError` if it cannot be decoded."""
        decoder, how = (self.decoder, self.usual) if request.schema is None else self._of(request.schema)
        request.decoder = decoder
        request.read = Source(*decoder.text.after(request.turns).source(request.source))
        if request.read.cut:
            most = decoder.text.max_source_tokens
            raise UserError(f"the text is too long: with the prompt it may have {most:,} tokens")
        wanted = filter(None, (how.limits.max_tokens, request.max_tokens))
        request.method = how = replace(how, limits=replace(how.limits, max_tokens=min(wanted, default=None)))
        if drafter := decoder.drafter:
            request.method = drafter.check(how.limits.max_tokens, drafter.costs or ())
            if drafter.decoder is not None:  # the others wait for the draft
                (draft,) = drafter.decoder.texts([request.source], how, 1)
                request.method.drafts[number] = drafter.ids(draft)

    def _decoder_of(self, schema: bytes) -> tuple[Decoder, Method]:
        """What writes the objects of a schema. A `UserError` if nothing does."""
        plain, settings, where = self.decoder, self.settings, "response_format"
        own = None if plain.drafter else plain.fields
        if not own and (not schema or plain.checkpoint.bos is not None or plain.drafter):
            raise UserError("the model does not write such objects", where=where)
        wanted = keys_of(parsed(schema), where) if schema else {}
        if own:
            if wanted and {*wanted} != {one.name for one in own.fields}:
                names = ", ".join(sorted(one.name for one in own.fields))
                raise UserError(f"the model writes the keys {names}", where=where)
            return plain, self.usual
        check_lists(fields := tuple(map(settled, wanted.values())))
        chat = plain.text.prompt is not None and plain.text.prompt.chat
        made = blind_decoder(plain, Rows(fields), template=settings.prompt_template, chat=chat)
        return made, method_of(settings, made)

    def _take(self, request: Request, event: Event) -> None:
        """Tell of an event of the loop."""
        if isinstance(event, Admitted):
            request.grid = event.grid
            request.tell(event)
        elif isinstance(event, Finished):
            generated = request.decoder.result(event, request.read)
            del self.running[event.example]
            if request.streamed:
                request.tell((generated.text.removeprefix(request.sent), []))
            request.tell(BusyError("the server ends") if request.gone else generated)
        elif request.streamed:
            text, rows = _settled(request), [*_rows(request, event.step.made)] if request.rows else []
            more = text.removeprefix(request.sent) if text.startswith(request.sent) else ""
            request.sent += more
            if more or rows:
                request.tell((more, rows))


def _settled(request: Request) -> str:
    """The beginning of a text that no later token changes; nothing of an object, which is written at its end."""
    rows, decoder = request.grid.subsequences, request.decoder
    ended = [*takewhile(attrgetter("ended"), rows)]
    # Where a text ends when it repeats itself, the last row that has ended may be dropped.
    shown = ended[:-1] if request.method.stop_on_repeat else rows[: len(ended) + 1]
    texts = [decoder.text.decode(row.text_tokens) for row in shown]
    if len(shown) > len(ended):  # the last character may not be whole
        texts[-1] = texts[-1].rstrip("\ufffd")
    return "" if decoder.fields else str(decoder.settings.segmentation.joiner.join(filter(None, texts)))


def _rows(request: Request, made: Sequence[Slot]) -> Iterator[dict[str, Any]]:
    """The tokens that a decoder call made, each with its row and time."""
    openings, rows = request.grid.openings, request.grid.subsequences
    for number, at, token, *_ in made:
        label = (openings[number - 1].label or openings[number - 1].place[0]) if openings else ""
        ended = any(row.ended for row in rows[number - 1 : number])
        text = request.decoder.text.decode([token])
        yield {"row": number, "time": at, "text": text, "ended": ended, "label": label}
