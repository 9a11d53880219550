"""What confidence says about values: how often values of each confidence are right."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipedec_cli.metrics.measure import PERCENT

#: The share of right values that a threshold is to keep, in per cent.
PRECISION: Final = 95.0
#: A confidence above all others.
_ABOVE: Final = 2.0

#: A value's confidence, 0 to 1, and whether the value is right.
Judged = tuple[float, bool]


@dataclass(frozen=True, slots=True)
class Group:
    """The values whose confidence is in some range."""

    least: float  # the least confidence of the range, 0 to 1
    values: int  # how many
    confidence: float  # their mean, per cent
    right: float  # the share of right ones, per cent


@dataclass(frozen=True, slots=True)
class Reliability:
    """Values by tenths of confidence, and how well it tells right from wrong.

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
    groups = []
    for tenth in range(10):
        least = tenth / 10
        below = (tenth + 1) / 10
        if tenth == 9:
            below = _ABOVE
        group = kept(judged, least, below)
        if group.values:
            groups.append(group)
    return Reliability(
        groups,
        auc=_area(judged),
        threshold=_threshold(judged),
    )


def kept(
    judged: Sequence[Judged],
    least: float,
    below: float = _ABOVE,
) -> Group:
    """The values whose confidence, 0 to 1, is at least `least` and below `below`. Means of no value are 0."""
    group = [value for value in judged if least <= value[0] < below]
    return Group(
        least,
        values=len(group),
        confidence=_per_cent([sure for sure, _ in group]),
        right=_per_cent([is_right for _, is_right in group]),
    )


def _per_cent(shares: Sequence[float]) -> float:
    """The mean of shares, per cent; 0 without any."""
    if not shares:
        return 0.0
    return PERCENT * sum(shares) / len(shares)


def _area(judged: Sequence[Judged]) -> float | None:
    """The share of pairs of a right and a wrong value in which the right one is surer, ties half; None without such pairs."""
    right = [sure for sure, is_right in judged if is_right]
    wrong = [sure for sure, is_right in judged if not is_right]
    if not right or not wrong:
        return None
    wrong.sort()
    surer = np.searchsorted(wrong, right, "left").sum()
    as_sure = np.searchsorted(wrong, right, "right").sum()
    pairs = len(right) * len(wrong)
    return float((surer + as_sure) / (2 * pairs))


def _threshold(judged: Sequence[Judged]) -> float | None:
    """The least confidence from which on 95 % of the values are right; None if there is none."""
    # Values of one confidence are kept together.
    by_confidence = Counter(sure for sure, _ in judged)
    right = Counter(sure for sure, is_right in judged if is_right)
    threshold = None
    kept_values = kept_right = 0
    for sure in sorted(by_confidence, reverse=True):
        kept_values += by_confidence[sure]
        kept_right += right[sure]
        if PERCENT * kept_right / kept_values >= PRECISION:
            threshold = float(sure)
    return threshold
