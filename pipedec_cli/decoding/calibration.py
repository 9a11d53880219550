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
    """Find the string keys that have only a few values in right answers: from now on a row chooses among these.

    Each value comes twice at least, and there are at most as many values as the square
    root of the number of right answers. Returns the values, sorted, by the key's part
    of the schema.
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
    """Fit to records with targets, for each key, the confidence below which its row counts as without a value.

    The records are answered by the `decoder`, whose rows are blind (each asks the model
    one thing, without training); its plan gets the thresholds. Keys with few values
    choose among these from now on. Keys of lists of objects keep all their values.
    `advance` is called after each record that is answered.
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
    """The right values of a record's target as texts, by their paths. A UserError for a target that no row can write."""
    target = record.target_fields or {}
    value_texts(target, [*plan.rows.tree.values()], record.where)
    return {keys: text_of(value) for keys, value in leaves(target)}


def _is_same(asked: Asked, text: str | None, right: str) -> bool:
    """Whether the text that a row has given is the right value of its key: for a number 12.0 is 12.

    False for a text that was cut (None), and where no value is right ("").
    """
    if text is None or not right:
        return False
    field = asked.part.field
    if text == right or field.kind == "string":
        return text == right
    return field.parsed(text) == field.parsed(right)


def best_threshold(values: Sequence[Tried], filled: int) -> float:
    """The confidence below which values are best left out: so that those which are kept have the highest F1.

    `values` are what the row of a key has given for each record, `filled` the number of
    records where there is a right value. The threshold is the geometric mean of the
    confidences of the last value that is kept and of the first one that is not.
    """
    ranked = sorted(values, reverse=True)
    following = [value.confidence for value in ranked[1:]]
    following.append(ALL)
    best = 0.0
    threshold = NO_VALUES
    right = 0
    for kept, (value, below) in enumerate(zip(ranked, following, strict=False), 1):
        right += value.is_right
        f1 = 2 * right / (kept + filled)
        if f1 > best and below < value.confidence:
            best = f1
            threshold = four_digits((value.confidence * below) ** 0.5)
    return threshold
