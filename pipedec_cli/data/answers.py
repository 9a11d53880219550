"""Predictions and right answers in the formats of the field, and how the two are brought together.

Besides JSON lines: MultiSpanQA's predictions, one JSON object ``{id: [answers]}`` in a file, and its data files; the
keyphrase literature's text files, a document a line with ``;`` between phrases.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import keyphrases, multispanqa, parallel
from pipedec_cli.data.importers.layout import Example, text_lines
from pipedec_cli.data.predictions import read_predictions
from pipedec_cli.data.records import Generated, Record, checked, record_of
from pipedec_cli.data.rows import read_rows

#: ``records``: JSON lines, as `generate` writes them. ``answers``: ``{id: [answers]}``. ``lines``: ``;`` lines.
Format = Literal["records", "answers", "lines"]

_PRESENT_END: Final = "<peos>"  # some models write it between present and absent phrases; it is no phrase
_GIVE_GOLD: Final = "give the right ones with --gold FILE"


class _Answers(Struct):
    answers: tuple[str, ...]


def load_predictions(
    path: Path, *, gold: Path | None = None, sources: Path | None = None
) -> tuple[list[Generated], Format]:
    """Read predictions, and the right answers that they are to be held against.

    Args:
        path: the predictions, in any of the formats.
        gold: the right answers, where the predictions do not hold them: JSON lines with the fields of a record,
            MultiSpanQA's data file, or ``;`` lines. Joined by id; with ``;`` lines on either side, line by line.
        sources: the sources of a ``gold`` of ``;`` lines, a document a line.

    Raises:
        UserError: a file is not as it must be, or the two are not of the same examples.
    """
    form = _format(path)
    right = read_gold(gold, sources) if gold is not None else None
    if form == "records":
        predictions = read_predictions(path)
        return predictions if right is None else _joined(predictions, right), form
    if right is None:
        raise UserError("holds answers only, nothing to score them against", where=str(path), todo=_GIVE_GOLD)
    if form == "answers":
        return _joined(read_answers(path), right), form
    return _line_by_line(path, right), form


def read_gold(path: Path, sources: Path | None = None) -> list[Record]:
    """Right answers: a record each, with its place in the file.

    Raises:
        UserError: the file is not there or not as it must be, an answer is missing, or the layout has no sources.
    """
    if not path.is_file():
        raise UserError("no such file", where=str(path))
    if _is_text(path):
        if sources is None:
            raise UserError(
                "holds targets only; which sources are they of?",
                where=str(path),
                todo="name them with --sources FILE",
            )
        examples = parallel.read(str(sources), None, targets=path)
        return [_record(example, number) for number, example in enumerate(examples, start=1)]
    if isinstance(_one_object(path), dict):
        return [
            _record(example, number)
            for number, example in enumerate(multispanqa.read(str(path), None), start=1)
        ]
    return [record_of(row.value, row.where, row.number) for row in read_rows(path)]


def read_answers(path: Path) -> list[Generated]:
    """Predictions in MultiSpanQA's format: one JSON object, for each question's id the list of its answers.

    Raises:
        UserError: an id is there twice, or its answers are no list of strings.
    """
    answers = _one_object(path)
    if not isinstance(answers, dict):
        raise UserError("not one object of answers by id", where=str(path))
    predictions = []
    for name, value in answers.items():
        where = f"{path} id {name!r}"
        if value is None:
            raise UserError(
                "null where a list of answers belongs", where=where, todo="write [] for no answer"
            )
        segments = checked({"answers": value}, _Answers, where).answers
        record = Record(id=name, source="", target=None, target_segments=None, references=(), where=where)
        predictions.append(_bare_prediction(record, segments))
    return predictions


def _format(path: Path) -> Format:
    if not path.is_file():
        raise UserError("no such file", where=str(path))
    if _is_text(path):
        return "lines"
    return "answers" if isinstance(_one_object(path), dict) else "records"


def _is_text(path: Path) -> bool:
    name = path.name.lower().removesuffix(".gz")
    return name.endswith((".txt", ".src", ".trg", ".tgt", ".pred"))


def _one_object(path: Path) -> Any:
    """The JSON object that a ``.json`` file is, on however many lines; None if it is something else.

    One object by itself with a ``prediction`` is JSON lines, of one line.
    """
    if path.suffix.lower() != ".json":
        return None
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            repeated.append(next(name for name in names if names.count(name) > 1))
        return found

    try:
        text = path.read_bytes().decode("utf-8-sig")
        value = json.loads(text, object_pairs_hook=unique)
    except UnicodeDecodeError:
        return None  # the reader of JSON lines says where
    except json.JSONDecodeError as error:
        if _begins_with_a_json_line(text):
            return None
        raise UserError(
            f"not JSON: {error.msg} at column {error.colno}", where=f"{path}:{error.lineno}"
        ) from None
    if repeated:
        raise UserError(f"{repeated[0]!r} is there twice", where=str(path))
    return value if isinstance(value, dict) and "prediction" not in value else None


def _begins_with_a_json_line(text: str) -> bool:
    try:
        json.loads(text.lstrip().split("\n", 1)[0])
    except ValueError:
        return False
    return True


def _record(example: Example, number: int) -> Record:
    """A record of published right answers; its target stays a list, so that its parts are the answers."""
    if example.target is None:
        raise UserError(
            "has no labels, as the published test split has none: nothing to score against",
            where=example.where,
        )
    listed = [example.target] if isinstance(example.target, str) else list(example.target)
    fields = {"source": example.source, "target": listed}
    return replace(record_of(fields, example.where, number), id=example.id or str(number))


def _bare_prediction(record: Record, segments: Sequence[str]) -> Generated:
    """A prediction of which nothing is known but its text."""
    return Generated(text="; ".join(segments), segments=tuple(segments), record=record)


def _joined(predictions: Sequence[Generated], gold: Sequence[Record]) -> list[Generated]:
    """The predictions, each with the record of its id; every record must have one, and none be left over."""
    records = {record.id: record for record in gold}
    if len(records) < len(gold):
        ids = [record.id for record in gold]
        twice = next(record for record in gold if ids.count(record.id) > 1)
        raise UserError(f"id {twice.id!r} is there twice", where=twice.where)
    predicted = {prediction.id for prediction in predictions}
    for prediction in predictions:
        if prediction.id not in records:
            where = prediction.record.where if prediction.record else None
            raise UserError(f"id {prediction.id!r} is not in the right answers", where=where)
    missing = [record for record in gold if record.id not in predicted]
    if missing:
        raise UserError(
            f"no prediction for id {missing[0].id!r}, and for {len(missing)} of {len(gold)} in all",
            where=missing[0].where,
            todo="predict for all of them; an empty prediction counts as wrong, a missing one would not count",
        )
    return [replace(prediction, record=records[prediction.id]) for prediction in predictions]


def _line_by_line(path: Path, gold: Sequence[Record]) -> list[Generated]:
    lines = [keyphrases.split_phrases(line) for _, line in text_lines(path)]
    if len(lines) != len(gold):
        raise UserError(
            f"has {len(lines)} lines for {len(gold)} right answers",
            where=str(path),
            todo="write one line a document, an empty one where nothing was predicted",
        )
    return [
        _bare_prediction(record, [phrase for phrase in phrases if phrase != _PRESENT_END])
        for phrases, record in zip(lines, gold, strict=True)
    ]
