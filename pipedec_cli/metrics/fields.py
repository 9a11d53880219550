"""F1 of the (path, value) pairs of objects, and the share of objects that are completely right: protocol ``fields``.

The items of a list of objects have no order: each predicted item is compared with one
right item, so that most pairs agree. A key may have a metric of its own: ``words``, or
a tolerance of its numbers, such as ``0.5`` or ``5%``.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from pipedec_cli.data.fields import split_pair
from pipedec_cli.metrics.measure import (
    PERCENT,
    Floats,
    Measure,
    ScoringItem,
    harmonic_mean,
)

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

    `auc` is the area under the ROC curve, 0 to 1: the share of pairs of a right and a
    wrong value in which the right one is surer, ties half; None without such pairs.
    `threshold` is the least that keeps 95 % right values; None if there is none.
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
#: The path of a value in an item of a list of objects: the list, the item, and the
#: rest.
_ITEM: Final = re.compile(r"(.*?)\[([0-9]+)\](\..*)", re.DOTALL)


def agreement(metric: str, value: str, right: str) -> float:
    """How right a value is, 0 to 1: the F1 of its words, each counted once, or whether a number is within the tolerance."""
    if metric == "words":
        ours, theirs = ({*re.findall(r"\w+", text)} for text in (value, right))
        return 2 * len(ours & theirs) / max(1, len(ours) + len(theirs))
    try:
        number, meant = float(value), float(right)
    except ValueError:
        return 0.0
    most = float(metric.rstrip("%")) * (
        abs(meant) / PERCENT if metric.endswith("%") else 1
    )
    return float(abs(number - meant) <= most * (1 + 1e-9))  # 0.3 − 0.2 is within 0.1


@dataclass(frozen=True)
class Fields(Measure):
    """Micro F1: an object is a set of ``path: value`` pairs, with a pair for each item of a list.

    `metrics` are those of keys such as ``menu[].price``. The values of all other keys
    are equal or not.
    """

    metrics: tuple[Pair, ...] = ()
    name: ClassVar[str] = "fields"
    headline: ClassVar[Mapping[str, str]] = {
        "fields_f1": "fields F1",
        "fields_exact": "exact objects",
    }
    primary: ClassVar[str] = "fields_f1"
    part: ClassVar[str] = "field"
    columns: ClassVar[tuple[str, ...]] = (
        "fields_f1",
        "fields_exact",
        "fields_p",
        "fields_r",
    )
    counted: ClassVar[tuple[str, ...]] = ("predicted_pairs", "right_pairs")
    precision_recall: ClassVar = {"fields_f1": ("fields_p", "fields_r")}

    @property
    def _settings(self) -> str:
        metrics = "".join(f"|{key}:{metric}" for key, metric in self.metrics)
        return f"norm:nfkc+casefold+spaces|lists:sets|items:assigned|avg:micro{metrics}|unicode:{unicodedata.unidata_version}"

    def statistics(self, item: ScoringItem) -> tuple[float, ...]:
        """The object's share in each sum, with its items matched: common pairs, whether all are right, predicted pairs, right pairs."""
        assert item.gold is not None, "an item without right answers is refused before"
        return self._row(*self._both(item.segments, item.gold))

    def corpus(self, means: Floats) -> Floats:
        """Ratios of sums. Precision without predicted pairs, and recall without right ones, is 1 if there are neither, else 0."""
        hits, exact, predicted, right = np.moveaxis(means, -1, 0)
        neither = np.where((predicted == 0) & (right == 0), PERCENT, 0.0)
        both = ((predicted, neither.copy()), (right, neither.copy()))
        p, r = (
            np.divide(PERCENT * hits, of, out=usual, where=of > 0) for of, usual in both
        )
        return np.stack([harmonic_mean(p, r), PERCENT * exact, p, r], axis=-1)

    def parts(self, items: Iterable[ScoringItem]) -> dict[str, dict[str, float]]:
        """The metrics and counts of each key, such as ``menu[].price``, the keys with the most right pairs first; exact: all values of a key are right."""
        both = [self._both(item.segments, item.gold or ()) for item in items]
        sums: dict[str, Floats] = {}
        for sides in both:
            groups: dict[str, tuple[set[Pair], set[Pair]]] = {}
            for side, pairs in enumerate(sides):
                for pair in pairs:
                    groups.setdefault(_ITEM.sub(r"\1[]\3", pair[0]), (set(), set()))[
                        side
                    ].add(pair)
            for key, (one, other) in groups.items():
                # An object without the key on both sides is right. So all count as
                # right until a pair shows up.
                sums.setdefault(key, np.array([0.0, len(both), 0.0, 0.0]))
                sums[key] += self._row(one, other)
                sums[key][1] -= 1
        found = {}
        for key, total in sorted(
            sums.items(), key=lambda entry: (-entry[1][3], entry[0])
        ):
            values = [*self.corpus(total / len(both)).tolist(), *total[2:].tolist()]
            found[key] = dict(zip((*self.columns, *self.counted), values, strict=True))
        return found

    def wrong(self, item: ScoringItem) -> list[int]:
        """The places of an object's pairs that are not all right; [] without a target."""
        if item.gold is None:
            return []
        moved, right = self.renumbered(item.segments, item.gold), _pairs(item.gold)
        credit = self._credit(_pairs(moved), right)
        return [
            at
            for at, one in enumerate(moved)
            if min(credit[pair] for pair in _pairs([one])) < 1
        ]

    def judged(self, item: ScoringItem) -> list[Judged]:
        """The confidence of each value of an object, and whether it is right: all its pairs, and no others, are in the target."""
        moved, right = (
            self.renumbered(item.segments, item.gold or ()),
            _pairs(item.gold or ()),
        )
        credit, found = self._credit(_pairs(moved), right), dict[str, set[Pair]]()
        for pair, place in zip(item.segments, moved, strict=True):
            found.setdefault(split_pair(pair)[0], set()).update(_pairs([place]))
        wanted, of = Counter(key for key, _ in right), item.confidence
        return [
            (
                of[key],
                min(credit[pair] for pair in pairs) == 1
                and len(pairs) == wanted[next(iter(pairs))[0]],
            )
            for key, pairs in found.items()
            if key in of
        ]

    def renumbered(self, pairs: Sequence[str], right: Iterable[str]) -> list[str]:
        """The pairs of an object, with the items of its lists numbered as the right items that they are compared with."""
        numbers = self._matching(_pairs(pairs), _pairs(right))
        return [_moved(pair, numbers) for pair in pairs]

    def _both(
        self, segments: Sequence[str], gold: Iterable[str]
    ) -> tuple[AbstractSet[Pair], AbstractSet[Pair]]:
        predicted, right = _pairs(segments), _pairs(gold)
        numbers = self._matching(predicted, right)
        return {(_moved(key, numbers), value) for key, value in predicted}, right

    def _row(
        self, predicted: AbstractSet[Pair], right: AbstractSet[Pair]
    ) -> tuple[float, ...]:
        hits = sum(self._credit(predicted, right).values())
        return (
            hits,
            float(hits == len(predicted) == len(right)),
            len(predicted),
            len(right),
        )

    def _credit(
        self, predicted: AbstractSet[Pair], right: AbstractSet[Pair]
    ) -> dict[Pair, float]:
        """How right each predicted pair is, 0 to 1. By its key's metric it agrees with one right pair that no other agrees with."""
        credit = {pair: float(pair in right) for pair in predicted}
        metrics = dict(self.metrics)
        left: defaultdict[str, tuple[list[str], list[str]]] = defaultdict(
            lambda: ([], [])
        )
        for side, pairs in enumerate(
            (predicted - right, right - predicted) if metrics else ()
        ):
            for key, value in sorted(pairs):
                left[key][side].append(value)
        for key, (ours, theirs) in left.items():
            if metric := metrics.get(re.sub(r"\[[0-9]+\]", "[]", key)):
                agree = [
                    [agreement(metric, one, other) for other in theirs] for one in ours
                ]
                credit |= {
                    (key, ours[row]): agree[row][column]
                    for row, column in _assigned(agree)
                }
        return credit

    def _matching(
        self, predicted: AbstractSet[Pair], right: AbstractSet[Pair]
    ) -> dict[tuple[str, str], int]:
        """The number of the right item for each predicted item, by its list and number; other items come after the right ones.

        It solves the assignment problem: as many pairs as possible are in both items,
        and then as many numbers as possible stay.
        """
        ours, theirs = _items(predicted), _items(right)
        numbers: dict[tuple[str, str], int] = {}
        for name, items in ours.items():
            others = theirs.get(name, {})
            agree = [
                [
                    sum(self._credit(one, other).values()) + (at == number) / 10_000
                    for number, other in others.items()
                ]
                for at, one in items.items()
            ]
            mine, right_numbers = list(items), list(map(int, others))
            places = {
                mine[row]: right_numbers[column] for row, column in _assigned(agree)
            }
            spare = [at for at in items if at not in places]
            places |= {
                at: max(right_numbers, default=0) + extra
                for extra, at in enumerate(sorted(spare, key=int), start=1)
            }
            numbers |= {(name, at): number for at, number in places.items()}
        return numbers


