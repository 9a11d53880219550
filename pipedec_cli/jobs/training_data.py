"""What a training learns: the segmented targets of the data, or the texts that a teacher writes for their sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from pipedec_cli.data import trained
from pipedec_cli.data.errors import UserError, log, many
from pipedec_cli.data.predictions import read_predictions
from pipedec_cli.data.records import Generated, Record, Segmentation, SplitName
from pipedec_cli.data.resumable import SEGMENTATION_FILE
from pipedec_cli.data.segmentation import (
    Preparer,
    Segmenter,
    joiner_of,
    make_segmenter,
    token_counter,
)
from pipedec_cli.data.stored import StoredRecords
from pipedec_cli.data.workspace import load_segmentation, load_segmenter, read_split
from pipedec_cli.events import Listen, track
from pipedec_cli.jobs.command_lines import command_line
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import load_decoder, read_inputs
from pipedec_cli.jobs.train_settings import DEV_EXAMPLES, TrainSettings
from pipedec_cli.model.text import usual_prompt
from pipedec_cli.objects.tree import tree_of
from pipedec_cli.pipeline.grid import before_repeats
from pipedec_cli.training.hyperparameters import process_count

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder


@dataclass(frozen=True)
class TrainingData:
    """Segmented records of train and dev."""

    files: list[Path]  # that they come from
    train: Sequence[Record]
    dev: Sequence[Record]
    segmentation: Segmentation  # how their targets are cut
    segmenter: Segmenter  # what cuts texts so
    #: The settings by which sources are read: max_source_tokens, the prefix of a
    #: teacher's sources, and prompt and chat if they were asked for.
    sources: dict[str, Any]
    teacher: Decoder | None = None  # use only its config, tokenizer and settings
    #: The data set's own targets beside those of a teacher: many long texts of a
    #: teacher are left out, and time_max has to hold long targets as well.
    targets: Iterable[Record] = ()


def load_data(settings: TrainSettings, folder: Path, listen: Listen) -> TrainingData:
    """Read a folder that `segment` wrote. With a teacher, have it write the targets, or read what it has written.

    A `UserError` if the teacher is a pipelined model, or none of its texts can be
    learnt from.
    """
    segmentation = load_segmentation(folder / SEGMENTATION_FILE)
    segmenter = load_segmenter(folder, segmentation)
    if settings.teacher is not None:
        return _taught_data(settings, folder, segmentation, segmenter, listen)
    train = folder / "train.jsonl"
    dev = folder / "dev.jsonl"
    dev_records = []
    if dev.exists():
        dev_records = [*islice(read_split(dev), DEV_EXAMPLES)]
    records = islice(read_split(train), settings.limit)
    read = track(listen, records, settings.limit, "reading the examples")
    sources = {
        "max_source_tokens": settings.max_source_tokens or 2048,
        **_prompt(settings),
    }
    stored = StoredRecords(folder, read)
    return TrainingData([train], stored, dev_records, segmentation, segmenter, sources)


def _prompt(settings: TrainSettings) -> dict[str, Any]:
    """The prompt that the settings ask for; {} if they ask for none."""
    if not settings.prompted:
        return {}
    chat = bool(settings.chat)
    template = settings.prompt_template
    if template is None:
        template = usual_prompt(chat=chat)
    return {"prompt": template, "chat": chat}


def _taught_data(
    settings: TrainSettings,
    folder: Path,
    segmentation: Segmentation,
    segmenter: Segmenter,
    listen: Listen,
) -> TrainingData:
    """The records of a folder with the texts that the teacher writes for their sources."""
    teacher, generate = _load_teacher(settings)
    if teacher.checkpoint.settings is None:
        # It was not trained here, and has no segmenter of its own.
        teacher.checkpoint.segmenter = segmenter
    if segmentation.sets:
        teacher = _asked_teacher(teacher, segmentation)
    files = []
    texts = {}
    for split, limit in _splits(settings, folder).items():
        of_split = replace(generate, split=split, limit=limit)
        file = _write_texts(of_split, teacher, listen)
        files.append(file)
        texts[split] = [text for text in read_predictions(file) if text.record]

    segmentation, segmenter = _learn_ends(texts["train"], segmentation, segmenter)
    preparer = Preparer(
        segmenter,
        segmentation,
        token_counter(None),
        time_max=1,
        each_once=segmentation.level != "sentence",
    )
    train = _segment(texts["train"], "train", preparer)
    dev = _segment(texts["dev"], "dev", preparer) if "dev" in texts else []
    if not train:
        what = "none of the teacher's texts can be learnt from"
        todo = "train the teacher until it ends its texts, or take another"
        raise UserError(what, where=files[0], todo=todo)
    repeated = preparer.counts.repeated
    if repeated:
        what = f"{many(repeated, 'subsequence')} that the teacher had said before in the same text"
        log.info(f"{what}: left out")

    sources = _taught_sources(settings, teacher, segmentation)
    split_file = folder / "train.jsonl"
    targets = islice(read_split(split_file, need_target=False), settings.limit)
    return TrainingData(
        [split_file, *files],
        train,
        dev,
        segmentation,
        segmenter,
        sources,
        teacher=teacher,
        targets=track(listen, targets, settings.limit, "measuring the targets"),
    )


def _load_teacher(settings: TrainSettings) -> tuple[Decoder, GenerateSettings]:
    """The teacher, and the settings by which it generates; a `UserError` if it is a pipelined model."""
    generate = GenerateSettings(
        model=settings.teacher,
        data=None if settings.data is None else str(settings.data),
        workspace=settings.workspace,
        max_source_tokens=settings.max_source_tokens,
        device=settings.device,
        trace=False,
    )
    teacher = load_decoder(generate, role="the teacher ")
    if _is_alike(settings) or teacher.text.prompt is not None:
        generate = replace(
            generate, prompt_template=settings.prompt_template, chat=settings.chat
        )
        teacher.read_sources(generate.prompt_template, chat=generate.chat)
    if teacher.settings.decoder != "sequential":
        what = f"{teacher.checkpoint.name} is a pipelined decoder, and no teacher"
        raise UserError(what, todo="name a sequential model with --teacher")
    return teacher, generate


def _taught_sources(
    settings: TrainSettings, teacher: Decoder, segmentation: Segmentation
) -> dict[str, Any]:
    """The settings by which the student of a teacher reads sources; questions have prompts of their own."""
    sources = teacher.text.described
    if segmentation.sets:
        return {"max_source_tokens": sources["max_source_tokens"]}
    if teacher.text.prompt is None and not _is_alike(settings):
        # An encoder-decoder says nothing of the prompts of another kind of student.
        sources |= _prompt(settings)
    return sources


def _asked_teacher(teacher: Decoder, segmentation: Segmentation) -> Decoder:
    """A teacher that answers a question for each key; a `UserError` if there are several sets, each with its own keys."""
    from pipedec_cli.decoding.blind import blind_decoder
    from pipedec_cli.objects.rows import Rows

    if len(segmentation.sets) > 1:
        what = f"a teacher writes the answers of one set, and there are {len(segmentation.sets)}"
        raise UserError(what, todo="segment each by itself, or give their targets")
    [fields] = segmentation.sets.values()
    return blind_decoder(teacher, Rows(tree_of(fields)))


def _is_alike(settings: TrainSettings) -> bool:
    """Whether the student is a model like its teacher: the teacher itself, or fresh weights of its shape."""
    return settings.model in (settings.teacher, trained.FRESH[0])


def _splits(settings: TrainSettings, folder: Path) -> dict[SplitName, int | None]:
    """The splits that the teacher writes texts for, with the number of their records; None for all."""
    splits: dict[SplitName, int | None] = {"train": settings.limit}
    dev = folder / "dev.jsonl"
    if dev.exists() and dev.stat().st_size:
        splits["dev"] = DEV_EXAMPLES
    return splits


def _write_texts(settings: GenerateSettings, teacher: Decoder, listen: Listen) -> Path:
    """The file of the teacher's texts for a split, which are written now as far as they are not there.

    Several processes that train together do not write it: a `UserError` if it lacks
    some.
    """
    from pipedec_cli.jobs.run import complete, is_complete, plan_run

    texts = f"the teacher's texts for {settings.split}"
    run = plan_run(settings, teacher, read_inputs(settings))
    if process_count() > 1 and not is_complete(run):
        command = command_line("generate", settings)
        todo = f"write them with one process first: `{command}`"
        raise UserError(f"{texts} are not all there", todo=todo)
    return Path(complete(run, texts, listen).out)


def _learn_ends(
    texts: Sequence[Generated], segmentation: Segmentation, segmenter: Segmenter
) -> tuple[Segmentation, Segmenter]:
    """Learn from a teacher's `texts` that are whole where segments end, if the data have no targets that tell it.

    Returns the segmentation and the segmenter, new ones or those that were given.
    """
    complete = [_learnt(text) for text in texts if not text.truncated]
    has_targets = any(record.target_segments is not None for record in complete)
    if segmentation.sets or has_targets or not complete:
        return segmentation, segmenter
    segmenter = make_segmenter(
        segmentation.level,
        [record.target or "" for record in complete],
        [record.source for record in complete],
        separators=segmentation.separators,
        fields=segmentation.fields,
    )
    joiner = joiner_of(complete, segmenter)
    return structs.replace(segmentation, joiner=joiner), segmenter


def _learnt(text: Generated) -> Record:
    """The record of a teacher's text, with that text as its target."""
    assert text.record is not None, "it is generated from a record"
    return structs.replace(
        text.record, target=text.text, target_fields=text.fields, references=()
    )


