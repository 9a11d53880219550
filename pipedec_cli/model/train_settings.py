"""How to train: the settings, and what is usual for fresh and for trained weights. It imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Optimizer = Literal["adamw", "adafactor"]
RateSchedule = Literal["linear", "constant"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How to train. The defaults are those for trained weights, which are the paper's; see `usual_settings`.

    Attributes:
        epochs: passes over the training examples; fractions are allowed.
        batch_size: examples a device and step.
        accumulation: steps whose gradients are added up for one update.
        optimizer: ``adamw``, or ``adafactor``, whose rate counts in units of each matrix's own size (the root of the
            mean of its squares).
        learning_rate: the optimizer's peak rate.
        warmup: share of the updates over which the rate rises.
        schedule: how the rate goes on: ``linear`` to zero, or ``constant`` as where a paper names no decay.
        weight_decay: the optimizer's.
        bf16: mixed precision in bfloat16.
        seed: of weights, order, dropout and drawn schedules.
        evaluations: how often the dev set is looked at, over the whole training.
        max_steps: stop after this many updates; None for whole epochs.
        cpu: train on the CPU even where there is a GPU.
    """

    epochs: float = 10.0
    batch_size: int = 24
    accumulation: int = 1
    optimizer: Optimizer = "adamw"
    learning_rate: float = 1e-4
    warmup: float = 0.05
    schedule: RateSchedule = "linear"
    weight_decay: float = 0.0
    bf16: bool = False
    seed: int = 0
    evaluations: int = 10
    max_steps: int | None = None
    cpu: bool = False


#: Batch size from scratch. Fresh weights learn most from many small updates: a text of a hundred tokens is much to learn from.
FRESH_BATCH: Final = 8

#: Peak rates by optimizer, for fresh and for trained weights. T5's matrices differ in size by two orders of magnitude
#: when they are fresh (embeddings 1, queries 0.008), so that one rate for all is too small for some and too large for
#: others; Adafactor's relative one, with which T5 itself was trained, suits them all.
_RATES: Final[Mapping[tuple[Optimizer, bool], float]] = {
    ("adafactor", True): 3e-2,
    ("adafactor", False): 1e-3,
    ("adamw", True): 1e-3,
    ("adamw", False): TrainSettings().learning_rate,
}


def usual_settings(*, fresh: bool, optimizer: Optimizer | None = None) -> TrainSettings:
    """What is usual: the paper's settings for trained weights; for fresh ones small batches and Adafactor.

    Args:
        fresh: whether the weights are new.
        optimizer: another one than is usual; the rate is then one for it.
    """
    chosen: Optimizer = optimizer or ("adafactor" if fresh else "adamw")
    return TrainSettings(
        batch_size=FRESH_BATCH if fresh else TrainSettings().batch_size,
        optimizer=chosen,
        learning_rate=_RATES[chosen, fresh],
    )


def updates_for(examples: int, settings: TrainSettings, devices: int = 1) -> int:
    """How many updates the settings come to."""
    if settings.max_steps is not None:
        return settings.max_steps
    per_epoch = max(1, -(-examples // (settings.batch_size * settings.accumulation * devices)))
    return max(1, round(per_epoch * settings.epochs))
