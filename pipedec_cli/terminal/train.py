"""`pipedec train`: a checkpoint from segmented data."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from pipedec_cli.data import trained
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.locking import only_writer
from pipedec_cli.data.reading import real
from pipedec_cli.data.records import DecoderKind
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import manifest, to_json, write_json
from pipedec_cli.terminal.console import Talk, command_line, many, write_stdout
from pipedec_cli.terminal.lessons import dev_scorer, gather, warn_of
from pipedec_cli.terminal.model_card import write_card
from pipedec_cli.terminal.progress import show_training
from pipedec_cli.terminal.settings import WorkflowSettings, argument, option, threads_option

EXAMPLES = """
pipedec train                                   # a small T5 from scratch, every delay, on the workspace's data
pipedec train --model google-t5/t5-base --recipe paper
pipedec train --teacher ./my-t5                 # from the T5 that you run today to a faster one that writes like it
pipedec train --decoder sequential              # the ordinary T5, the baseline that a report compares with
pipedec train --resume                          # go on after an interruption, with the same options
torchrun --nproc-per-node 2 -m pipedec_cli train \\
  --model google-t5/t5-large --bf16
"""


@dataclass(frozen=True, kw_only=True)
class TrainSettings(WorkflowSettings):
    """What `pipedec train` is asked for."""

    data: Path | None = argument("A folder that `pipedec segment` wrote \\[default: the workspace's].")
    teacher: str | None = option(
        None,
        "An ordinary T5, a folder or a hub name, whose own texts for the sources are learnt instead of the targets: they are "
        "generated first and kept in the workspace.",
        metavar="T5",
    )
    model: str | None = option(
        None,
        "Where to start: scratch-tiny, -small, -base or -large (fresh weights, a tokenizer trained on your "
        "data, no network), scratch (the teacher's shape and tokenizer), a local T5, Flan-T5, mT5 or UMT5 folder, or a hub "
        "name such as google-t5/t5-base \\[default: the teacher, else scratch-tiny].",
    )
    decoder: DecoderKind = option(
        "pipelined", "pipelined, or sequential for the ordinary T5 that a report compares with."
    )
    delay: int | Literal["any"] = option(
        "any",
        "Δt that the checkpoint is for: 'any' draws schedules at random for each batch, so that one "
        "checkpoint serves every delay and the waiting schedule; the paper trains for 1.",
    )
    epochs: float = option(10.0, "Passes over the training examples.", min=0.0)
    max_steps: int | None = option(None, "Stop after this many updates instead.", min=1)
    batch_size: int | None = option(
        None,
        "Examples a device and step \\[default: 8 for a model that was made from scratch, else the paper's 24].",
        min=1,
    )
    accumulation: int = option(1, "Steps whose gradients make one update.", min=1)
    optimizer: Literal["adafactor", "adamw"] | None = option(
        None,
        "adafactor, whose rate is relative to the size of each matrix, or adamw "
        "\\[default: adafactor for a model that was made from scratch, else adamw].",
    )
    learning_rate: float | None = option(
        None,
        "Its peak \\[default: adafactor 3e-2 from scratch, 1e-2 going on from that, else 1e-3; adamw 1e-3, 3e-4, 1e-4].",
        min=0.0,
    )
    rate_schedule: Literal["linear", "constant"] = option(
        "linear", "Whether the rate falls to zero or stays."
    )
    warmup: float = option(0.05, "Share of the updates over which it rises.", min=0.0, max=1.0)
    bf16: bool = option(False, "Mixed precision in bfloat16.")
    source_prefix: str | None = option(
        None,
        "Put before every source, as in T5's task prefixes ('summarize: ') \\[default: the teacher's, else none].",
    )
    max_source_tokens: int | None = option(
        None,
        "Cut longer sources to this many tokens; attention costs its square \\[default: the teacher's, else 2048].",
        min=2,
        max=65_536,
    )
    time_max: int | None = option(
        None,
        "The last time-step of decoding; saved with the model \\[default: what holds 99.5 % of the training targets, at "
        "least 50].",
        min=1,
    )
    evaluations: int = option(10, "How often the dev set is looked at.", min=1)
    dev_examples: int = option(200, "Dev examples used for the loss; 32 for the score.", min=0)
    limit: int | None = option(None, "Train on the first N examples only.", min=1)
    seed: int = option(0, "Of weights, order, dropout and drawn schedules.")
    device: Literal["auto", "cpu", "cuda"] = option("auto", "auto, cpu or cuda.", metavar="auto|cpu|cuda")
    keep_checkpoints: int = option(
        2, "The checkpoint-N folders that stay; 0 keeps the last until training has ended.", min=0
    )
    threads: int | None = threads_option()
    resume: bool = option(False, "Go on from the last checkpoint-N.")
    overwrite: bool = option(False, "Give up the model, or the unfinished training, in the folder.")
    out: Path | None = option(None, "The checkpoint's folder \\[default: models/DECODER in the workspace].")


def train(settings: TrainSettings) -> None:
    """Train a pipelined decoder, or the ordinary sequential one, on what `pipedec segment` wrote.

    The parameters and the architecture are those of the ordinary T5, so any T5 checkpoint is a starting point. What comes
    out of `--decoder sequential` is one for plain transformers, too; of a pipelined model transformers' generate() writes
    the first subsequence only. A model card, README.md, lies beside the weights. Only train.jsonl is trained on;
    dev.jsonl is looked at, test.jsonl is not touched.

    With --teacher the sources suffice: the T5 that you run today writes the targets, and the pipelined decoder starts from
    its weights and learns to write like it. Where the right answers could be worded or ordered in many ways, that costs
    least quality.
    """
    talk = Talk(quiet=settings.quiet or not _is_main_process())
    run(settings, talk)
    plain, where = settings.decoder == "sequential", settings.some("workspace")
    decoder = "sequential" if plain and settings.out is None else None
    generate = command_line("generate", settings.data, model=settings.out, decoder=decoder, **where)
    where |= {"data": settings.data, "baseline" if plain else "model": settings.out}
    talk.say(f"next: {generate}, or {command_line('report', compare='sequential', **where)}")


def run(settings: TrainSettings, talk: Talk) -> None:
    """Train and save the checkpoint with its manifest, without a word on what to do next."""
    place = Workspace.find(settings.workspace)
    folder = settings.data or place.require(place.data, "pipedec segment DATA")
    target, start = settings.out or place.model(settings.decoder), settings.model or settings.teacher
    settings = replace(settings, model=start or "scratch-tiny")
    for name in filter(None, {start, settings.teacher}):
        if real(name) == real(target):
            raise UserError("would be written over", where=name, todo="give another --out")
        if not name.startswith("scratch"):
            trained.require_model(name)
    alone = only_writer(target, folder=True, todo="choose another --out", warn=talk.warn)
    with alone if _is_main_process() else nullcontext():
        _check_folder(target, None, settings, talk)
        talk.say(f"loading {settings.model} …")  # torch, too, which takes some seconds
        from pipedec_cli.model.arguments import choose_device

        choose_device(settings.device)  # the Trainer would take the CPU without a word where there is no GPU
        result = _train(folder, target, settings, talk)
        if _is_main_process():
            if stay := trained.keep_last(target, settings.keep_checkpoints):
                taken = f"{trained.size(stay) / 1e6:,.0f} MB of {many(len(stay), 'checkpoint-N folder')}"
                talk.say(f"{taken} stay there; --keep-checkpoints 0 keeps none")
            if settings.as_json:
                write_stdout(to_json(result) + "\n")


def _train(folder: Path, target: Path, settings: TrainSettings, talk: Talk) -> Any:
    lessons = gather(settings, folder, talk)

    from pipedec_cli.model.checkpoint import MethodSettings
    from pipedec_cli.model.collate import encode, fit_time_max
    from pipedec_cli.model.cost import training_cost
    from pipedec_cli.model.scratch import start_checkpoint
    from pipedec_cli.model.training import hyperparameters, train

    same = ("batch_size", "optimizer", "learning_rate", "epochs", "accumulation", "warmup", "bf16", "seed")
    hyper = hyperparameters(
        start=trained.start_of(settings.model or ""),
        schedule=settings.rate_schedule,
        cpu=settings.device == "cpu",
        **settings.some(*same, "evaluations", "max_steps"),
    )
    begun = settings.some("model", "decoder", "delay", "time_max", "dev_examples", "limit") | lessons.sources
    if lessons.teacher:
        begun["teacher"] = {"name": settings.teacher, "sha256": lessons.teacher.sha256}
    record = manifest(begun | {"training": asdict(hyper), "data": folder}, inputs=lessons.files)
    if done := _check_folder(target, record, settings, talk):
        talk.say(f"{target} has been trained to the end already")
        return done
    decoding = {**settings.some("decoder", "delay"), **lessons.sources, "segmentation": lessons.segmentation}
    method = MethodSettings(**decoding, explore="once" if lessons.teacher else "retry")
    like = lessons.teacher.checkpoint if lessons.teacher else None
    start = (settings.model or "", method, lessons.train, hyper.seed, lessons.segmenter)
    checkpoint = start_checkpoint(*start, like)
    examples = encode(checkpoint, lessons.train)
    time_max = settings.time_max or fit_time_max(examples, method)
    checkpoint.settings = structs.replace(method, time_max=time_max)
    expected = training_cost(checkpoint, examples, hyper, settings.keep_checkpoints)
    warn_of(examples, checkpoint.settings, talk)
    talk.say(
        f"{settings.model}: {expected.parameters / 1e6:.1f} M parameters, {settings.decoder} decoder"
        + (f", delay {settings.delay}, time_max {time_max}" if settings.decoder == "pipelined" else "")
        + f", {hyper.optimizer} at a learning rate of {hyper.learning_rate:g}"
    )
    megabytes = f"{expected.bytes / 1e6:,.0f} MB of disk"
    talk.say(
        f"{many(len(examples), 'example')}, {expected.updates:,} updates of {hyper.batch_size}: "
        f"about {_duration(expected.seconds)}, {megabytes} in {target}, some "
        f"{expected.memory / 1e9:.1f} GB of memory"
    )
    room = shutil.disk_usage(next(folder for folder in (target, *target.parents) if folder.exists())).free
    if room < expected.bytes:
        what, todo = f"training needs {megabytes}", "free some, or give --out on another disk"
        raise UserError(f"{what}, {room / 1e6:,.0f} MB are free", where=str(target), todo=todo)
    if _is_main_process():
        write_json(target / trained.MANIFEST, record)
    how: Any = {"resume": settings.resume, "keep": settings.keep_checkpoints}
    with show_training(talk) as show, _stopped(target, talk):
        dev, score = encode(checkpoint, lessons.dev), dev_scorer(checkpoint, lessons.dev[:32])
        outcome = train(checkpoint, examples, dev, target, hyper, show=show, score=score, **how)
    result = {"checkpoint": str(target), **outcome}
    talk.say(f"trained in {_duration(outcome['seconds'])}; checkpoint in {target}")
    if _is_main_process():
        record |= {"result": result}
        write_card(target, checkpoint, record, folder, len(examples), talk)
        write_json(target / trained.MANIFEST, record)  # from here on the folder holds a model
    return result


def _is_main_process() -> bool:  # the one that writes and talks, under torchrun
    return os.environ.get("RANK", "0") == "0"


def _check_folder(target: Path, record: Mapping[str, Any] | None, settings: TrainSettings, talk: Talk) -> Any:
    """Refuse to lose or to mix: a training is resumed as it was begun, a model given up on purpose.

    Clears away what a killed training was writing and, where the record is known by now, an earlier one that is given
    up. Gives the result of one that is to be resumed and has come to its end.
    """
    before = trained.begun(target)
    if before and _is_main_process() and (left := trained.clean(target)):
        talk.say(f"a training that was killed left {', '.join(left)} half written: removed")
    begun = trained.checkpoints(target)
    if settings.resume:
        if record and before and (why := trained.otherwise(before, record)):
            todo = "give the settings and data that it was begun with, or start over with --overwrite"
            raise UserError(f"the training in {target} was begun otherwise: {why}", todo=todo)
        if not begun and "result" not in before:
            raise UserError(f"nothing to resume in {target}", todo="train without --resume")
        if record and "result" not in before:
            talk.say(f"going on from {begun[-1]}")
        return before.get("result")
    if "result" in before and not settings.overwrite:
        todo = "replace it with --overwrite, or keep both with --out FOLDER"
        raise UserError(f"{target} holds a trained model", todo=todo)
    if begun and not settings.overwrite:
        todo = "go on with --resume and the settings that it was begun with, or start over with --overwrite"
        raise UserError(f"{target} holds an unfinished training", todo=todo)
    if record and _is_main_process():
        trained.forget(begun)  # a later --resume must not pick up another training's
    return None


@contextmanager
def _stopped(target: Path, talk: Talk) -> Iterator[None]:
    """Say how to go on after Ctrl-C, and give a full disk its name."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "; the same command with --resume goes on from the last checkpoint"
        none = " before there was a first checkpoint; nothing is kept"
        talk.say(f"stopped{kept if any(target.glob('checkpoint-*')) else none}")
        raise
    except Exception as error:
        # torch and safetensors wrap what the system says.
        if shutil.disk_usage(target).free < 1 << 20 or "No space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error
        raise


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
