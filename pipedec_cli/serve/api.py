"""OpenAI's API as far as it is served: paths, keys, limits, answers, streams, log lines and metrics."""

import asyncio
import hmac
import math
import re
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from ipaddress import ip_address
from itertools import accumulate
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct, field
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response, StreamingResponse
from uvicorn import Config, Server

from pipedec_cli.data.errors import UserError, many
from pipedec_cli.data.predictions import spans_of
from pipedec_cli.data.records import Generated
from pipedec_cli.model.grammar import spelled
from pipedec_cli.serve.service import BusyError, Request, Service, TooLongError

PAGE: Final = Path(__file__).with_name("page.html")
#: The most bytes of a request's body.
MOST_BYTES: Final = 1_000_000
#: The page loads nothing from elsewhere.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
)
#: Parameters without effect here.
_SILENT: Final = frozenset(
    str.split(
        "user metadata seed store service_tier safety_identifier prompt_cache_key parallel_tool_calls reasoning_effort"
    )
)
#: Parameters that are not served, by the reason; but for values without effect, which are null, 0, empty and `_IDLE`.
_UNSERVED: Final = {
    "decoding is greedy": "temperature top_p top_k min_p n best_of presence_penalty frequency_penalty logit_bias",
    "the answer is sent alone": "echo suffix",
    "no model here calls tools": "tools tool_choice functions function_call",
    "answers are texts": "modalities audio",
}
_REASONS: Final = {name: reason for reason, names in _UNSERVED.items() for name in names.split()}
_CALLS: Final = dict.fromkeys(("tool_choice", "function_call"), ("none", "auto"))
_IDLE: Final = {"top_p": (1,), "n": (1,), "best_of": (1,), "modalities": (["text"],), **_CALLS}

_Text = Annotated[str, Meta(pattern=r"\S")]
_Tokens = Annotated[int, Meta(ge=1)] | None


class _Part(Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class _Message(Struct):  # an answer that is sent back has fields that hold nothing; names are not read
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part] | None = None

    @property
    def turn(self) -> tuple[str, str]:
        """The role and the text. A `RefusalError` for a message of a user or a model without text."""
        role = "system" if self.role == "developer" else self.role
        content = self.content or ""
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        if not text.strip() and role != "system":
            what = f"a message of the {role} has no text; send its text as content"
            raise RefusalError(400, what, "messages")
        return role, text


class _StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False  # nothing is sent for it
    pipedec_rows: bool = False


