"""`pipedec train`: train a model on segmented data, or on the texts of a teacher."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs, to_builtins

from pipedec_cli.data import trained
from pipedec_cli.data.artifact import SEGMENTATION_FILE, Artifact
from pipedec_cli.data.errors import UserError, duration, log, many, naming
from pipedec_cli.data.predictions import read_predictions
from pipedec_cli.data.reading import real, require_place, require_writable
from pipedec_cli.data.records import Generated, Record, Segmentation, SplitName
from pipedec_cli.data.segmentation import (
    Preparer,
    Segmenter,
    joiner_of,
    make_segmenter,
    token_counter,
)
from pipedec_cli.data.stored import Stored, StoredRecords
from pipedec_cli.data.workspace import load_segmentation, load_segmenter, read_split
from pipedec_cli.data.writing import manifest
from pipedec_cli.jobs.commands import (
    all_sources,
    command_line,
    quoted,
    sequential_training,
)
from pipedec_cli.jobs.events import Listen, Training, shown, silent, stage, track
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import (
    WORKSPACE_MODELS,
    find_model,
    load_decoder,
    read_inputs,
)
from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.settings import spelled
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.model.text import usual_prompt
from pipedec_cli.pipeline.grid import before_repeats
from pipedec_cli.training.hyperparameters import (
    Hyperparameters,
    TrainResult,
    count,
    hyperparameters,
    is_main,
)

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
    from pipedec_cli.training.collate import Encoded


@dataclass(frozen=True)
class TrainingData:
    """Segmented records of train and dev, and the `files` that they come from.

    `sources` are the settings by which sources are read: source_prefix,
    max_source_tokens and, for prompts, prompt and chat. `targets` are the data set's
    own targets beside those of a teacher: many long texts of a teacher are left out,
    and time_max has to hold long targets as well. Of the `teacher`, use only config,
    tokenizer and settings.
    """

    files: list[Path]
    train: Sequence[Record]
    dev: Sequence[Record]
    segmentation: Segmentation
    segmenter: Segmenter
    sources: dict[str, Any]
    teacher: Decoder | None = None
    targets: Iterable[Record] = ()


def load_data(settings: TrainSettings, folder: Path, listen: Listen) -> TrainingData:
    """Read a folder that `segment` wrote. With a teacher, have it write the targets, or read what it has written.

    A `UserError` if the teacher is a pipelined model, or none of its texts can be
    learnt from.
    """
    train, dev = folder / "train.jsonl", folder / "dev.jsonl"
    segmentation = load_segmentation(folder / SEGMENTATION_FILE)
    segmenter = load_segmenter(folder, segmentation)
    prompt: dict[str, Any] = {}
    if settings.prompted:
        chat, template = bool(settings.chat), settings.prompt_template
        prompt = {
            "prompt": usual_prompt(chat=chat) if template is None else template,
            "chat": chat,
        }
    if settings.teacher is None:
        prefix, longest = (
            settings.source_prefix or "",
            settings.max_source_tokens or 2048,
        )
        sources = {"source_prefix": prefix, "max_source_tokens": longest} | prompt
        dev_records = (
            [*islice(read_split(dev), settings.dev_examples)] if dev.exists() else []
        )
        some = islice(read_split(train), settings.limit)
        stored = StoredRecords(
            folder, track(listen, some, settings.limit, "reading the examples")
        )
        return TrainingData(
            [train], stored, dev_records, segmentation, segmenter, sources
        )
    data = None if settings.data is None else str(settings.data)
    same = settings.some("workspace", "source_prefix", "max_source_tokens", "device")
    generate = GenerateSettings(model=settings.teacher, data=data, trace=False, **same)
    teacher = load_decoder(generate, role="the teacher ")
    if teacher.text.prompt is not None:
        generate = replace(generate, **settings.some("prompt_template", "chat"))
        teacher.read_sources(generate.prompt_template, chat=generate.chat)
    if teacher.settings.decoder != "sequential":
        todo = "name a sequential model with --teacher"
        raise UserError(
            f"{teacher.checkpoint.name} is a pipelined decoder, and no teacher",
            todo=todo,
        )
    if (
        teacher.checkpoint.settings is None
    ):  # it was not trained here, and has no segmenter of its own
        teacher.checkpoint.segmenter = segmenter
    splits: dict[SplitName, int | None] = {"train": settings.limit}
    if settings.dev_examples and dev.exists() and dev.stat().st_size:
        splits["dev"] = settings.dev_examples
    files, texts = [], {}
    for split, limit in splits.items():
        files.append(
            _write(replace(generate, split=split, limit=limit), teacher, listen)
        )
        texts[split] = [text for text in read_predictions(files[-1]) if text.record]
    complete = [_learnt(text) for text in texts["train"] if not text.truncated]
    if complete and all(
        record.target_segments is None for record in complete
    ):  # the data have no targets
        segmenter = make_segmenter(
            segmentation.level,
            [record.target or "" for record in complete],
            [record.source for record in complete],
            separators=segmentation.separators,
            fields=segmentation.fields,
        )
        segmentation = structs.replace(
            segmentation, joiner=joiner_of(complete, segmenter)
        )
    each_once = segmentation.level != "sentence"
    preparer = Preparer(
        segmenter, segmentation, token_counter(None), time_max=1, each_once=each_once
    )
    taught = {split: _segment(found, split, preparer) for split, found in texts.items()}
    if not taught["train"]:
        todo = "train the teacher until it ends its texts, or take another"
        raise UserError(
            "none of the teacher's texts can be learnt from",
            where=str(files[0]),
            todo=todo,
        )
    if repeated := preparer.counts.repeated:
        what = f"{many(repeated, 'subsequence')} that the teacher had said before in the same text"
        log.info(f"{what}: left out")
    sources = teacher.text.described
    if (
        teacher.text.prompt is None
    ):  # an encoder-decoder says nothing of the student's prompts
        sources |= prompt
    own = islice(read_split(train, need_target=False), settings.limit)
    return TrainingData(
        [train, *files],
        taught["train"],
        taught.get("dev", []),
        segmentation,
        segmenter,
        sources,
        teacher,
        targets=track(listen, own, settings.limit, "measuring the targets"),
    )


def _write(settings: GenerateSettings, teacher: Decoder, listen: Listen) -> Path:
    """The file of the teacher's texts for a split. Several processes that train together do not write it."""
    from pipedec_cli.jobs.run import complete, is_complete, plan_run

    run = plan_run(settings, teacher, read_inputs(settings))
    if count() > 1 and not is_complete(run):
        todo = (
            f"write them with one process first: `{command_line('generate', settings)}`"
        )
        raise UserError(
            f"the teacher's texts for {settings.split} are not all there", todo=todo
        )
    return Path(complete(run, f"the teacher's texts for {settings.split}", listen).out)


