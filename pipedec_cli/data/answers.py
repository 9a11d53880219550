"""Reads predictions and right answers in the formats of the field, and joins the two.

Besides JSON lines these are MultiSpanQA's predictions, one JSON object ``{id:
[answers]}``, its data files, and the text files of the keyphrase literature, a document
a line with ``;`` between phrases.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.phrases import multispanqa, parallel, split_phrases
from pipedec_cli.data.inputs import read_rows, text_lines
from pipedec_cli.data.predictions import read_predictions
from pipedec_cli.data.reading import BYTE_ORDER_MARK, as_json, checked, contents
from pipedec_cli.data.records import Generated, Record, record_of

#: ``records``: JSON lines, as `generate` writes them. ``answers``: ``{id: [answers]}``.
#: ``lines``: ``;`` lines.
Format = Literal["records", "answers", "lines"]


def load_predictions(
    path: Path, *, gold: Path | None = None, sources: Path | None = None
) -> tuple[list[Generated], Format]:
    """Read predictions in any of the formats, with their right answers.

    `gold` has the right answers if the predictions do not: JSON lines of records,
    MultiSpanQA's data file, or ``;`` lines, whose sources are in `sources`, a document
    a line. The two are joined by id; ``;`` lines line by line.
    """
    form = format_of(path)
    right = None if gold is None else _read_gold(gold, sources)
    if form == "records":
        predictions = read_predictions(path)
        return predictions if right is None else _joined(predictions, right), form
    if right is None:
        what = "holds answers only, nothing to score them against"
        raise UserError(
            what, where=str(path), todo="give the right ones with --gold FILE"
        )
    if form == "answers":
        predictions = []
        for name, value in (_one_object(path) or {}).items():
            where = f"{path} id {name!r}"
            record = replace(record_of({}, where, 0), id=name)
            answers = checked(value, tuple[str, ...], where, field="answers")
            predictions.append(_bare(record, answers))
        return _joined(predictions, right), form
    lines = [split_phrases(line) for _, line in text_lines(path)]
    if len(lines) != len(right):
        what = f"has {len(lines)} lines for {len(right)} right answers"
        todo = "write one line a document, an empty one where nothing was predicted"
        raise UserError(what, where=str(path), todo=todo)
    return list(map(_bare, right, lines)), form


def _read_gold(path: Path, sources: Path | None) -> list[Record]:
    form = format_of(path)
    if form == "records":
        return [record_of(row.value, row.where, row.number) for row in read_rows(path)]
    lines = form == "lines"
    if lines and sources is None:
        what = "holds targets only; which sources are they of?"
        raise UserError(what, where=str(path), todo="name them with --sources FILE")
    examples = (
        parallel(str(sources), None, targets=path)
        if lines
        else multispanqa(str(path), None)
    )
    records = []
    for number, example in enumerate(examples, start=1):
        if example.target is None:
            what = "has no labels, as the published test split has none: nothing to score against"
            raise UserError(what, where=example.where)
        # The target stays a list, so that its parts are the answers.
        record = record_of(
            {"source": example.source, "target": list(example.target)},
            example.where,
            number,
        )
        records.append(replace(record, id=example.id or record.id))
    return records


def format_of(path: Path) -> Format:
    """The format of a file, by its name or its content. Raises a UserError if there is no such file."""
    if not path.is_file():
        what, todo = "no such file", "check its name"
        if path.exists():
            what, todo = (
                "a folder or a pipe, not a file",
                "name a file of predictions, or of right answers",
            )
        raise UserError(what, where=str(path), todo=todo)
    if (
        path.name.lower()
        .removesuffix(".gz")
        .endswith((".txt", ".src", ".trg", ".tgt", ".pred"))
    ):
        return "lines"
    return "records" if _one_object(path) is None else "answers"


def _one_object(path: Path) -> dict[str, Any] | None:
    """The object of a ``.json`` file; None for other content and for an object with a ``prediction``."""
    if path.suffix.lower() != ".json":
        return None
    content = contents(path).removeprefix(BYTE_ORDER_MARK)
    try:
        value = as_json(content, str(path))
    except UserError:
        with suppress(UserError):
            as_json(content.lstrip().split(b"\n", 1)[0], str(path))
            return None  # JSON lines
        raise
    return value if isinstance(value, dict) and "prediction" not in value else None


def _bare(record: Record, segments: Sequence[str]) -> Generated:
    return Generated(text="; ".join(segments), segments=tuple(segments), record=record)


def _joined(
    predictions: Sequence[Generated], gold: Sequence[Record]
) -> list[Generated]:
    """The predictions, each with the record of its id. Every prediction must have a record and the reverse."""
    records: dict[str, Record] = {}
    for record in gold:
        if record.id in records:
            raise UserError(
                f"id {record.id!r} is there twice", where=records[record.id].where
            )
        records[record.id] = record
    for prediction in predictions:
        if prediction.id not in records:
            where = prediction.record.where if prediction.record else None
            raise UserError(
                f"id {prediction.id!r} is not in the right answers", where=where
            )
    predicted = {prediction.id for prediction in predictions}
    if missing := [record for record in gold if record.id not in predicted]:
        what = f"no prediction for id {missing[0].id!r}, and for {len(missing)} of {len(gold)} in all"
        todo = "predict for all of them; an empty prediction counts as wrong, a missing one would not count"
        raise UserError(what, where=missing[0].where, todo=todo)
    sources = [
        (one.record.source, records[one.id].source) for one in predictions if one.record
    ]
    given, right = zip(*sources, strict=True) if sources else ((), ())
    if given != right and sorted(given) == sorted(right):
        what = "the right answers stand in another order than the predictions, which go by their ids"
        raise UserError(
            what, where=gold[0].where, todo="give both the same ids, or the same order"
        )
    return [
        replace(prediction, record=records[prediction.id]) for prediction in predictions
    ]
