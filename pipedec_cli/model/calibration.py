"""Fits to right answers how improbable "no value" must be in a blind row for its value to count."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pipedec_cli.data.fields import leaves, text_of, value_texts
from pipedec_cli.data.records import Record
from pipedec_cli.model.asked import Asked
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.rows import EVEN, BlindPlan
from pipedec_cli.pipeline.decode import Finished

#: Thresholds that keep all values, and none.
ALL: Final = 1.0
NO_VALUES: Final = -1.0


class Tried(NamedTuple):
    """A value that a row gives if it must: its `absence`, and whether it is right."""

    absence: float
    is_right: bool


def calibrate(
    decoder: Decoder, records: Iterable[Record], batch_size: int, advance: Callable[[], None]
) -> None:
    """Fit to records with targets, for each key, the `absence` above which a blind row has no value.

    Keys of lists of objects keep all their values. `advance` is called after each record that is answered.
    """
    plan = decoder.blind
    assert plan is not None, "thresholds are for blind rows"
    plan.thresholds = (ALL,) * len(plan.asked)
    method = dataclasses.replace(decoder.method(), confident=True)
    wanted = list[Sequence[str]]()

    def sources() -> Iterator[str]:
        for record in records:
            wanted.append(_right_texts(plan, record))
            yield record.source

    tried: list[list[Tried]] = [[] for _ in plan.asked]
    for event in decoder.run(sources(), method, batch_size):
        if not isinstance(event, Finished):
            continue
        advance()
        answered = plan.answers(event.grid)
        rights = wanted[event.example]
        for values, asked, right in zip(tried, plan.asked, rights, strict=True):
            text = answered.texts[asked.at]
            if text != "":
                values.append(Tried(answered.rows[asked.at].absence, _is_same(asked, text, right)))
    thresholds = list[float]()
    for number, (asked, values) in enumerate(zip(plan.asked, tried, strict=True)):
        filled = sum(bool(texts[number]) for texts in wanted)
        thresholds.append(best_threshold(values, filled) if asked.part.shape == "value" else EVEN)
    plan.thresholds = tuple(thresholds)


def _right_texts(plan: BlindPlan, record: Record) -> list[str]:
    """The right text of each row that starts at once, "" for no value."""
    target = record.target_fields or {}
    value_texts(target, [*plan.rows.tree.values()], record.where)
    values = dict(leaves(target))

    def right(asked: Asked) -> str:
        return text_of(values.get(asked.place)) if asked.part.shape == "value" else ""

    return [right(asked) for asked in plan.asked]


def _is_same(asked: Asked, text: str | None, right: str) -> bool:
    """Whether a text is the right value of a row: 12.0 is 12."""
    if text is None or not right:
        return False
    field = asked.part.field
    return text == right or (field.kind != "string" and field.parsed(text) == field.parsed(right))


def best_threshold(values: Sequence[Tried], filled: int) -> float:
    """The most `absence` of values that are kept so that their F1 is the best.

    `filled` is the number of records with a value. The threshold lies between two neighbours.
    """
    ranked = sorted(values)
    best = 0.0
    threshold = NO_VALUES
    right = 0
    for kept, value in enumerate(ranked, start=1):
        right += value.is_right
        following = ranked[kept].absence if kept < len(ranked) else ALL
        f1 = 2 * right / (kept + filled)
        if f1 > best and following > value.absence:
            best = f1
            threshold = float(f"{(value.absence + following) / 2:.4g}")
    return threshold
