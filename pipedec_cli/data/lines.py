"""The schema of a line: the fields of an input record, and the fields that `generate` adds to it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import asdict

from pipedec_cli.data.checking import checked, missing_field
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Count, Generated, Record

_Amount = Annotated[float, Meta(ge=0, le=2**53)]
#: A token's id or its place in the text.
_Id = Annotated[int, Meta(ge=0, lt=2**31)]


class _Input(Struct):
    """The fields of an input record."""

    id: str | int | float | None = None
    source: str | None = None
    target: str | tuple[str, ...] | dict[str, Any] | None = None
    target_segments: tuple[str, ...] | None = None
    references: tuple[str, ...] | None = None


class _Row(Struct):
    start: _Id
    tokens: tuple[_Id, ...]


class _Output(Struct):
    """The fields that `generate` adds. Those from `grid` on are written with the key ``trace`` only."""

    prediction: str | tuple[str, ...] | dict[str, Any] | None = None
    segments: tuple[str, ...] | None = None
    fields: dict[str, Any] | None = None
    confidence: dict[str, Any] | None = None
    spans: dict[str, Any] | None = None
    steps: _Amount = 0
    draft_steps: _Amount | None = None
    tokens: _Amount = 0
    truncated: str | None = None
    stopped_on_repeat: bool = False
    seconds: _Amount = 0.0
    grid: tuple[_Row, ...] = ()
    grid_calls: tuple[_Id, ...] = ()
    grid_taken_back: tuple[tuple[_Id, _Id, _Id, _Id], ...] = ()
    source_token_ids: tuple[Count, ...] = ()


#: An input record that already has one of these fields is refused.
OUTPUT_FIELDS: Final = _Output.__struct_fields__


class FieldNames(Struct, frozen=True):
    """The names of our fields in the input."""

    source: str = "source"
    target: str = "target"
    id: str = "id"

    @property
    def renamed(self) -> dict[str, str]:
        """Our names and the input's, where the two differ."""
        return {ours: theirs for ours, theirs in asdict(self).items() if ours != theirs}

    def check(self, record: Record) -> None:
        """Refuse a record with a field that a later command would overwrite."""
        for name in filter(record.fields.__contains__, OUTPUT_FIELDS):
            what = f"field {name!r} is one that `pipedec generate` writes"
            raise UserError(what, where=record.where, todo="rename it")
        for ours, theirs in self.renamed.items():
            if {ours, theirs} <= record.fields.keys():
                what = f"field {ours!r} would be written over with {theirs!r}"
                todo = f"rename {ours!r}, or leave out --{ours}-field"
                raise UserError(what, where=record.where, todo=todo)


def record_of(value: Any, where: str, number: int, names: FieldNames | None = None) -> Record:
    """The record in a decoded object; `number` is its identifier if the object has none."""
    names = names or FieldNames()
    example = f'write {{"{names.source}": "…", "{names.target}": "…"}}'
    given = checked(value, _Input, where, renamed=names.renamed, example=example)
    target, segments, references = given.target, given.target_segments, given.references or ()
    target_fields = target if isinstance(target, dict) else None
    if isinstance(target, dict):
        target = json.dumps(target, ensure_ascii=False)
    elif isinstance(target, tuple):
        segments = target if segments is None else segments
        target = " ".join(target)
    elif target is None and segments is not None:
        target = " ".join(segments)
    if target in references:
        references = (target, *(other for other in references if other != target))
    identifier = str(number) if given.id is None or given.id == "" else str(given.id)
    source = given.source or ""
    return Record(identifier, source, target, segments, references, where, value, target_fields)


def generated_of(value: Any, where: str, number: int) -> Generated:
    """The prediction in a decoded line, with its record.

    ``prediction`` is required: a string, a list of strings (the segments), or an object. Without ``segments`` each line
    of the prediction is a segment. Counts that are missing are 0.
    """
    example = 'write {"id": "…", "prediction": "…", "segments": ["…"], "target": "…"}'
    given = checked(value, _Output, where, example=example)
    text, segments, fields = given.prediction, given.segments, given.fields
    if text is None:
        raise missing_field(value, "prediction", where, "`pipedec generate` writes such lines")
    if isinstance(text, dict):
        fields = text
        text = json.dumps(text, ensure_ascii=False)
    if isinstance(text, tuple):
        segments = text
    elif segments is None:
        segments = tuple(line for line in text.split("\n") if line.strip())
    return Generated(
        text=text if isinstance(text, str) else " ".join(text),
        segments=segments,
        steps=int(given.steps),
        draft_steps=None if given.draft_steps is None else int(given.draft_steps),
        tokens=int(given.tokens),
        truncated=given.truncated,
        stopped_on_repeat=given.stopped_on_repeat,
        seconds=given.seconds,
        grid=tuple((row.start, row.tokens) for row in given.grid),
        calls=given.grid_calls,
        taken_back=given.grid_taken_back,
        source_ids=given.source_token_ids,
        index=number - 1,
        record=record_of(value, where, number),
        fields=fields,
        confidence=given.confidence,
    )