def _learnt(text: Generated) -> Record:
    """The record with the teacher's text as its target."""
    assert text.record is not None, "it is generated from a record"
    return structs.replace(
        text.record, target=text.text, target_fields=text.fields, references=()
    )


def _segment(
    texts: list[Generated], split: SplitName, preparer: Preparer
) -> list[Record]:
    """The teacher's texts as segmented records.

    Texts that a limit cut are left out. At level sentence a text ends where it starts
    to repeat itself: a model that learns to repeat itself does not end its texts.
    """
    records, repeating, joiner = list[Record](), 0, preparer.segmentation.joiner
    for text in texts:
        record, usable = (
            structs.replace(_learnt(text), target_segments=None),
            text.truncated is None,
        )
        if preparer.segmentation.level == "sentence":
            sentences = preparer.segmenter.cut(text.text)
            kept = sentences[: before_repeats(sentences)]
            if len(kept) < len(sentences):
                record = structs.replace(
                    record, target=joiner.join(kept), target_segments=kept
                )
                repeating, usable = repeating + 1, True
        if usable:
            records.append(preparer.segment(record))
    of = f"of the teacher's {many(len(texts), 'text')} for {split}"
    if left_out := len(texts) - len(records):
        log.info(f"{left_out:,} {of} were cut short: left out")
    if repeating:
        log.info(f"{repeating:,} {of} began to repeat themselves: learnt up to there")
    return records


