"""OpenAI's API as far as it is served: paths, keys, limits, answers, streams and log lines."""

import asyncio
import hmac
import math
import re
import signal
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import accumulate
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response, StreamingResponse
from uvicorn import Config, Server

from pipedec_cli.data.errors import UserError, many
from pipedec_cli.data.predictions import spans_of
from pipedec_cli.data.records import Generated
from pipedec_cli.objects.grammar import spelled
from pipedec_cli.serve.body import Completion, RefusalError, read_body
from pipedec_cli.serve.metrics import Metrics
from pipedec_cli.serve.service import (
    EndingError,
    FullError,
    Request,
    Service,
    TooLongError,
)
from pipedec_cli.serve.settings import GRACE, READ_TIMEOUT

PAGE: Final = Path(__file__).with_name("page.html")
#: The most bytes of a request's body.
MOST_BYTES: Final = 1_000_000
#: The most bytes that are read on of a body that is refused. A client that still sends
#: would see a broken connection in place of the answer.
_MOST_READ: Final = 100_000_000
#: Seconds without a byte after which it is not read on.
_PAUSE: Final = 1.0
#: The page loads nothing from elsewhere, and no page shows it within itself.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "frame-ancestors 'none'"
)
_COMPLETIONS: Final = ("/v1/completions", "/v1/chat/completions")
_FOR_ALL: Final = ("/", "/health", "/ready")  # without a key
#: The paths that the metrics name.
_ROUTES: Final = (*_COMPLETIONS, "/v1/models", "/metrics", *_FOR_ALL)
#: The first bytes of what gzip compressed.
_GZIP: Final = b"\x1f\x8b"
#: The headers of a refusal, by its status; those of others are `_CLOSE`.
_CLOSE: Final = {"connection": "close"}  # part of the request may be unread
_HEADERS: Final = {
    415: {"accept-encoding": "identity", **_CLOSE},
    429: {"retry-after": "1"},
    503: {"retry-after": "1", **_CLOSE},
}


