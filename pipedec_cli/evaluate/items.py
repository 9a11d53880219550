"""What a metric is given of one example, whichever file it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated, Record

Task = Literal["summarization", "keyphrases", "multispan"]
TASKS: Final[tuple[Task, ...]] = get_args(Task)

#: Between two phrases of one string, in the files of the keyphrase literature.
PHRASE_SEPARATOR: Final = ";"

#: Where a record may keep its right answers as a list, before `segment` merged any of them: asked for first.
ANSWER_FIELDS: Final[Mapping[Task, str]] = {"keyphrases": "keyphrases", "multispan": "answers"}


@dataclass(frozen=True, slots=True)
class ScoringItem:
    """One prediction and what it is held against.

    Attributes:
        id: the example's identifier.
        prediction: the predicted text.
        segments: the predicted subsequences (sentences, phrases, spans), in order.
        target: the right answer as one string; None where there is none of its own.
        gold: the target's subsequences; None where they are not known. An empty target has ().
        references: every right answer, for the tasks that score text.
        source: the context, for the tasks that look into it.
        truncated: what cut the prediction short, as in `Generated`.

    Raises:
        TypeError: a string stands where a list of strings belongs.
    """

    id: str
    prediction: str
    segments: tuple[str, ...]
    target: str | None = None
    gold: tuple[str, ...] | None = None
    references: tuple[str, ...] = ()
    source: str = ""
    truncated: str | None = None

    def __post_init__(self) -> None:
        for name in ("segments", "gold", "references"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, list_of_strings(value, name))


def list_of_strings(value: Sequence[str], name: str) -> tuple[str, ...]:
    """The value as a tuple, once it is certain that it is a list of strings and not one string.

    A string is a sequence of strings as well, its letters; taken for a list it gives a score that looks real.

    Raises:
        TypeError: it is a string, or holds something else than strings.
    """
    if isinstance(value, str):
        raise TypeError(f"{name} must be a list of strings, not the string {value[:40]!r}")
    items = tuple(value)
    for item in items:
        if not isinstance(item, str):
            raise TypeError(f"{name} must hold strings, not {type(item).__name__}")
    return items


def scoring_item(prediction: Generated, task: Task) -> ScoringItem:
    """What the metrics of a task need of a prediction and of the record that it was generated from.

    The right answers of ``keyphrases`` are the record's list ``keyphrases``, of ``multispan`` its list ``answers``;
    where there is none, a ``target`` that is a list; else ``target_segments``. A keyphrase never holds a ``;``:
    segments, predicted or right, are split there, and so is a target that is one string. The right answers of
    ``summarization`` are the references, or the target where there are none.

    Raises:
        UserError: the record has nothing to score against, or a string where a list of answers belongs.
    """
    record = prediction.record
    assert record is not None, "a prediction is scored against its record"
    segments, gold = prediction.segments, record.target_segments
    references = record.references
    if task == "summarization":
        if not references and record.target is not None:
            references = (record.target,)
        if not references:
            raise _nothing_right(record, "neither `target` nor `references`")
    else:
        gold = _answers(record, task)
        if task == "keyphrases":
            segments = _phrases(segments)
            if not record.source.strip():
                raise UserError(
                    "the record has no `source`, which tells present from absent keyphrases",
                    where=record.where,
                    todo="give sources and right answers with --gold FILE",
                )
    return ScoringItem(
        id=prediction.id,
        prediction=prediction.text,
        segments=segments,
        target=record.target,
        gold=gold,
        references=references,
        source=record.source,
        truncated=prediction.truncated,
    )


def _answers(record: Record, task: Task) -> tuple[str, ...]:
    """The right phrases or spans of a record."""
    name = ANSWER_FIELDS[task]
    for field in (name, "target"):
        value = record.fields.get(field)
        if isinstance(value, list) or (field == name and value is not None):
            try:
                answers = list_of_strings(value, f"`{field}`")
            except TypeError as error:
                raise UserError(str(error), where=record.where) from None
            return _phrases(answers) if task == "keyphrases" else answers
    if task == "keyphrases" and (record.target_segments is not None or record.target is not None):
        parts = record.target_segments
        return _phrases((record.target or "",) if parts is None else parts)
    if record.target_segments is not None:
        return record.target_segments
    if record.target is not None:
        raise UserError(
            "`target` is a string where a list of answers belongs",
            where=record.where,
            todo="give the answers as a list, or give --gold FILE",
        )
    raise _nothing_right(record, f"no `{name}`, `target` or `target_segments`")


def _phrases(segments: Sequence[str]) -> tuple[str, ...]:
    """Phrases without those that two or more of them were merged into, and without empty ones."""
    parts = (part.strip() for segment in segments for part in segment.split(PHRASE_SEPARATOR))
    return tuple(part for part in parts if part)


def _nothing_right(record: Record, lacking: str) -> UserError:
    return UserError(
        f"nothing to score against: the record has {lacking}",
        where=record.where,
        todo="give the right answers with --gold FILE",
    )