class _Completion(Struct, kw_only=True, forbid_unknown_fields=True):
    model: str
    prompt: _Text
    max_tokens: _Tokens = None
    max_completion_tokens: _Tokens = None
    stop: str | Annotated[list[str], Meta(max_length=4)] = ()  # type: ignore[assignment]
    logprobs: bool | Annotated[int, Meta(ge=0, le=5)] = False
    top_logprobs: Annotated[int, Meta(ge=0, le=5)] = 0
    stream: bool = False
    stream_options: _StreamOptions = field(default_factory=_StreamOptions)
    response_format: dict[str, Any] = field(default_factory=lambda: {"type": "text"})

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts before which the text ends."""
        return tuple(filter(None, [self.stop] if isinstance(self.stop, str) else self.stop))

    @property
    def top(self) -> int:
        """How many alternatives of each token are wanted; −1 without probabilities."""
        if self.logprobs is False:
            return -1
        return self.top_logprobs if self.logprobs is True else self.logprobs


class _Chat(_Completion, kw_only=True, forbid_unknown_fields=True):
    prompt: str = ""
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=64)]


class RefusalError(Exception):
    """A refusal in the shape of OpenAI's errors."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Api:
    """An ASGI application over a service. `log` takes the fields of a line, `keys` are those of clients."""

    is_local = False  # whether other machines cannot connect

    def __init__(self, service: Service, keys: Sequence[bytes], log: Callable[..., None]) -> None:
        self.service, self.settings, self.keys, self.log = service, service.settings, keys, log
        self.model: dict[str, Any] = {"id": service.name, "object": "model", "owned_by": "pipedec"}
        self.model["created"] = int(time.time())
        self.counts = Counter[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, whatever happens, and log it."""
        http, began, status = Http(scope, receive), time.perf_counter(), 0
        entry: dict[str, Any] = {"id": uuid.uuid4().hex, "method": http.method, "path": http.url.path[:200]}

        async def note(message: Any) -> None:
            nonlocal status
            status = status or message["status"]
            await send(message)

        try:
            async with asyncio.timeout(self.settings.timeout):
                await (await self._respond(http, entry))(scope, receive, note)
        except ClientDisconnect:
            entry["left"] = True
        except Exception as error:
            refused = _refusal(error)
            name = type(error).__name__
            entry["error"] = f"{name}: {error}" if refused.status == 500 else name
            if not status:
                headers = {"retry-after": "1"} if refused.status in (429, 503) else {"connection": "close"}
                await _json(refused.body, refused.status, headers)(scope, receive, note)
        self.counts[f'requests_total{{status="{status}"}}'] += 1
        self.log("request", **entry, status=status, seconds=round(time.perf_counter() - began, 4))

    async def _respond(self, http: Http, entry: dict[str, Any]) -> Response:
        host, origin = (http.headers.get(name, "").lower() for name in ("host", "origin"))
        # Refuse what a browser sends for a page of another site, whose name may have this machine's address.
        name, site = (re.sub(r"^.*://|:\d*$", "", text).strip("[]") for text in (host, origin))
        allowed = [*map(str.lower, self.settings.allow_host)]
        if (self.is_local or allowed) and not (is_local(name) or name in allowed):
            raise RefusalError(403, f"{name[:80]!r} is not served: ask localhost, or serve with --allow-host")
        if origin and origin.partition("://")[2] != host and site not in allowed:
            raise RefusalError(403, "pages of other sites may not ask this server")
        path, given = http.url.path, http.headers.get("authorization", "")
        scheme, _, key = given.partition(" ")  # bytes come as characters of Latin 1
        sent = (key.strip() if scheme.lower() == "bearer" else given).encode("latin-1")
        right = [hmac.compare_digest(sent, key) for key in self.keys]  # all of them, in constant time
        if self.keys and not any(right) and path not in ("/", "/health", "/ready"):
            what = "the API key is missing or wrong; send the header Authorization: Bearer KEY"
            raise RefusalError(401, what, code="invalid_api_key")
        match http.method.replace("HEAD", "GET"), path:  # uvicorn leaves the body out
            case "POST", "/v1/completions" | "/v1/chat/completions":
                return await self._complete(http, entry, chat="chat" in path)
            case "GET", "/":
                page = PAGE.read_bytes()
                return Response(page, media_type="text/html", headers={"content-security-policy": _POLICY})
            case "GET", "/ready" if self.service.closing:
                raise BusyError("the server ends")
            case "GET", "/health" | "/ready":
                return _json({"status": "ok"})
            case "GET", "/metrics":
                now = {"running": len(self.service.running), "waiting": len(self.service.waiting)}
                kept = self.service.kept
                now |= {"cached_tokens_total": kept.hits, "cache_bytes": kept.bytes}
                now |= {"cache_evictions_total": kept.evictions}
                counts = sorted({**self.counts, **now}.items())
                lines = "".join(f"pipedec_{name} {count}\n" for name, count in counts)
                return Response(lines, media_type="text/plain; version=0.0.4")
            case "GET", "/v1/models":
                return _json({"object": "list", "data": [self.model]})
            case "GET", _ if (name := path.removeprefix("/v1/models/")) != path:
                return _json(self._named(name))
        todo = "ask POST /v1/chat/completions, POST /v1/completions or GET /v1/models"
        raise RefusalError(404, f"{http.method} {path} is not served; {todo}", code="unknown_url")

    def _named(self, name: str) -> dict[str, Any]:
        if name == self.service.name:
            return self.model
        what = f"there is no model {name[:80]!r}; this server has {self.service.name!r}"
        raise RefusalError(404, what, "model", "model_not_found")

    async def _complete(self, http: Http, entry: dict[str, Any], *, chat: bool) -> Response:
        if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # Another site's page must ask before it sends this.
            raise RefusalError(415, "send JSON with the header Content-Type: application/json")
        data = bytearray()
        try:
            async with asyncio.timeout(self.settings.read_timeout):
                async for part in http.stream():
                    data += part
                    if len(data) > MOST_BYTES:
                        raise RefusalError(413, f"a body has at most {MOST_BYTES:,} bytes")
        except TimeoutError:
            raise RefusalError(408, "the body did not come in time") from None
        body, request = _read(data, chat=chat)
        self._named(body.model)
        if body.stops and request.schema is not None:
            raise RefusalError(400, "stop is for texts; leave it out with a response_format", "stop")
        if body.top >= 0 and (body.stream or self.service.decoder.drafter):
            what = "logprobs are not sent in streams and in exact mode; leave logprobs out"
            raise RefusalError(400, what, "logprobs")
        made = {"id": entry["id"], "created": int(time.time()), "model": body.model}
        events = self._events(http, request, entry)
        await anext(events)  # it has its place: what can be refused has been

        def tell_of(end: Generated | None = None) -> None:
            if end and end.fields is not None:
                of_values = {"confidence": end.confidence, "forced": end.forced, "missing": end.missing}
                of_values["spans"] = spans_of(end.fields, request.source)
                made.update((f"pipedec_{name}", value) for name, value in of_values.items() if value)
            said = [*request.unchecked, *(end.violations if end else ())]
            if end and end.values_lost:
                said += [f"{many(end.values_lost, 'value')} lost: cut short, or none that the schema allows"]
            if said:
                made["pipedec_warning"] = "; ".join(said)
                entry["warning"] = made["pipedec_warning"][:400]

        tell_of()
        if not body.stream:
            end = await anext(events)
            tell_of(end)
            answer = _answer(made, end.text, end, chat=chat)
            answer["choices"][0]["logprobs"] = _logprobs(request, chat=chat) if request.top >= 0 else None
            return _json(answer | _usage(request, end))

        async def stream() -> AsyncGenerator[bytes]:
            try:
                async for event in events:
                    end = event if isinstance(event, Generated) else None
                    text, rows = ("", []) if end else event
                    tell_of(end)
                    part = _answer(made, text, end, chat=chat, part=True)
                    yield _sse(part | ({"pipedec_rows": rows} if request.rows and not end else {}))
                    if end and body.stream_options.include_usage:
                        yield _sse(part | {"choices": []} | _usage(request, end))
                yield b"data: [DONE]\n\n"
            except Exception as error:
                yield _sse(_refusal(error).body)

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def _events(self, http: Http, request: Request, entry: dict[str, Any]) -> AsyncGenerator[Any]:
        """The events of a request. It frees its place if the client leaves, or nobody reads on."""
        queue, loop = asyncio.Queue[Any](), asyncio.get_running_loop()

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
        watcher, event = asyncio.create_task(watch()), None
        try:
            while not isinstance(event, Generated):
                event = await queue.get()
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, Generated):
                    read, generated = request.prompt_tokens, event.tokens
                    made = {"prompt_tokens": read, "tokens": generated, "steps": event.steps}
                    self.counts.update({f"{name}_total": count for name, count in made.items()})
                    entry |= made
                yield event
        finally:
            watcher.cancel()
            request.gone = True


def is_local(name: str) -> bool:
    """Whether a name or an address is of this machine alone."""
    with suppress(ValueError):
        return ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def _read(data: bytearray, *, chat: bool) -> tuple[_Completion, Request]:
    """A body, and the request that it makes. A `RefusalError` names the parameter that is at fault."""
    kind = _Chat if chat else _Completion
    own, other = ("messages", "prompt") if chat else ("prompt", "messages")
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
        sent = {name: value for name, value in found.items() if value is not None and name not in _SILENT}
        for name in sorted(_REASONS.keys() & sent.keys()):
            if (value := sent.pop(name)) and value not in _IDLE.get(name, ()):
                what = f"{name} is not served: {_REASONS[name]}; leave {name} out"
                raise RefusalError(400, what, name, "unsupported_parameter")
        if sent.get(other):
            todo = f"send {own}, or ask /v1/{'' if chat else 'chat/'}completions"
            raise RefusalError(400, f"{other} is not served here; {todo}", other)
        if isinstance(prompt := sent.get("prompt"), list) and len(prompt) == 1:
            (sent["prompt"],) = prompt
        body = msgspec.convert(sent, kind)
    except (ValueError, RecursionError) as error:
        what, _, path = str(error).partition(" - at `$")
        name = path.strip(".`") or what.partition("field `")[2].rstrip("`")
        if "unknown field" in what:
            close = get_close_matches(name[:80], kind.__struct_fields__, 1)
            what += f"; send {close[0]}" if close and not path else "; leave it out"
        elif "Invalid enum" in what:
            what += f"; send {'text' if name.endswith('type') else 'system, user or assistant'}"
        raise RefusalError(400, f"{name}: {what}" if path else what, name or None) from None
    given = body.messages if isinstance(body, _Chat) else [_Message("user", body.prompt)]
    *turns, (role, source) = (message.turn for message in given)
    if role != "user":
        raise RefusalError(400, "the last message must be the user's", "messages")
    most = body.max_completion_tokens or body.max_tokens
    strict = False
    match body.response_format:
        case {"type": "text"}:
            schema = None
        case {"type": "json_object"}:
            schema = b""
        case {"type": "json_schema", "json_schema": {"schema": dict() as wanted, **more}}:
            schema, strict = msgspec.json.encode(wanted), more.get("strict") is True
        case _:
            todo = "give text, json_object, or json_schema with a JSON Schema as json_schema.schema"
            raise RefusalError(400, todo, "response_format")
    rows = body.stream_options.pipedec_rows
    how: Any = {"stop": body.stops, "top": body.top}
    return body, Request(source, (*turns,), schema, most, body.stream, rows, strict, **how)


def _answer(
    made: dict[str, Any], text: str, end: Generated | None, *, chat: bool, part: bool = False
) -> dict[str, Any]:
    """An answer, or a part of one in a stream; `end` is the result, if the answer is at its end."""
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
        text = written[token] if token < len(written) else b""  # a matrix may have more rows
        return {"token": text.decode(errors="replace"), "logprob": max(logarithm, -9999.0), "bytes": [*text]}

    rows = request.grid.subsequences
    pairs = [pair for row in rows for pair in zip(row.text_tokens, row.odds, strict=False)]
    content = [told(token, math.log(max(odds.answer * odds.allowed, 1e-300))) for token, odds in pairs]
    tops = [[told(*one) for one in odds.top[: request.top]] for _, odds in pairs]
    if chat:
        return {"content": [one | {"top_logprobs": top} for one, top in zip(content, tops, strict=True)]}
    by_text = [{one["token"]: one["logprob"] for one in top} for top in tops]
    names, logs = ([one[key] for one in content] for key in ("token", "logprob"))
    offsets = [*accumulate(map(len, names), initial=0)][:-1]
    return {"tokens": names, "token_logprobs": logs, "top_logprobs": by_text, "text_offset": offsets}


def _usage(request: Request, end: Generated) -> dict[str, Any]:
    read, made = request.prompt_tokens, end.tokens
    usage = {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}
    return {"usage": usage | {"prompt_tokens_details": {"cached_tokens": request.grid.cached}}}


def _refusal(error: Exception) -> RefusalError:
    if isinstance(error, UserError):
        parts = (error.todo or "").split(", or ")  # no client can follow what names options, commands or keys
        todo = ", or ".join(part for part in parts if not re.search("--|pipedec|time_max", part))
        code = "context_length_exceeded" if isinstance(error, TooLongError) else None
        return RefusalError(400, str(UserError(error.what, where=error.where, todo=todo)), error.where, code)
    if isinstance(error, BusyError):
        return RefusalError(429 if "wait" in str(error) else 503, str(error))
    status, what = (504, "took too long") if isinstance(error, TimeoutError) else (500, "could not be served")
    return error if isinstance(error, RefusalError) else RefusalError(status, f"the request {what}")


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def _sse(content: Any) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


class Listener(Server):  # type: ignore[misc]
    """Serves a service on sockets. `log` takes an event and the fields of a line, `keys` are those of clients."""

    def __init__(self, service: Service, keys: Sequence[bytes], log: Callable[..., None]) -> None:
        settings = self.settings = service.settings
        self.most = 2 * (settings.batch_size + settings.queue) + 64  # connections
        # So many more may come between two ticks.
        how: Any = {"lifespan": "off", "ws": "none", "log_config": None, "limit_concurrency": 4 * self.most}
        self.api = Api(service, keys, log)
        super().__init__(Config(self.api, timeout_graceful_shutdown=int(settings.grace) + 2, **how))
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
            if one.cycle is None or one.cycle.response_complete or one.transport.is_closing():
                idle[one, one.cycle] = self._idle.get((one, one.cycle), now)
        for place, (one, cycle) in enumerate(sorted(idle, key=idle.__getitem__)):
            if place < surplus or now - idle[one, cycle] > self.settings.read_timeout:
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
        for name in (signal.SIGTERM, signal.SIGINT) if current_thread() is main_thread() else ():
            loop.add_signal_handler(name, lambda: self._ending.append(loop.create_task(self._end())))
        yield

    async def _end(self) -> None:
        """Refuse newcomers. What runs has the grace to finish, unless a second signal has come."""
        self.force_exit, self.should_exit = self.service.closing, True
        self.service.close()
        await asyncio.sleep(0 if self.force_exit else self.settings.grace)
        self.service.close(at_once=True)
