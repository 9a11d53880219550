"""The data of a training: the targets of the data set, or the texts that a teacher writes for its sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from pipedec_cli.data.artifact import SEGMENTATION_FILE
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import read_predictions
from pipedec_cli.data.preparation import Preparer, token_counter
from pipedec_cli.data.records import Generated, Record, Segmentation, SplitName
from pipedec_cli.data.segmentation import Segmenter, joiner_of, make_segmenter
from pipedec_cli.data.stored import StoredRecords
from pipedec_cli.data.wording import many
from pipedec_cli.data.workspace import load_segmentation, load_segmenter, read_split
from pipedec_cli.jobs.commands import command_line
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import load_decoder, read_inputs
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.model.text import usual_prompt
from pipedec_cli.model.training.processes import count
from pipedec_cli.pipeline.grid import before_repeats

if TYPE_CHECKING:
    from pipedec_cli.model.decoder import Decoder


@dataclass(frozen=True)
class TrainingData:
    """Segmented records of train and dev, and the `files` that they come from.

    `sources` are the settings by which sources are read: source_prefix, max_source_tokens and, for prompts, prompt and
    chat. `targets` are the data set's own targets beside those of a teacher: many long texts of a teacher are left out,
    and time_max has to hold long targets as well. Of the `teacher`, use only config, tokenizer and settings.
    """

    files: list[Path]
    train: Sequence[Record]
    dev: Sequence[Record]
    segmentation: Segmentation
    segmenter: Segmenter
    sources: dict[str, Any]
    teacher: Decoder | None = None
    targets: Iterable[Record] = ()


def load_data(settings: TrainSettings, folder: Path, notify: Notify) -> TrainingData:
    """Read a folder that `segment` wrote. With a teacher, have it write the targets, or read what it has written."""
    if settings.teacher is not None:
        return _load_taught(settings, folder, notify)
    train, dev = folder / "train.jsonl", folder / "dev.jsonl"
    segmentation = load_segmentation(folder / SEGMENTATION_FILE)
    segmenter = load_segmenter(folder, segmentation)
    prefix, longest = settings.source_prefix or "", settings.max_source_tokens or 2048
    sources = {"source_prefix": prefix, "max_source_tokens": longest} | _prompt(settings)
    dev_records = [*islice(read_split(dev), settings.dev_examples)] if dev.exists() else []
    records = notify.track(islice(read_split(train), settings.limit), settings.limit, "reading the examples")
    stored = StoredRecords(folder, records)
    return TrainingData([train], stored, dev_records, segmentation, segmenter, sources)


def _prompt(settings: TrainSettings) -> dict[str, Any]:
    if not settings.prompted:
        return {}
    chat, template = bool(settings.chat), settings.prompt_template
    return {"prompt": usual_prompt(chat=chat) if template is None else template, "chat": chat}


def _load_taught(settings: TrainSettings, folder: Path, notify: Notify) -> TrainingData:
    """The teacher's texts for the sources of a folder; a `UserError` if none can be learnt from."""
    train, dev = folder / "train.jsonl", folder / "dev.jsonl"
    segmentation = load_segmentation(folder / SEGMENTATION_FILE)
    segmenter = load_segmenter(folder, segmentation)
    teacher, generate = _load_teacher(settings, segmenter, notify)
    splits: dict[SplitName, int | None] = {"train": settings.limit}
    if settings.dev_examples and dev.exists() and dev.stat().st_size:
        splits["dev"] = settings.dev_examples
    files, texts = [], {}
    for split, limit in splits.items():
        files.append(_write(replace(generate, split=split, limit=limit), teacher, notify))
        texts[split] = [text for text in read_predictions(files[-1]) if text.record]
    complete = [_record(text) for text in texts["train"] if not text.truncated]
    if complete and all(record.target_segments is None for record in complete):  # the data have no targets
        segmenter = make_segmenter(
            segmentation.level,
            [record.target or "" for record in complete],
            [record.source for record in complete],
            separators=segmentation.separators,
            fields=segmentation.fields,
        )
        segmentation = structs.replace(segmentation, joiner=joiner_of(complete, segmenter))
    each_once = segmentation.level != "sentence"
    preparer = Preparer(segmenter, segmentation, token_counter(None), time_max=1, each_once=each_once)
    records = {split: _segment(found, split, preparer, notify) for split, found in texts.items()}
    if not records["train"]:
        todo = "train the teacher until it ends its texts, or take another"
        raise UserError("none of the teacher's texts can be learnt from", where=str(files[0]), todo=todo)
    if repeated := preparer.counts.repeated:
        what = f"{many(repeated, 'subsequence')} that the teacher had said before in the same text"
        notify.say(f"{what}: left out")
    sources = teacher.text.described
    if teacher.text.prompt is None:  # an encoder-decoder says nothing of the student's prompts
        sources |= _prompt(settings)
    own = islice(read_split(train, need_target=False), settings.limit)
    return TrainingData(
        [train, *files],
        records["train"],
        records.get("dev", []),
        segmentation,
        segmenter,
        sources,
        teacher,
        targets=notify.track(own, settings.limit, "measuring the targets"),
    )