def dev_scorer(
    checkpoint: Checkpoint,
    records: Sequence[Record],
    examples: Sequence[Encoded],
    doubts: list[str],
) -> Callable[[], float] | None:
    """A function that generates texts for dev records, as `pipedec generate` does, and scores them.

    The examples are the same records in token ids. `doubts` holds the reasons why the
    best texts so far are useless.
    """
    from pipedec_cli.decoding.batch_size import choose_batch_size
    from pipedec_cli.decoding.decoder import Decoder
    from pipedec_cli.metrics.faults import as_good_when_exchanged
    from pipedec_cli.metrics.scoring import dev_measure, score_predictions
    from pipedec_cli.model.lora import merged

    if not records or checkpoint.settings is None:
        return None
    measure = dev_measure(checkpoint.settings.segmentation.level)
    # A bound on the time that a model takes that has not learnt yet to end its texts.
    longest = 2 * max(sum(map(len, example.texts)) for example in examples) + 1
    source, best = max(len(example.source) for example in examples), -1.0

    def score_dev() -> float:
        nonlocal best
        checkpoint.model.eval()
        with merged(checkpoint.model):
            size = choose_batch_size(checkpoint.model, source, len(records))
            decoder = Decoder(
                checkpoint, batch_size=size
            )  # a new one, since the weights have changed
            method = decoder.method(
                max_tokens=longest if decoder.settings.decoder == "sequential" else None
            )
            made = [*decoder.texts([record.source for record in records], method)]
        pairs = zip(made, records, strict=True)
        predictions = (structs.replace(one, record=record) for one, record in pairs)
        scores = score_predictions(predictions, measure)
        checkpoint.model.train()
        score = scores.values[measure.primary] or 0.0
        if score > best:
            best = score
            fault = as_good_when_exchanged(scores)
            doubts[:] = [fault.words] if fault else []
        return score

    return score_dev


def estimate(
    checkpoint: Checkpoint,
    data: TrainingData,
    examples: Sequence[Encoded],
    dev: Sequence[Encoded],
    hyper: Hyperparameters,
    settings: TrainSettings,
    target: Path,
    listen: Listen,
) -> None:
    """Run the longest batch, and say which disk training takes and what it leaves out.

    A `UserError` if the disk or the memory is too small.
    """
    from pipedec_cli.compare.expected_calls import TOO_FEW
    from pipedec_cli.model.arguments import choose_device, computes_bfloat16
    from pipedec_cli.training.trainer import (
        require_memory,
        run_longest,
        training_disk,
    )

    method, total = checkpoint.settings, len(examples)
    assert method is not None, "it has them before it is trained"
    if dev:  # dev examples are evaluated one at a time
        one = replace(hyper, batch_size=1)
        require_memory(
            checkpoint, dev, one, name=lambda n: f"record {data.dev[n].id!r} of dev"
        )
    with stage(listen, "running the longest batch"):
        run_longest(
            checkpoint, examples, hyper, name=lambda n: f"record {data.train[n].id!r}"
        )
    folder, disk = training_disk(checkpoint, hyper, settings.keep_checkpoints)
    updates, fresh = hyper.updates(total), settings.model in trained.FRESH
    if total < TOO_FEW:
        log.warning(f"{many(total, 'example')}: too few for a training")
    if fresh and updates < FEW_UPDATES:
        are = "is" if updates == 1 else "are"
        what = f"{many(updates, 'update')} {are} few for a model from scratch: expect texts that repeat themselves"
        log.info(
            f"{what}. Give more --epochs or --max-steps, or --model NAME to start from a trained model"
        )
    if cut := sum(example.cut for example in examples):
        longest = f"{method.max_source_tokens:,} tokens"
        log.warning(
            f"{cut:,} of {total:,} sources are longer than {longest} and were cut"
        )
    late = sum(
        any(len(text) + 1 > method.time_max for text in example.texts)
        for example in examples
    )
    if late and method.decoder == "pipelined":
        log.warning(
            f"{late:,} of {total:,} targets hold a subsequence that needs more than time_max = {method.time_max} "
            "time-steps and could not be generated whole: `--set time_max=N` allows more"
        )
    reached = (
        len(example.source) + max(map(len, example.texts), default=0)
        for example in examples
    )
    most = checkpoint.positions  # None if they are relative
    if most is not None and (beyond := sum(reach > most for reach in reached)):
        log.warning(
            f"{beyond:,} of {total:,} sources with their targets reach beyond the {most:,} positions that the model "
            "was made for; --max-source-tokens cuts sources, and counts all of the prompt"
        )
    if (
        hyper.bf16
        and choose_device(settings.device).type == "cpu"
        and not computes_bfloat16()
    ):
        why = "this CPU has no instructions for bfloat16, which --bf16 needs"
        log.warning(f"{why}: float32 is many times faster here")
    log.info(
        f"{settings.model}: {checkpoint.model.num_parameters() / 1e6:.1f} M parameters, {settings.decoder} decoder"
        + (
            f", delay {method.delay}, time_max {method.time_max}"
            if settings.decoder == "pipelined"
            else ""
        )
        + f", {hyper.optimizer} at a learning rate of {hyper.learning_rate:g}"
    )
    needed = f"{disk / 1e6:,.0f} MB of disk"
    together = f" in {count()} processes" if count() > 1 else ""
    log.info(
        f"{many(total, 'example')}, {many(updates, 'update')} of {hyper.update_size}{together}: "
        f"{needed} in {target}. Checkpoints of {folder / 1e6:,.0f} MB "
        "take about 5 % of the time at most. The first updates tell how long the training takes"
    )
    free = shutil.disk_usage(
        next(folder for folder in (target, *target.parents) if folder.exists())
    ).free
    if free < disk:
        what, todo = (
            f"training needs {needed}",
            "free some, or give --out on another disk",
        )
        raise UserError(
            f"{what}, {free / 1e6:,.0f} MB are free", where=str(target), todo=todo
        )


