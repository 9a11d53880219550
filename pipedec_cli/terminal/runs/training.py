"""What `pipedec train` does, from the segmented files to the saved checkpoint, and what it says on the way."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import DecoderKind, Record
from pipedec_cli.data.workspace import Workspace, load_segmentation, load_segmenter, load_split
from pipedec_cli.data.writing import manifest, read_json, to_json, write_json
from pipedec_cli.evaluate.items import ScoringItem
from pipedec_cli.evaluate.scoring import score
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.model.collate import Encoded, encode
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.start import estimate, start_checkpoint
from pipedec_cli.model.train_settings import TrainSettings
from pipedec_cli.model.training import train
from pipedec_cli.terminal.console import Talk, write_stdout
from pipedec_cli.terminal.views.training import TrainingView, duration

#: What made a checkpoint, in its folder; with a ``result`` once training has ended.
MANIFEST: Final = "training.json"
#: Dev examples that are generated from at each look.
SCORED = 32


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What was asked for: the settings of one training, resolved."""

    model: str
    decoder: DecoderKind
    delay: int | Literal["any"]
    source_prefix: str
    max_source_tokens: int
    time_max: int
    dev_examples: int
    limit: int | None
    resume: bool
    overwrite: bool
    training: TrainSettings


def run_training(
    request: TrainRequest,
    *,
    data: Path | None,
    out: Path | None,
    workspace: Path | None,
    talk: Talk,
    as_json: bool,
) -> None:
    """Train as requested and save the checkpoint with its manifest."""
    place = Workspace.find(workspace)
    folder = data or place.require(place.data, "pipedec segment DATA")
    target = out or place.model(request.decoder)
    records = load_split(folder / "train.jsonl")[: request.limit]
    dev_path = folder / "dev.jsonl"
    dev_records = load_split(dev_path)[: request.dev_examples] if dev_path.exists() else []
    settings = MethodSettings(
        decoder=request.decoder,
        delay=request.delay,
        segmentation=load_segmentation(folder / "segmentation.json"),
        source_prefix=request.source_prefix,
        max_source_tokens=request.max_source_tokens,
        time_max=request.time_max,
    )
    resolved = {
        **{name: value for name, value in asdict(request).items() if name not in ("resume", "overwrite")},
        "data": str(folder),
    }
    record = manifest(resolved, inputs=[folder / "train.jsonl"])
    _check_folder(target, record, request)
    checkpoint = start_checkpoint(
        request.model, settings, records, request.training.seed, load_segmenter(folder)
    )
    examples = encode(checkpoint, records)
    if not is_main_process():
        talk, as_json = Talk(quiet=True), False
    _warn_of_misfits(examples, settings, talk)
    _announce(checkpoint, examples, request, target, talk)
    if is_main_process():
        write_json(target / MANIFEST, record)
    with TrainingView(talk) as view, _stopped(target, talk):
        outcome = train(
            checkpoint,
            examples,
            encode(checkpoint, dev_records),
            target,
            request.training,
            resume=request.resume,
            show=view.show,
            score=_scorer(checkpoint, dev_records[:SCORED]),
        )
    result = {"checkpoint": str(target), **outcome}
    if is_main_process():
        write_json(target / MANIFEST, {**record, "result": result})
    talk.say(f"trained in {duration(outcome['seconds'])}; checkpoint in {target}")
    if as_json:
        write_stdout(to_json(result) + "\n")


def _check_folder(target: Path, record: Mapping[str, Any], request: TrainRequest) -> None:
    """See to it that nothing is lost or mixed: a training is resumed as it was begun, a model given up on purpose.

    Raises:
        UserError: the folder holds a model, or an unfinished training, that was neither to be resumed nor given up; or
            one that was begun with other settings.
    """
    path = target / MANIFEST
    before = read_json(path) if path.exists() else {}
    begun = any(target.glob("checkpoint-*"))
    if request.resume:
        wanted = json.loads(to_json(record))
        for part in ("inputs", "settings"):
            if begun and before.get(part) != wanted[part]:
                raise UserError(
                    f"the training in {target} was begun otherwise: {_changed(before.get(part), wanted[part])}",
                    todo="give the settings and data that it was begun with, or start over with --overwrite",
                )
        return
    if begun and "result" not in before and not request.overwrite:
        raise UserError(
            f"{target} holds an unfinished training",
            todo="go on with --resume and the settings that it was begun with, or start over with --overwrite",
        )
    if "result" in before and not request.overwrite:
        raise UserError(
            f"{target} holds a trained model",
            todo="replace it with --overwrite, or keep both with --out FOLDER",
        )
    if is_main_process():
        for old in target.glob("checkpoint-*"):  # a later --resume must not pick up another training's
            shutil.rmtree(old)


