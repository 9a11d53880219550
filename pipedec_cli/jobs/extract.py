"""Objects from texts, from Python: a typed result for each text, as soon as it is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import by_path, path_name
from pipedec_cli.data.notebook import listed, table
from pipedec_cli.data.predictions import spans_of
from pipedec_cli.jobs.loading import blind_rows
from pipedec_cli.jobs.texts import Result, results_of, settings_for, taken
from pipedec_cli.objects.checking import checker
from pipedec_cli.objects.classes import class_of
from pipedec_cli.objects.json_schema import schema_of
from pipedec_cli.objects.reader import ObjectReader

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder
    from pipedec_cli.objects.rows import Rows


class PydanticClass(Protocol):
    """What a class has that is made of ``pydantic.BaseModel``."""

    @classmethod
    def model_json_schema(cls, *, schema_generator: Any = ...) -> dict[str, Any]:
        """Its JSON Schema."""


Model = TypeVar("Model", bound=PydanticClass)
Value_co = TypeVar("Value_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction(Generic[Value_co]):
    """What a text says, as a schema has it. A notebook shows it as a table.

    `confidence` and `spans` have the shape of `fields`; `probabilities` and `missing`
    go by paths such as ``at.city``.
    """

    text: str  # what was read; places are characters of it
    #: An object of the class, None if the values violate it; without a class the same
    #: as `fields`.
    value: Value_co
    fields: Mapping[str, Any]  # the object in JSON's types
    is_whole: bool = True  # whether nothing more comes of this text
    confidence: Mapping[str, Any]  # of each value, 0 to 1
    spans: Mapping[str, Any]  # all places [start, end) of each value; None for none
    #: Of each choice and boolean that of each label; "" is no value.
    probabilities: Mapping[str, Mapping[str, float]]
    violations: tuple[str, ...]  # what of the schema or the class does not hold
    #: How probable "no value" is where there must be one and the text has none.
    missing: Mapping[str, float]
    #: The limit that cut a value or the object short, such as time_max; None for none.
    truncated: str | None = None

    def _repr_html_(self) -> str:
        """For notebooks: each value with its confidence and where it stands, then what is missing and what is violated."""
        sure = by_path(self.confidence)
        places = by_path(self.spans)
        rows = []
        for keys, value in by_path(self.fields).items():
            rows.append((path_name(keys), value, sure.get(keys), places.get(keys)))
        heads = ("key", "value", "confidence", "where")
        lacking = [f"{key}: the text does not say it" for key in self.missing]
        return table(heads, rows) + listed([*lacking, *self.violations])


@overload
def extract(
    texts: Iterable[str],
    schema: type[Model],
    *,
    model: str | Path | Decoder,
    shots: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    grounded: bool | None = None,
    batch_size: int | None = None,
    partial: bool = False,
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
    grounded: bool | None = None,
    batch_size: int | None = None,
    partial: bool = False,
) -> Iterator[Extraction[dict[str, Any]]]: ...


def extract(
    texts: Iterable[str],
    schema: type[Any] | str | os.PathLike[str] | Mapping[str, Any],
    *,
    model: str | Path | Decoder,
    shots: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    grounded: bool | None = None,
    batch_size: int | None = None,
    partial: bool = False,
) -> Iterator[Extraction[Any]]:
    """Extract an object from each text, with an ordinary decoder-only model or one that was trained for these keys: yields in order, each as soon as it is done.

    Args:
        texts: Any iterable. It is read as results are taken.
        schema: A pydantic class, a JSON Schema, the file of either (``FILE.json``,
            ``FILE.py:CLASS``), or keys such as ``"name, age int, kind: pub|bar"``.
        model: A folder, a GGUF file or a hub name; or what `load` gives.
        shots: Records to show as examples, such as ``"train.jsonl:4"``.
        dtype: See `load`. A loaded model has its own, and its own device.
        device: See `load`.
        grounded: Whether free values are parts of the text; by default if the model was
            not trained for them.
        batch_size: Texts decoded at the same time; by default 1, or as loaded.
        partial: Whether the object of a text is also given before it is whole, each
            time that it has more values. What it has never changes.

    Raises:
        UserError: For a class, a schema, examples or a model that cannot be used.
    """
    from pipedec_cli.jobs.run import method_of
    from pipedec_cli.model.arguments import check_texts

    sources = check_texts(texts)
    given = None
    fields = None
    made_of: Callable[[Any], Any] = dict
    if isinstance(schema, str | os.PathLike):
        fields = os.fspath(schema)
    else:
        given = schema_of(schema)
    if isinstance(schema, type):
        made_of = class_of(schema).made_of
    settings = settings_for(
        model, dtype=dtype, device=device, shots=shots, fields=fields
    )
    rows = blind_rows(settings, given)
    decoder = _object_decoder(taken(model, settings), rows, grounded)
    method = method_of(settings, decoder)
    results = results_of(decoder, method, sources, batch_size, partial=partial)
    return (_extraction(result, made_of) for result in results)


def _object_decoder(plain: Decoder, rows: Rows, grounded: bool | None) -> Decoder:
    """A decoder of the objects that a schema's `rows` ask for, with the weights and engines of `plain`.

    A UserError for a model that was trained for texts, or for other keys.
    """
    from pipedec_cli.decoding.blind import blind_decoder
    from pipedec_cli.decoding.plans import FieldPlan

    fields = plain.fields
    if fields is None or not isinstance(plain.plan, FieldPlan):
        is_grounded = grounded is not False
        return blind_decoder(plain, rows, grounded=is_grounded, shares_engines=True)
    if rows.shots:
        what = "shots are for a model that was not trained for fields"
        raise UserError(what, todo="leave them out")
    fields.require_keys([key.name for key in rows.tree.values()], rows.where)
    plan = FieldPlan(plain.checkpoint, fields)
    plan.grounded = bool(grounded)
    check = checker(rows.schema, rows.where, rows.warn, rows.of_class)
    reader = ObjectReader(fields, fields.answers, check=check)
    return plain.sharing(engines=True, plan=plan, reader=reader)


def _extraction(result: Result, made_of: Callable[[Any], Any]) -> Extraction[Any]:
    generated = result.generated
    fields = generated.fields or {}
    value = made_of(fields) if result.is_whole or made_of is dict else None
    return Extraction(
        text=result.text,
        value=value,
        fields=fields,
        is_whole=result.is_whole,
        confidence=generated.confidence or {},
        spans=spans_of(fields, result.text),
        probabilities=generated.probabilities,
        violations=generated.violations,
        missing=generated.missing,
        truncated=generated.truncated,
    )