_DEFAULT_MODEL: Final = "scratch-tiny"
#: The variable that says which GPUs torch sees.
_GPUS: Final = "CUDA_VISIBLE_DEVICES"
#: So many texts are read with the saved tokenizer before a training begins; all of them
#: when it has ended.
_FIRST: Final = 200
#: Updates that a model from scratch needs at least: those of docs/results.md took 2,700
#: to 3,000.
FEW_UPDATES: Final = 500
#: How gloo and NCCL say that another process, with which this one adds up gradients,
#: has ended.
_PEER_GONE: Final = (
    "closed by peer",
    "reset by peer",
    "remote process exited",
    "remote worker",
)


@dataclass(frozen=True)
class Trained:
    """A finished training. `checkpoint`, `record` and `data` are None if it had been finished before."""

    target: Path
    result: dict[str, Any]
    checkpoint: Checkpoint | None = None
    record: dict[str, Any] | None = None  # training.json
    data: Path | None = None  # the folder that `segment` wrote
    examples: int = 0


def train(settings: TrainSettings, listen: Listen = silent) -> Trained:
    """Train a model, and say which commands come next."""
    made = run(settings, listen)
    place, sequential = settings.place, settings.decoder == "sequential"
    again, model = (
        settings.some("data", "workspace"),
        settings.out and str(settings.out),
    )
    same: Any = again | {"data": settings.data and str(settings.data)}
    named = model or ("sequential" if sequential else None)
    generate = command_line("generate", GenerateSettings(model=named, **same))
    if sequential and not trained.is_model(place.model("pipelined")):
        teach = command_line("train", TrainSettings(teacher=str(made.target), **again))
        other = f"`{teach}`, which makes a pipelined decoder of it"
    elif sequential or trained.is_compared(made.target, place.model("sequential")):
        same |= {"baseline" if sequential else "model": model}
        other = f"`{command_line('report', ReportSettings(**same))}`"
    else:
        baseline = sequential_training(str(made.target), settings.workspace)
        other = f"`{baseline}`, which `report` needs to compare with"
    commands = f"`{generate}`"
    every = all_sources(settings.data or place.data, named, settings.workspace)
    if settings.teacher and every:
        commands += f" for the test split, `{every}` for all sources"
    log.info(f"next: {commands}, or {other}")
    return made


