"""What right answers say of blind rows: the values of a key that has few, how sure of a choice its score is, and how sure a value must be to count."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import field as set_field
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from pipedec_cli.data.fields import Keys, leaves, path_name, text_of, value_texts
from pipedec_cli.data.records import Record
from pipedec_cli.decoding.blind import plan_of
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.metrics.choices import Decided, calibration_error
from pipedec_cli.objects.asked import Asked
from pipedec_cli.objects.codec import Answered, four_digits
from pipedec_cli.objects.rows import BlindPlan
from pipedec_cli.objects.tree import Part
from pipedec_cli.pipeline.decode import Finished

#: The least confidences that keep all values, and none.
ALL: Final = 0.0
NO_VALUES: Final = 2.0
#: A key with so many records has a temperature of its own.
ENOUGH: Final = 50
#: The least temperature; the greatest is its inverse.
_COLDEST: Final = 0.02


class Tried(NamedTuple):
    """A value that a row gives if it must: its confidence, and whether it is right."""

    confidence: float
    is_right: bool
    decided: Decided | None = None  # if it was chosen among known values

    def at(self, temperature: float) -> "Tried":
        """The same with the confidence at a temperature."""
        if self.decided is None:
            return self
        shares = self.decided.at(temperature).probabilities
        sure = max(share for label, share in shares.items() if label)
        return self._replace(confidence=sure)


@dataclass
class _Key:
    """What the rows of a key gave for all records."""

    tried: list[Tried] = set_field(default_factory=list)
    decided: list[Decided] = set_field(default_factory=list)

    def add(self, asked: Asked, answered: Answered, truth: str) -> None:
        """Add what the row of the key has answered for a record, whose right answer is `truth`, "" for none."""
        decided = None
        shares = answered.probabilities.get(path_name(asked.place))
        if shares:
            decided = Decided(shares, truth)
            self.decided.append(decided)
        text = answered.texts[asked.at]
        if text != "":
            confidence = answered.rows[asked.at].value_confidence
            is_right = _is_same(asked, text, truth)
            self.tried.append(Tried(confidence, is_right, decided))


class Tempered(NamedTuple):
    """The temperature of a key's choices, and their calibration error before and after, in per cent."""

    key: str
    temperature: float
    before: float
    after: float


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
    *,
    prior: bool = False,
) -> list[Tempered]:
    """Fit to records with targets, for each key, the confidence below which a blind row has no value.

    Keys with few values choose among these from now on, and the scores of choices are
    divided by a temperature, which makes the right ones most probable: of one key if
    there are many records, else of all. Keys of lists of objects keep all their values.
    A `prior` is subtracted before; see `find_priors`. `advance` is called after each
    record that is answered.
    """
    plan = plan_of(decoder)
    plan.thresholds = (ALL,) * len(plan.asked)
    plan.choices = learn_choices(plan, records)
    plan.temperatures = {}
    if prior:
        find_priors(decoder)
    rights = [_right_texts(plan, record) for record in records]
    keys = [_Key() for _ in plan.asked]
    sources = [record.source for record in records]
    for event in decoder.run(sources, decoder.method(), batch_size):
        if not isinstance(event, Finished):
            continue
        advance()
        answered = plan.answers(event.grid)
        right = rights[event.example]
        for key, asked in zip(keys, plan.asked, strict=True):
            key.add(asked, answered, right.get(asked.place, ""))
    tempered = _temper(plan, keys)
    thresholds = []
    for asked, key in zip(plan.asked, keys, strict=True):
        threshold = ALL
        if asked.part.shape == "value":
            filled = sum(bool(right.get(asked.place)) for right in rights)
            threshold = best_threshold(key.tried, filled)
        thresholds.append(threshold)
    plan.thresholds = tuple(thresholds)
    return tempered


def _temper(plan: BlindPlan, keys: Sequence[_Key]) -> list[Tempered]:
    """Fit temperatures to the choices of keys, and make their confidences those at these temperatures."""
    usual = fit_temperature([each for key in keys for each in key.decided])
    tempered = []
    for asked, key in zip(plan.asked, keys, strict=True):
        if not key.decided:
            continue
        own = usual
        if len(key.decided) >= ENOUGH:
            own = fit_temperature(key.decided)
        plan.temperatures[asked.part] = own
        before = calibration_error(key.decided)
        after = calibration_error([each.at(own) for each in key.decided])
        tempered.append(Tempered(path_name(asked.place), own, before, after))
        key.tried = [value.at(own) for value in key.tried]
    return tempered


def fit_temperature(decided: Sequence[Decided]) -> float:
    """The temperature at which the right answers are most probable, of answers that had one of 1.

    It is four digits of a number between the `_COLDEST` and the hottest, its inverse.
    Without right answers it is 1.
    """
    rows = []
    for each in decided:
        if each.right in each.probabilities:
            labels = [*each.probabilities]
            shares = np.array([*each.probabilities.values()])
            logits = np.log(np.maximum(shares, 1e-300))
            rows.append((logits, labels.index(each.right)))
    if not rows:
        return 1.0
    low = math.log(_COLDEST)  # of the inverse
    high = -low
    for _ in range(40):  # the likelihood has one maximum
        middle = (low + high) / 2
        slope = sum(_slope(logits, right, math.exp(middle)) for logits, right in rows)
        if slope > 0:
            low = middle
        else:
            high = middle
    return four_digits(math.exp(-middle))


def _slope(logits: Any, right: int, inverse: float) -> float:
    """How fast the logarithm of a right answer's probability grows with the inverse of the temperature."""
    weights = np.exp(inverse * (logits - logits.max()))
    return float(logits[right] - weights @ logits / weights.sum())


def find_priors(decoder: Decoder) -> None:
    """Have choices count by how much more probable the source makes them: score them behind an empty one."""
    plan = plan_of(decoder)
    plan.priors = {}
    for event in decoder.run([""], decoder.method(), 1):
        if not isinstance(event, Finished):
            continue
        grid = event.grid
        rows = zip(plan.asked, grid.openings, grid.subsequences, strict=False)
        for asked, opening, row in rows:
            if plan.names_values(asked.part):
                texts = [answer.text for answer in opening.answers]
                plan.priors[asked] = dict(zip(texts, row.scores, strict=True))


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
    ranked = sorted(values, key=itemgetter(0, 1), reverse=True)
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
