"""What is said before the first update: what a training takes, and what it leaves out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipedec_cli.data import trained
from pipedec_cli.data.errors import UserError, log, many
from pipedec_cli.events import Listen, stage
from pipedec_cli.jobs.train_settings import KEPT_CHECKPOINTS, TrainSettings
from pipedec_cli.jobs.training_data import TrainingData
from pipedec_cli.training.hyperparameters import Hyperparameters, process_count

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint
    from pipedec_cli.training.cost import Disk
    from pipedec_cli.training.encoded import Encoded

#: Updates that a model from scratch needs at least: those of docs/results.md took 2,700
#: to 3,000.
FEW_UPDATES: Final = 500


@dataclass(frozen=True)
class Prepared:
    """A training before its first update."""

    checkpoint: Checkpoint  # the model that is trained
    data: TrainingData
    examples: Sequence[Encoded]  # the records of train as token ids
    dev: Sequence[Encoded]  # those of dev; empty if there are none
    hyper: Hyperparameters
    settings: TrainSettings
    target: Path  # the folder that is written


def estimate(training: Prepared, listen: Listen) -> None:
    """Run the longest batch, and say which disk training takes and what it leaves out.

    A `UserError` if the disk or the memory is too small.
    """
    from pipedec_cli.training.cost import require_memory, training_disk

    checkpoint = training.checkpoint
    hyper = training.hyper
    settings = training.settings
    count = len(training.examples)

    def name(number: int) -> str:
        return f"record {training.data.train[number].id!r}"

    def name_of_dev(number: int) -> str:
        return f"record {training.data.dev[number].id!r} of dev"

    if training.dev:
        single = replace(hyper, batch_size=1)  # dev examples are evaluated one by one
        require_memory(checkpoint, training.dev, single, name=name_of_dev)
    with stage(listen, "running the longest batch"):
        fit_memory(checkpoint, training.examples, hyper, name=name)
    _warn_of_few(count, hyper, settings)
    _warn_of_long(checkpoint, training.examples)
    _warn_of_bfloat16(hyper, settings)
    disk = training_disk(checkpoint, hyper, KEPT_CHECKPOINTS)
    _say_size(checkpoint, hyper, settings)
    _say_disk(disk, count, hyper, training.target)


def fit_memory(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    hyper: Hyperparameters,
    *,
    name: Callable[[int], str],
) -> None:
    """Run the longest batch. If it does not fit the memory, let the model keep less of it for the backward pass.

    The layers are then computed again in the backward pass, which takes a third more
    time. A `UserError` if the memory is too small all the same; it calls the example
    what `name` makes of its number.
    """
    from pipedec_cli.training.cost import BatchTooLargeError, run_longest
    from pipedec_cli.training.loss import recompute, recomputes

    try:
        run_longest(checkpoint, examples, hyper, name=name)
    except BatchTooLargeError:
        # Other processes would not know that the model computes layers again.
        if recomputes(checkpoint.model) or process_count() > 1:
            raise
        log.info(
            "the longest batch does not fit the memory: layers are computed again in the "
            "backward pass, which takes a third more time"
        )
        recompute(checkpoint.model)
        run_longest(checkpoint, examples, hyper, name=name)


def _warn_of_few(
    examples: int, hyper: Hyperparameters, settings: TrainSettings
) -> None:
    """Warn of too few examples, and of too few updates for a model from scratch."""
    from pipedec_cli.compare.expected_calls import TOO_FEW

    if examples < TOO_FEW:
        log.warning(f"{many(examples, 'example')}: too few for a training")
    updates = hyper.updates(examples)
    if trained.is_fresh(settings.model or "") and updates < FEW_UPDATES:
        are = "is" if updates == 1 else "are"
        log.info(
            f"{many(updates, 'update')} {are} few for a model from scratch: expect texts that repeat themselves. "
            "Give more --epochs or --max-steps, or --model NAME to start from a trained model"
        )


def _warn_of_long(checkpoint: Checkpoint, examples: Sequence[Encoded]) -> None:
    """Warn of sources and targets that are longer than the model's settings, or its positions, allow."""
    method = checkpoint.settings
    assert method is not None, "it has them before it is trained"
    positions = checkpoint.positions  # None if they are relative
    cut = 0
    unwritable = 0
    late = 0
    beyond = 0
    for example in examples:
        longest = max((len(text) for text in example.texts), default=0)
        cut += example.cut
        unwritable += example.unwritable
        late += bool(example.texts) and longest + 1 > method.time_max
        if positions is not None:
            beyond += len(example.source) + longest > positions
    total = len(examples)
    if cut:
        log.warning(
            f"{cut:,} of {total:,} sources are longer than {method.max_source_tokens:,} tokens and were cut"
        )
    if unwritable:
        log.warning(
            f"{many(unwritable, 'value')} in {many(total, 'record')} are not learnt, because they do not stand in their text: "
            'a key with "x-free": true in its schema is learnt in any words'
        )
    if late and method.decoder == "pipelined":
        log.warning(
            f"{late:,} of {total:,} targets hold a subsequence that needs more than time_max = {method.time_max} "
            "time-steps and could not be generated whole: `--set time_max=N` allows more"
        )
    if beyond:
        log.warning(
            f"{beyond:,} of {total:,} sources with their targets reach beyond the {positions:,} positions that the model "
            "was made for; --max-source-tokens cuts sources, and counts all of the prompt"
        )


def _warn_of_bfloat16(hyper: Hyperparameters, settings: TrainSettings) -> None:
    """Warn of bfloat16 on a CPU that has no instructions for it."""
    from pipedec_cli.model.arguments import choose_device, computes_bfloat16

    on_cpu = choose_device(settings.device).type == "cpu"
    if hyper.bf16 and on_cpu and not computes_bfloat16():
        why = "this CPU has no instructions for bfloat16, which --bf16 needs"
        log.warning(f"{why}: float32 is many times faster here")


def _say_size(
    checkpoint: Checkpoint,
    hyper: Hyperparameters,
    settings: TrainSettings,
) -> None:
    """Say how large the model is, and with which schedule, optimizer and rate it is trained."""
    method = checkpoint.settings
    assert method is not None, "it has them before it is trained"
    size = checkpoint.model.num_parameters() / 1e6
    decoder = f"{settings.decoder} decoder"
    if settings.decoder == "pipelined":
        decoder += f", delay {method.delay}, time_max {method.time_max}"
    rate = f"{hyper.optimizer} at a learning rate of {hyper.learning_rate:g}"
    log.info(f"{settings.model}: {size:.1f} M parameters, {decoder}, {rate}")


def _say_disk(disk: Disk, examples: int, hyper: Hyperparameters, target: Path) -> None:
    """Say how much disk the training takes. A `UserError` if the target's disk has less."""
    needed = f"{disk.total / 1e6:,.0f} MB of disk"
    updates = f"{many(hyper.updates(examples), 'update')} of {hyper.update_size}"
    if process_count() > 1:
        updates += f" in {process_count()} processes"
    log.info(
        f"{many(examples, 'example')}, {updates}: {needed} in {target}. Checkpoints of {disk.checkpoint / 1e6:,.0f} MB "
        "take about 5 % of the time at most. The first updates tell how long the training takes"
    )
    existing = next(path for path in (target, *target.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < disk.total:
        what = f"training needs {needed}, {free / 1e6:,.0f} MB are free"
        todo = "free some, or give --out on another disk"
        raise UserError(what, where=target, todo=todo)
