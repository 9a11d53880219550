"""How well confidence tells right values from wrong ones: bins, the area under the ROC curve, and a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipedec_cli.evaluate.metrics.measure import PERCENT

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
    return Reliability(
        [one for one in bins if one.values], float(below / (2 * pairs)) if pairs else None, threshold
    )


def kept(judged: Sequence[Judged], least: float, below: float = 2.0) -> Group:
    """The values whose confidence is at least one number and below another; without any nothing is sure or right."""
    found = [one for one in judged if least <= one[0] < below]
    means = (PERCENT * sum(column) / len(found) for column in zip(*found, strict=True))
    return Group(least, len(found), *(means if found else (0.0, 0.0)))
