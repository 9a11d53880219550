"""The body of a request: OpenAI's parameters, which of them are served, and the request that they make."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct, field

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import (
    BYTE_ORDER_MARK,
    as_json,
    as_text,
    mended,
    mended_text,
)
from pipedec_cli.serve.service import Request

#: Parameters without effect here.
_SILENT: Final = frozenset(
    str.split(
        "user metadata seed store service_tier safety_identifier prompt_cache_key parallel_tool_calls reasoning_effort"
    )
)
#: Parameters that are not served, by the reason; but for values without effect, which
#: are null, 0, empty and `_IDLE`.
_UNSERVED: Final = {
    "decoding is greedy": "temperature top_p top_k min_p n best_of presence_penalty frequency_penalty logit_bias",
    "the answer is sent alone": "echo suffix",
    "no model here calls tools": "tools tool_choice functions function_call",
    "answers are texts": "modalities audio",
}
_REASONS: Final = {
    name: reason for reason, names in _UNSERVED.items() for name in names.split()
}
_CALLS: Final = dict.fromkeys(("tool_choice", "function_call"), ("none", "auto"))
_IDLE: Final = {
    "top_p": (1,),
    "n": (1,),
    "best_of": (1,),
    "modalities": (["text"],),
    **_CALLS,
}
#: Many clients send the API's default of 1 without a thought: it is taken, with this
#: warning.
_GREEDY: Final = "temperature is 0 here: decoding is greedy"
#: What to send where a value does not fit, by the last name of its path.
_ADVICE: Final = {
    "type": "send text",
    "role": "send system, user or assistant",
    "prompt": "send one text a request, which is not blank",
    "messages": "send 1 to 64 messages, each with a role and content",
    "content": "send a text",
    "stop": "send up to 4 texts",
    "stream": "send true or false",
    "logprobs": "send true or false, or 0 to 5",
    "top_logprobs": "send 0 to 5",
    "max_tokens": "send a whole number from 1 on",
    "max_completion_tokens": "send a whole number from 1 on",
    "response_format": 'send an object, such as {"type": "text"}',
}
#: What other servers' parameters are called here.
_ALIASES: Final = {
    **dict.fromkeys(
        ("guided_json", "json_schema", "format", "grammar", "structured_outputs"),
        "response_format with a json_schema",
    ),
    **dict.fromkeys(("n_predict", "num_predict", "max_length"), "max_tokens"),
    "stop_sequences": "stop",
    "n_probs": "top_logprobs",
}
#: The parameters that hold texts.
_TEXTS: Final = frozenset({"prompt", "messages"})
_LIKE: Final = 0.75  # how alike the name of a parameter is to the one that is meant
_NAMED = 80  # characters of a name that a client made up, in an answer or the log

_Text = Annotated[str, Meta(pattern=r"\S")]
_Tokens = Annotated[int, Meta(ge=1)] | None


class RefusalError(Exception):
    """A refusal in the shape of OpenAI's errors."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.status = status
        self.param = param and mended_text(param[:_NAMED])
        error = {
            "message": mended_text(message),
            "type": kind,
            "param": self.param,
            "code": code,
        }
        self.body = {"error": error}


class _Part(Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class _Message(
    Struct
):  # an answer that is sent back has fields that hold nothing; names are not read
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part] | None = None

    @property
    def turn(self) -> tuple[str, str]:
        """The role and the text. A `RefusalError` for a message of a user or a model without text."""
        role = "system" if self.role == "developer" else self.role
        content = self.content or ""
        text = (
            content
            if isinstance(content, str)
            else "\n".join(part.text for part in content)
        )
        if not text.strip() and role != "system":
            what = f"a message of the {role} has no text; send its text as content"
            raise RefusalError(400, what, "messages")
        return role, text


class _StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False  # nothing is sent for it
    pipedec_rows: bool = False


class Completion(Struct, kw_only=True):
    """The parameters of ``/v1/completions``."""

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

    @property
    def schema(self) -> tuple[bytes | None, bool]:
        """The JSON Schema that is wanted, as in `Request`, and whether it is strict."""
        match self.response_format:
            case {"type": "text"}:
                return None, False
            case {"type": "json_object"}:
                return b"", False
            case {
                "type": "json_schema",
                "json_schema": {"schema": dict() as wanted, **more},
            }:
                strict = more.get("strict") or False
                if not isinstance(strict, bool):
                    what = "response_format: strict is no boolean; send true or false"
                    raise RefusalError(400, what, "response_format")
                return msgspec.json.encode(wanted), strict
        todo = "give text, json_object, or json_schema with a JSON Schema as json_schema.schema"
        raise RefusalError(400, todo, "response_format")


