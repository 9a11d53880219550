"""What `train` learns from: the data's own targets, or a plain model's texts, which it writes once and which are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from pipedec_cli.data.artifact import SEGMENTATION_FILE
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import read_predictions
from pipedec_cli.data.preparation import Preparer, token_counter
from pipedec_cli.data.records import Generated, Record, Segmentation, SplitName
from pipedec_cli.data.segmentation import Segmenter, joiner_of, make_segmenter
from pipedec_cli.data.stored import StoredRecords
from pipedec_cli.data.wording import many
from pipedec_cli.data.workspace import (
    load_segmentation,
    load_segmenter,
    load_split,
    read_split,
)
from pipedec_cli.jobs.commands import command_line
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate import GenerateSettings
from pipedec_cli.jobs.loading import load_decoder, read_inputs
from pipedec_cli.model.text import usual_prompt
from pipedec_cli.model.training.processes import count
from pipedec_cli.pipeline.grid import before_repeats

if TYPE_CHECKING:
    from pipedec_cli.jobs.train import TrainSettings
    from pipedec_cli.model.checkpoint import Checkpoint
    from pipedec_cli.model.decoder import Decoder


class Lessons(NamedTuple):
    """Segmented records of train and dev, the `files` that they come from, how they were cut, and how sources are read.

    Of the teacher, if there is one, config, tokenizer and settings are of use: its weights may have gone into its engine.
    """

    files: list[Path]
    train: Sequence[Record]
    dev: Sequence[Record]
    segmentation: Segmentation
    segmenter: Segmenter
    sources: dict[str, Any]  # source_prefix and max_source_tokens and, of prompts, prompt and chat
    teacher: Decoder | None = None
    #: The data's own targets where a teacher's are learnt: of its long texts many are left out, and limits are to hold such, too.
    targets: Iterable[Record] = ()


def gather(settings: TrainSettings, folder: Path, notify: Notify) -> Lessons:
    """Read a folder that `segment` wrote, or have the teacher write for its sources."""
    if settings.teacher is not None:
        return _taught(settings, folder, notify)
    train, dev = folder / "train.jsonl", folder / "dev.jsonl"
    segmentation = load_segmentation(folder / SEGMENTATION_FILE)
    dev_records = load_split(dev)[: settings.dev_examples] if dev.exists() else []
    prefix, most = settings.source_prefix or "", settings.max_source_tokens or 2048
    sources = {"source_prefix": prefix, "max_source_tokens": most} | _prompt(settings)
    how = (segmentation, load_segmenter(folder, segmentation), sources)
    records = notify.track(islice(read_split(train), settings.limit), settings.limit, "reading the examples")
    return Lessons([train], StoredRecords(folder, records), dev_records, *how)


def _prompt(settings: TrainSettings) -> dict[str, Any]:
    """What was asked for of prompts; nothing where nothing was."""
    if not settings.prompted:
        return {}
    chat, template = bool(settings.chat), settings.prompt_template
    return {"prompt": usual_prompt(chat=chat) if template is None else template, "chat": chat}


def _taught(settings: TrainSettings, folder: Path, notify: Notify) -> Lessons:
    """What the teacher wrote and, now, writes, where it comes to an end. A `UserError` if it is no ordinary model."""
    train, dev = folder / "train.jsonl", folder / "dev.jsonl"
    segmentation = load_segmentation(folder / SEGMENTATION_FILE)
    data = None if settings.data is None else str(settings.data)
    asked = settings.some("workspace", "source_prefix", "max_source_tokens", "device")
    usual = GenerateSettings(model=settings.teacher, data=data, trace=False, **asked)
    decoder = load_decoder(usual, notify, role="the teacher ")
    if decoder.text.prompt is not None:
        usual = replace(usual, **settings.some("prompt_template", "chat"))
        decoder.read_sources(usual.prompt_template, chat=usual.chat)
    if decoder.settings.decoder != "sequential":
        todo = "name an ordinary model with --teacher"
        raise UserError(f"{decoder.checkpoint.name} is a pipelined decoder, and no teacher", todo=todo)
    if decoder.checkpoint.settings is None:  # its texts are cut as these data are, wherever they lie
        decoder.checkpoint.segmenter = load_segmenter(folder, segmentation)
    splits: dict[SplitName, int | None] = {"train": settings.limit}
    if settings.dev_examples and dev.exists() and dev.stat().st_size:
        splits["dev"] = settings.dev_examples
    files = [
        _write(replace(usual, split=split, limit=limit), decoder, notify) for split, limit in splits.items()
    ]
    told = {split: [*read_predictions(path)] for split, path in zip(splits, files, strict=True)}
    segmenter = load_segmenter(folder, segmentation)
    records = [_told(one) for one in told["train"] if one.record and not one.truncated]
    if records and all(record.target_segments is None for record in records):  # there were no targets
        texts, inputs = zip(*((record.target or "", record.source) for record in records), strict=True)
        kind: Any = {"separators": segmentation.separators, "fields": segmentation.fields}
        segmenter = make_segmenter(segmentation.level, texts, inputs, **kind)
        segmentation = structs.replace(segmentation, joiner=joiner_of(records, segmenter))
    prepare = Preparer(
        segmenter, segmentation, token_counter(None), time_max=1, each_once=segmentation.level != "sentence"
    )
    cut = {split: _lessons(rows, split, prepare, notify) for split, rows in told.items()}
    if not cut["train"]:
        todo = "train the teacher until it ends its texts, or take another"
        raise UserError("none of the teacher's texts can be learnt from", where=str(files[0]), todo=todo)
    if again := prepare.counts.repeated:
        notify.say(
            f"{many(again, 'subsequence')} that the teacher had said before in the same text: left out"
        )
    sources = decoder.text.described
    if decoder.text.prompt is None:
        sources |= _prompt(settings)  # of what is trained, which it cannot tell
    how = (segmentation, segmenter, sources)
    own = islice(read_split(train, need_target=False), settings.limit)
    targets = notify.track(own, settings.limit, "measuring the targets")
    return Lessons([train, *files], cut["train"], cut.get("dev", []), *how, decoder, targets)


def _write(settings: GenerateSettings, decoder: Decoder, notify: Notify) -> Path:
    """The file of the teacher's texts for a split, whole; several processes that train do not write it."""
    from pipedec_cli.jobs.predicting import Predictions

    predictions = Predictions(settings, decoder, read_inputs(settings, notify), notify)
    if count() > 1 and not predictions.whole():
        asked = settings.some("model", "split", "limit", "workspace", "source_prefix", "max_source_tokens")
        asked |= {"prompt_template": settings.prompt_template}
        asked |= {"chat": settings.chat is True, "no-chat": settings.chat is False}
        options = {name.replace("_", "-"): value for name, value in asked.items()}
        todo = f"write them with one process first: {command_line('generate', settings.data, **options)}"
        raise UserError(f"the teacher's texts for {settings.split} are not all there", todo=todo)
    return predictions.complete(f"the teacher's texts for {settings.split}")


