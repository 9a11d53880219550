"""F1 of the (path, value) pairs of objects, and the share of objects that are all right.

Protocol ``fields``. The items of a list of objects have no order: each predicted item
is compared with one right item, so that most pairs agree. A key may have a metric of
its own: ``words``, or a tolerance of its numbers, such as ``0.5`` or ``5%``.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from math import fsum
from typing import ClassVar, Final

import numpy as np

from pipedec_cli.data.fields import split_pair
from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import (
    PERCENT,
    Floats,
    Measure,
    Parts,
    harmonic_mean,
    record_beside,
    right_segments,
    set_f1,
)
from pipedec_cli.metrics.reliability import Judged

Pair = tuple[str, str]
Pairs = AbstractSet[Pair]
#: How right each predicted pair is, 0 to 1.
Credit = dict[Pair, float]
#: The pairs of each item of a list, by its number as it is written.
Items = dict[str, set[Pair]]
#: New numbers of items, by the name of their list and their old number.
Numbers = dict[tuple[str, str], int]
#: A row of statistics.
Row = tuple[float, ...]

#: The path of a value in an item of a list of objects: list, item, and rest.
_IN_ITEM: Final = re.compile(r"(.*?)\[([0-9]+)\](\..*)", re.DOTALL)
_NUMBER: Final = re.compile(r"\[[0-9]+\]")
#: 0.3 − 0.2 is within 0.1.
_ROUNDING: Final = 1 + 1e-9
#: What an item of the same number is worth, so that numbers stay where they can.
_SAME_NUMBER: Final = 1 / 10_000


def agreement(metric: str, value: str, right: str) -> float:
    """How right a value is, 0 to 1, that is not equal to the `right` one.

    By the metric ``words`` it is the F1 of their words, each counted once; by a
    tolerance, ``0.5`` or ``5%``, whether the number is within it of the right one; by
    ``exact`` 0.
    """
    if metric == "exact":
        return 0.0
    if metric == "words":
        return set_f1(_words(value), _words(right))
    try:
        number = float(value)
        meant = float(right)
    except ValueError:
        return 0.0
    most = float(metric.rstrip("%"))
    if metric.endswith("%"):
        most *= abs(meant) / PERCENT
    apart = abs(number - meant)
    return float(apart <= most * _ROUNDING)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


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
        settings = "norm:nfkc+casefold+spaces|lists:sets|items:assigned|avg:micro"
        return f"{settings}{metrics}|unicode:{unicodedata.unidata_version}"

    def statistics(self, example: Generated) -> tuple[float, ...]:
        """Of an object with its items matched: common pairs, whether all are right, predicted pairs, right pairs."""
        return self._row(*self._matched(example))

    def corpus(self, means: Floats) -> Floats:
        """Ratios of sums.

        Precision without predicted pairs, and recall without right ones, is 100 if there
        are neither, else 0.
        """
        hits, exact, predicted, right = np.moveaxis(means, -1, 0)
        precision = _ratio(hits, predicted, other=right)
        recall = _ratio(hits, right, other=predicted)
        f1 = harmonic_mean(precision, recall)
        return np.stack([f1, PERCENT * exact, precision, recall], axis=-1)

    def parts(self, examples: Iterable[Generated]) -> Parts:
        """The metrics and counts of each key, such as ``menu[].price``.

        The keys with the most right pairs come first. A key is exact in an object if
        all its values are right.
        """
        matched = [self._matched(example) for example in examples]
        sums: dict[str, Floats] = {}
        for predicted, right in matched:
            ours = _by_key(predicted)
            theirs = _by_key(right)
            for key in ours.keys() | theirs.keys():
                row = self._row(ours[key], theirs[key])
                # An object without the key on both sides is right. So all count as
                # right until a pair shows up.
                start = np.array([0.0, len(matched), 0.0, 0.0])
                total = sums.setdefault(key, start)
                total += row
                total[1] -= 1

        def most_right(key: str) -> tuple[float, str]:
            return -sums[key][3], key

        parts = {}
        names = (*self.columns, *self.counted)
        for key in sorted(sums, key=most_right):
            total = sums[key]
            means = self.corpus(total / len(matched))
            counts = total[2:]
            values = np.concatenate([means, counts])
            parts[key] = dict(zip(names, values.tolist(), strict=True))
        return parts

    def wrong(self, example: Generated) -> list[int]:
        """The numbers, from 0, of an object's pairs that are not all right; [] without a target."""
        if record_beside(example).target_segments is None:
            return []
        numbers = []
        for number, (_, credit) in enumerate(self._credited(example)):
            if credit < 1:
                numbers.append(number)
        return numbers

    def judged(self, example: Generated) -> list[Judged]:
        """The confidence of each value of an object, and whether the value is right.

        It is if all its pairs, and no others, are in the target.
        """
        confidence = example.confidence or {}
        values: defaultdict[str, dict[Pair, float]] = defaultdict(dict)
        credited = self._credited(example)
        for written, (pair, credit) in zip(example.segments, credited, strict=True):
            path, _ = split_pair(written)
            values[path][pair] = credit
        right = _pairs(record_beside(example).target_segments or ())
        wanted = Counter(key for key, _ in right)
        judged = []
        for path, pairs in values.items():
            if path in confidence:
                key, _ = next(iter(pairs))
                all_there = len(pairs) == wanted[key]
                all_right = min(pairs.values()) == 1
                judged.append((confidence[path], all_there and all_right))
        return judged

    def _credited(self, example: Generated) -> list[tuple[Pair, float]]:
        """The pairs of an object, renumbered, and how right each is, 0 to 1."""
        right = record_beside(example).target_segments or ()
        renumbered = self.renumbered(example.segments, right)
        pairs = list(map(_pair, renumbered))
        credit = self._credit(set(pairs), _pairs(right))
        return [(pair, credit[pair]) for pair in pairs]

    def renumbered(
        self,
        pairs: Sequence[str],
        right: Iterable[str],
    ) -> list[str]:
        """The pairs of an object, with each item numbered as the right one beside it."""
        numbers = self._numbers(_pairs(pairs), _pairs(right))
        return [_moved(pair, numbers) for pair in pairs]

    def _matched(self, example: Generated) -> tuple[Pairs, Pairs]:
        """The predicted pairs, with items numbered as the right ones, and the right pairs."""
        predicted = _pairs(example.segments)
        right = _pairs(right_segments(example))
        numbers = self._numbers(predicted, right)
        moved = {(_moved(key, numbers), value) for key, value in predicted}
        return moved, right

    def _row(self, predicted: Pairs, right: Pairs) -> Row:
        """The statistics of an object, or of a key: common pairs, whether all are right, predicted pairs, right pairs."""
        credit = self._credit(predicted, right)
        hits = fsum(credit.values())
        exact = hits == len(predicted) == len(right)
        return hits, float(exact), len(predicted), len(right)

    def _credit(self, predicted: Pairs, right: Pairs) -> Credit:
        """How right each predicted pair is, 0 to 1.

        A pair that is not equal to a right one may agree with one in part, by the metric
        of its key; each right pair agrees with one predicted pair at most.
        """
        credit = {}
        for pair in predicted:
            credit[pair] = float(pair in right)
        metrics = dict(self.metrics)
        if not metrics:
            return credit
        others = _values(right - predicted)
        for key, values in _values(predicted - right).items():
            metric = metrics.get(_NUMBER.sub("[]", key))
            if metric is None:
                continue
            agree = partial(agreement, metric)
            for row, _, score in _assigned(values, others[key], agree):
                credit[key, values[row]] = score
        return credit

    def _numbers(self, predicted: Pairs, right: Pairs) -> Numbers:
        """New numbers for the predicted items of lists: each gets that of the right item with which it is compared.

        Items are assigned so that as many pairs as possible are in both items, and then
        so that as many numbers as possible stay. Items without a right one get numbers
        behind these.
        """
        right_items = _items(right)
        numbers = Numbers()
        for name, items in _items(predicted).items():
            others = right_items[name]
            ours = list(items)
            theirs = list(others)
            score = partial(self._in_common, items, others)
            for row, column, _ in _assigned(ours, theirs, score):
                numbers[name, ours[row]] = int(theirs[column])
            last = max(map(int, others), default=0)
            for number in sorted(items, key=int):
                if (name, number) not in numbers:
                    last += 1
                    numbers[name, number] = last
        return numbers

    def _in_common(
        self,
        items: Items,
        others: Items,
        number: str,
        other: str,
    ) -> float:
        """How much two items have in common, by their numbers in `items` and in `others`; a little more if these are the same."""
        credit = self._credit(items[number], others[other])
        same = _SAME_NUMBER if number == other else 0
        return fsum(credit.values()) + same


