"""`pipedec train`: train a model on segmented data, or on the texts of a teacher."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs, to_builtins

from pipedec_cli.data import trained
from pipedec_cli.data.errors import UserError, duration, log, many
from pipedec_cli.data.reading import real, require_place, require_writable
from pipedec_cli.data.records import Record
from pipedec_cli.data.resumable import SEGMENTATION_FILE, Artifact
from pipedec_cli.data.stored import Stored
from pipedec_cli.data.workspace import load_segmentation
from pipedec_cli.data.writing import manifest, write_together
from pipedec_cli.events import Listen, Training, shown, silent, stage, track
from pipedec_cli.jobs.command_lines import (
    all_sources,
    command_line,
    sequential_training,
)
from pipedec_cli.jobs.dev_score import DevScorer
from pipedec_cli.jobs.estimate import Prepared, estimate
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.gpus import only_gpu
from pipedec_cli.jobs.loading import WORKSPACE_MODELS, find_model
from pipedec_cli.jobs.pages import page_at
from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.settings import spelled
from pipedec_cli.jobs.stopping import explain_stop
from pipedec_cli.jobs.train_settings import KEPT_CHECKPOINTS, TrainSettings
from pipedec_cli.jobs.training_data import TrainingData, load_data
from pipedec_cli.model.text import PROMPT
from pipedec_cli.training.hyperparameters import (
    Hyperparameters,
    TrainResult,
    is_main,
    process_count,
    usual_tuning,
)

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
    from pipedec_cli.training.encoded import Encoded

_DEFAULT_MODEL: Final = "scratch-tiny"
#: So many texts are read with the saved tokenizer before a training begins; all of them
#: when it has ended.
_FIRST: Final = 200
#: So many texts of the dev set are generated and scored.
_SCORED: Final = 32
#: A model of at least this width is large for a CPU.
_WIDE: Final = 512


@dataclass(frozen=True)
class Trained:
    """A finished training. `checkpoint`, `record` and `data` are None if it had been finished before."""

    target: Path
    result: dict[str, Any]
    checkpoint: Checkpoint | None = None
    record: dict[str, Any] | None = None  # training.json
    data: Path | None = None  # the folder that `segment` wrote
    examples: int = 0
    is_asked: bool = False  # whether the model was taught to answer questions


def train(settings: TrainSettings, listen: Listen = silent) -> Trained:
    """Train a model, and say which commands come next."""
    training = run(settings, listen)
    if is_main():
        _say_kept(trained.checkpoints(training.target))
    _say_next(settings, training.target, is_asked=training.is_asked)
    return training


def _say_kept(folders: Sequence[Path]) -> None:
    """Say what the checkpoints of a training take that has ended."""
    if not folders:
        return
    paths = [path for folder in folders for path in folder.rglob("*")]
    size = sum(path.stat().st_size for path in paths if path.is_file())
    kept = many(len(folders), "checkpoint-N folder")
    log.info(f"{size / 1e6:,.0f} MB of {kept} stay there, and may be deleted")


def _say_next(settings: TrainSettings, target: Path, *, is_asked: bool) -> None:
    """Say how to generate with the model, which `is_asked` questions or writes texts, and how to compare it."""
    workspace = settings.workspace
    model = _typed(settings.out)
    if model is None and settings.decoder == "sequential":
        model = "sequential"
    data = _typed(settings.data)
    generate = GenerateSettings(data=data, workspace=workspace, model=model)
    if is_asked:
        command = command_line("generate", replace(generate, data="DATA"))
        asked = f"`{command} --schema SCHEMA.json`, for any schema"
        report = ReportSettings(data="SET", workspace=workspace, model=model)
        compare = command_line("report", report)
        log.info(f"next: {asked}, or `{compare}`, for a set with its schema")
        return
    commands = f"`{command_line('generate', generate)}`"
    every = all_sources(settings.data or settings.place.data, model, workspace)
    if settings.teacher and every:
        commands += f" for the test split, `{every}` for all sources"
    log.info(f"next: {commands}, or {_comparison(settings, target)}")


def _comparison(settings: TrainSettings, target: Path) -> str:
    """The command that compares the model, or that trains what it is compared with."""
    place = settings.place
    sequential = settings.decoder == "sequential"
    if sequential and not trained.is_model(place.model("pipelined")):
        same = TrainSettings(data=settings.data, workspace=settings.workspace)
        command = command_line("train", replace(same, teacher=str(target)))
        return f"`{command}`, which makes a pipelined decoder of it"
    if sequential or trained.is_compared(target, place.model("sequential")):
        out = _typed(settings.out)
        report = ReportSettings(
            data=_typed(settings.data),
            workspace=settings.workspace,
            baseline=out if sequential else None,
            model=None if sequential else out,
        )
        return f"`{command_line('report', report)}`"
    command = sequential_training(str(target), settings.workspace)
    return f"`{command}`, which `report` needs to compare with"


def _typed(path: Path | None) -> str | None:
    return None if path is None else str(path)


def run(settings: TrainSettings, listen: Listen = silent) -> Trained:
    """Train a model and save it with its manifest, training.json."""
    place = settings.place
    data = settings.data or place.require(place.data, "pipedec segment DATA")
    segmentation = data / SEGMENTATION_FILE
    is_asked = segmentation.exists() and bool(load_segmentation(segmentation).sets)
    if is_asked:
        settings = _of_questions(settings)
    artifact = Artifact.training(settings.out or place.model(settings.decoder))
    artifact.spell = partial(spelled, kind=type(settings))
    settings = _with_folders(settings)
    _check_settings(settings, artifact.path)
    model = settings.model or settings.teacher or _DEFAULT_MODEL
    settings = replace(settings, model=model)
    with artifact.lock() if is_main() else nullcontext():
        if is_main() and artifact.begun:
            _clean(artifact.path)
        if not settings.overwrite:
            _require_free(artifact, is_resumed=settings.resume)
        with only_gpu(settings.device) as device:
            training = _train(artifact, data, replace(settings, device=device), listen)
        if is_main():
            written = trained.checkpoints(artifact.path)
            trained.forget(written[:-KEPT_CHECKPOINTS])
            write_card_and_page(training)
    return replace(training, is_asked=is_asked)


def _clean(folder: Path) -> None:
    """Remove what a killed training was writing."""
    left = trained.clean(folder)
    if left:
        names = ", ".join(left)
        log.info(f"a training that was killed left {names} half written: removed")


def _require_free(artifact: Artifact, *, is_resumed: bool) -> None:
    """Refuse a folder whose model or training would be lost without --overwrite."""
    folder = artifact.path
    if trained.is_model(folder) and not artifact.begun:
        todo = "give another --out, or replace it with --overwrite"
        what = f"{folder} holds a model that `pipedec train` did not write"
        raise UserError(what, todo=todo)
    if is_resumed:
        return
    if artifact.whole:
        todo = "replace it with --overwrite, or keep both with --out FOLDER"
        raise UserError(f"{folder} holds a trained model", todo=todo)
    if trained.checkpoints(folder):
        todo = "go on with --resume and the settings that it was begun with, or start over with --overwrite"
        raise UserError(f"{folder} holds an unfinished training", todo=todo)


def write_card_and_page(training: Trained) -> None:
    """Write the model card and the page of a training, if it has just ended and was not finished before."""
    from pipedec_cli.view.model_card import training_sheets, write_card

    checkpoint = training.checkpoint
    record = training.record
    target = training.target
    if checkpoint and record and training.data:
        write_card(target, checkpoint, record, training.data, training.examples)
        sheets = training_sheets(checkpoint, record)
        page = target / "training.html"
        write_together(page_at(page, target.name, record["result"], sheets), last=page)


def _check_settings(settings: TrainSettings, target: Path) -> None:
    """Refuse settings that do not fit together, and files that cannot be used. Nothing is loaded for it."""
    if settings.resume and settings.overwrite:
        what = "--resume and --overwrite are both given"
        raise UserError(what, todo="give one of them")
    if settings.max_steps and settings.asked("epochs"):
        log.warning("--epochs does not count: --max-steps says when the training ends")
    is_asked = settings.asked("delay") and not settings.recipe
    if settings.decoder == "sequential" and is_asked:
        log.warning("--delay does not count: a sequential decoder has no Δt")
    require_place(settings.out, folder=True)
    require_writable(target)
    if settings.data is not None:
        _require_segmented(settings.data)
    for package in settings.log_to:
        if find_spec(package) is None:
            what = f"log_to={package} needs {package}, which is not installed"
            raise UserError(what, todo=f"pip install {package}")
    for name in (settings.model, settings.teacher):
        if name:
            _check_start(name, target)


def _with_folders(settings: TrainSettings) -> TrainSettings:
    """The settings with the folders of models that the workspace has a name for."""
    place = settings.place
    if settings.model in WORKSPACE_MODELS:
        settings = replace(settings, model=find_model(settings.model, place))
    if settings.teacher in WORKSPACE_MODELS:
        settings = replace(settings, teacher=find_model(settings.teacher, place))
    return settings


def _of_questions(settings: TrainSettings) -> TrainSettings:
    """The settings for data of several sorts, which an ordinary model learns: a question for each key."""
    settings.refuse(
        "delay", "prompt_template", "time_max", what="does not apply to questions"
    )
    return replace(settings, decoder="sequential")


def _require_segmented(data: Path) -> None:
    """A `UserError` if the data are no folder."""
    if not data.exists():
        todo = "give the folder that `pipedec segment` wrote"
        raise UserError("no such folder", where=data, todo=todo)
    if data.is_file():
        todo = "run `pipedec segment` on it, and give the folder that it writes"
        raise UserError("is a file", where=data, todo=todo)


def _check_start(name: str, target: Path) -> None:
    """A `UserError` if a training that writes to the target cannot start from the model of this name."""
    if real(name) == real(target):
        raise UserError("would be written over", where=name, todo="give another --out")
    trained.require_start(name)


def _train(
    artifact: Artifact, folder: Path, settings: TrainSettings, listen: Listen
) -> Trained:
    """Train on the data of a `folder`, once it is clear that the artifact is not that of a training with other settings."""
    data = load_data(settings, folder, listen)
    hyper = _hyperparameters(settings, data)
    delay = _delay(settings, data)
    record = _record(settings, folder, data, delay, hyper)
    if settings.resume and artifact.begun:
        todo = "give the settings and data that it was begun with, or start over with --overwrite"
        artifact.check_same(record, todo=todo)
        if artifact.whole:
            log.info(f"{artifact.path} has been trained to the end already")
            return Trained(artifact.path, artifact.manifest["result"])
    # Torch is imported as well, which takes seconds: what can be refused was, by now.
    log.info(f"loading {settings.model} …")
    from pipedec_cli.model.arguments import choose_device
    from pipedec_cli.training.collate import check_ids

    choose_device(settings.device)
    _say_start(settings, artifact.path)
    with stage(listen, "building the model"):
        checkpoint = build_model(settings, data, _method(settings, data, delay))
    examples, dev = _encode(checkpoint, data, settings, artifact.path, listen)
    prepared = Prepared(checkpoint, data, examples, dev, hyper, settings, artifact.path)
    if is_main():
        _check_first(checkpoint, data.train[:_FIRST], examples[:_FIRST])
        estimate(prepared, listen)
        artifact.start(record)
    result, doubts = _learn(prepared, listen)
    if is_main():
        label = "reading the texts with the saved tokenizer"
        again = track(listen, examples, len(examples), label)
        check_ids(checkpoint, artifact.path, data.train, again)
    _say_end(result, hyper, len(examples), doubts)
    record["result"] = to_builtins(result)
    if is_main():
        artifact.finish(record["result"])  # from here on the folder holds a model
    return Trained(
        artifact.path, record["result"], checkpoint, record, folder, len(examples)
    )


def _hyperparameters(settings: TrainSettings, data: TrainingData) -> Hyperparameters:
    """How to train, as the settings say, and else as is usual for the start."""
    usual = usual_tuning(
        trained.start_of(settings.model or "", adapters=settings.lora is not None),
        fields=bool(data.segmentation.fields),
        optimizer=settings.optimizer,
    )
    rate = settings.learning_rate
    return Hyperparameters(
        epochs=settings.epochs,
        batch_size=settings.batch_size or usual["batch_size"],
        accumulation=settings.accumulation,
        optimizer=usual["optimizer"],
        learning_rate=usual["learning_rate"] if rate is None else rate,
        schedule="linear",
        bf16=settings.bf16,
        seed=settings.seed,
        evaluations=None,
        max_steps=settings.max_steps,
        cpu=settings.device == "cpu",
        keep=settings.keep,
        patience=settings.patience,
    )


def _method(settings: TrainSettings, data: TrainingData, delay: Any) -> MethodSettings:
    """What the model is trained for; its time_max is fitted later."""
    from pipedec_cli.model.checkpoint import MethodSettings

    taught = data.teacher is not None
    return MethodSettings(
        decoder=settings.decoder,
        delay=delay,
        segmentation=data.segmentation,
        empty_rows="stop" if taught else "retry",
        stop_on_repeat=taught and data.segmentation.level == "sentence",
        questions=bool(data.segmentation.sets),
        **data.sources,
    )


def _say_start(settings: TrainSettings, target: Path) -> None:
    """Say where a resumed training goes on. Remove what is there of another training."""
    written = trained.checkpoints(target)
    if not settings.resume:
        if is_main():
            # Otherwise a later --resume would go on from another training.
            trained.forget(written)
    elif written:
        log.info(f"going on from {written[-1]}")
    else:
        log.info(f"nothing to resume in {target}: training starts at update 0")


def _encode(
    checkpoint: Checkpoint,
    data: TrainingData,
    settings: TrainSettings,
    target: Path,
    listen: Listen,
) -> tuple[Sequence[Encoded], list[Encoded]]:
    """The examples of train and dev as token ids; those of train are kept in a temporary file in the folder `target`.

    The checkpoint's settings are changed: its limits are fitted to the examples of train
    and to the other targets of the data.
    """
    from pipedec_cli.training.collate import encode, fit_limits
    from pipedec_cli.training.encoded import Encoded

    assert checkpoint.settings is not None, "it has them before it is trained"
    texts = track(listen, data.train, len(data.train), "tokenizing")
    examples = Stored(target, encode(checkpoint, texts), Encoded)
    dev = [*encode(checkpoint, data.dev)]
    fitted = fit_limits(examples, checkpoint.settings)
    fitted = fit_limits(encode(checkpoint, data.targets), fitted)
    checkpoint.settings = structs.replace(
        fitted,
        time_max=settings.time_max or fitted.time_max,
        # The model may have fewer positions than were asked for.
        max_source_tokens=checkpoint.codec().max_source_tokens,
    )
    return examples, dev


def _learn(training: Prepared, listen: Listen) -> tuple[TrainResult, Sequence[str]]:
    """Make all updates; the result, and why the best texts for the dev set are of no use yet."""
    from pipedec_cli.metrics.scoring import dev_measure
    from pipedec_cli.training import trainer

    data = training.data
    settings = training.settings
    measure = dev_measure(data.segmentation.level)
    metric = measure.headline[measure.primary]
    scorer = None
    if training.dev and not training.checkpoint.questions:
        scored = training.dev[:_SCORED]
        scorer = DevScorer(training.checkpoint, data.dev[:_SCORED], scored)
    with shown(listen, Training(metric)), explain_stop(training.target):
        result = trainer.train(
            training.checkpoint,
            training.examples,
            training.dev,
            training.target,
            training.hyper,
            resume=settings.resume,
            keep=KEPT_CHECKPOINTS,
            log_to=settings.log_to,
            show=listen,
            score=scorer,
        )
    return result, scorer.doubts if scorer else ()


def _say_end(
    result: TrainResult, hyper: Hyperparameters, examples: int, doubts: Sequence[str]
) -> None:
    """Say how a training has ended, and why its model may be of no use yet."""
    if result.updates < hyper.updates(examples):
        missed = f"{many(hyper.patience or 0, 'evaluation')} without a better one"
        log.info(f"ended after {many(result.updates, 'update')}: {missed}")
    which = "the last"
    if result.best_by is not None:
        which = f"the best by {result.best_by.replace('_', ' ')}"
    log.info(
        f"trained in {duration(result.seconds)}; checkpoint in {result.checkpoint}; "
        f"its weights are those of update {result.weights_update:,}, {which}"
    )
    for doubt in doubts:
        what = f"not yet a model to go on with: {doubt}"
        log.warning(f"{what}. More updates or records may help")


def _check_first(
    checkpoint: Checkpoint, records: Sequence[Record], examples: Sequence[Encoded]
) -> None:
    """Refuse a training whose tokenizer, saved and loaded again, makes other tokens of the records than the `examples` have."""
    from pipedec_cli.training.collate import check_ids

    with TemporaryDirectory() as saved:
        checkpoint.model.config.save_pretrained(saved)
        checkpoint.tokenizer.save_pretrained(saved)
        check_ids(checkpoint, Path(saved), records, examples)


def _delay(settings: TrainSettings, data: TrainingData) -> Any:
    """The delay that the model is trained for, as its settings hold it.

    Of objects it is "together": the rows of all keys start at once. Only of those with
    lists of objects it is that of the settings, by which later items start.
    """
    fields = data.segmentation.fields
    has_lists = any(field.listed for field in fields)
    if settings.decoder == "sequential" or not fields or has_lists:
        return settings.delay
    if settings.delay != "any":
        what = f"the data's fields are written at the same time: --delay {settings.delay} does not apply"
        raise UserError(what, todo="leave --delay out")
    return "together"


def _record(
    settings: TrainSettings,
    folder: Path,
    data: TrainingData,
    delay: object,
    hyper: Hyperparameters,
) -> dict[str, Any]:
    """The content of training.json as a training begins; one that goes on must have the same settings."""
    given = {
        "model": settings.model,
        "decoder": settings.decoder,
        "time_max": settings.time_max,
        "limit": settings.limit,
        "lora": settings.lora,
        "data": folder,
        "delay": delay,
    }
    if process_count() > 1:
        # With more processes other examples come together.
        given["processes"] = process_count()
    if data.teacher:
        given["teacher"] = {"name": settings.teacher, "sha256": data.teacher.sha256}
    kept = {name: value for name, value in given.items() if value is not None}
    kept |= data.sources
    kept["training"] = asdict(hyper)
    from_scratch = trained.start_of(settings.model or "") != "published"
    return {**manifest(kept, inputs=data.files), "from_scratch": from_scratch}


def build_model(
    settings: TrainSettings, data: TrainingData, method: MethodSettings
) -> Checkpoint:
    """The model before its first update; a `UserError` if there is no such model."""
    from pipedec_cli.model.arguments import DTYPES
    from pipedec_cli.model.lora import add_adapters
    from pipedec_cli.model.scratch import start_checkpoint

    teacher = data.teacher.checkpoint if data.teacher else None
    checkpoint = start_checkpoint(
        settings.model or "",
        method,
        data.train,
        settings.seed,
        segmenter=data.segmenter,
        like=teacher,
        dtype=DTYPES["bfloat16" if settings.lora and settings.bf16 else "float32"],
    )
    if method.questions:
        _ask(checkpoint, settings)
    has_prompt = (teacher or checkpoint).backbone.prompted
    if "prompt" in data.sources and not (has_prompt or checkpoint.backbone.prompted):
        # What was asked for is a text before the source.
        prefix = checkpoint.prefix(settings.prompt_template, chat=settings.chat)
        checkpoint.settings = structs.replace(
            method, source_prefix=prefix, prompt=PROMPT, chat=False
        )
    if settings.lora:
        add_adapters(checkpoint.model, settings.lora, settings.seed)
    _save_memory(checkpoint, settings)
    return checkpoint


def _ask(checkpoint: Checkpoint, settings: TrainSettings) -> None:
    """Let a model learn questions: turns of its chat, if it has one, or lines of a text.

    A `UserError` for a model that cannot be asked so.
    """
    assert checkpoint.settings is not None, "it has them before it is trained"
    if not checkpoint.backbone.prompted:
        what = f"{checkpoint.name} is a {checkpoint.backbone.name}: only a decoder-only model learns questions"
        raise UserError(what, todo="take another --model, such as scratch-tiny-llama")
    chat = settings.chat
    if chat is None:
        chat = bool(checkpoint.tokenizer.chat_template)
    checkpoint.settings = structs.replace(checkpoint.settings, chat=chat)
    checkpoint.end_as_usual()
    checkpoint.model.config.eos_token_id = checkpoint.eos


def _save_memory(checkpoint: Checkpoint, settings: TrainSettings) -> None:
    """Let a large model on a CPU compute activations again in the backward pass.

    There the system ends a process that takes too much: nothing is left to try again,
    as `fit_memory` does on a GPU.
    """
    from pipedec_cli.model.arguments import choose_device
    from pipedec_cli.training.loss import recompute

    width = checkpoint.backbone.sizes(checkpoint.model.config).width
    if width >= _WIDE and choose_device(settings.device).type == "cpu":
        recompute(checkpoint.model)
