"""The shapes of ``/v1/chat/completions`` and ``/v1/completions``: bodies, answers and streams."""

import math
from collections.abc import Iterator
from itertools import accumulate
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from pipedec_cli.data.records import Generated
from pipedec_cli.objects.grammar import spelled
from pipedec_cli.serve.answers import Exchange
from pipedec_cli.serve.body import (
    RefusalError,
    Roles,
    Text,
    Tokens,
    dialogue,
    parameters,
    read,
    schema_of,
)
from pipedec_cli.serve.service import Request
from pipedec_cli.serve.tools import Tool, forced


class _Part(Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class _Message(
    Struct
):  # an answer that is sent back has fields that hold nothing; names are not read
    role: Roles
    content: str | list[_Part] | None = None


class _StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False  # nothing is sent for it
    pipedec_rows: bool = False


class Completion(Struct, kw_only=True):
    """The parameters of ``/v1/completions``."""

    model: str
    prompt: Text
    max_tokens: Tokens = None
    max_completion_tokens: Tokens = None
    stop: str | Annotated[list[str], Meta(max_length=4)] = ()  # type: ignore[assignment]
    logprobs: bool | Annotated[int, Meta(ge=0, le=5)] = False
    top_logprobs: Annotated[int, Meta(ge=0, le=5)] = 0
    stream: bool = False
    stream_options: _StreamOptions = field(default_factory=_StreamOptions)
    response_format: dict[str, Any] = field(default_factory=lambda: {"type": "text"})

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts before which the text ends."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        return tuple(filter(None, stops))

    @property
    def top(self) -> int:
        """How many alternatives of each token are wanted; −1 without probabilities."""
        if self.logprobs is False and self.top_logprobs:
            what = "top_logprobs is for logprobs; send logprobs: true with it"
            raise RefusalError(400, what, "top_logprobs")
        if self.logprobs is False:
            return -1
        return self.top_logprobs if self.logprobs is True else self.logprobs


class Chat(Completion, kw_only=True):
    """The parameters of ``/v1/chat/completions``."""

    prompt: str = ""
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=64)]
    tools: Annotated[list[Tool], Meta(max_length=128)] = []
    tool_choice: str | dict[str, Any] = "auto"


class ChatExchange(Exchange):
    """A text, or the arguments of a function, in the shapes of chat completions and of completions."""

    closing = b"data: [DONE]\n\n"

    def __init__(self, data: bytes, *, is_chat: bool) -> None:
        """Read a body. A `RefusalError` names the parameter that is at fault."""
        self.is_chat = is_chat
        body, warnings = _body(data, is_chat=is_chat)
        earlier, source = dialogue(body.prompt, "prompt")
        form = body.response_format
        where = "response_format"
        #: The name of the function that is called, and why the call ends.
        self.function = ""
        self.finish = "stop"
        if isinstance(body, Chat):
            earlier, source = dialogue(body.messages, "messages")
            function = forced(body.tools, body.tool_choice)
            if function:
                if form.get("type") != "text":
                    what = (
                        "response_format is not for calls of a function; leave it out"
                    )
                    raise RefusalError(400, what, where)
                form = function.format
                where = "tools"
                self.function = function.name
                if body.tool_choice == "required":
                    self.finish = "tool_calls"
        schema, is_strict = schema_of(form, form.get("json_schema"), where)
        self.model = body.model
        self.with_usage = body.stream_options.include_usage
        self._is_first = True
        self.request = Request(
            source,
            earlier,
            schema,
            where=where,
            max_tokens=body.max_completion_tokens or body.max_tokens,
            streamed=body.stream,
            rows=body.stream_options.pipedec_rows,
            strict=is_strict,
            warnings=warnings,
            stop=body.stops,
            top=body.top,
        )

    def whole(self, end: Generated) -> dict[str, Any]:
        """The answer with all of the text."""
        self.tell_of(end)
        said: dict[str, Any] = {"role": "assistant", "content": end.text}
        if self.function:
            said = said | self._call(end.text) | {"content": None}
        logprobs = None
        if self.request.top >= 0:
            logprobs = _logprobs(self.request, chat=self.is_chat)
        shape = {"message": said} if self.is_chat else {"text": end.text}
        choice = self._choice(shape, end) | {"logprobs": logprobs}
        return self._answer([choice]) | self._counts(end)

    def parts(self, event: Any) -> Iterator[dict[str, Any]]:
        """The end of a stream, or more of its text with the tokens of rows."""
        end = None
        rows = {}
        text = ""
        if isinstance(event, Generated):
            end = event
            self.tell_of(end)
        else:
            text = event.text
            if self.request.rows:
                rows["pipedec_rows"] = event.rows
            if event.values is not None:
                rows["pipedec_object"] = event.values
        shape = {"delta": self._delta(text)} if self.is_chat else {"text": text}
        yield self._answer([self._choice(shape, end)], chunk=True) | rows
        if end and self.with_usage:
            yield self._answer([], chunk=True) | self._counts(end)

    def _delta(self, text: str) -> dict[str, Any]:
        """A piece of a message. Clients put all pieces of each text together, so the role comes once."""
        delta: dict[str, Any] = {"content": text}
        if self.function:
            delta = self._call(text, is_piece=True) if text or self._is_first else {}
        if self._is_first:
            delta = {"role": "assistant", "content": None} | delta
        self._is_first = False
        return delta

    def _call(self, arguments: str, *, is_piece: bool = False) -> dict[str, Any]:
        """The call of the function, or a piece of it."""
        function = {"arguments": arguments}
        call: dict[str, Any] = {"function": function}
        if is_piece:
            call["index"] = 0
        if not is_piece or self._is_first:
            function["name"] = self.function
            call["id"] = f"call_{self.id}"
            call["type"] = "function"
        return {"tool_calls": [call]}

    def _choice(self, shape: dict[str, Any], end: Generated | None) -> dict[str, Any]:
        """The only choice of an answer, with the reason for its end if it has ended."""
        finish = None
        if end is not None:
            finish = "length" if end.truncated else self.finish
        return {"index": 0, **shape, "logprobs": None, "finish_reason": finish}

    def _answer(self, choices: list[Any], *, chunk: bool = False) -> dict[str, Any]:
        kind = "text_completion"
        if self.is_chat:
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        head = {"object": kind, "id": self.id, "created": self.created}
        return {**head, "model": self.model, **self.own, "choices": choices}

    def _counts(self, end: Generated) -> dict[str, Any]:
        """How many tokens were read and made."""
        usage = self.usage(end)
        cached = usage["input_tokens_details"]["cached_tokens"]
        counts = {
            "prompt_tokens": usage["input_tokens"],
            "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["total_tokens"],
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return {"usage": counts}


def _body(data: bytes, *, is_chat: bool) -> tuple[Completion, list[str]]:
    """The parameters of a body, and what to warn of."""
    sent = parameters(data)
    own, other = ("messages", "prompt") if is_chat else ("prompt", "messages")
    if sent.get(other):
        todo = f"send {own}, or ask /v1/{'' if is_chat else 'chat/'}completions"
        raise RefusalError(400, f"{other} is not served here; {todo}", other)
    prompt = sent.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        sent["prompt"] = prompt[0]
    return read(sent, Chat if is_chat else Completion)


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
