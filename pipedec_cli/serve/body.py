"""The body of a request: which parameters are served, and what a value that does not fit is answered with."""

import json
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import (
    BYTE_ORDER_MARK,
    as_json,
    as_text,
    mended,
    mended_text,
)

#: Parameters without effect here.
_SILENT: Final = frozenset(
    str.split(
        "user metadata seed store service_tier safety_identifier prompt_cache_key prompt_cache_options "
        "prompt_cache_retention parallel_tool_calls reasoning reasoning_effort"
    )
)
#: Parameters that are not served, by the reason; but for values without effect, which
#: are null, 0, empty and `_IDLE`.
_UNSERVED: Final = {
    "decoding is greedy": "temperature top_p top_k min_p n best_of presence_penalty frequency_penalty logit_bias",
    "the answer is sent alone": "echo suffix",
    "no model here calls tools": "tools tool_choice functions function_call max_tool_calls",
    "answers are texts": "modalities audio",
    "nothing is kept of a request": "previous_response_id conversation background",
    "longer texts are refused": "truncation",
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
    "truncation": ("disabled",),
    **_CALLS,
}
#: Many clients send the API's default of 1 without a thought: it is taken, with this
#: warning.
_GREEDY: Final = "temperature is 0 here: decoding is greedy"
#: What to send where a value does not fit, by the last names of its path.
_ADVICE: Final = {
    "content.type": "send text",
    "instructions.type": "send text",
    "questions.type": "send predicate, choice, score or pipedec_text",
    "questions.choices": 'send 2 to 255 choices, such as {"value": "yes"}',
    "type": "send a type that is served here",
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
    "tools": "send tools of the type function, with a name and parameters",
    "input": "send a text, or messages with a role and content",
    "text": 'send an object, such as {"format": {"type": "text"}}',
    "instructions": "send a text",
    "max_output_tokens": "send a whole number from 1 on",
    "questions": "send 1 to 400 questions, each with a type",
    "state": "send a text, an object or a list",
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
_TEXTS: Final = frozenset(
    ("prompt", "messages", "input", "instructions", "state", "questions")
)
_LIKE: Final = 0.75  # how alike the name of a parameter is to the one that is meant
_NAMED = 80  # characters of a name that a client made up, in an answer or the log

Text = Annotated[str, Meta(pattern=r"\S")]
#: What msgspec says of a blank text.
_BLANK: Final = r"Expected `str` matching regex '\\S'"
Tokens = Annotated[int, Meta(ge=1)] | None
Roles = Literal["system", "developer", "user", "assistant"]
Body = TypeVar("Body", bound=Struct)


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
        self.error = {
            "message": mended_text(message),
            "type": kind,
            "param": self.param,
            "code": code,
        }


def read(sent: dict[str, Any], kind: type[Body]) -> tuple[Body, list[str]]:
    """The parameters of an API, each with a value that fits, and what to warn of. A `RefusalError` names the one that is at fault."""
    served = {field.name for field in msgspec.structs.fields(kind)}
    warnings = _without_effect(sent, served)
    warnings += _whole_characters(sent)
    return _converted(sent, kind), warnings


def text_in(content: Any) -> str:
    """A text that may be given in parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content)


def turn_of(role: Roles, content: Any, where: str) -> tuple[str, str]:
    """The role and the text of a message, whose content may have parts. A `RefusalError` for a user or a model without text."""
    text = text_in(content)
    if not text.strip() and role not in ("system", "developer"):
        what = f"a message of the {role} has no text; send its text as content"
        raise RefusalError(400, what, where)
    return "system" if role == "developer" else role, text


def dialogue(
    given: str | list[Any], where: str
) -> tuple[tuple[tuple[str, str], ...], str]:
    """The earlier turns of messages, and the text of the last one, which must be the user's; a text is the user's."""
    if isinstance(given, str):
        return (), given
    turns = [turn_of(said.role, said.content or "", where) for said in given]
    *earlier, (role, source) = turns
    if role != "user":
        raise RefusalError(400, "the last message must be the user's", where)
    return tuple(earlier), source


def schema_of(
    form: Mapping[str, Any], inner: Any, where: str
) -> tuple[bytes | None, bool]:
    """The JSON Schema that a format wants, as in `Request`, and whether it is strict; the schema stands in its `inner` part."""
    kind = form.get("type")
    if kind == "text":
        return None, False
    if kind == "json_object":
        return b"", False
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if kind != "json_schema" or not isinstance(schema, dict):
        todo = "give text, json_object, or json_schema with a JSON Schema as its schema"
        raise RefusalError(400, todo, where)
    strict = inner.get("strict") or False
    if not isinstance(strict, bool):
        what = f"{where}: strict is no boolean; send true or false"
        raise RefusalError(400, what, where)
    return msgspec.json.encode(schema), strict


def parameters(data: bytes) -> dict[str, Any]:
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


def _without_effect(sent: dict[str, Any], served: Collection[str]) -> list[str]:
    """Remove the parameters that are not `served` from `sent`. Returns what to warn of.

    A `RefusalError` for one whose value would have an effect, but for a temperature of
    1, which is taken with a warning.
    """
    warnings = []
    for name in sorted(_REASONS.keys() & sent.keys() - served):
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


def _converted(sent: Mapping[str, Any], kind: type[Body]) -> Body:
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
    return fitted(sent, kind)


def fitted(sent: Any, kind: type[Body], where: str = "") -> Body:
    """What was sent in the parameter `where`, "" for the whole body, as the class `kind` has it; a `RefusalError` if it does not fit."""
    try:
        return msgspec.convert(sent, kind)
    except msgspec.ValidationError as error:  # which has no attributes
        what, _, path = str(error).partition(" - at `$")
        path = where + path.rstrip("`")
        if field := re.search(r"field `(.*)`$", what):
            path += f".{field[1][:_NAMED]}"
        path = path.removeprefix(".")
        names = "." + re.sub(r"\[\d+\]", "", path)
        fitting = (_ADVICE[last] for last in _ADVICE if names.endswith(f".{last}"))
        what = what.replace(_BLANK, "the text is blank")
        what = "; ".join([f"{path}: {what}", *islice(fitting, 1)])
        raise RefusalError(400, what, path) from None
