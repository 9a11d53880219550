"""F1 of the (key, value) pairs of objects, and the share of objects that are completely right: protocol ``fields``."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipedec_cli.data.fields import split_pair
from pipedec_cli.evaluate.metrics.measure import PERCENT, Floats, Measure, ScoringItem, harmonic_mean

Pair = tuple[str, str]


@dataclass(frozen=True)
class Fields(Measure):
    """Micro F1: an object is a set of ``key: value`` pairs, with a pair for each item of a list."""

    name: ClassVar[str] = "fields"
    headline: ClassVar[Mapping[str, str]] = {"fields_f1": "fields F1", "fields_exact": "exact objects"}
    primary: ClassVar[str] = "fields_f1"
    part: ClassVar[str] = "field"
    metrics: ClassVar[tuple[str, ...]] = ("fields_f1", "fields_exact", "fields_p", "fields_r")
    counted: ClassVar[tuple[str, ...]] = ("predicted_pairs", "right_pairs")
    precision_recall: ClassVar = {"fields_f1": ("fields_p", "fields_r")}

    @property
    def _settings(self) -> str:
        return f"norm:nfkc+casefold+spaces|lists:sets|avg:micro|unicode:{unicodedata.unidata_version}"

    def statistics(self, item: ScoringItem) -> tuple[float, ...]:
        """The object's share in each sum: common pairs, whether all are right, predicted pairs, right pairs."""
        if item.gold is None:
            raise ValueError(f"item {item.id!r} has no object to score against")
        return _row(_pairs(item.segments), _pairs(item.gold))

    def corpus(self, means: Floats) -> Floats:
        """Ratios of sums. Precision without predicted pairs, and recall without right ones, is 1 if there are neither, else 0."""
        hits, exact, predicted, right = np.moveaxis(means, -1, 0)
        neither = np.where((predicted == 0) & (right == 0), PERCENT, 0.0)
        both = ((predicted, neither.copy()), (right, neither.copy()))
        p, r = (np.divide(PERCENT * hits, of, out=usual, where=of > 0) for of, usual in both)
        return np.stack([harmonic_mean(p, r), PERCENT * exact, p, r], axis=-1)

    def parts(self, items: Iterable[ScoringItem]) -> dict[str, dict[str, float]]:
        """The metrics and counts of each key, the keys with the most right pairs first; exact: all values of a key are right."""
        both = [(_pairs(item.segments), _pairs(item.gold or ())) for item in items]
        sums: dict[str, Floats] = {}
        for predicted, right in both:
            for key in {key for key, _ in predicted | right}:
                one, other = ({pair for pair in pairs if pair[0] == key} for pairs in (predicted, right))
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
    return [at for at, one in enumerate(item.segments) if not _pairs([one]) <= right]


def _pairs(written: Iterable[str]) -> AbstractSet[Pair]:
    return {(key, normalise_value(value)) for key, value in map(split_pair, written)}


def _row(predicted: AbstractSet[Pair], right: AbstractSet[Pair]) -> tuple[float, ...]:
    return len(predicted & right), float(predicted == right), len(predicted), len(right)