def _assigned(agree: list[list[float]]) -> list[tuple[int, int]]:
    """The row and column of each pair of an assignment with the largest sum; none without rows or columns."""
    if not agree or not agree[0]:
        return []
    from scipy.optimize import linear_sum_assignment

    return [
        *zip(
            *map(np.ndarray.tolist, linear_sum_assignment(agree, maximize=True)),
            strict=True,
        )
    ]


def normalise_value(text: str) -> str:
    """A value for comparison: NFKC, without case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _items(pairs: AbstractSet[Pair]) -> dict[str, dict[str, set[Pair]]]:
    """The pairs of each item of each list, by the list's name and the item's number; their keys say nothing of the number."""
    found: dict[str, dict[str, set[Pair]]] = {}
    for key, value in sorted(pairs):
        if match := _ITEM.fullmatch(key):
            found.setdefault(match[1], {}).setdefault(match[2], set()).add(
                (f"{match[1]}[]{match[3]}", value)
            )
    return found


def _moved(key: str, numbers: Mapping[tuple[str, str], int]) -> str:
    """A key, or a pair, with the number of another item."""
    match = _ITEM.fullmatch(key)
    place = numbers.get((match[1], match[2])) if match else None
    return key if match is None or place is None else f"{match[1]}[{place}]{match[3]}"


def _pairs(written: Iterable[str]) -> AbstractSet[Pair]:
    return {(key, normalise_value(value)) for key, value in map(split_pair, written)}
