"""The shapes of ``/v1/responses``: a text or an object, whole and as a stream of typed events."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from pipedec_cli.data.records import Generated
from pipedec_cli.serve.answers import Exchange
from pipedec_cli.serve.body import (
    Roles,
    Text,
    Tokens,
    dialogue,
    parameters,
    read,
    schema_of,
)
from pipedec_cli.serve.service import Request

#: Where the only text of an answer stands.
_PLACE = {"output_index": 0, "content_index": 0}


class _Part(Struct):
    type: Literal["input_text", "output_text"]
    text: str


class _Item(Struct):  # an answer that is sent back has more fields
    role: Roles
    content: str | list[_Part]
    type: Literal["message"] = "message"


class _TextOptions(Struct, forbid_unknown_fields=True):
    format: dict[str, Any] = field(default_factory=lambda: {"type": "text"})
    verbosity: Literal["medium"] = "medium"


class _StreamOptions(Struct, forbid_unknown_fields=True):
    include_obfuscation: bool = False  # nothing is sent for it


class _Body(Struct, kw_only=True):
    model: str
    input: Text | Annotated[list[_Item], Meta(min_length=1, max_length=64)]
    instructions: str | None = None
    max_output_tokens: Tokens = None
    text: _TextOptions = field(default_factory=_TextOptions)
    stream: bool = False
    stream_options: _StreamOptions = field(default_factory=_StreamOptions)
    include: Annotated[list[str], Meta(max_length=0)] = []


class ResponsesExchange(Exchange):
    """A request of ``/v1/responses``, and its answer."""

    def __init__(self, data: bytes) -> None:
        """Read a body. A `RefusalError` names the parameter that is at fault."""
        body, warnings = read(parameters(data), _Body)
        earlier, source = dialogue(body.input, "input")
        if body.instructions:
            earlier = (("system", body.instructions), *earlier)
        self.body = body
        self.model = body.model
        self._number = 0
        form = body.text.format
        schema, is_strict = schema_of(form, form, "text.format")
        self.request = Request(
            source,
            earlier,
            schema,
            where="text.format",
            max_tokens=body.max_output_tokens,
            streamed=body.stream,
            strict=is_strict,
            warnings=warnings,
        )

    def whole(self, end: Generated) -> dict[str, Any]:
        """The answer with all of the text."""
        self.tell_of(end)
        status = self._status(end)
        output = [self._message(status, end.text)]
        why = {"reason": "max_output_tokens"} if end.truncated else None
        more = {"usage": self.usage(end), "incomplete_details": why}
        return self._response(status, output) | more

    def opening(self) -> Iterator[dict[str, Any]]:
        """A response without output, to which an empty message is added."""
        response = self._response("in_progress", [])
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)
        item = self._message("in_progress", None)
        yield self._event("response.output_item.added", item=item, output_index=0)
        yield self._text_event("response.content_part.added", part=_text_part(""))

    def parts(self, event: Any) -> Iterator[dict[str, Any]]:
        """More of the text or, at the end, the text, its message and the response as a whole."""
        if not isinstance(event, Generated):
            if event.text:
                kind = "response.output_text.delta"
                yield self._text_event(kind, delta=event.text, logprobs=[])
            return
        text = event.text
        whole = self.whole(event)
        yield self._text_event("response.output_text.done", text=text, logprobs=[])
        yield self._text_event("response.content_part.done", part=_text_part(text))
        (item,) = whole["output"]
        yield self._event("response.output_item.done", item=item, output_index=0)
        yield self._event(f"response.{whole['status']}", response=whole)

    def failure(self, error: dict[str, Any]) -> dict[str, Any]:
        """An event that tells an error."""
        return self._event("error", **{**error, "type": "error"})

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        number = self._number
        self._number += 1
        return {**fields, "type": kind, "sequence_number": number}

    def _text_event(self, kind: str, **fields: Any) -> dict[str, Any]:
        """An event of the text of the message."""
        return self._event(kind, item_id=self._message_id, **_PLACE, **fields)

    def _status(self, end: Generated) -> str:
        return "incomplete" if end.truncated else "completed"

    @property
    def _message_id(self) -> str:
        return f"msg_{self.id}"

    def _message(self, status: str, text: str | None) -> dict[str, Any]:
        """The message with a text, which may still be missing."""
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [] if text is None else [_text_part(text)],
        }

    def _response(self, status: str, output: list[Any]) -> dict[str, Any]:
        body = self.body
        return {
            "id": f"resp_{self.id}",
            "object": "response",
            "created_at": self.created,
            "model": self.model,
            "status": status,
            "output": output,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "parallel_tool_calls": False,
            "text": {"format": body.text.format},
            "tool_choice": "none",
            "tools": [],
            "usage": None,
            **self.own,
        }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
