"""F1 of the (path, value) pairs of objects, and the share of objects that are all right.

Protocol ``fields``. The items of a list of objects have no order: each predicted item
is compared with one right item, so that most pairs agree. A key may have a metric of
its own: ``words``, or a tolerance of its numbers, such as ``0.5`` or ``5%``.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from math import fsum
from typing import ClassVar, Final, TypeVar

import numpy as np

from pipedec_cli.data.fields import split_pair
from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import (
    PERCENT,
    Floats,
    Measure,
    harmonic_mean,
    record_beside,
    right_segments,
)
from pipedec_cli.metrics.reliability import Judged

T = TypeVar("T")
Pair = tuple[str, str]
Pairs = AbstractSet[Pair]
#: A list of objects by its name, and the number of an item as it is written.
Item = tuple[str, str]

#: The path of a value in an item of a list of objects: list, item, and rest.
_IN_ITEM: Final = re.compile(r"(.*?)\[([0-9]+)\](\..*)", re.DOTALL)
_NUMBER: Final = re.compile(r"\[[0-9]+\]")
#: 0.3 − 0.2 is within 0.1.
_ROUNDING: Final = 1 + 1e-9
#: What an item of the same number is worth, so that numbers stay where they can.
_SAME_NUMBER: Final = 1 / 10_000


def agreement(metric: str, value: str, right: str) -> float:
    """How right a value is that is not equal, 0 to 1.

    By ``words`` it is their F1, each counted once; by a tolerance whether the number is
    within it; by ``exact`` 0.
    """
    if metric == "exact":
        return 0.0
    if metric == "words":
        ours, theirs = set(re.findall(r"\w+", value)), set(re.findall(r"\w+", right))
        return 2 * len(ours & theirs) / max(1, len(ours) + len(theirs))
    try:
        number, meant = float(value), float(right)
    except ValueError:
        return 0.0
    most = float(metric.rstrip("%"))
    if metric.endswith("%"):
        most *= abs(meant) / PERCENT
    return float(abs(number - meant) <= most * _ROUNDING)


@dataclass(frozen=True)
class Fields(Measure):
    """Micro F1: an object is a set of ``path: value`` pairs.

    Each item of a list is a pair. `metrics` are those of keys such as ``menu[].price``.
    The values of all other keys are equal or not.
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
        how = "norm:nfkc+casefold+spaces|lists:sets|items:assigned|avg:micro"
        return f"{how}{metrics}|unicode:{unicodedata.unidata_version}"

    def statistics(self, example: Generated) -> tuple[float, ...]:
        """The object's share in each sum, with its items matched.

        Common pairs, whether all are right, predicted pairs, right pairs.
        """
        return self._row(*self._matched(example))

    def corpus(self, means: Floats) -> Floats:
        """Ratios of sums.

        Precision without predicted pairs, and recall without right ones, is 1 if there
        are neither, else 0.
        """
        hits, exact, predicted, right = np.moveaxis(means, -1, 0)
        precision = _ratio(hits, predicted, other=right)
        recall = _ratio(hits, right, other=predicted)
        f1 = harmonic_mean(precision, recall)
        return np.stack([f1, PERCENT * exact, precision, recall], axis=-1)

    def parts(self, examples: Iterable[Generated]) -> dict[str, dict[str, float]]:
        """The metrics and counts of each key, such as ``menu[].price``.

        The keys with the most right pairs come first. A key is exact in an object if
        all its values are right.
        """
        matched = [self._matched(example) for example in examples]
        sums: dict[str, Floats] = {}
        for predicted, right in matched:
            ours, theirs = _by_key(predicted), _by_key(right)
            for key in ours.keys() | theirs.keys():
                row = self._row(ours.get(key, set()), theirs.get(key, set()))
                # An object without the key on both sides is right. So all count as
                # right until a pair shows up.
                start = np.array([0.0, len(matched), 0.0, 0.0])
                total = sums.setdefault(key, start)
                total += row
                total[1] -= 1
        parts = {}
        names = (*self.columns, *self.counted)
        for key in sorted(sums, key=lambda key: (-sums[key][3], key)):
            total = sums[key]
            means = self.corpus(total / len(matched)).tolist()
            parts[key] = dict(zip(names, [*means, *total[2:].tolist()], strict=True))
        return parts

    def wrong(self, example: Generated) -> list[int]:
        """The places of an object's pairs that are not all right; [] without a target."""
        right = record_beside(example).target_segments
        if right is None:
            return []
        renumbered = list(map(_pair, self.renumbered(example.segments, right)))
        credit = self._credit(set(renumbered), _pairs(right))
        return [place for place, pair in enumerate(renumbered) if credit[pair] < 1]

    def judged(self, example: Generated) -> list[Judged]:
        """The confidence of each value of an object, and whether the value is right.

        It is if all its pairs, and no others, are in the target.
        """
        confidence = example.confidence or {}
        right = record_beside(example).target_segments or ()
        renumbered = self.renumbered(example.segments, right)
        values: defaultdict[str, set[Pair]] = defaultdict(set)
        for written, moved in zip(example.segments, renumbered, strict=True):
            values[split_pair(written)[0]].add(_pair(moved))
        credit = self._credit(_pairs(renumbered), _pairs(right))
        wanted = Counter(key for key, _ in _pairs(right))
        judged = []
        for path, pairs in values.items():
            if path in confidence:
                key, _ = next(iter(pairs))
                all_right = all(credit[pair] == 1 for pair in pairs)
                is_right = all_right and len(pairs) == wanted[key]
                judged.append((confidence[path], is_right))
        return judged

    def renumbered(self, pairs: Sequence[str], right: Iterable[str]) -> list[str]:
        """The pairs of an object, with each item numbered as the right one beside it."""
        numbers = self._numbers(_pairs(pairs), _pairs(right))
        return [_moved(pair, numbers) for pair in pairs]

    def _matched(self, example: Generated) -> tuple[Pairs, Pairs]:
        """The predicted pairs, their items numbered as the right ones, and the right."""
        predicted, right = _pairs(example.segments), _pairs(right_segments(example))
        numbers = self._numbers(predicted, right)
        return {(_moved(key, numbers), value) for key, value in predicted}, right

    def _row(self, predicted: Pairs, right: Pairs) -> tuple[float, ...]:
        hits = fsum(self._credit(predicted, right).values())
        exact = float(hits == len(predicted) == len(right))
        return hits, exact, len(predicted), len(right)

    def _credit(self, predicted: Pairs, right: Pairs) -> dict[Pair, float]:
        """How right each predicted pair is, 0 to 1.

        By its key's metric it agrees with one right pair that no other agrees with.
        """
        credit = {pair: float(pair in right) for pair in predicted}
        metrics = dict(self.metrics)
        if not metrics:
            return credit
        others = _values(right - predicted)
        for key, values in _values(predicted - right).items():
            metric = metrics.get(_NUMBER.sub("[]", key))
            if metric is None:
                continue
            table = _table(values, others.get(key, []), partial(agreement, metric))
            for row, column in _assigned(table):
                credit[key, values[row]] = table[row][column]
        return credit

    def _numbers(self, predicted: Pairs, right: Pairs) -> dict[Item, int]:
        """The number of the right item for each predicted item.

        Items without one come after the right ones. It solves the assignment problem:
        as many pairs as possible are in both items, and then as many numbers as
        possible stay.
        """
        right_items = _items(right)
        numbers = dict[Item, int]()
        for name, items in _items(predicted).items():
            others = right_items.get(name, {})
            ours, theirs = list(items.items()), list(others.items())
            table = _table(ours, theirs, self._in_common)
            for row, column in _assigned(table):
                numbers[name, ours[row][0]] = int(theirs[column][0])
            last = max(map(int, others), default=0)
            spare = [number for number in items if (name, number) not in numbers]
            for extra, number in enumerate(sorted(spare, key=int), start=1):
                numbers[name, number] = last + extra
        return numbers

    def _in_common(
        self, item: tuple[str, set[Pair]], other: tuple[str, set[Pair]]
    ) -> float:
        """How much two items have in common; a little more if their numbers are the same."""
        (number, pairs), (other_number, other_pairs) = item, other
        same = _SAME_NUMBER if number == other_number else 0
        return fsum(self._credit(pairs, other_pairs).values()) + same


