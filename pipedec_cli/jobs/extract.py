"""Objects from texts, from Python: a typed result for each text, as soon as it is done."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, overload

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import by_path, path_name, text_of
from pipedec_cli.data.predictions import spans_of
from pipedec_cli.data.reading import mended_text
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import blind_rows, load_decoder
from pipedec_cli.jobs.settings import settings_of
from pipedec_cli.jobs.tally import Tally
from pipedec_cli.objects.classes import class_of
from pipedec_cli.objects.json_schema import schema_of

if TYPE_CHECKING:
    from pipedec_cli.data.records import Generated
    from pipedec_cli.decoding.decoder import Decoder
    from pipedec_cli.pipeline.grid import Method


class PydanticClass(Protocol):
    """What a class has that is made of ``pydantic.BaseModel``."""

    @classmethod
    def model_json_schema(cls, *, schema_generator: Any = ...) -> dict[str, Any]:
        """Its JSON Schema."""


Model = TypeVar("Model", bound=PydanticClass)
Value_co = TypeVar("Value_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Extraction(Generic[Value_co]):
    """What a text says, as a schema has it. A notebook shows it as a table.

    `confidence` and `spans` have the shape of `fields`.
    """

    text: str  # what was read; places are characters of it
    #: An object of the class, None if the values violate it; without a class the same
    #: as `fields`.
    value: Value_co
    fields: Mapping[str, Any]  # the object in JSON's types
    confidence: Mapping[str, Any]  # of each value, 0 to 1
    spans: Mapping[str, Any]  # all places [start, end) of each value; None for none
    violations: tuple[str, ...]  # what of the schema or the class does not hold
    #: The values that must be there and that the text lacks, by their paths: how
    #: probable "no value" is.
    missing: Mapping[str, float]

    def _repr_html_(self) -> str:
        """For notebooks: each value with its confidence and where it stands, then what is violated."""
        sure = by_path(self.confidence)
        places = by_path(self.spans)
        rows = []
        for keys, value in by_path(self.fields).items():
            cells = [path_name(keys), _written(value)]
            cells += [_in_digits(sure.get(keys)), _places(places.get(keys))]
            rows.append("".join(map(_cell, cells)))
        lines = "".join(f"<tr>{row}</tr>" for row in rows)
        faults = "".join(f"<li>{escape(fault)}</li>" for fault in self.violations)
        heads = "".join(f"<th>{head}</th>" for head in _HEADS)
        table = f"<table><tr>{heads}</tr>{lines}</table>"
        return f"{table}<ul>{faults}</ul>" if faults else table


_HEADS: Final = ("key", "value", "confidence", "where")
_CELL: Final = "text-align: left; white-space: pre-wrap"


def _cell(text: str) -> str:
    return f'<td dir="auto" style="{_CELL}">{escape(text)}</td>'


def _written(value: Any) -> str:
    """A value as a person reads it; "" for none."""
    if isinstance(value, list):
        return "; ".join(map(_written, value))
    return "" if value is None else text_of(value)


def _in_digits(confidence: Any) -> str:
    """A confidence, or that of each item."""
    if isinstance(confidence, list):
        return "; ".join(map(_in_digits, confidence))
    return "" if confidence is None else f"{confidence:.2g}"


def _places(places: Any) -> str:
    """The places of a value, or of each item."""
    if not places:
        return ""
    first = places[0]
    if first is None or isinstance(first[0], list):
        return "; ".join(map(_places, places))
    return ", ".join(f"{start}–{end}" for start, end in places)


@overload
def extract(
    texts: Iterable[str],
    schema: type[Model],
    *,
    model: str | Path | Decoder,
    shots: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    grounded: bool = True,
    batch_size: int | None = None,
) -> Iterator[Extraction[Model | None]]: ...


@overload
def extract(
    texts: Iterable[str],
    schema: str | os.PathLike[str] | Mapping[str, Any],
    *,
    model: str | Path | Decoder,
    shots: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    grounded: bool = True,
    batch_size: int | None = None,
) -> Iterator[Extraction[dict[str, Any]]]: ...


def extract(
    texts: Iterable[str],
    schema: type[Any] | str | os.PathLike[str] | Mapping[str, Any],
    *,
    model: str | Path | Decoder,
    shots: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    grounded: bool = True,
    batch_size: int | None = None,
) -> Iterator[Extraction[Any]]:
    """Extract an object from each text, with an ordinary decoder-only model: yields in order, each as soon as it is done.

    Args:
        texts: Any iterable. It is read as results are taken.
        schema: A pydantic class, a JSON Schema, the file of either (``FILE.json``,
            ``FILE.py:CLASS``), or keys such as ``"name, age int, kind: pub|bar"``.
        model: A folder, a GGUF file or a hub name; or what `load` gives.
        shots: Records to show as examples, such as ``"train.jsonl:4"``.
        dtype: See `load`. A loaded model has its own, and its own device.
        device: See `load`.
        grounded: Whether free values are parts of the text.
        batch_size: Texts decoded at the same time; by default 1, or as loaded.

    Raises:
        UserError: For a class, a schema, examples or a model that cannot be used.
    """
    from pipedec_cli.decoding.blind import blind_decoder
    from pipedec_cli.decoding.decoder import Decoder
    from pipedec_cli.jobs.run import method_of
    from pipedec_cli.model.arguments import check_texts

    sources = check_texts(texts)
    asked = {"shots": shots, "dtype": dtype, "device": device}
    given = None
    made_of: Callable[[Any], Any] = dict
    if isinstance(schema, type | Mapping):
        given = schema_of(schema)
    else:
        asked["fields"] = os.fspath(schema)
    if isinstance(schema, type):
        made_of = class_of(schema).made_of
    if not isinstance(model, Decoder):
        asked["model"] = str(model)
    elif dtype or device:
        what = "dtype and device are for a model that is loaded now"
        raise UserError(what, todo="give them to load")
    settings = _settings(asked)
    rows = blind_rows(settings, given)
    plain = model if isinstance(model, Decoder) else load_decoder(settings)
    decoder = blind_decoder(plain, rows, grounded=grounded)
    method = method_of(settings, decoder)
    results = _results(decoder, method, sources, batch_size)
    return (_extraction(generated, text, made_of) for generated, text in results)


def _settings(asked: Mapping[str, str | None]) -> GenerateSettings:
    """The settings of `generate` that say the same. A `UserError` for a value that one cannot have."""
    values: dict[str, Any] = {}
    for setting in settings_of(GenerateSettings):
        value = asked.get(setting.name)
        if value is None:
            continue
        try:
            values[setting.name] = setting.parse(value)
        except ValueError as error:
            raise UserError(f"{setting.name}: {error}") from None
    return GenerateSettings(text=("",), confidence=True, **values)


def _results(
    decoder: Decoder, method: Method, texts: Iterable[str], batch_size: int | None
) -> Iterator[tuple[Generated, str]]:
    """Each result with its text. At the end it warns of the texts as `generate` does."""
    waiting = deque[str]()

    def read() -> Iterator[str]:
        for text in texts:
            waiting.append(mended_text(text))
            yield waiting[-1]

    checkpoint = decoder.checkpoint
    unknown = checkpoint.tokenizer.unk_token_id
    tally = Tally()
    began = time.perf_counter()
    for generated in decoder.texts(read(), method, batch_size):
        tally.add(generated, unknown, checkpoint.positions)
        yield generated, waiting.popleft()
    tally.seconds = time.perf_counter() - began
    tally.report({"max_source_tokens": decoder.text.max_source_tokens})


def _extraction(
    generated: Generated, text: str, made_of: Callable[[Any], Any]
) -> Extraction[Any]:
    fields = generated.fields or {}
    return Extraction(
        text=text,
        value=made_of(fields),
        fields=fields,
        confidence=generated.confidence or {},
        spans=spans_of(fields, text),
        violations=generated.violations,
        missing=generated.missing,
    )
