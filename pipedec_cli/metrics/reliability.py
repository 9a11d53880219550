"""What confidence says about values: how often values of each confidence are right."""

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
    """The number of values of a confidence.

    `least` is the least confidence of the group, `confidence` the mean, `right` the
    share of right values; both per cent.
    """

    least: float
    values: int
    confidence: float
    right: float


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
        below = (tenth + 1) / 10 if tenth < 9 else _ABOVE
        groups.append(kept(judged, tenth / 10, below))
    filled = [group for group in groups if group.values]
    return Reliability(filled, _area(judged), _threshold(judged))


def kept(judged: Sequence[Judged], least: float, below: float = _ABOVE) -> Group:
    """The values whose confidence is at least one number and below another.

    Without any nothing is sure or right.
    """
    group = [value for value in judged if least <= value[0] < below]
    if not group:
        return Group(least, 0, 0.0, 0.0)
    confidence = PERCENT * sum(sure for sure, _ in group) / len(group)
    right = PERCENT * sum(is_right for _, is_right in group) / len(group)
    return Group(least, len(group), confidence, right)


def _area(judged: Sequence[Judged]) -> float | None:
    """The area under the ROC curve; see `Reliability`."""
    right = np.array([sure for sure, is_right in judged if is_right])
    wrong = np.sort([sure for sure, is_right in judged if not is_right])
    pairs = len(right) * len(wrong)
    if not pairs:
        return None
    surer = np.searchsorted(wrong, right, "left").sum()
    as_sure = np.searchsorted(wrong, right, "right").sum()
    return float((surer + as_sure) / (2 * pairs))


def _threshold(judged: Sequence[Judged]) -> float | None:
    """The least confidence from which on enough values are right."""
    sure, right = np.array(sorted(judged, reverse=True), dtype=np.float64).T
    shares = PERCENT * np.cumsum(right) / np.arange(1, len(right) + 1)
    # Values of one confidence are kept together.
    is_last = np.append(sure[1:] < sure[:-1], True)
    enough = sure[is_last & (shares >= PRECISION)]
    return float(enough[-1]) if len(enough) else None