def _ratio(hits: Floats, of: Floats, *, other: Floats) -> Floats:
    """The share of hits, per cent. Where `of` is 0, all if the other is 0, too."""
    usual = np.where((of == 0) & (other == 0), PERCENT, 0.0)
    return np.divide(PERCENT * hits, of, out=usual, where=of > 0)


def _table(
    rows: Sequence[T], columns: Sequence[T], score: Callable[[T, T], float]
) -> list[list[float]]:
    """How much each row agrees with each column."""
    table = []
    for row in rows:
        table.append([score(row, column) for column in columns])
    return table


def _assigned(table: list[list[float]]) -> list[tuple[int, int]]:
    """The row and column of each pair of an assignment with the largest sum."""
    if not table or not table[0]:
        return []
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(table, maximize=True)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def normalise_value(text: str) -> str:
    """A value for comparison: NFKC, without case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _pair(written: str) -> Pair:
    key, value = split_pair(written)
    return key, normalise_value(value)


def _pairs(written: Iterable[str]) -> set[Pair]:
    return set(map(_pair, written))


def _by_key(pairs: Pairs) -> defaultdict[str, set[Pair]]:
    """The pairs of each key, all items of a list together."""
    groups: defaultdict[str, set[Pair]] = defaultdict(set)
    for pair in pairs:
        groups[_IN_ITEM.sub(r"\1[]\3", pair[0])].add(pair)
    return groups


def _values(pairs: Pairs) -> defaultdict[str, list[str]]:
    """The values of each key, in order."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for key, value in sorted(pairs):
        values[key].append(value)
    return values


def _items(pairs: Pairs) -> dict[str, dict[str, set[Pair]]]:
    """The pairs of each item of each list, by the list's name and the item's number.

    Their keys say nothing of the number.
    """
    lists: dict[str, dict[str, set[Pair]]] = {}
    for key, value in sorted(pairs):
        if match := _IN_ITEM.fullmatch(key):
            name, number, rest = match.groups()
            items = lists.setdefault(name, {})
            items.setdefault(number, set()).add((f"{name}[]{rest}", value))
    return lists


def _moved(path: str, numbers: Mapping[Item, int]) -> str:
    """A path, or a pair, with the number of another item."""
    match = _IN_ITEM.fullmatch(path)
    if match is None:
        return path
    name, number, rest = match.groups()
    return f"{name}[{numbers.get((name, number), number)}]{rest}"
