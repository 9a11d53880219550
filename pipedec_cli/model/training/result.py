"""What a training reports while it runs, and what it results in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The state of a training: updates done and in all, the last loss, dev figures after an evaluation, seconds left."""

    update: int
    updates: int
    epoch: float
    loss: float | None
    dev_loss: float | None = None
    dev_score: float | None = None
    left: float | None = None


class TrainResult(Struct, frozen=True, omit_defaults=True):
    """The result of a training, as training.json keeps it.

    `loss` is the mean of all reported losses. The weights are those after `weights_update` updates, the `best_by` a dev
    figure, or the last if that is None; the `dev_` figures are of their evaluation, or of the last before them. Each
    point of the `curve` has ``update`` and ``loss``, or ``update``, ``dev_loss`` and, if texts were scored, ``dev_score``.
    """

    checkpoint: str
    seconds: float
    updates: int
    examples_seen: int
    loss: float
    curve: list[dict[str, float]]
    weights_update: int
    best_by: Literal["dev_score", "dev_loss"] | None = None
    dev_update: int | None = None
    dev_loss: float | None = None
    dev_score: float | None = None