class Chat(Completion, kw_only=True):
    """The parameters of ``/v1/chat/completions``."""

    prompt: str = ""
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=64)]


def read_body(data: bytes, *, chat: bool) -> tuple[Completion, Request]:
    """The parameters in the bytes of a body, of a `chat` or of a completion, and the request that they make.

    A `RefusalError` names the parameter that is at fault.
    """
    sent = _parameters(data)
    warnings = _without_effect(sent)
    warnings += _whole_characters(sent)
    own, other = ("messages", "prompt") if chat else ("prompt", "messages")
    if sent.get(other):
        todo = f"send {own}, or ask /v1/{'' if chat else 'chat/'}completions"
        raise RefusalError(400, f"{other} is not served here; {todo}", other)
    prompt = sent.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        sent["prompt"] = prompt[0]
    body = _converted(sent, Chat if chat else Completion)
    messages = (
        body.messages if isinstance(body, Chat) else [_Message("user", body.prompt)]
    )
    *turns, (role, source) = (message.turn for message in messages)
    if role != "user":
        raise RefusalError(400, "the last message must be the user's", "messages")
    schema, is_strict = body.schema
    request = Request(
        source,
        tuple(turns),
        schema,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        streamed=body.stream,
        rows=body.stream_options.pipedec_rows,
        strict=is_strict,
        warnings=warnings,
        stop=body.stops,
        top=body.top,
    )
    return body, request


def _parameters(data: bytes) -> dict[str, Any]:
    """The parameters of a body, without null ones and those that mean nothing here; a `RefusalError` if it is no object."""
    data = data.removeprefix(BYTE_ORDER_MARK)
    try:
        as_text(data, "body", "send UTF-8")
        found = as_json(data, "body")
    except UserError as error:
        raise RefusalError(400, str(error)) from None
    if not isinstance(found, dict):
        raise RefusalError(400, "body: no object; send an object of parameters")
    return {
        name: value
        for name, value in found.items()
        if value is not None and name not in _SILENT
    }


def _without_effect(sent: dict[str, Any]) -> list[str]:
    """Remove the parameters that are not served from `sent`. Returns what to warn of.

    A `RefusalError` for one whose value would have an effect, but for a temperature of
    1, which is taken with a warning.
    """
    warnings = []
    for name in sorted(_REASONS.keys() & sent.keys()):
        value = sent.pop(name)
        if not value or value in _IDLE.get(name, ()):
            continue
        if name != "temperature" or value != 1:
            what = f"{name} is not served: {_REASONS[name]}; leave {name} out"
            raise RefusalError(400, what, name, "unsupported_parameter")
        warnings.append(_GREEDY)
    return warnings


def _whole_characters(sent: dict[str, Any]) -> list[str]:
    """Replace halves of surrogate pairs in the texts among `sent`, which is changed. Returns what to warn of.

    A `RefusalError` for another parameter that holds any.
    """
    warnings = []
    for name, value in sent.items():
        try:
            written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            what = f"{name[:_NAMED]}: NaN and Infinity are no JSON; send a number, or leave it out"
            raise RefusalError(400, what, name) from None
        if written.isascii() or mended_text(written) == written:
            continue
        if name not in _TEXTS:
            what = f"{name[:_NAMED]}: half a surrogate pair; send whole characters"
            raise RefusalError(400, what, name)
        sent[name] = mended(value)
        warnings.append(f"{name}: half a surrogate pair replaced by U+FFFD")
    return warnings


def _converted(sent: Mapping[str, Any], kind: type[Completion]) -> Completion:
    """The parameters as the class `kind` has them; a `RefusalError` for an unknown or missing one, or a value that does not fit."""
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in sent:
        if name not in known:
            close = get_close_matches(name[:_NAMED], known, 1, _LIKE)
            meant = _ALIASES.get(name) or next(iter(close), None)
            todo = f"send {meant}" if meant else "leave it out"
            raise RefusalError(
                400, f"there is no parameter {name[:_NAMED]!r}; {todo}", name
            )
    for name, parameter in known.items():
        if parameter.required and name not in sent:
            raise RefusalError(400, f"{name} is missing; send it", name)
    try:
        return msgspec.convert(sent, kind)
    except msgspec.ValidationError as error:  # which has no attributes
        what, _, path = str(error).partition(" - at `$.")
        path = path.rstrip("`")
        advice = _ADVICE.get(path.rpartition(".")[2])
        what = f"{path}: {what}"
        raise RefusalError(400, f"{what}; {advice}" if advice else what, path) from None
