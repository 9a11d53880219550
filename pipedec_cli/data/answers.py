"""Reads predictions and right answers in the formats of the field, and joins the two.

Besides JSON lines these are MultiSpanQA's predictions, one JSON object ``{id:
[answers]}``, its data files, and the text files of the keyphrase literature, a document
a line with ``;`` between phrases.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.file_formats import text_lines
from pipedec_cli.data.importers.parallel import parallel, split_phrases
from pipedec_cli.data.importers.spans import multispanqa
from pipedec_cli.data.inputs import read_rows
from pipedec_cli.data.predictions import read_predictions
from pipedec_cli.data.reading import BYTE_ORDER_MARK, as_json, checked, contents
from pipedec_cli.data.records import Generated, Record, record_of

#: ``records``: JSON lines, as `generate` writes them. ``answers``: ``{id: [answers]}``.
#: ``lines``: ``;`` lines.
Format = Literal["records", "answers", "lines"]
_LINES = (".txt", ".src", ".trg", ".tgt", ".pred")


def load_predictions(
    path: Path, *, gold: Path | None = None, sources: Path | None = None
) -> tuple[list[Generated], Format]:
    """Read predictions in any of the formats, with their right answers. Returns them with the format of the file.

    Args:
        path: the predictions.
        gold: the right answers, if the predictions do not hold them: JSON lines of
            records, MultiSpanQA's data file, or ``;`` lines. The two are joined by id;
            ``;`` lines line by line.
        sources: of right answers in ``;`` lines the sources, a document a line.
    """
    form = format_of(path)
    right = None if gold is None else _read_gold(gold, sources)
    if form == "records":
        predictions = read_predictions(path)
        return predictions if right is None else _joined(predictions, right), form
    if right is None:
        what = "holds answers only, nothing to score them against"
        raise UserError(what, where=path, todo="give the right ones with --gold FILE")
    if form == "answers":
        return _joined(_read_answers(path), right), form
    return _read_lines(path, right), form


def _read_answers(path: Path) -> list[Generated]:
    """MultiSpanQA's predictions, without their records."""
    predictions = []
    for name, value in (_one_object(path) or {}).items():
        where = f"{path} id {name!r}"
        record = replace(record_of({}, where, 0), id=name)
        answers = checked(value, tuple[str, ...], where, field="answers")
        predictions.append(_bare(record, answers))
    return predictions


def _read_lines(path: Path, right: Sequence[Record]) -> list[Generated]:
    """Predictions of which each is a line of phrases. The right answers are as many lines, in the same order."""
    lines = [split_phrases(line) for _, line in text_lines(path)]
    if len(lines) != len(right):
        raise UserError(
            f"has {len(lines)} lines for {len(right)} right answers",
            where=path,
            todo="write one line a document, an empty one where nothing was predicted",
        )
    return list(map(_bare, right, lines))


def _bare(record: Record, segments: Sequence[str]) -> Generated:
    return Generated(text="; ".join(segments), segments=tuple(segments), record=record)


def _read_gold(path: Path, sources: Path | None) -> list[Record]:
    """The records of a file of right answers in any of the formats; `sources` is the file of their sources, if they are lines."""
    form = format_of(path)
    if form == "records":
        return [record_of(row.value, row.where, row.number) for row in read_rows(path)]
    if form == "answers":
        examples = multispanqa(str(path), None)
    elif sources is None:
        what = "holds targets only; which sources are they of?"
        raise UserError(what, where=path, todo="name them with --sources FILE")
    else:
        examples = parallel(str(sources), None, targets=path)
    records = []
    for number, example in enumerate(examples, start=1):
        if example.target is None:
            what = "has no labels, as the published test split has none: nothing to score against"
            raise UserError(what, where=example.where)
        # The target stays a list, so that its parts are the answers.
        row = {"source": example.source, "target": list(example.target)}
        record = record_of(row, example.where, number)
        records.append(replace(record, id=example.id or record.id))
    return records


def format_of(path: Path) -> Format:
    """The format of a file, by its name or its content. Raises a UserError if there is no such file."""
    if not path.exists():
        raise UserError("no such file", where=path, todo="check its name")
    if not path.is_file():
        raise UserError(
            "a folder or a pipe, not a file",
            where=path,
            todo="name a file of predictions, or of right answers",
        )
    if path.name.lower().removesuffix(".gz").endswith(_LINES):
        return "lines"
    return "records" if _one_object(path) is None else "answers"


def _one_object(path: Path) -> dict[str, Any] | None:
    """The object ``{id: [answers]}`` that a ``.json`` file is; None for records: JSON lines, a list, or one record."""
    if path.suffix.lower() != ".json":
        return None
    content = contents(path).removeprefix(BYTE_ORDER_MARK)
    try:
        value = as_json(content, str(path))
    except UserError:
        first_line, *_ = content.lstrip().split(b"\n", 1)
        with suppress(UserError):
            as_json(first_line, str(path))
            return None  # JSON lines
        raise
    return value if isinstance(value, dict) and "prediction" not in value else None


def _joined(
    predictions: Sequence[Generated], gold: Sequence[Record]
) -> list[Generated]:
    """The predictions, each with the record of its id. Every prediction must have a record and the reverse."""
    records: dict[str, Record] = {}
    for record in gold:
        if record.id in records:
            what = f"id {record.id!r} is there twice"
            raise UserError(what, where=records[record.id].where)
        records[record.id] = record
    for prediction in predictions:
        if prediction.id not in records:
            what = f"id {prediction.id!r} is not in the right answers"
            where = prediction.record.where if prediction.record else None
            raise UserError(what, where=where)
    _require_predictions(predictions, gold)
    _require_order(predictions, records)
    return [
        replace(prediction, record=records[prediction.id]) for prediction in predictions
    ]


def _require_predictions(
    predictions: Sequence[Generated], gold: Sequence[Record]
) -> None:
    """Raise a UserError unless there is a prediction for each record."""
    predicted = {prediction.id for prediction in predictions}
    missing = [record for record in gold if record.id not in predicted]
    if missing:
        raise UserError(
            f"no prediction for id {missing[0].id!r}, and for {len(missing)} of {len(gold)} in all",
            where=missing[0].where,
            todo="predict for all of them; an empty prediction counts as wrong, a missing one would not count",
        )


def _require_order(
    predictions: Sequence[Generated], records: Mapping[str, Record]
) -> None:
    """Raise a UserError if predictions and records have the same sources in another order.

    Both were numbered in the order of their files then, and equal ids do not mean the
    same example.
    """
    given = []
    right = []
    for prediction in predictions:
        if prediction.record:
            given.append(prediction.record.source)
            right.append(records[prediction.id].source)
    if given != right and sorted(given) == sorted(right):
        what = "the right answers stand in another order than the predictions, which go by their ids"
        todo = "give both the same ids, or the same order"
        first, *_ = records.values()
        raise UserError(what, where=first.where, todo=todo)