def _ratio(hits: Floats, of: Floats, *, other: Floats) -> Floats:
    """The share of hits, per cent, elementwise. Where `of` is 0, it is 100 if `other` is 0, too, and else 0."""
    neither = (of == 0) & (other == 0)
    usual = np.where(neither, PERCENT, 0.0)
    return np.divide(
        PERCENT * hits,
        of,
        out=usual,
        where=of > 0,
    )


def _assigned(
    ours: Sequence[str],
    theirs: Sequence[str],
    score: Callable[[str, str], float],
) -> Iterator[tuple[int, int, float]]:
    """The pairs of an assignment of `ours` to `theirs` with the largest sum of scores.

    Each is a number in ours and one in theirs, from 0, and the score.
    """
    if not ours or not theirs:
        return
    from scipy.optimize import linear_sum_assignment

    table = []
    for mine in ours:
        table.append([score(mine, other) for other in theirs])
    rows, columns = linear_sum_assignment(table, maximize=True)
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        yield row, column, table[row][column]


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
    groups = defaultdict(set)
    for pair in pairs:
        path, _ = pair
        key = _IN_ITEM.sub(r"\1[]\3", path)
        groups[key].add(pair)
    return groups


def _values(pairs: Pairs) -> defaultdict[str, list[str]]:
    """The values of each key, in order."""
    values = defaultdict(list)
    for key, value in sorted(pairs):
        values[key].append(value)
    return values


def _items(pairs: Pairs) -> defaultdict[str, Items]:
    """The items of each list, by its name: the pairs of each item, by its number. The keys of these pairs have no number."""
    lists: defaultdict[str, Items] = defaultdict(Items)
    for key, value in sorted(pairs):
        match = _IN_ITEM.fullmatch(key)
        if match:
            name, number, rest = match.groups()
            pair = (f"{name}[]{rest}", value)
            lists[name].setdefault(number, set()).add(pair)
    return lists


def _moved(path: str, numbers: Numbers) -> str:
    """A path, or a pair that begins with it, with the new number of the item that it leads into."""
    match = _IN_ITEM.fullmatch(path)
    if match is None:
        return path
    name, number, rest = match.groups()
    number = numbers.get((name, number), number)
    return f"{name}[{number}]{rest}"
