"""The evaluations of a training: which is the best, and whether the training gets no better."""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from pipedec_cli.model.checkpoint import Positive


class Evaluation(Struct, frozen=True):
    """The figures of the dev set after so many updates."""

    update: Positive
    dev_loss: float
    dev_score: float | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """The better evaluation has the higher score; of equal scores, and where there is none, the lower loss."""
        loss = math.inf if math.isnan(self.dev_loss) else self.dev_loss
        return self.dev_score or 0.0, -loss


def evaluations(history: Sequence[Mapping[str, float]]) -> list[Evaluation]:
    """The evaluations in the log of the Trainer, which has entries of other kinds as well, in order."""
    return [
        Evaluation(int(entry["step"]), entry["eval_loss"], entry.get("eval_score"))
        for entry in history
        if "eval_loss" in entry
    ]


def best_of(history: Sequence[Mapping[str, float]]) -> Evaluation | None:
    """The best evaluation in the log of the Trainer, the first of equals; None if there is none."""
    return max(evaluations(history), key=lambda entry: entry.rank, default=None)


def is_over(history: Sequence[Mapping[str, float]], patience: int | None) -> bool:
    """Whether a training has got no better for as many evaluations as `patience` allows; None lets it go on.

    `history` is the log of the Trainer.
    """
    best = best_of(history)
    if best is None or patience is None:
        return False
    later = [entry for entry in evaluations(history) if entry.update > best.update]
    return len(later) >= patience