def _load_teacher(
    settings: TrainSettings, segmenter: Segmenter, notify: Notify
) -> tuple[Decoder, GenerateSettings]:
    """The teacher, and the settings with which it generates. A `UserError` if it is a pipelined model."""
    data = None if settings.data is None else str(settings.data)
    same = settings.some("workspace", "source_prefix", "max_source_tokens", "device")
    generate = GenerateSettings(model=settings.teacher, data=data, trace=False, **same)
    teacher = load_decoder(generate, notify, role="the teacher ")
    if teacher.text.prompt is not None:
        generate = replace(generate, **settings.some("prompt_template", "chat"))
        teacher.read_sources(generate.prompt_template, chat=generate.chat)
    if teacher.settings.decoder != "sequential":
        todo = "name a sequential model with --teacher"
        raise UserError(f"{teacher.checkpoint.name} is a pipelined decoder, and no teacher", todo=todo)
    if teacher.checkpoint.settings is None:  # it was not trained here, and has no segmenter of its own
        teacher.checkpoint.segmenter = segmenter
    return teacher, generate


def _write(settings: GenerateSettings, teacher: Decoder, notify: Notify) -> Path:
    """The file of the teacher's texts for a split. Several processes that train together do not write it."""
    from pipedec_cli.jobs.run import complete, is_complete, plan_run

    run = plan_run(settings, teacher, read_inputs(settings, notify))
    if count() > 1 and not is_complete(run):
        todo = f"write them with one process first: `{command_line('generate', settings)}`"
        raise UserError(f"the teacher's texts for {settings.split} are not all there", todo=todo)
    return Path(complete(run, f"the teacher's texts for {settings.split}", notify).out)


def _record(text: Generated) -> Record:
    """The record with the teacher's text as its target."""
    assert text.record is not None, "it is generated from a record"
    return structs.replace(text.record, target=text.text, target_fields=text.fields, references=())


def _segment(texts: list[Generated], split: SplitName, preparer: Preparer, notify: Notify) -> list[Record]:
    """The teacher's texts as segmented records.

    Texts that a limit cut are left out. At level sentence a text ends where it starts to repeat itself: a model that
    learns to repeat itself does not end its texts.
    """
    records, repeating, joiner = list[Record](), 0, preparer.segmentation.joiner
    for text in texts:
        record, usable = structs.replace(_record(text), target_segments=None), text.truncated is None
        if preparer.segmentation.level == "sentence":
            sentences = preparer.segmenter.cut(text.text)
            kept = sentences[: before_repeats(sentences)]
            if len(kept) < len(sentences):
                record = structs.replace(record, target=joiner.join(kept), target_segments=kept)
                repeating, usable = repeating + 1, True
        if usable:
            records.append(preparer.segment(record))
    of = f"of the teacher's {many(len(texts), 'text')} for {split}"
    if left_out := len(texts) - len(records):
        notify.say(f"{left_out:,} {of} were cut short: left out")
    if repeating:
        notify.say(f"{repeating:,} {of} began to repeat themselves: learnt up to there")
    return records