def run(settings: TrainSettings, listen: Listen = silent) -> Trained:
    """Train a model and save it with its manifest, training.json."""
    place = settings.place
    data = settings.data or place.require(place.data, "pipedec segment DATA")
    artifact = Artifact.training(settings.out or place.model(settings.decoder))
    artifact.spell = partial(spelled, kind=type(settings))
    if settings.model in WORKSPACE_MODELS:
        settings = replace(settings, model=find_model(settings.model, place))
    if settings.teacher in WORKSPACE_MODELS:
        settings = replace(settings, teacher=find_model(settings.teacher, place))
    _check_settings(settings, artifact.path)
    settings = replace(
        settings, model=settings.model or settings.teacher or _DEFAULT_MODEL
    )
    with artifact.lock() if is_main() else nullcontext():
        if artifact.begun and is_main() and (left := trained.clean(artifact.path)):
            log.info(
                f"a training that was killed left {', '.join(left)} half written: removed"
            )
        if artifact.whole and not (settings.resume or settings.overwrite):
            todo = "replace it with --overwrite, or keep both with --out FOLDER"
            raise UserError(f"{artifact.path} holds a trained model", todo=todo)
        if trained.checkpoints(artifact.path) and not (
            settings.resume or settings.overwrite
        ):
            todo = "go on with --resume and the settings that it was begun with, or start over with --overwrite"
            raise UserError(f"{artifact.path} holds an unfinished training", todo=todo)
        with only_gpu(settings.device) as kind:
            made = _train(artifact, data, replace(settings, device=kind), listen)
        if is_main():
            trained.forget(
                trained.best_folders(artifact.path)
            )  # the weights are in the model's folder
            written, keep = (
                trained.checkpoints(artifact.path),
                settings.keep_checkpoints,
            )
            trained.forget(written[: -keep or None])
            if stay := written[-keep:] if keep else []:
                size = sum(
                    file.stat().st_size
                    for one in stay
                    for file in one.rglob("*")
                    if file.is_file()
                )
                taken = (
                    f"{size / 1e6:,.0f} MB of {many(len(stay), 'checkpoint-N folder')}"
                )
                log.info(f"{taken} stay there; --set keep_checkpoints=0 keeps none")
    return made


@contextmanager
def only_gpu(device: str) -> Iterator[str]:
    """Hide all GPUs but that of ``cuda:N`` from torch, since the Trainer takes all that it sees; gives the kind of device.

    Afterwards the environment is as it was. A UserError if torch has counted several
    GPUs before.
    """
    kind, _, number = device.partition(":")
    if not number:
        yield kind
        return
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized() and torch.cuda.device_count() > 1:
        what = f"this process uses GPUs already, and cannot train on {device} alone any more"
        raise UserError(what, todo="train in a process of its own")
    before = os.environ.get(_GPUS)
    visible = number
    if before is not None:
        visible = "".join(before.split(",")[int(number) :][:1])
    os.environ[_GPUS] = visible
    try:
        yield kind
    finally:
        if before is None:
            del os.environ[_GPUS]
        else:
            os.environ[_GPUS] = before


def _check_settings(settings: TrainSettings, target: Path) -> None:
    if settings.resume and settings.overwrite:
        raise UserError(
            "--resume and --overwrite are both given", todo="give one of them"
        )
    if settings.max_steps and settings.asked("epochs"):
        log.warning("--epochs does not count: --max-steps says when the training ends")
    if settings.decoder == "sequential" and settings.asked("delay"):
        log.warning("--delay does not count: a sequential decoder has no Δt")
    require_place(settings.out, folder=True)
    require_writable(target)
    if settings.data is not None and not settings.data.exists():
        todo = "give the folder that `pipedec segment` wrote"
        raise UserError("no such folder", where=str(settings.data), todo=todo)
    if settings.data is not None and settings.data.is_file():
        todo = "run `pipedec segment` on it, and give the folder that it writes"
        raise UserError("is a file", where=str(settings.data), todo=todo)
    for package in settings.log_to:
        if find_spec(package) is None:
            what = f"log_to={package} needs {package}, which is not installed"
            raise UserError(what, todo=f"pip install {package}")
    for name in filter(None, (settings.model, settings.teacher)):
        if real(name) == real(target):
            raise UserError(
                "would be written over", where=name, todo="give another --out"
            )
        trained.require_start(name)


