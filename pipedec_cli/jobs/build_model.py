"""What `train` trains and how: hyperparameters, method and a model to begin with, of what was asked for and what is learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipedec_cli.data import trained
from pipedec_cli.data.errors import UserError
from pipedec_cli.jobs.train_data import Lessons

if TYPE_CHECKING:
    from pipedec_cli.jobs.train import TrainSettings
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
    from pipedec_cli.model.training.hyperparameters import Hyperparameters


def hyperparameters_of(settings: TrainSettings, lessons: Lessons) -> Hyperparameters:
    """What was asked for, the rest as suits what the training begins with and what is learnt."""
    from pipedec_cli.model.training.hyperparameters import hyperparameters

    same = ("batch_size", "optimizer", "learning_rate", "epochs", "accumulation", "warmup", "bf16", "seed")
    return hyperparameters(
        start=trained.start_of(settings.model or "", adapters=settings.lora is not None),
        fields=bool(lessons.segmentation.fields),
        schedule=settings.rate_schedule,
        cpu=settings.device == "cpu",
        **settings.some(*same, "evaluations", "max_steps"),
    )


def method_of(settings: TrainSettings, lessons: Lessons) -> MethodSettings:
    """What the checkpoint is trained for, its last time-step left open. The rows of fields start all at once."""
    from pipedec_cli.model.checkpoint import MethodSettings

    together = settings.decoder == "pipelined" and bool(lessons.segmentation.fields)
    if together and settings.delay != "any":
        what = f"the data's fields are written at the same time: --delay {settings.delay} does not apply"
        raise UserError(what, todo="leave --delay out")
    asked = {**settings.some("decoder"), **lessons.sources, "segmentation": lessons.segmentation}
    delay = "together" if together else settings.delay
    taught = lessons.teacher is not None
    return MethodSettings(
        **asked,
        delay=delay,
        empty_rows="stop" if taught else "retry",
        stop_on_repeat=taught and lessons.segmentation.level == "sentence",
    )


def learner(settings: TrainSettings, lessons: Lessons, method: MethodSettings, seed: int) -> Checkpoint:
    """A model ready to be trained as it was asked for; a `UserError` if it cannot be."""
    from pipedec_cli.model.scratch import start_checkpoint
    from pipedec_cli.model.training.lora import add_adapters
    from pipedec_cli.model.training.loss import recompute

    teacher = lessons.teacher.checkpoint if lessons.teacher else None
    start = (settings.model or "", method, lessons.train, seed, lessons.segmenter)
    checkpoint = start_checkpoint(*start, teacher, settings.family)
    if settings.prompted and not any(one.backbone.prompted for one in (checkpoint, teacher or checkpoint)):
        checkpoint.prompt(settings.prompt_template or "", chat=bool(settings.chat))  # which refuses it
    if settings.lora:
        add_adapters(checkpoint.model, settings.lora, settings.seed)
    if settings.checkpoint_activations:
        recompute(checkpoint.model)
    return checkpoint
