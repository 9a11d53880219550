"""`pipedec train`: a checkpoint from segmented data."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs, to_builtins

from pipedec_cli.data import trained
from pipedec_cli.data.artifact import TRAINING_FILE
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.locking import only_writer
from pipedec_cli.data.reading import real, require_place
from pipedec_cli.data.records import DecoderKind, Family
from pipedec_cli.data.stored import Stored
from pipedec_cli.data.wording import many
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import manifest, write_json
from pipedec_cli.jobs.build_model import hyperparameters_of, learner, method_of
from pipedec_cli.jobs.commands import command_line
from pipedec_cli.jobs.estimate import duration, estimate
from pipedec_cli.jobs.events import Notify, Training, TrainingEnded
from pipedec_cli.jobs.resuming import check_folder, stopped
from pipedec_cli.jobs.settings import (
    WorkflowSettings,
    argument,
    chat_option,
    family_key,
    option,
    prompt_template_option,
    threads_key,
)
from pipedec_cli.jobs.train_data import Lessons, dev_scorer, gather
from pipedec_cli.model.training.processes import count, is_main

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class TrainSettings(WorkflowSettings):
    """What `pipedec train` is asked for."""

    data: Path | None = argument("A folder that `pipedec segment` wrote \\[default: the workspace's].")
    teacher: str | None = option(
        None,
        "An ordinary model, a folder or a hub name, whose own texts for the sources are learnt instead of the targets: they are "
        "generated first and kept in the workspace.",
        metavar="MODEL",
    )
    model: str | None = option(
        None,
        "Where to start: scratch-tiny, -small, -base or -large (fresh weights, a tokenizer trained on your "
        "data, no network), scratch (the teacher's shape and tokenizer), a local folder or a hub name such as google-t5/t5-base: T5, "
        "Flan-T5, mT5, UMT5, ByT5, Llama, Qwen3, SmolLM3, Gemma 3, T5Gemma, BART or PEGASUS \\[default: the teacher, else scratch-tiny].",
    )
    family: Family | None = family_key()
    decoder: DecoderKind = option(
        "pipelined", "pipelined, or sequential for the ordinary model that a report compares with."
    )
    delay: int | Literal["any"] = option(
        "any",
        "Δt that the checkpoint is for: 'any' draws schedules at random for each update, so that one "
        "checkpoint serves every delay and the waiting schedule; the paper trains for 1.",
    )
    epochs: float = option(10.0, "Passes over the training examples.", min=0.0)
    max_steps: int | None = option(None, "Stop after this many updates instead.", min=1)
    batch_size: int | None = option(
        None,
        "Examples a device and step \\[default: 8 for a model that was made from scratch, else, and with --lora, the paper's 24].",
        min=1,
    )
    accumulation: int = option(1, "Steps whose gradients make one update.", min=1)
    optimizer: Literal["adafactor", "adamw"] | None = option(
        None,
        "adafactor, whose rate is relative to the size of each matrix, or adamw "
        "\\[default: adafactor for a model that was made from scratch, else, and with --lora, adamw].",
    )
    learning_rate: float | None = option(
        None,
        "Its peak \\[default: adafactor 3e-2 from scratch (fields 1e-2), 1e-2 going on from that, else 1e-3; adamw 1e-3, 3e-4, 1e-4; "
        "with --lora 1e-2 and 2e-4].",
        min=0.0,
    )
    rate_schedule: Literal["linear", "constant"] = option(
        "linear", "Whether the rate falls to zero or stays."
    )
    warmup: float = option(0.05, "Share of the updates over which it rises.", min=0.0, max=1.0)
    bf16: bool = option(False, "Mixed precision in bfloat16.")
    checkpoint_activations: bool = option(
        False,
        "Keep only what goes into each layer for the way back and compute the rest again: a third more time, far less memory.",
    )
    lora: int | None = option(
        None,
        "Train adapters of this rank beside the linear layers of the decoder, and nothing else (LoRA), for models that do not "
        "fit otherwise; they are merged in the end. Needs `pip install '.\\[lora]'`.",
        min=1,
        max=4096,
        metavar="RANK",
    )
    keep_adapter: bool = option(
        False,
        "Of --lora: write the adapter alone, which refers to the folder of --model, and do not merge it.",
    )
    source_prefix: str | None = option(
        None,
        "Put before every source, as in T5's task prefixes ('summarize: ') \\[default: the teacher's, else none].",
    )
    prompt_template: str | None = prompt_template_option("the teacher's, else the source and a blank line")
    chat: bool | None = chat_option("the teacher's, else --no-chat")
    max_source_tokens: int | None = option(
        None,
        "Cut longer sources to this many tokens; attention costs its square \\[default: the teacher's, else 2048].",
        min=2,
        max=65_536,
    )
    time_max: int | None = option(
        None,
        "The last time-step of decoding; saved with the model \\[default: what holds 99.5 % of the training targets, and of the "
        "data's own beside a teacher's, at Δt = 1, 2 and 3, or at --delay; at least 50].",
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
    threads: int | None = threads_key()
    resume: bool = option(False, "Go on from the last checkpoint-N.")
    overwrite: bool = option(False, "Give up the model, or the unfinished training, in the folder.")
    out: Path | None = option(None, "The checkpoint's folder \\[default: models/DECODER in the workspace].")

    @property
    def prompted(self) -> bool:
        """Whether it is said what prompts are like, which encoder-decoders have not."""
        return self.prompt_template is not None or self.chat is not None


@dataclass(frozen=True)
class Trained:
    """A training that has come to its end."""

    target: Path
    result: dict[str, Any]
    checkpoint: Checkpoint | None = None  # None if it had come to its end before
    record: dict[str, Any] | None = None  # what training.json says
    data: Path | None = None  # the folder that `segment` wrote
    examples: int = 0


def train(settings: TrainSettings, notify: Notify) -> Trained:
    """Train a model, and say what comes next."""
    made = run(settings, notify)
    plain, where = settings.decoder == "sequential", settings.some("workspace")
    decoder = "sequential" if plain and settings.out is None else None
    generate = command_line("generate", settings.data, model=settings.out, decoder=decoder, **where)
    place = Workspace.find(settings.workspace)
    model = settings.out or place.model("pipelined")
    if plain and not trained.is_model(place.model("pipelined")):
        learnt = str(settings.out or place.model("sequential"))
        other = f"{command_line('train', settings.data, teacher=learnt, **where)}, which makes a pipelined decoder of it"
    elif plain or trained.is_compared(model, place.model("sequential")):
        where |= {"data": settings.data, "baseline" if plain else "model": settings.out}
        other = command_line("report", compare="sequential", **where)
    else:
        other = f"{command_line('train', settings.data, decoder='sequential', **where)}, which `report` needs to compare with"
    notify.say(f"next: {generate}, or {other}")
    return made


def run(settings: TrainSettings, notify: Notify) -> Trained:
    """Train and save the checkpoint with its manifest, without a word on what to do next."""
    place = Workspace.find(settings.workspace)
    folder = settings.data or place.require(place.data, "pipedec segment DATA")
    target, start = settings.out or place.model(settings.decoder), settings.model or settings.teacher
    settings = replace(settings, model=start or "scratch-tiny")
    require_place(settings.out, folder=True)
    for name in filter(None, {start, settings.teacher}):
        if real(name) == real(target):
            raise UserError("would be written over", where=name, todo="give another --out")
        trained.require_start(name)
    if settings.keep_adapter and (settings.lora is None or not Path(settings.model or "").is_dir()):
        what = "--keep-adapter keeps what --lora has trained beside a model in a folder"
        raise UserError(what, todo="give --lora RANK and --model FOLDER, or leave it out")
    if settings.keep_adapter and Path(settings.model or "", trained.ADAPTER).exists():
        todo = "leave --keep-adapter out, or merge that one first"
        raise UserError(
            "is itself an adapter, and one of an adapter is not read", where=settings.model, todo=todo
        )
    alone = only_writer(target, folder=True, todo="choose another --out", warn=notify.warn)
    with alone if is_main() else nullcontext():
        check_folder(target, None, settings, notify)
        notify.say(f"loading {settings.model} …")  # torch, too, which takes some seconds
        from pipedec_cli.model.arguments import choose_device

        choose_device(settings.device)  # the Trainer would take the CPU without a word where there is no GPU
        result = _train(folder, target, settings, notify)
        if is_main() and (stay := trained.keep_last(target, settings.keep_checkpoints)):
            taken = f"{trained.size(stay) / 1e6:,.0f} MB of {many(len(stay), 'checkpoint-N folder')}"
            notify.say(f"{taken} stay there; --keep-checkpoints 0 keeps none")
    return result


def _train(folder: Path, target: Path, settings: TrainSettings, notify: Notify) -> Trained:
    from pipedec_cli.evaluate.scoring import dev_measure
    from pipedec_cli.model.training.collate import encode, fit_time_max
    from pipedec_cli.model.training.trainer import train

    lessons = gather(settings, folder, notify)
    hyper, method = hyperparameters_of(settings, lessons), method_of(settings, lessons)
    told = _told(settings, lessons) | {"delay": method.delay, "training": asdict(hyper), "data": folder}
    record = manifest(told, inputs=lessons.files)
    record["from_scratch"] = trained.start_of(settings.model or "") != "published"
    if done := check_folder(target, record, settings, notify):
        notify.say(f"{target} has been trained to the end already")
        return Trained(target, done)
    checkpoint = learner(settings, lessons, method, hyper.seed)
    texts = notify.track(lessons.train, len(lessons.train), "tokenizing")
    examples = Stored(target, encode(checkpoint, texts))
    targets = (examples, encode(checkpoint, lessons.targets))
    time_max = settings.time_max or max(fit_time_max(each, method) for each in targets)
    most = checkpoint.codec().max_source_tokens  # as far as there are places
    checkpoint.settings = structs.replace(method, time_max=time_max, max_source_tokens=most)
    if is_main():
        estimate(checkpoint, examples, hyper, settings, target, notify)
        write_json(target / TRAINING_FILE, record)
    how: Any = {"resume": settings.resume, "keep": settings.keep_checkpoints}
    how |= settings.some("keep_adapter")
    measure = dev_measure(lessons.segmentation.level)
    notify(Training(measure.headline[measure.primary]))
    try:
        with stopped(target, notify):
            dev, score = list(encode(checkpoint, lessons.dev)), dev_scorer(checkpoint, lessons.dev[:32])
            outcome = train(checkpoint, examples, dev, target, hyper, show=notify, score=score, **how)
    finally:
        notify(TrainingEnded())
    result = to_builtins(outcome)
    notify.say(f"trained in {duration(outcome.seconds)}; checkpoint in {target}")
    if is_main():
        record |= {"result": result}
        write_json(target / TRAINING_FILE, record)  # from here on the folder holds a model
    return Trained(target, result, checkpoint, record, folder, len(examples))


def _told(settings: TrainSettings, lessons: Lessons) -> dict[str, Any]:
    """What training.json says of the settings, and a training that goes on must have alike."""
    told = settings.some("model", "decoder", "time_max", "dev_examples", "limit") | lessons.sources
    given = settings.some("family", "lora", "keep_adapter")  # older trainings have no such settings
    told |= {name: value for name, value in given.items() if value}
    if count() > 1:  # else other examples would come together when it is resumed
        told["processes"] = count()
    if lessons.teacher:
        told["teacher"] = {"name": settings.teacher, "sha256": lessons.teacher.sha256}
    return told