def _train(
    artifact: Artifact, folder: Path, settings: TrainSettings, listen: Listen
) -> Trained:
    target, data = artifact.path, load_data(settings, folder, listen)
    hyper = hyperparameters(
        start=trained.start_of(
            settings.model or "", adapters=settings.lora is not None
        ),
        fields=bool(data.segmentation.fields),
        schedule=settings.rate_schedule,
        cpu=settings.device == "cpu",
        **settings.some(
            "batch_size", "optimizer", "learning_rate", "epochs", "accumulation", "bf16"
        ),
        **settings.some("seed", "evaluations", "max_steps", "keep", "patience"),
    )
    delay = _delay(settings, data)
    record = _record(settings, folder, data, delay, hyper)
    if settings.resume and artifact.begun:
        todo = "give the settings and data that it was begun with, or start over with --overwrite"
        artifact.check_same(record, todo=todo)
        if artifact.whole:
            log.info(f"{target} has been trained to the end already")
            return Trained(target, artifact.manifest["result"])
    log.info(
        f"loading {settings.model} …"
    )  # and torch, which takes seconds; what can be refused is by now

    from pipedec_cli.metrics.scoring import dev_measure
    from pipedec_cli.model.arguments import choose_device
    from pipedec_cli.model.checkpoint import MethodSettings
    from pipedec_cli.training import trainer
    from pipedec_cli.training.collate import (
        Encoded,
        check_ids,
        encode,
        fit_limits,
    )

    choose_device(settings.device)
    method = MethodSettings(  # its time_max is fitted later
        decoder=settings.decoder,
        delay=delay,
        segmentation=data.segmentation,
        empty_rows="stop" if data.teacher else "retry",
        stop_on_repeat=data.teacher is not None
        and data.segmentation.level == "sentence",
        **data.sources,
    )
    if settings.resume:
        nothing = f"nothing to resume in {target}: training starts at update 0"
        log.info(
            next(
                (f"going on from {one}" for one in trained.checkpoints(target)[-1:]),
                nothing,
            )
        )
    elif is_main():
        # else a later --resume would go on from another training
        trained.forget([*trained.checkpoints(target), *trained.best_folders(target)])
    with stage(listen, "building the model"):
        checkpoint = build_model(settings, data, method)
    texts = track(listen, data.train, len(data.train), "tokenizing")
    examples = Stored(target, encode(checkpoint, texts), Encoded)
    dev = list(encode(checkpoint, data.dev))
    fitted = fit_limits(encode(checkpoint, data.targets), fit_limits(examples, method))
    longest = (
        checkpoint.codec().max_source_tokens
    )  # the model may have fewer positions than were asked for
    time_max = settings.time_max or fitted.time_max
    checkpoint.settings = structs.replace(
        fitted, time_max=time_max, max_source_tokens=longest
    )
    if is_main():
        _check_first(checkpoint, data.train[:_FIRST], examples[:_FIRST])
        estimate(checkpoint, data, examples, dev, hyper, settings, target, listen)
        artifact.start(record)
    measure = dev_measure(data.segmentation.level)
    doubts = list[str]()
    with (
        shown(listen, Training(measure.headline[measure.primary])),
        _explain_stop(target),
    ):
        result = trainer.train(
            checkpoint,
            examples,
            dev,
            target,
            hyper,
            keep=settings.keep_checkpoints,
            show=listen,
            score=dev_scorer(checkpoint, data.dev[:32], dev[:32], doubts),
            **settings.some("resume", "log_to"),
        )
    if is_main():
        again = track(
            listen,
            data.train,
            len(data.train),
            "reading the texts with the saved tokenizer",
        )
        check_ids(checkpoint, target, again, examples)
    _say_end(result, hyper, len(examples), doubts)
    record["result"] = to_builtins(result)
    if is_main():
        artifact.finish(record["result"])  # from here on the folder holds a model
    return Trained(target, record["result"], checkpoint, record, folder, len(examples))


def _say_end(
    result: TrainResult, hyper: Hyperparameters, examples: int, doubts: Sequence[str]
) -> None:
    """Say how a training has ended, and why its model may be of no use yet."""
    if result.updates < hyper.updates(examples):
        missed = f"{many(hyper.patience or 0, 'evaluation')} without a better one"
        log.info(f"ended after {many(result.updates, 'update')}: {missed}")
    which = (
        "the last"
        if result.best_by is None
        else f"the best by {result.best_by.replace('_', ' ')}"
    )
    weights = f"its weights are those of update {result.weights_update:,}, {which}"
    log.info(
        f"trained in {duration(result.seconds)}; checkpoint in {result.checkpoint}; {weights}"
    )
    for doubt in doubts:
        log.warning(
            f"not yet a model to go on with: {doubt}. More updates or records may help"
        )


def _check_first(
    checkpoint: Checkpoint, records: Sequence[Record], examples: Sequence[Encoded]
) -> None:
    """See `check_ids`: a training whose tokenizer does not come back as it is does not begin."""
    from pipedec_cli.training.collate import check_ids

    with TemporaryDirectory() as saved:
        checkpoint.model.config.save_pretrained(saved)
        checkpoint.tokenizer.save_pretrained(saved)
        check_ids(checkpoint, Path(saved), records, examples)


