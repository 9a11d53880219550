"""What the probabilities of choices are worth: how often the best one is right, and whether it is as often as it says."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from pipedec_cli.metrics.measure import PERCENT
from pipedec_cli.metrics.reliability import reliability


class Decided(NamedTuple):
    """The probabilities of all answers, "" being no value, and the right one."""

    probabilities: Mapping[str, float]
    right: str

    @property
    def best(self) -> str:
        """The most probable answer, the first of equals."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def confidence(self) -> float:
        """How probable that is."""
        return self.probabilities[self.best]

    def at(self, temperature: float) -> "Decided":
        """The same with scores divided by a temperature."""
        logits = {}
        for label, share in self.probabilities.items():
            logits[label] = math.log(max(share, 1e-300)) / temperature
        highest = max(logits.values())
        weights = {label: math.exp(logits[label] - highest) for label in logits}
        total = fsum(weights.values())
        shares = {label: weight / total for label, weight in weights.items()}
        return Decided(shares, self.right)


@dataclass(frozen=True, slots=True)
class ChoiceScores:
    """Of so many `values`, in per cent but for `brier`, which is 0 to 2.

    `macro_f1` is the mean of the F1 of all answers that are right or best somewhere.
    `ece` is how far the confidence is from the share of right answers, in the mean over
    tenths of confidence. `brier` is the mean of the squared differences to certainty.
    """

    values: int
    accuracy: float
    macro_f1: float
    ece: float
    brier: float


def choice_scores(decided: Sequence[Decided]) -> ChoiceScores:
    """The scores of one decision or more."""
    hits = [each.best == each.right for each in decided]
    return ChoiceScores(
        len(decided),
        accuracy=PERCENT * sum(hits) / len(decided),
        macro_f1=_macro_f1(decided),
        ece=calibration_error(decided),
        brier=fsum(map(_brier, decided)) / len(decided),
    )


def calibration_error(decided: Sequence[Decided]) -> float:
    """See `ChoiceScores.ece`; 0 without decisions."""
    judged = [(each.confidence, each.best == each.right) for each in decided]
    by_tenths = reliability(judged)
    if by_tenths is None:
        return 0.0
    apart = [each.values * abs(each.confidence - each.right) for each in by_tenths.bins]
    return fsum(apart) / len(decided)


def _macro_f1(decided: Sequence[Decided]) -> float:
    best = Counter(each.best for each in decided)
    right = Counter(each.right for each in decided)
    both = Counter(each.right for each in decided if each.best == each.right)
    labels = best.keys() | right.keys()
    return (
        PERCENT
        * fsum(2 * both[label] / (best[label] + right[label]) for label in labels)
        / len(labels)
    )


def _brier(decided: Decided) -> float:
    shares = decided.probabilities
    squares = fsum(share * share for share in shares.values())
    return squares + 1 - 2 * shares.get(decided.right, 0.0)