class _Body:
    """What a client sends, and whether all of it has come."""

    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self._has_ended = False

    async def receive(self) -> Any:
        """The next part, as ASGI has it."""
        message = await self._receive()
        if not message.get("more_body", False):  # the last part, or the client has left
            self._has_ended = True
        return message

    async def read_on(self, seconds: float) -> None:
        """Read what is left, and keep nothing, unless it is long or slow."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while size < _MOST_READ and not self._has_ended:
                    message = await asyncio.wait_for(self.receive(), _PAUSE)
                    size += len(message.get("body", b""))


class Api:
    """An ASGI application over a service. `log` takes the fields of a line, `keys` are those of clients."""

    is_local = False  # whether other machines cannot connect

    def __init__(
        self, service: Service, keys: Sequence[bytes], log: Callable[..., None]
    ) -> None:
        self.service = service
        self.settings = service.settings
        self.keys = keys
        self.log = log
        self.model: dict[str, Any] = {
            "id": service.name,
            "object": "model",
            "owned_by": "pipedec",
        }
        self.model["created"] = int(time.time())
        self.metrics = Metrics(service)
        #: The ids of requests that have a place, until their answer is sent.
        self.answering = set[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, whatever happens, and log it. This is what ASGI calls: `scope` is the request's head."""
        body = _Body(receive)
        http = Http(scope, body.receive)
        began = time.perf_counter()
        status = 0
        entry: dict[str, Any] = {
            "id": uuid.uuid4().hex,
            "method": http.method,
            "path": http.url.path[:200],
        }

        async def note(message: Any) -> None:
            nonlocal status
            status = status or message["status"]
            await send(message)

        try:
            async with asyncio.timeout(self.settings.timeout):
                response = await self._respond(http, entry)
                await response(scope, receive, note)
        except ClientDisconnect:
            entry["left"] = True
        except Exception as error:
            refused = _noted(error, entry)
            if not status:
                headers = _HEADERS.get(refused.status, _CLOSE)
                # One with Expect sends nothing before the answer.
                if refused.status != 408 and "expect" not in http.headers:
                    await body.read_on(READ_TIMEOUT)
                await _json(refused.body, refused.status, headers)(scope, receive, note)
        self.answering.discard(entry["id"])
        seconds = time.perf_counter() - began
        self.metrics.count_request(_route(http.url.path), status, seconds)
        self.log("request", **entry, status=status, seconds=round(seconds, 4))

    def _refuse_other_sites(self, http: Http) -> None:
        """Refuse what a browser sends for a page of another site, whose name may have this machine's address."""
        host = http.headers.get("host", "").lower()
        origin = http.headers.get("origin", "").lower()
        name = _name_in(host)
        allowed = [other.lower() for other in self.settings.allow_host]
        if (self.is_local or allowed) and not (is_local(name) or name in allowed):
            todo = "ask localhost, or a name that the server is started with (--allow-host)"
            raise RefusalError(403, f"{name[:80]!r} is not served; {todo}")
        if (
            origin
            and origin.partition("://")[2] != host
            and _name_in(origin) not in allowed
        ):
            raise RefusalError(403, "pages of other sites may not ask this server")

    def _refuse_strangers(self, http: Http) -> None:
        """Refuse who sends none of the keys, where there are any."""
        given = http.headers.get("authorization", "")
        scheme, _, key = given.partition(" ")  # bytes come as characters of Latin 1
        sent = (key.strip() if scheme.lower() == "bearer" else given).encode("latin-1")
        right = [
            hmac.compare_digest(sent, key) for key in self.keys
        ]  # all of them, in constant time
        if self.keys and not any(right):
            what = "the API key is missing or wrong; send the header Authorization: Bearer KEY"
            raise RefusalError(401, what, code="invalid_api_key")

    async def _respond(self, http: Http, entry: dict[str, Any]) -> Response:
        """The response to a request, by its path; what there is to log goes into `entry`. Errors are refusals."""
        self._refuse_other_sites(http)
        path = http.url.path
        if path not in _FOR_ALL:
            self._refuse_strangers(http)
        match http.method.replace("HEAD", "GET"), path:  # uvicorn leaves the body out
            case "POST", _ if path in _COMPLETIONS:
                return await self._complete(http, entry, chat="chat" in path)
            case "GET", "/":
                page = PAGE.read_bytes()
                return Response(
                    page,
                    media_type="text/html",
                    headers={"content-security-policy": _POLICY},
                )
            case "GET", "/ready" if self.service.closing:
                raise EndingError
            case "GET", "/health" | "/ready":
                return _json({"status": "ok"})
            case "GET", "/metrics":
                return Response(
                    self.metrics.written, media_type="text/plain; version=0.0.4"
                )
            case "GET", "/v1/models":
                return _json({"object": "list", "data": [self.model]})
            case "GET", _ if (name := path.removeprefix("/v1/models/")) != path:
                return _json(self._named(name))
        todo = "ask POST /v1/chat/completions, POST /v1/completions or GET /v1/models"
        raise RefusalError(
            404, f"{http.method} {path} is not served; {todo}", code="unknown_url"
        )

    def _named(self, name: str) -> dict[str, Any]:
        """What the API says of the model, if this is its name; else a `RefusalError`."""
        if name == self.service.name:
            return self.model
        what = f"there is no model {name[:80]!r}; this server has {self.service.name!r}"
        raise RefusalError(404, what, "model", "model_not_found")

    async def _body(self, http: Http) -> bytes:
        """The bytes of a body of JSON. A `RefusalError` if it is something else, too long or too slow."""
        if (
            http.headers.get("content-type", "").partition(";")[0].strip().lower()
            != "application/json"
        ):
            # Another site's page must ask before it sends this.
            raise RefusalError(
                415, "send JSON with the header Content-Type: application/json"
            )
        coding = http.headers.get("content-encoding", "identity").strip().lower()
        data = bytearray()
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                async for part in http.stream():
                    data += part
                    if len(data) > MOST_BYTES:
                        raise RefusalError(
                            413, f"a body has at most {MOST_BYTES:,} bytes"
                        )
        except TimeoutError:
            raise RefusalError(408, "the body did not come in time") from None
        if coding != "identity" or data.startswith(_GZIP):
            raise RefusalError(
                415,
                "the body is compressed; send it as it is, without Content-Encoding",
            )
        return bytes(data)

    async def _complete(
        self, http: Http, entry: dict[str, Any], *, chat: bool
    ) -> Response:
        """Generate what the body of a request asks for. The answer is sent whole, or as a stream if the body says so."""
        body, request = read_body(await self._body(http), chat=chat)
        self._named(body.model)
        self._refuse_together(body, request)
        head = {"id": entry["id"], "created": int(time.time()), "model": body.model}
        events = self._events(http, request, entry)
        await anext(events)  # it has its place: what can be refused has been
        answers = _Answers(body, request, head, entry, is_chat=chat)
        if body.stream:
            return StreamingResponse(
                answers.stream(events), media_type="text/event-stream"
            )
        return _json(answers.whole(await anext(events)))

    def _refuse_together(self, body: Completion, request: Request) -> None:
        """Refuse what cannot be asked for together."""
        if body.stops and request.schema is not None:
            raise RefusalError(
                400, "stop is for texts; leave it out with a response_format", "stop"
            )
        if body.top >= 0 and (body.stream or self.service.decoder.drafter):
            what = (
                "logprobs are not sent in streams and in exact mode; leave logprobs out"
            )
            raise RefusalError(400, what, "logprobs")

    async def _events(
        self, http: Http, request: Request, entry: dict[str, Any]
    ) -> AsyncGenerator[Any]:
        """The events of a request. It frees its place if the client leaves, or nobody reads on."""
        queue = asyncio.Queue[Any]()
        loop = asyncio.get_running_loop()

        def tell(event: Any) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(queue.put_nowait, event)

        async def watch() -> None:
            while (await http.receive())["type"] != "http.disconnect":
                pass
            request.gone = True
            queue.put_nowait(ClientDisconnect())

        request.tell = tell
        self.service.submit(request)
        self.answering.add(entry["id"])
        watcher = asyncio.create_task(watch())
        event = None
        try:
            while not isinstance(event, Generated):
                event = await queue.get()
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, Generated):
                    read = request.prompt_tokens
                    entry["prompt_tokens"] = read
                    entry["tokens"] = event.tokens
                    entry["steps"] = event.steps
                    self.metrics.count_answer(read, event.tokens, event.steps)
                yield event
        finally:
            watcher.cancel()
            request.gone = True


