"""What is the same in all APIs: a request with its answer, as a whole or in parts, and how an error is told."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect

from pipedec_cli.data.errors import UserError, many
from pipedec_cli.data.predictions import spans_of
from pipedec_cli.data.records import Generated
from pipedec_cli.serve.body import RefusalError
from pipedec_cli.serve.service import (
    EndingError,
    FullError,
    Request,
    TooLongError,
)


class Exchange(ABC):
    """A request for the `model` of a name, and what its client is sent in the shapes of an API.

    `own` are our own keys of the answer: what there is to say of an object's values,
    and warnings. `entry` has the fields of the log's line.
    """

    request: Request
    model: str
    closing = b""  # what ends a stream

    def begin(self, entry: dict[str, Any]) -> None:
        """Note that the request has its place."""
        self.own: dict[str, Any] = {}
        self.entry = entry
        self.id = entry["id"]
        self.created = int(time.time())
        self.warn(None)

    @abstractmethod
    def whole(self, end: Generated) -> dict[str, Any]:
        """The answer to a request that is not streamed."""

    def opening(self) -> Iterator[dict[str, Any]]:
        """The parts of a stream before all events."""
        return iter(())

    def parts(self, event: Any) -> Iterator[dict[str, Any]]:
        """The parts of a stream that tell an event, which is `More` or the end."""
        return iter(())

    def failure(self, error: dict[str, Any]) -> dict[str, Any]:
        """The part of a stream that tells an error in the shape of OpenAI's."""
        return {"error": error}

    async def stream(self, events: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
        """The answer in parts as the events come, with an error as its last one if it fails."""
        try:
            for part in self.opening():
                yield sent_event(part)
            async for event in events:
                for part in self.parts(event):
                    yield sent_event(part)
            yield self.closing
        except ClientDisconnect:
            self.entry["left"] = True
        except Exception as error:
            refused = noted(error, self.entry)
            yield sent_event(self.failure(refused.error))

    def tell_of(self, end: Generated) -> None:
        """Note what there is to say of the values of an object, and warnings."""
        if end.fields is not None:
            of_values = {
                "pipedec_confidence": end.confidence,
                "pipedec_forced": end.forced,
                "pipedec_missing": end.missing,
                "pipedec_probabilities": end.probabilities,
                "pipedec_spans": spans_of(end.fields, self.request.source),
            }
            for name, value in of_values.items():
                if value:
                    self.own[name] = value
        self.warn(end)

    def warn(self, end: Generated | None) -> None:
        """Add the warnings of a request, and of its result if it has one."""
        warnings = [*self.request.warnings, *self.request.unchecked]
        if end:
            warnings += end.violations
        if end and end.values_lost:
            lost = many(end.values_lost, "value")
            warnings.append(f"{lost} lost: cut short, or none that the schema allows")
        if warnings:
            warning = "; ".join(warnings)
            self.own["pipedec_warning"] = warning
            self.entry["warning"] = warning[:400]

    def usage(self, end: Generated) -> dict[str, Any]:
        """How many tokens were read and made, by the names of the newer APIs."""
        read = self.request.prompt_tokens
        cached = self.request.grid.cached
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": end.tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + end.tokens,
        }


def sent_event(content: dict[str, Any]) -> bytes:
    """A part of a stream, as the standard of server-sent events has it. A part with a type is named by it."""
    kind = content.get("type")
    name = f"event: {kind}\n".encode() if kind else b""
    return name + b"data: " + msgspec.json.encode(content) + b"\n\n"


def noted(error: Exception, entry: dict[str, Any]) -> RefusalError:
    """What a client is told of an error, which the entry of the log names, and the parameter that is at fault."""
    refused = _refusal(error)
    name = type(error).__name__
    entry["error"] = f"{name}: {error}" if refused.status == 500 else name
    if refused.param:
        entry["param"] = refused.param
    return refused


def _refusal(error: Exception) -> RefusalError:
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
