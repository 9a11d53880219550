"""What is said before a training begins: what it will take, and what its data and settings leave out."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.wording import many
from pipedec_cli.jobs.events import Notify
from pipedec_cli.model.training.processes import count

if TYPE_CHECKING:
    from pipedec_cli.jobs.train import TrainSettings
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
    from pipedec_cli.model.training.collate import Encoded
    from pipedec_cli.model.training.hyperparameters import Hyperparameters


def estimate(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    hyper: Hyperparameters,
    settings: TrainSettings,
    target: Path,
    notify: Notify,
) -> None:
    """Say what training will take; a `UserError` where it is more than the disk has."""
    from pipedec_cli.model.arguments import choose_device, computes_bfloat16
    from pipedec_cli.model.training.cost import training_cost

    method = checkpoint.settings
    assert method is not None, "it has them before it is trained"
    expected = training_cost(checkpoint, examples, hyper, settings.keep_checkpoints)
    _warn_of(examples, method, notify)
    _warn_of_places(checkpoint, examples, notify)
    if hyper.bf16 and choose_device(settings.device).type == "cpu" and not computes_bfloat16():
        notify.warn(
            "this CPU has no instructions for bfloat16, which --bf16 needs: float32 is many times faster here"
        )
    notify.say(
        f"{settings.model}: {expected.parameters / 1e6:.1f} M parameters, {settings.decoder} decoder"
        + (f", delay {method.delay}, time_max {method.time_max}" if settings.decoder == "pipelined" else "")
        + f", {hyper.optimizer} at a learning rate of {hyper.learning_rate:g}"
    )
    megabytes = f"{expected.disk / 1e6:,.0f} MB of disk"
    together = f" in {count()} processes" if count() > 1 else ""
    notify.say(
        f"{many(len(examples), 'example')}, {expected.updates:,} updates of {hyper.update_size(count())}{together}: "
        f"about {duration(expected.seconds)}, {megabytes} in {target}, some "
        f"{expected.memory / 1e9:.1f} GB of memory"
    )
    room = shutil.disk_usage(next(folder for folder in (target, *target.parents) if folder.exists())).free
    if room < expected.disk:
        what, todo = f"training needs {megabytes}", "free some, or give --out on another disk"
        raise UserError(f"{what}, {room / 1e6:,.0f} MB are free", where=str(target), todo=todo)


def _warn_of(examples: Sequence[Encoded], settings: MethodSettings, notify: Notify) -> None:
    """Say what token counts show and words did not."""
    total = len(examples)
    if total < 20:  # no model learns from so few
        notify.warn(f"{many(total, 'example')}: too few to learn from")
    if cut := sum(example.cut for example in examples):
        most = settings.max_source_tokens
        notify.warn(f"{cut:,} of {total:,} sources are longer than {most:,} tokens and were cut")
    late = sum(any(len(text) + 1 > settings.time_max for text in example.texts) for example in examples)
    if late and settings.decoder == "pipelined":
        notify.warn(
            f"{late:,} of {total:,} targets hold a subsequence that needs more than time_max = {settings.time_max} "
            "time-steps and could not be generated whole; see `pipedec segment --split-long`"
        )


def _warn_of_places(checkpoint: Checkpoint, examples: Sequence[Encoded], notify: Notify) -> None:
    """Say that prompts reach beyond the positions of a decoder-only model: it was made for no more, and nothing else shows."""
    if (most := checkpoint.positions) is None:
        return
    beyond = sum(len(example.source) + max(map(len, example.texts), default=0) > most for example in examples)
    if beyond:
        notify.warn(
            f"{beyond:,} of {len(examples):,} sources with their targets reach beyond the {most:,} positions that the model was "
            "made for; --max-source-tokens cuts sources, and counts all of the prompt"
        )


def duration(seconds: float) -> str:
    """Some seconds, as a person would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