class _Answers:
    """What a client is sent of its request: the answer as a whole, or its parts in a stream.

    `head` has the keys that each of them begins with, `entry` the fields of the log's
    line.
    """

    def __init__(
        self,
        body: Completion,
        request: Request,
        head: dict[str, Any],
        entry: dict[str, Any],
        *,
        is_chat: bool,
    ) -> None:
        self.body = body
        self.request = request
        self.head = head
        self.entry = entry
        self.is_chat = is_chat
        self._warn(None)

    def whole(self, end: Generated) -> dict[str, Any]:
        """The answer with all of the text."""
        self._tell_of(end)
        answer = _answer(self.head, end.text, end, chat=self.is_chat)
        if self.request.top >= 0:
            logprobs = _logprobs(self.request, chat=self.is_chat)
            answer["choices"][0]["logprobs"] = logprobs
        return answer | _usage(self.request, end)

    async def stream(self, events: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
        """The answer in parts as the events come, with an error as its last one if it fails."""
        is_first = True
        try:
            async for event in events:
                end = event if isinstance(event, Generated) else None
                part = self._part(event)
                if self.is_chat and not is_first:
                    # Clients put the pieces of each text together, the role's too.
                    del part["choices"][0]["delta"]["role"]
                is_first = False
                yield _sse(part)
                if end and self.body.stream_options.include_usage:
                    yield _sse(part | {"choices": []} | _usage(self.request, end))
            yield b"data: [DONE]\n\n"
        except ClientDisconnect:
            self.entry["left"] = True
        except Exception as error:
            yield _sse(_noted(error, self.entry).body)

    def _part(self, event: Any) -> dict[str, Any]:
        """A part of a stream: its end, or a text with the tokens of rows."""
        if isinstance(event, Generated):
            self._tell_of(event)
            return _answer(self.head, "", event, chat=self.is_chat, part=True)
        text, rows = event
        part = _answer(self.head, text, None, chat=self.is_chat, part=True)
        if self.request.rows:
            part["pipedec_rows"] = rows
        return part

    def _tell_of(self, end: Generated) -> None:
        """Add our own keys to the answer's JSON: what there is to say of an object's values, and warnings."""
        if end.fields is not None:
            of_values = {
                "pipedec_confidence": end.confidence,
                "pipedec_forced": end.forced,
                "pipedec_missing": end.missing,
                "pipedec_spans": spans_of(end.fields, self.request.source),
            }
            for name, value in of_values.items():
                if value:
                    self.head[name] = value
        self._warn(end)

    def _warn(self, end: Generated | None) -> None:
        """Add the warnings of a request, and of its result if it has one."""
        warnings = [*self.request.warnings, *self.request.unchecked]
        if end:
            warnings += end.violations
        if end and end.values_lost:
            lost = many(end.values_lost, "value")
            warnings.append(f"{lost} lost: cut short, or none that the schema allows")
        if warnings:
            warning = "; ".join(warnings)
            self.head["pipedec_warning"] = warning
            self.entry["warning"] = warning[:400]


def _name_in(place: str) -> str:
    """The name or the address in a host or an origin, without scheme and port."""
    return re.sub(r"^.*://|:\d*$", "", place).strip("[]")


def is_local(name: str) -> bool:
    """Whether a name or an address is of this machine alone."""
    with suppress(ValueError):
        return ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def _answer(
    made: dict[str, Any],
    text: str,
    end: Generated | None,
    *,
    chat: bool,
    part: bool = False,
) -> dict[str, Any]:
    """An answer in OpenAI's shape or, as a `part`, a piece of one in a stream.

    Args:
        made: the keys with which each answer begins.
        text: all of it, or what is new.
        end: the result; None where the answer is not at its end.
        chat: the shape of a chat, and not of a completion.
        part: a piece of a stream.
    """
    said = {"role": "assistant", "content": text}
    shape = {"delta" if part else "message": said} if chat else {"text": text}
    finish = None if end is None else "length" if end.truncated else "stop"
    kind = f"chat.completion{'.chunk' if part else ''}" if chat else "text_completion"
    choice = {"index": 0, **shape, "logprobs": None, "finish_reason": finish}
    return {"object": kind, **made, "choices": [choice]}


def _logprobs(request: Request, *, chat: bool) -> dict[str, Any]:
    """The tokens of all rows with the logarithms of their probabilities among all tokens, and the most probable ones."""
    written = spelled(request.decoder.text.tokenizer)

    def told(token: int, logarithm: float) -> dict[str, Any]:
        text = (
            written[token] if token < len(written) else b""
        )  # a matrix may have more rows
        return {
            "token": text.decode(errors="replace"),
            "logprob": max(logarithm, -9999.0),
            "bytes": [*text],
        }

    rows = request.grid.subsequences
    pairs = [
        pair for row in rows for pair in zip(row.text_tokens, row.odds, strict=False)
    ]
    content = [
        told(token, math.log(max(odds.answer * odds.allowed, 1e-300)))
        for token, odds in pairs
    ]
    tops = [[told(*one) for one in odds.top[: request.top]] for _, odds in pairs]
    if chat:
        return {
            "content": [
                one | {"top_logprobs": top}
                for one, top in zip(content, tops, strict=True)
            ]
        }
    by_text = [{one["token"]: one["logprob"] for one in top} for top in tops]
    names, logs = ([one[key] for one in content] for key in ("token", "logprob"))
    offsets = [*accumulate(map(len, names), initial=0)][:-1]
    return {
        "tokens": names,
        "token_logprobs": logs,
        "top_logprobs": by_text,
        "text_offset": offsets,
    }


def _usage(request: Request, end: Generated) -> dict[str, Any]:
    """How many tokens were read, generated, and taken out of the cache, in OpenAI's shape."""
    read, made = request.prompt_tokens, end.tokens
    usage = {
        "prompt_tokens": read,
        "completion_tokens": made,
        "total_tokens": read + made,
    }
    return {
        "usage": usage
        | {"prompt_tokens_details": {"cached_tokens": request.grid.cached}}
    }


def _route(path: str) -> str:
    """The path as metrics name it: clients make up no names."""
    if path.startswith("/v1/models/"):
        return "/v1/models"
    return path if path in _ROUTES else "other"


def _noted(error: Exception, entry: dict[str, Any]) -> RefusalError:
    """What a client is told of an error. Its name, and the parameter that is at fault, are noted in the log's `entry`."""
    refused = _refusal(error)
    name = type(error).__name__
    entry["error"] = f"{name}: {error}" if refused.status == 500 else name
    if refused.param:
        entry["param"] = refused.param
    return refused


def _refusal(error: Exception) -> RefusalError:
    """What a client is told of an error, by its class; of a fault of ours only that there is one."""
    if isinstance(error, RefusalError):
        return error
    if isinstance(error, UserError):
        code = "context_length_exceeded" if isinstance(error, TooLongError) else None
        return RefusalError(400, str(error), error.where, code)
    if isinstance(error, TimeoutError):
        return RefusalError(504, "the request took too long")
    if isinstance(error, FullError | EndingError):
        return RefusalError(429 if isinstance(error, FullError) else 503, str(error))
    return RefusalError(500, "the request could not be served")


def _json(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def _sse(content: Any) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


#: Seconds between two looks whether an ending server has sent all answers, and to send
#: those that the end has cut.
_TICK: Final = 0.05
_LAST_WORDS: Final = 2


class Listener(Server):  # type: ignore[misc]
    """Serves a service on sockets. `log` takes an event and the fields of a line, `keys` are those of clients."""

    def __init__(
        self, service: Service, keys: Sequence[bytes], log: Callable[..., None]
    ) -> None:
        settings = self.settings = service.settings
        self.most = 2 * (settings.batch_size + settings.queue) + 64  # connections
        # So many more may come between two ticks.
        how: Any = {
            "lifespan": "off",
            "ws": "none",
            "log_config": None,
            "limit_concurrency": 4 * self.most,
        }
        self.api = Api(service, keys, log)
        super().__init__(
            Config(self.api, timeout_graceful_shutdown=int(GRACE) + 2, **how)
        )
        self.service, self.log = service, log
        self._ending, self._idle = list[Any](), dict[Any, float]()

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say where."""
        self.api.is_local = is_local(sockets[0].getsockname()[0])
        await super().startup(sockets)
        host, port = sockets[0].getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self.log("ready", model=self.service.name, url=url)

    async def on_tick(self, counter: int) -> bool:
        """Some times a second, cut connections whose client has not sent a request, or read an answer, for too long.

        Where there are too many connections, the longest idle ones are cut sooner.
        """
        now, idle = monotonic(), dict[Any, float]()
        surplus = len(self.server_state.connections) - self.most
        for one in self.server_state.connections:
            if (
                one.cycle is None
                or one.cycle.response_complete
                or one.transport.is_closing()
            ):
                idle[one, one.cycle] = self._idle.get((one, one.cycle), now)
        for place, (one, cycle) in enumerate(sorted(idle, key=idle.__getitem__)):
            if place < surplus or now - idle[one, cycle] > READ_TIMEOUT:
                one.transport.abort()
        self._idle = idle
        return bool(await super().on_tick(counter))

    async def shutdown(self, sockets: Any = None) -> None:
        """Wait for what runs, as long as the grace allows, and for the engine."""
        await super().shutdown(sockets)
        self.service.close(at_once=True)
        await asyncio.to_thread(self.service.thread.join, 1.0)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the server; a second one at once."""
        loop = asyncio.get_running_loop()
        for name in (
            (signal.SIGTERM, signal.SIGINT) if current_thread() is main_thread() else ()
        ):
            loop.add_signal_handler(
                name, lambda: self._ending.append(loop.create_task(self._end()))
            )
        yield

    async def _end(self) -> None:
        """Refuse newcomers, and close the port when all answers are sent, the grace is over or a second signal has come."""
        self.force_exit = self.service.closing
        self.service.close()
        over = monotonic() + GRACE
        while self.api.answering and monotonic() < over and not self.force_exit:
            await asyncio.sleep(_TICK)
        self.service.close(at_once=True)
        self.config.timeout_graceful_shutdown = _LAST_WORDS
        self.should_exit = True