def _told(one: Generated) -> Record:
    """The record with a teacher's text for its target."""
    assert one.record is not None, "generated from a record"
    return structs.replace(one.record, target=one.text, target_fields=one.fields, references=())


def _lessons(told: list[Generated], split: SplitName, prepare: Preparer, notify: Notify) -> list[Record]:
    """Records cut into subsequences; sentences as far as decoding goes by what is taught, others each learnt once.

    Where a text of sentences repeats itself it ends, for a model that learns to repeat itself does not end, either; one
    that a limit cut before is left out.
    """
    how, lessons, stopped_on_repeat = prepare.segmentation, list[Record](), 0
    for one in told:
        record, whole = structs.replace(_told(one), target_segments=None), one.truncated is None
        if how.level == "sentence":
            segments = prepare.segmenter.cut(one.text)
            kept = segments[: before_repeats(segments)]
            if len(kept) < len(segments):
                stopped_on_repeat, whole = stopped_on_repeat + 1, True
                record = structs.replace(record, target=how.joiner.join(kept), target_segments=kept)
        if whole:
            lessons.append(prepare.segment(record))
    if left := len(told) - len(lessons):
        notify.say(
            f"{left:,} of the teacher's {many(len(told), 'text')} for {split} were cut short: left out"
        )
    if stopped_on_repeat:
        notify.say(
            f"{stopped_on_repeat:,} of the teacher's {many(len(told), 'text')} for {split} began to repeat themselves: learnt up to there"
        )
    return lessons


def dev_scorer(checkpoint: Checkpoint, records: Sequence[Record]) -> Callable[[], float] | None:
    """The score of texts generated from a few dev records, as `pipedec generate` would make them."""
    from pipedec_cli.evaluate.scoring import dev_measure, score_predictions
    from pipedec_cli.model.decoder import Decoder
    from pipedec_cli.model.training.collate import encode
    from pipedec_cli.model.training.lora import merged

    if not records or checkpoint.settings is None:
        return None
    measure = dev_measure(checkpoint.settings.segmentation.level)
    # A model that has not learnt to stop yet is not waited for.
    longest = 2 * max(sum(map(len, example.texts)) for example in encode(checkpoint, records)) + 1

    def score_dev() -> float:
        checkpoint.model.eval()
        with merged(checkpoint.model):
            decoder = Decoder(checkpoint, batch_size=8)  # made anew, since the weights have changed
            method = decoder.method(max_tokens=longest if decoder.settings.decoder == "sequential" else None)
            made = [*decoder.texts([record.source for record in records], method)]
        pairs = zip(made, records, strict=True)
        _, scores = score_predictions((structs.replace(one, record=record) for one, record in pairs), measure)
        checkpoint.model.train()
        return scores.values[measure.primary] or 0.0

    return score_dev
