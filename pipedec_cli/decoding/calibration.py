"""What right answers say of blind rows: the values of a key that has few, and how sure a value must be to count."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pipedec_cli.data.fields import Keys, leaves, text_of, value_texts
from pipedec_cli.data.records import Record
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.objects.asked import Asked
from pipedec_cli.objects.codec import four_digits
from pipedec_cli.objects.rows import BlindPlan
from pipedec_cli.objects.tree import Part
from pipedec_cli.pipeline.decode import Finished

#: The least confidences that keep all values, and none.
ALL: Final = 0.0
NO_VALUES: Final = 2.0


class Tried(NamedTuple):
    """A value that a row gives if it must: its confidence, and whether it is right."""

    confidence: float
    is_right: bool


def learn_choices(
    plan: BlindPlan, records: Sequence[Record]
) -> dict[Part, tuple[str, ...]]:
    """The values of those strings that have so few that each of them must be one of these.

    Each value comes twice at least, and there are at most as many values as the square
    root of the number of right answers.
    """
    rights = [_right_texts(plan, record) for record in records]
    learnt = {}
    for asked in plan.asked:
        field = asked.part.field
        texts = [right[asked.place] for right in rights if right.get(asked.place)]
        if field.kind != "string" or field.enum or field.scalars or not texts:
            continue
        counts = Counter(texts)
        if min(counts.values()) > 1 and len(counts) ** 2 <= len(texts):
            learnt[asked.part] = tuple(sorted(counts))
    return learnt


def calibrate(
    decoder: Decoder,
    records: Sequence[Record],
    batch_size: int,
    advance: Callable[[], None],
) -> None:
    """Fit to records with targets, for each key, the confidence below which a blind row has no value.

    Keys with few values choose among these from now on. Keys of lists of objects keep
    all their values. `advance` is called after each record that is answered.
    """
    plan = decoder.blind
    assert plan is not None, "thresholds are for blind rows"
    plan.thresholds = (ALL,) * len(plan.asked)
    plan.choices = learn_choices(plan, records)
    rights = [_right_texts(plan, record) for record in records]
    tried: list[list[Tried]] = [[] for _ in plan.asked]
    sources = [record.source for record in records]
    for event in decoder.run(sources, decoder.method(), batch_size):
        if not isinstance(event, Finished):
            continue
        advance()
        answered = plan.answers(event.grid)
        right = rights[event.example]
        for values, asked in zip(tried, plan.asked, strict=True):
            text = answered.texts[asked.at]
            if text != "":
                confidence = answered.rows[asked.at].value_confidence
                is_right = _is_same(asked, text, right.get(asked.place, ""))
                values.append(Tried(confidence, is_right))
    thresholds = []
    for asked, values in zip(plan.asked, tried, strict=True):
        threshold = ALL
        if asked.part.shape == "value":
            filled = sum(bool(right.get(asked.place)) for right in rights)
            threshold = best_threshold(values, filled)
        thresholds.append(threshold)
    plan.thresholds = tuple(thresholds)


def _right_texts(plan: BlindPlan, record: Record) -> dict[Keys, str]:
    """The right texts of an object by the places of their values."""
    target = record.target_fields or {}
    value_texts(target, [*plan.rows.tree.values()], record.where)
    return {keys: text_of(value) for keys, value in leaves(target)}


def _is_same(asked: Asked, text: str | None, right: str) -> bool:
    """Whether a text is the right value of a row: 12.0 is 12."""
    if text is None or not right:
        return False
    field = asked.part.field
    if text == right or field.kind == "string":
        return text == right
    return field.parsed(text) == field.parsed(right)


def best_threshold(values: Sequence[Tried], filled: int) -> float:
    """The least confidence of values that are kept so that their F1 is the best.

    `filled` is the number of records with a value. The threshold is the geometric mean
    of two neighbours.
    """
    ranked = sorted(values, reverse=True)
    following = [value.confidence for value in ranked[1:]]
    following.append(ALL)
    best = 0.0
    threshold = NO_VALUES
    right = 0
    for kept, (value, behind) in enumerate(zip(ranked, following, strict=False), 1):
        right += value.is_right
        f1 = 2 * right / (kept + filled)
        if f1 > best and behind < value.confidence:
            best = f1
            threshold = four_digits((value.confidence * behind) ** 0.5)
    return threshold