def _segment(
    texts: Sequence[Generated], split: SplitName, preparer: Preparer
) -> list[Record]:
    """The teacher's texts as segmented records.

    Texts that a limit cut are left out. At level sentence a text ends where it starts
    to repeat itself: a model that learns to repeat itself does not end its texts.
    """
    records = []
    repeating = 0
    for text in texts:
        record = structs.replace(_learnt(text), target_segments=None)
        sentences = _before_repeats(text.text, preparer)
        if sentences is not None:
            repeating += 1
            target = preparer.segmentation.joiner.join(sentences)
            record = structs.replace(record, target=target, target_segments=sentences)
        elif text.truncated is not None:
            continue
        records.append(preparer.segment(record))
    of = f"of the teacher's {many(len(texts), 'text')} for {split}"
    left_out = len(texts) - len(records)
    if left_out:
        log.info(f"{left_out:,} {of} were cut short: left out")
    if repeating:
        log.info(f"{repeating:,} {of} began to repeat themselves: learnt up to there")
    return records


def _before_repeats(text: str, preparer: Preparer) -> tuple[str, ...] | None:
    """The sentences of a text that begins to repeat itself, up to there; None of other texts."""
    if preparer.segmentation.level != "sentence":
        return None
    sentences = preparer.segmenter.cut(text)
    count = before_repeats(sentences)
    return sentences[:count] if count < len(sentences) else None