def _delay(settings: TrainSettings, data: TrainingData) -> Any:
    """The delay that the model is for. The rows of fields all start at once, but for later items of lists."""
    listed = any(field.listed for field in data.segmentation.fields)
    together = (
        settings.decoder == "pipelined"
        and bool(data.segmentation.fields)
        and not listed
    )
    if together and settings.delay != "any":
        what = f"the data's fields are written at the same time: --delay {settings.delay} does not apply"
        raise UserError(what, todo="leave --delay out")
    return "together" if together else settings.delay


def _record(
    settings: TrainSettings,
    folder: Path,
    data: TrainingData,
    delay: object,
    hyper: Hyperparameters,
) -> dict[str, Any]:
    """training.json as it is begun. A training that goes on must have the same settings."""
    asked = settings.some(
        "model", "decoder", "time_max", "dev_examples", "limit", "family", "lora"
    )
    asked |= {"data": folder, "delay": delay}
    asked["processes"] = (
        count() if count() > 1 else None
    )  # with more processes other examples come together
    if data.teacher:
        asked["teacher"] = {"name": settings.teacher, "sha256": data.teacher.sha256}
    asked = {name: value for name, value in asked.items() if value is not None}
    record = manifest(
        asked | data.sources | {"training": asdict(hyper)}, inputs=data.files
    )
    return record | {
        "from_scratch": trained.start_of(settings.model or "") != "published"
    }


def build_model(
    settings: TrainSettings, data: TrainingData, method: MethodSettings
) -> Checkpoint:
    """The model before its first update; a `UserError` if there is no such model."""
    from pipedec_cli.model.arguments import DTYPES, choose_device
    from pipedec_cli.model.lora import add_adapters
    from pipedec_cli.model.scratch import start_checkpoint
    from pipedec_cli.training.loss import recompute

    teacher = data.teacher.checkpoint if data.teacher else None
    start = (settings.model or "", method, data.train, settings.seed, data.segmenter)
    frozen = DTYPES["bfloat16" if settings.lora and settings.bf16 else "float32"]
    checkpoint = start_checkpoint(*start, teacher, settings.family, frozen)
    if settings.prompted and not any(
        one.backbone.prompted for one in (checkpoint, teacher or checkpoint)
    ):
        checkpoint.prompt(
            settings.prompt_template or "", chat=bool(settings.chat)
        )  # raises the error
    if settings.lora:
        add_adapters(checkpoint.model, settings.lora, settings.seed)
    width = checkpoint.backbone.sizes(checkpoint.model.config).width
    large = width >= 512 and choose_device(settings.device).type == "cpu"
    if (
        again := settings.checkpoint_activations or ("cheap" if large else "none")
    ) != "none":
        recompute(checkpoint.model, again)
    return checkpoint


@contextmanager
def _explain_stop(target: Path) -> Iterator[None]:
    """Say how to go on after Ctrl-C or the end of another process. Make a file that cannot be written an OSError."""

    def say_stopped(reason: str) -> None:
        kept = " before there was a first checkpoint; nothing is kept"
        if any(target.glob("checkpoint-*")):
            kept = "; the same command with --resume goes on from the last checkpoint"
            for best in target.glob("best-*"):  # there is one at most
                kept += f", and `generate --model {quoted(str(best))}` takes the best weights so far"
        log.info(f"stopped{reason}{kept}")

    try:
        with naming(target):
            yield
    except KeyboardInterrupt:
        say_stopped("")
        raise
    except UserError:
        raise
    except Exception as error:
        if count() > 1 and any(words in str(error) for words in _PEER_GONE):
            say_stopped(", since another process has ended")
            raise SystemExit(1) from error  # the other process says why
        # The system's error that torch, safetensors or tokenizers wrap in theirs, if
        # there is one.
        number = None
        if found := re.search(r"\(os error (\d+)\)", str(error)):
            number = int(found[1])
        elif shutil.disk_usage(target).free < 1 << 20 or "No space left" in str(error):
            number = errno.ENOSPC
        elif "unexpected pos" not in str(error):
            raise
        # torch.save does not say which error it was.
        unknown = (
            "a file cannot be written: a quota, a limit of its size, or a broken disk"
        )
        raise OSError(
            number, unknown if number is None else os.strerror(number), str(target)
        ) from error
