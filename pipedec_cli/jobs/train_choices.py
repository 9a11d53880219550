"""What a training is given by keys of specialists: the one place that reads these settings."""

from typing import Literal, NamedTuple

from pipedec_cli.data.records import Family
from pipedec_cli.jobs.train_settings import TrainSettings


class Choices(NamedTuple):
    """How often a training evaluates and saves, how its rate falls, and the family of fresh weights.

    None leaves the choice to the training: `recompute` to the size of the model,
    `evaluations` to the number of updates, `family` to the name of the shape.
    """

    schedule: Literal["linear", "constant"]
    recompute: bool | None
    evaluations: int | None
    dev_examples: int
    keep_checkpoints: int
    family: Family | None


def choices_of(settings: TrainSettings) -> Choices:
    """The choices that the settings say."""
    activations = settings.checkpoint_activations
    return Choices(
        schedule=settings.rate_schedule,
        recompute=None if activations is None else activations != "none",
        evaluations=settings.evaluations,
        dev_examples=settings.dev_examples,
        keep_checkpoints=settings.keep_checkpoints,
        family=settings.family,
    )
