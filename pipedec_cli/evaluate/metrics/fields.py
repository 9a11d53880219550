"""F1 of the (path, value) pairs of objects, and the share of objects that are completely right: protocol ``fields``.

The items of a list of objects have no order: each predicted item is compared with one right item, so that most pairs agree.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from pipedec_cli.data.fields import split_pair
from pipedec_cli.evaluate.metrics.measure import PERCENT, Floats, Measure, ScoringItem, harmonic_mean

#: The share of right values that a threshold is to keep, in per cent.
PRECISION: Final = 95.0
_BINS: Final = 10

#: A value's confidence, 0 to 1, and whether the value is right.
Judged = tuple[float, bool]


@dataclass(frozen=True, slots=True)
class Group:
    """Some values: the least confidence of the group, their number, their mean confidence and share of right ones, per cent."""

    least: float
    values: int
    confidence: float
    right: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """What confidence says about values: those of each tenth of confidence, and how well it tells right from wrong.

    `auc` is the area under the ROC curve, 0 to 1: the share of pairs of a right and a wrong value in which the right one
    is surer, ties half; None without such pairs. `threshold` is the least that keeps 95 % right values; None if there is none.
    """

    bins: Sequence[Group]
    auc: float | None
    threshold: float | None


def reliability(judged: Sequence[Judged]) -> Reliability | None:
    """How well confidence tells right from wrong; None without values."""
    if not judged:
        return None
    sure, right = np.array(sorted(judged, reverse=True), dtype=np.float64).T
    ends = np.append(sure[1:] < sure[:-1], True)  # equal values are kept together
    enough = PERCENT * np.cumsum(right) / np.arange(1, len(right) + 1) >= PRECISION
    threshold = float(sure[ends & enough][-1]) if (ends & enough).any() else None
    tenths = [(n / _BINS, (n + 1) / _BINS) for n in range(_BINS)]
    bins = [kept(judged, low, high if high < 1 else 2.0) for low, high in tenths]
    ours, theirs = sure[right == 1], np.sort(sure[right == 0])
    pairs = len(ours) * len(theirs)
    below = sum(np.searchsorted(theirs, ours, side).sum() for side in ("left", "right"))
    auc = float(below / (2 * pairs)) if pairs else None
    return Reliability([one for one in bins if one.values], auc, threshold)


def kept(judged: Sequence[Judged], least: float, below: float = 2.0) -> Group:
    """The values whose confidence is at least one number and below another; without any nothing is sure or right."""
    found = [one for one in judged if least <= one[0] < below]
    means = (PERCENT * sum(column) / len(found) for column in zip(*found, strict=True))
    return Group(least, len(found), *(means if found else (0.0, 0.0)))


Pair = tuple[str, str]
#: The path of a value in an item of a list of objects: the list, the item, and the rest.
_ITEM: Final = re.compile(r"(.*?)\[([0-9]+)\](\..*)", re.DOTALL)


@dataclass(frozen=True)
class Fields(Measure):
    """Micro F1: an object is a set of ``path: value`` pairs, with a pair for each item of a list."""

    name: ClassVar[str] = "fields"
    headline: ClassVar[Mapping[str, str]] = {"fields_f1": "fields F1", "fields_exact": "exact objects"}
    primary: ClassVar[str] = "fields_f1"
    part: ClassVar[str] = "field"
    metrics: ClassVar[tuple[str, ...]] = ("fields_f1", "fields_exact", "fields_p", "fields_r")
    counted: ClassVar[tuple[str, ...]] = ("predicted_pairs", "right_pairs")
    precision_recall: ClassVar = {"fields_f1": ("fields_p", "fields_r")}

    @property
    def _settings(self) -> str:
        return f"norm:nfkc+casefold+spaces|lists:sets|items:assigned|avg:micro|unicode:{unicodedata.unidata_version}"

    def statistics(self, item: ScoringItem) -> tuple[float, ...]:
        """The object's share in each sum, with its items matched: common pairs, whether all are right, predicted pairs, right pairs."""
        assert item.gold is not None, "an item without right answers is refused before"
        return _row(*_both(item.segments, item.gold))

    def corpus(self, means: Floats) -> Floats:
        """Ratios of sums. Precision without predicted pairs, and recall without right ones, is 1 if there are neither, else 0."""
        hits, exact, predicted, right = np.moveaxis(means, -1, 0)
        neither = np.where((predicted == 0) & (right == 0), PERCENT, 0.0)
        both = ((predicted, neither.copy()), (right, neither.copy()))
        p, r = (np.divide(PERCENT * hits, of, out=usual, where=of > 0) for of, usual in both)
        return np.stack([harmonic_mean(p, r), PERCENT * exact, p, r], axis=-1)

    def parts(self, items: Iterable[ScoringItem]) -> dict[str, dict[str, float]]:
        """The metrics and counts of each key, such as ``menu[].price``, the keys with the most right pairs first; exact: all values of a key are right."""
        both = [_both(item.segments, item.gold or ()) for item in items]
        sums: dict[str, Floats] = {}
        for sides in both:
            groups: dict[str, tuple[set[Pair], set[Pair]]] = {}
            for side, pairs in enumerate(sides):
                for pair in pairs:
                    groups.setdefault(_ITEM.sub(r"\1[]\3", pair[0]), (set(), set()))[side].add(pair)
            for key, (one, other) in groups.items():
                # An object without the key on both sides is right. So all count as right until a pair shows up.
                sums.setdefault(key, np.array([0.0, len(both), 0.0, 0.0]))
                sums[key] += _row(one, other)
                sums[key][1] -= 1
        found = {}
        for key, total in sorted(sums.items(), key=lambda entry: (-entry[1][3], entry[0])):
            values = [*self.corpus(total / len(both)).tolist(), *total[2:].tolist()]
            found[key] = dict(zip((*self.metrics, *self.counted), values, strict=True))
        return found


