"""What `pipedec train` says before it begins: what training will take, and what its data and settings leave out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.wording import many
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.model.training.processes import count

if TYPE_CHECKING:
    from pipedec_cli.jobs.train_data import TrainingData
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
    from pipedec_cli.model.training.collate import Encoded
    from pipedec_cli.model.training.hyperparameters import Hyperparameters


def estimate(
    checkpoint: Checkpoint,
    data: TrainingData,
    examples: Sequence[Encoded],
    dev: Sequence[Encoded],
    hyper: Hyperparameters,
    settings: TrainSettings,
    target: Path,
    notify: Notify,
) -> None:
    """Say what training will take and what it leaves out; a `UserError` if the disk or the memory is too small."""
    from pipedec_cli.model.arguments import choose_device, computes_bfloat16
    from pipedec_cli.model.training.cost import needed_memory, training_cost

    method, total = checkpoint.settings, len(examples)
    assert method is not None, "it has them before it is trained"
    cost = training_cost(
        checkpoint, examples, hyper, settings.keep_checkpoints, name=lambda n: f"record {data.train[n].id!r}"
    )
    if dev:  # they are evaluated one at a time
        one = replace(hyper, batch_size=1)
        needed_memory(checkpoint, dev, one, name=lambda n: f"record {data.dev[n].id!r} of dev")
    if total < 20:  # no model learns from so few
        notify.warn(f"{many(total, 'example')}: too few to learn from")
    for warning in _lengths(checkpoint, examples, method):
        notify.warn(warning)
    if hyper.bf16 and choose_device(settings.device).type == "cpu" and not computes_bfloat16():
        why = "this CPU has no instructions for bfloat16, which --bf16 needs"
        notify.warn(f"{why}: float32 is many times faster here")
    notify.say(
        f"{settings.model}: {cost.parameters / 1e6:.1f} M parameters, {settings.decoder} decoder"
        + (f", delay {method.delay}, time_max {method.time_max}" if settings.decoder == "pipelined" else "")
        + f", {hyper.optimizer} at a learning rate of {hyper.learning_rate:g}"
    )
    disk = f"{cost.disk / 1e6:,.0f} MB of disk"
    together = f" in {count()} processes" if count() > 1 else ""
    notify.say(
        f"{many(total, 'example')}, {cost.updates:,} updates of {hyper.update_size(count())}{together}: "
        f"{disk} in {target}, some {cost.memory / 1e9:.1f} GB of memory. Checkpoints of {cost.checkpoint / 1e6:,.0f} MB "
        "take about 5 % of the time at most. The first updates tell how long the training takes"
    )
    free = shutil.disk_usage(next(folder for folder in (target, *target.parents) if folder.exists())).free
    if free < cost.disk:
        what, todo = f"training needs {disk}", "free some, or give --out on another disk"
        raise UserError(f"{what}, {free / 1e6:,.0f} MB are free", where=str(target), todo=todo)


def _lengths(checkpoint: Checkpoint, examples: Sequence[Encoded], method: MethodSettings) -> Iterator[str]:
    """Warnings of sources and targets that are too long."""
    total = len(examples)
    if cut := sum(example.cut for example in examples):
        yield f"{cut:,} of {total:,} sources are longer than {method.max_source_tokens:,} tokens and were cut"
    late = sum(any(len(text) + 1 > method.time_max for text in example.texts) for example in examples)
    if late and method.decoder == "pipelined":
        yield (
            f"{late:,} of {total:,} targets hold a subsequence that needs more than time_max = {method.time_max} "
            "time-steps and could not be generated whole; see `pipedec segment --split-long`"
        )
    if (most := checkpoint.positions) is None:  # the model has relative positions
        return
    beyond = sum(len(example.source) + max(map(len, example.texts), default=0) > most for example in examples)
    if beyond:
        yield (
            f"{beyond:,} of {total:,} sources with their targets reach beyond the {most:,} positions that the model "
            "was made for; --max-source-tokens cuts sources, and counts all of the prompt"
        )


def duration(seconds: float) -> str:
    """A time for people: seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
