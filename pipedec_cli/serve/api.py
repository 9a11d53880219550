"""The HTTP server: paths, keys, limits and log lines. The shapes of each API stand in files of their own."""

import asyncio
import hmac
import re
import signal
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response, StreamingResponse
from uvicorn import Config, Server

from pipedec_cli.data.records import Generated
from pipedec_cli.serve.answers import Exchange, noted
from pipedec_cli.serve.body import RefusalError
from pipedec_cli.serve.chat import ChatExchange
from pipedec_cli.serve.decisions import DecisionsExchange, SystemOneExchange
from pipedec_cli.serve.metrics import Metrics
from pipedec_cli.serve.responses import ResponsesExchange
from pipedec_cli.serve.service import EndingError, Request, Service
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
#: How a body is read, by its path.
_APIS: Final[dict[str, Callable[[bytes], Exchange]]] = {
    "/v1/chat/completions": partial(ChatExchange, is_chat=True),
    "/v1/completions": partial(ChatExchange, is_chat=False),
    "/v1/responses": ResponsesExchange,
    "/v1/decisions": DecisionsExchange,
    "/v1/systemone": SystemOneExchange,
}
_FOR_ALL: Final = ("/", "/health", "/ready")  # without a key
#: The paths that the metrics name.
_ROUTES: Final = (*_APIS, "/v1/models", "/metrics", *_FOR_ALL)
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
            refused = noted(error, entry)
            if not status:
                headers = _HEADERS.get(refused.status, _CLOSE)
                # One with Expect sends nothing before the answer.
                if refused.status != 408 and "expect" not in http.headers:
                    await body.read_on(READ_TIMEOUT)
                answer = _json({"error": refused.error}, refused.status, headers)
                await answer(scope, receive, note)
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
            case "POST", _ if path in _APIS:
                return await self._answer(http, entry, _APIS[path])
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
        what = f"{http.method} {path} is not served; {_served_at(path)}"
        raise RefusalError(404, what, code="unknown_url")

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

    async def _answer(
        self, http: Http, entry: dict[str, Any], read: Callable[[bytes], Exchange]
    ) -> Response:
        """Read a body, and answer it once it has its place."""
        exchange = read(await self._body(http))
        self._named(exchange.model)
        request = exchange.request
        self._refuse_together(request)
        events = self._events(http, request, entry)
        await anext(events)  # it has its place: what can be refused has been
        exchange.begin(entry)
        if request.streamed:
            parts = exchange.stream(events)
            return StreamingResponse(parts, media_type="text/event-stream")
        return _json(exchange.whole(await anext(events)))

    def _refuse_together(self, request: Request) -> None:
        """Refuse what cannot be asked for together."""
        if request.stop and request.schema is not None:
            what = "stop is for texts; leave it out where an object is wanted"
            raise RefusalError(400, what, "stop")
        if request.top >= 0 and (request.streamed or self.service.decoder.drafter):
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


def _served_at(path: str) -> str:
    """What to ask for in place of a path, or of a method that it does not have."""
    if path in _APIS:
        return f"ask POST {path}"
    if path in _ROUTES:
        return f"ask GET {path}"
    return f"ask POST {', '.join(_APIS)} or GET /v1/models"


def _name_in(place: str) -> str:
    """The name or the address in a host or an origin, without scheme and port."""
    return re.sub(r"^.*://|:\d*$", "", place).strip("[]")


def is_local(name: str) -> bool:
    """Whether a name or an address is of this machine alone."""
    with suppress(ValueError):
        return ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def _route(path: str) -> str:
    """The path as metrics name it: clients make up no names."""
    if path.startswith("/v1/models/"):
        return "/v1/models"
    return path if path in _ROUTES else "other"


def _json(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")


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
