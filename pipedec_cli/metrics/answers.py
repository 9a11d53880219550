"""What a task compares: the answers in a prediction, and the right ones in its record."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import (
    by_path,
    kind_of,
    leaves,
    mapped,
    pairs_of,
    path_name,
)
from pipedec_cli.data.reading import as_json
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.metrics import Task
from pipedec_cli.metrics.measure import record_beside

#: The field of a record that may hold its right answers as a list, from before
#: `segment` merged any of them.
ANSWER_FIELDS: Final[Mapping[Task, str]] = {
    "keyphrases": "keyphrases",
    "multispan": "answers",
}


def for_task(prediction: Generated, task: Task) -> Generated:
    """The prediction with its record, as the metrics of a task compare them.

    The right answers of ``keyphrases`` are the record's list ``keyphrases``, of
    ``multispan`` its list ``answers``; without one, a ``target`` that is a list; else
    ``target_segments``. A keyphrase never holds a ``;``: predicted and right segments
    are split there, and so is a target that is one string. The right answers of
    ``summarization`` are the references, or else the target; of ``fields`` the target,
    an object.
    """
    record = record_beside(prediction)
    if task == "fields":
        return _with_pairs(prediction, record)
    if task == "keyphrases":
        phrases = _phrases(_listed(record, "keyphrases"))
        if not record.source.strip():
            what = (
                "the record has no `source`, which tells present from absent keyphrases"
            )
            todo = "give sources and right answers with --gold FILE"
            raise UserError(what, where=record.where, todo=todo)
        record = replace(record, target_segments=phrases)
        return replace(
            prediction, record=record, segments=_phrases(prediction.segments)
        )
    if task == "multispan":
        record = replace(record, target_segments=_listed(record, "multispan"))
    elif not record.references:
        if record.target is None:
            raise _nothing(record, "neither `target` nor `references`")
        record = replace(record, references=(record.target,))
    return replace(prediction, record=record)


def _nothing(record: Record, lacking: str) -> UserError:
    what = f"nothing to score against: the record has {lacking}"
    todo = "give the right answers with --gold FILE"
    return UserError(what, where=record.where, todo=todo)


def _with_pairs(prediction: Generated, record: Record) -> Generated:
    """The prediction of an object as ``path: value`` pairs, beside those of the target; a UserError if that is no object."""
    if record.target_fields is None:
        raise _nothing(record, "no `target` that is an object")
    record = replace(record, target_segments=pairs_of(record.target_fields))
    return replace(
        prediction,
        record=record,
        segments=pairs_of(written_fields(prediction)),
        confidence=_shares(prediction, prediction.confidence),
        forced=_shares(prediction, prediction.forced),
    )


def written_fields(prediction: Generated) -> Mapping[str, Any]:
    """The predicted object: ``fields``, or the text read as JSON; {} if it is none."""
    value: Any = prediction.fields
    if value is None:
        with suppress(UserError):
            value = as_json(prediction.text.encode("utf-8", "surrogatepass"), "")
    return value if isinstance(value, Mapping) else {}


def _shares(prediction: Generated, given: Mapping[str, Any] | None) -> dict[str, float]:
    """The shares `given` for values of a predicted object, such as their confidence, by the name of the value's path.

    A value without a valid share, a number from 0 to 1, is left out.
    """
    shares = by_path(given or {})

    def share_of(keys: Any, value: object) -> Any:
        return shares.get(keys, -1) if kind_of(value) else None

    # The items of a list are counted as those of `pairs_of` are: without items whose
    # values are all null.
    named = {}
    for keys, share in leaves(mapped(written_fields(prediction), share_of)):
        if kind_of(share) in ("integer", "number") and 0 <= share <= 1:
            named[path_name(keys)] = float(share)
    return named


def _listed(
    record: Record, task: Literal["keyphrases", "multispan"]
) -> tuple[str, ...]:
    """The right phrases or spans of a record: its list for the task, or else its target; a UserError if it has none."""
    name = ANSWER_FIELDS[task]
    answers = record.fields.get(name)
    if answers is None and isinstance(record.fields.get("target"), list):
        name = "target"
        answers = record.fields[name]
    if isinstance(answers, list):
        return _strings(answers, name, record.where)
    # A string may be the target that `segment` has cut.
    is_cut = record.target_segments is not None and answers == record.target
    if answers is not None and not is_cut:
        written = repr(answers)
        if isinstance(answers, str):
            written = f"the string {answers[:40]!r}"
        what = f"`{name}` must be a list of strings, not {written}"
        raise UserError(what, where=record.where)
    if record.target_segments is not None:
        return record.target_segments
    if record.target is None:
        lacking = f"no `{ANSWER_FIELDS[task]}`, `target` or `target_segments`"
        raise _nothing(record, lacking)
    if task == "keyphrases":
        return (record.target,)
    what = "`target` is a string where a list of answers belongs"
    todo = "give the answers as a list, or give --gold FILE"
    raise UserError(what, where=record.where, todo=todo)


def _strings(answers: list[Any], name: str, where: str) -> tuple[str, ...]:
    """The answers in the field `name`; a UserError if one of them is no string."""
    for answer in answers:
        if not isinstance(answer, str):
            what = f"`{name}` must hold strings, not {type(answer).__name__}"
            raise UserError(what, where=where)
    return tuple(answers)


def _phrases(segments: Iterable[str]) -> tuple[str, ...]:
    """Phrases, split where several were merged into one, without empty ones."""
    phrases = list[str]()
    for segment in segments:
        phrases += map(str.strip, segment.split(";"))
    return tuple(filter(None, phrases))