def _changed(before: Any, wanted: Any) -> str:
    """The settings that differ, in words."""
    if not isinstance(before, dict) or not isinstance(wanted, dict):
        return "with other data"
    old, new = _flat(before), _flat(wanted)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(
        f"{name} was {to_json(old.get(name))} and is now {to_json(new.get(name))}" for name in names
    )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the tables that some of them stand in."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat


@contextmanager
def _stopped(target: Path, talk: Talk) -> Iterator[None]:
    """Say how to go on after Ctrl-C, and give a full disk its name."""
    try:
        yield
    except KeyboardInterrupt:
        if any(target.glob("checkpoint-*")):
            talk.say("stopped; the same command with --resume goes on from the last checkpoint")
        else:
            talk.say("stopped before there was a first checkpoint; nothing is kept")
        raise
    except Exception as error:
        # torch and safetensors wrap what the system says.
        if shutil.disk_usage(target).free < 1 << 20 or "No space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error
        raise


def is_main_process() -> bool:
    """Whether this is the process that writes and talks, under torchrun."""
    return os.environ.get("RANK", "0") == "0"


def _announce(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    request: TrainRequest,
    target: Path,
    talk: Talk,
) -> None:
    expected = estimate(checkpoint, examples, request.training)
    talk.say(
        f"{request.model}: {expected.parameters / 1e6:.1f} M parameters, {request.decoder} decoder"
        + (f", delay {request.delay}" if request.decoder == "pipelined" else "")
        + f", {request.training.optimizer} at a learning rate of {request.training.learning_rate:g}"
    )
    talk.say(
        f"{len(examples):,} examples, {expected.updates:,} updates of {request.training.batch_size}: "
        f"about {duration(expected.seconds)}, {expected.bytes / 1e6:,.0f} MB of disk in {target}"
    )
    room = shutil.disk_usage(next(folder for folder in (target, *target.parents) if folder.exists())).free
    if room < expected.bytes:
        raise UserError(
            f"training needs {expected.bytes / 1e6:,.0f} MB of disk, {room / 1e6:,.0f} MB are free",
            where=str(target),
            todo="free some, or give --out on another disk",
        )


def _warn_of_misfits(examples: Sequence[Encoded], settings: MethodSettings, talk: Talk) -> None:
    """Say what the token counts show and words did not: cut sources, and subsequences too long for the grid."""
    cut = sum(example.cut > 0 for example in examples)
    if cut:
        talk.warn(
            f"{cut:,} of {len(examples):,} sources are longer than {settings.max_source_tokens:,} tokens and were cut"
        )
    if settings.decoder == "sequential":
        return
    late = sum(any(len(text) + 1 > settings.time_max for text in example.texts) for example in examples)
    if late:
        talk.warn(
            f"{late:,} of {len(examples):,} targets hold a subsequence that needs more than time_max = "
            f"{settings.time_max} time-steps and could not be generated whole; see `pipedec segment --split-long`"
        )


def _scorer(checkpoint: Checkpoint, records: Sequence[Record]) -> Callable[[], float] | None:
    """ROUGE-L of texts generated from a few dev records, as `pipedec generate` would make them."""
    if not records:
        return None
    sources = [record.source for record in records]
    # A model that has not learnt to stop yet is not waited for.
    longest = 2 * max(sum(map(len, example.texts)) for example in encode(checkpoint, records)) + 1

    def score_dev() -> float:
        checkpoint.model.eval()
        decoder = Decoder(checkpoint, batch_size=8)  # the weights have changed: it is made anew
        bound = longest if decoder.settings.decoder == "sequential" else None
        texts = [generated.text for generated in decoder.texts(sources, decoder.method(max_tokens=bound))]
        checkpoint.model.train()
        items = [
            ScoringItem(record.id, text, (text,), references=record.references or (record.target or "",))
            for record, text in zip(records, texts, strict=True)
        ]
        return score(items, "summarization").values["rougeL"] or 0.0

    return score_dev
