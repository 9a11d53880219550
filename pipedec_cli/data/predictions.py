"""Predictions as `generate` writes them, or as other systems do with the same few fields: JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated, generated_of
from pipedec_cli.data.rows import Row, read_rows


def read_predictions(path: Path) -> list[Generated]:
    """Read the predictions of a JSON-lines file; see `generated_of`.

    What there is to score against may be missing: that is for the metric to say.

    Raises:
        UserError: the file is not there or empty, its last line is torn, or a field is not as it must be; it names
            file, line and field.
    """
    predictions: list[Generated] = []
    seen: dict[str, str] = {}
    for row in _whole_rows(path):
        prediction = generated_of(row.value, row.where, row.number)
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
