"""Predictions as `generate` writes them, or as other systems do with the same few fields: JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError, kind_of
from pipedec_cli.data.records import Prediction, Record
from pipedec_cli.data.rows import Row, read_rows

_EXAMPLE = 'write {"id": "…", "prediction": "…", "segments": ["…"], "target": "…"}'


def read_predictions(path: Path) -> list[Prediction]:
    """Read the predictions of a JSON-lines file.

    ``prediction`` is needed, a string, or a list of strings for its segments. ``segments`` are the prediction's lines
    where they are not given. All else may be missing: the numbers that `generate` measures are 0 then, and what there
    is to score against is for the metric to say.

    Raises:
        UserError: the file is not there or empty, its last line is torn, or a field is not as it must be; it names
            file, line and field.
    """
    predictions: list[Prediction] = []
    seen: dict[str, str] = {}
    for row in _whole_rows(path):
        prediction = _prediction(row)
        if prediction.id in seen:
            raise UserError(
                f"id {prediction.id!r} was already used at {seen[prediction.id]}", where=row.where
            )
        seen[prediction.id] = row.where
        predictions.append(prediction)
    if not predictions:
        raise UserError("is empty", where=str(path), todo="it must hold at least one prediction")
    return predictions


def _whole_rows(path: Path) -> Iterator[Row]:
    """The file's rows; a last line that a stopped run left unfinished is told from one that is wrong."""
    if not path.is_file():
        raise UserError("no such file", where=str(path))
    number = 0
    try:
        for row in read_rows(path):
            number = row.number
            yield row
    except UserError as error:
        torn = _unended_last_line(path)
        if torn is not None and torn > number and error.where == f"{path}:{torn}":
            raise UserError(
                "the last line is cut short, as a stopped run leaves it",
                where=f"{path}:{torn}",
                todo="finish the run with `pipedec generate --resume`",
            ) from None
        raise


def _unended_last_line(path: Path) -> int | None:
    """The number of a last line that no line feed ends; None if all are ended."""
    number, ended = 0, True
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):  # noqa: B007  # the last one's is wanted
            ended = line.endswith(b"\n")
    return None if ended else number


def _prediction(row: Row) -> Prediction:
    fields, where = row.value, row.where
    if not isinstance(fields, dict):
        raise UserError(f"{kind_of(fields)} where an object belongs", where=where, todo=_EXAMPLE)
    given = fields.get("prediction")
    if isinstance(given, list):
        segments = strings(fields, "prediction", where)
        text = " ".join(segments or ())
    elif isinstance(given, str):
        text, segments = given, strings(fields, "segments", where)
    else:
        what = "is missing" if "prediction" not in fields else f"is {kind_of(given)}, not a string"
        have = ", ".join(list(map(str, fields))[:8]) or "none"
        raise UserError(f"field 'prediction' {what}", where=where, todo=f"its fields are: {have}")
    if segments is None:
        segments = tuple(line for line in text.split("\n") if line.strip())
    identifier = fields.get("id")
    name = str(row.number) if identifier is None or identifier == "" else str(identifier)
    return Prediction(
        id=name,
        prediction=text,
        segments=segments,
        steps=int(_number(fields, "steps", where)),
        tokens=int(_number(fields, "tokens", where)),
        truncated=string(fields, "truncated", where),
        seconds=_number(fields, "seconds", where),
        record=record_to_score(fields, name, where),
    )


def record_to_score(fields: Mapping[str, Any], identifier: str, where: str) -> Record:
    """What there is to score against in an object's fields; unlike in an input, the source may be missing.

    Raises:
        UserError: a field is not as it must be.
    """
    target = fields.get("target")
    segments = strings(fields, "target_segments", where)
    if isinstance(target, list):
        listed = strings(fields, "target", where) or ()
        target = " ".join(listed)
        segments = listed if segments is None else segments
    else:
        target = string(fields, "target", where)
        if target is None and segments is not None:
            target = " ".join(segments)
    references = strings(fields, "references", where) or ()
    if target in references:
        references = (target, *(other for other in references if other != target))
    return Record(
        id=identifier,
        source=string(fields, "source", where) or "",
        target=target,
        target_segments=segments,
        references=references,
        where=where,
        fields=fields,
    )


def string(fields: Mapping[str, Any], name: str, where: str) -> str | None:
    """A field that is a string, or None if it is missing or null.

    Raises:
        UserError: it is something else.
    """
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise UserError(f"{name!r} is {kind_of(value)}, not a string", where=where)
    return value


def strings(fields: Mapping[str, Any], name: str, where: str) -> tuple[str, ...] | None:
    """A field that is a list of strings, or None if it is missing or null.

    Raises:
        UserError: it is something else; a string above all, which would be taken for a list of letters.
    """
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list):
        raise UserError(f"{name!r} is {kind_of(value)}, not a list of strings", where=where)
    for place, item in enumerate(value, start=1):
        if not isinstance(item, str):
            raise UserError(f"{name!r} holds {kind_of(item)} at place {place}, not a string", where=where)
    return tuple(value)


def _number(fields: Mapping[str, Any], name: str, where: str) -> float:
    value = fields.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{name!r} is {kind_of(value)}, not a number", where=where)
    return float(value)