def normalise_value(text: str) -> str:
    """A value for comparison: NFKC, without case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def wrong(item: ScoringItem) -> list[int]:
    """The places of an object's pairs that are not in the target; [] without a target."""
    if item.gold is None:
        return []
    right = _pairs(item.gold)
    matched = renumbered(item.segments, item.gold)
    return [at for at, one in enumerate(matched) if not _pairs([one]) <= right]


def judged(item: ScoringItem) -> list[Judged]:
    """The confidence of each value of an object, and whether it is right: all its pairs, and no others, are in the target."""
    found: dict[str, tuple[str, set[str]]] = {}
    right: dict[str, set[str]] = {}
    for pair, moved in zip(item.segments, renumbered(item.segments, item.gold or ()), strict=True):
        (key, value), (place, _) = split_pair(pair), split_pair(moved)
        found.setdefault(key, (place, set()))[1].add(normalise_value(value))
    for key, value in _pairs(item.gold or ()):
        right.setdefault(key, set()).add(value)
    of = item.confidence
    return [(of[key], values == right.get(at)) for key, (at, values) in found.items() if key in of]


def renumbered(pairs: Sequence[str], right: Iterable[str]) -> list[str]:
    """The pairs of an object, with the items of its lists numbered as the right items that they are compared with."""
    numbers = _matching(_pairs(pairs), _pairs(right))
    return [_moved(pair, numbers) for pair in pairs]


def _both(segments: Sequence[str], gold: Iterable[str]) -> tuple[AbstractSet[Pair], AbstractSet[Pair]]:
    predicted, right = _pairs(segments), _pairs(gold)
    numbers = _matching(predicted, right)
    return {(_moved(key, numbers), value) for key, value in predicted}, right


def _matching(predicted: AbstractSet[Pair], right: AbstractSet[Pair]) -> dict[tuple[str, str], int]:
    """The number of the right item for each predicted item, by its list and number; other items come after the right ones.

    It solves the assignment problem: as many pairs as possible are in both items, and then as many numbers as possible stay.
    """
    ours, theirs = _items(predicted), _items(right)
    numbers: dict[tuple[str, str], int] = {}
    for name, items in ours.items():
        others = theirs.get(name, {})
        places, most = dict[str, int](), max(map(int, others), default=0)
        if others:
            from scipy.optimize import linear_sum_assignment

            agree = [
                [len(one & other) + (at == number) / 10_000 for number, other in others.items()]
                for at, one in items.items()
            ]
            mine, right_numbers = list(items), list(map(int, others))
            assigned = zip(*linear_sum_assignment(agree, maximize=True), strict=True)
            places = {mine[row]: right_numbers[column] for row, column in assigned}
        spare = [at for at in items if at not in places]
        places |= {at: most + extra for extra, at in enumerate(sorted(spare, key=int), start=1)}
        numbers |= {(name, at): number for at, number in places.items()}
    return numbers


def _items(pairs: AbstractSet[Pair]) -> dict[str, dict[str, set[Pair]]]:
    """The pairs of each item of each list, by the list's name and the item's number."""
    found: dict[str, dict[str, set[Pair]]] = {}
    for key, value in sorted(pairs):
        if match := _ITEM.fullmatch(key):
            found.setdefault(match[1], {}).setdefault(match[2], set()).add((match[3], value))
    return found


def _moved(key: str, numbers: Mapping[tuple[str, str], int]) -> str:
    """A key, or a pair, with the number of another item."""
    match = _ITEM.fullmatch(key)
    place = numbers.get((match[1], match[2])) if match else None
    return key if match is None or place is None else f"{match[1]}[{place}]{match[3]}"


def _pairs(written: Iterable[str]) -> AbstractSet[Pair]:
    return {(key, normalise_value(value)) for key, value in map(split_pair, written)}


def _row(predicted: AbstractSet[Pair], right: AbstractSet[Pair]) -> tuple[float, ...]:
    return len(predicted & right), float(predicted == right), len(predicted), len(right)
