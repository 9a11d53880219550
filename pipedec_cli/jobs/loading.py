"""What is decoded and by what: records looked through, checkpoints loaded, as the settings of `generate` say."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipedec_cli.data.checking import mended_text
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.inputs import Inputs, scan_inputs
from pipedec_cli.data.lines import FieldNames
from pipedec_cli.data.places import STDIN, corpus_files, given_splits
from pipedec_cli.data.records import Record
from pipedec_cli.data.rows import read_records
from pipedec_cli.data.stored import InvalidRecords
from pipedec_cli.data.trained import is_model, require_model
from pipedec_cli.data.workspace import Workspace, load_segmenter
from pipedec_cli.jobs.events import Notify

if TYPE_CHECKING:
    from pipedec_cli.jobs.generate import GenerateSettings
    from pipedec_cli.jobs.report import ReportSettings
    from pipedec_cli.model.decoder import Decoder


def read_inputs(settings: GenerateSettings, notify: Notify, *, keep: Path | None = None) -> Inputs:
    """Look through the records to generate from: texts from the command line, a split of the workspace, or any data.

    Files are read once here and once more while generating, so that memory does not grow with them; standard input,
    pipes and hub data sets, and all near `keep`, are kept in a temporary file. A `UserError` if nothing is there, or a record is not as it must be.
    """
    names = FieldNames(settings.source_field, settings.target_field, settings.id_field)
    place, split = Workspace.find(settings.workspace), settings.split or "test"
    of_data = {"plain", "source_field", "target_field", "id_field"}
    of_data |= {"split", "set_aside"} if settings.text else set()
    if settings.data is None and (given := settings.typed & of_data):
        name = min(given).replace("_", "-")
        raise UserError(f"--{name} says what DATA is, and there is none", todo="give a file, or -")
    if settings.text:
        texts = []
        for number, text in enumerate(settings.text, start=1):
            where = f"--text {number}"
            whole = mended_text(text)  # other bytes come as halves of surrogate pairs
            if not text.strip():
                raise UserError("is empty", where=where, todo="there must be something to generate from")
            fields = {"id": str(number), "source": whole}
            texts.append(Record(str(number), whole, None, None, (), where, fields))
        return scan_inputs(lambda: iter(texts), FieldNames(), limit=settings.limit, location="--text")
    path = Path(settings.data) if settings.data else place.split(split)
    location = settings.data or str(path)
    if settings.data is None:
        place.require(path, "pipedec segment DATA")
        if path.stat().st_size == 0:
            todo = "give --split dev, or data of your own to generate from"
            raise UserError("is empty", where=location, todo=todo)
        names = FieldNames()  # `segment` has given the fields their plain names
    elif path.is_dir() and (settings.split is not None or not corpus_files(path)):
        any_name = "JSON lines and parquet files may have any names without --split; else name them train.jsonl, dev.jsonl, test.jsonl"
        if split not in (there := given_splits(location, any_name)):
            todo = f"give --split {' or '.join(there)}"
            raise UserError(f"has no file for {split}", where=location, todo=todo)
    elif settings.split is not None and (location == STDIN or path.exists()):
        raise UserError("a single file has no splits", where=location, todo="leave out --split")
    warn = iter([notify.warn])  # what is read again was said the first time
    invalid = InvalidRecords() if settings.set_aside or settings.shard else None
    skips = invalid is not None
    how: Any = {"split": split, "plain": settings.plain, "invalid": invalid, "allow_empty": skips}
    again = lambda: read_records(location, names, warn=next(warn, None), **how)  # noqa: E731
    once = location == STDIN or not (path.is_file() or path.is_dir())
    keep = place.root if once else keep
    inputs = scan_inputs(again, names, limit=settings.limit, keep=keep, location=location, invalid=invalid)
    return inputs.part(settings.shard) if settings.shard else inputs


def load_any(settings: GenerateSettings, notify: Notify) -> Decoder:
    """What the settings ask for: a decoder, or a model with what drafts its text."""
    decoder = load_exact(settings, notify) if settings.exact else load_decoder(settings, notify)
    writer = getattr(decoder, "drafter", decoder)  # None where n-grams or a model's own answers are guessed
    unused = {"empty_rows", "stop_on_repeat", "min_start_prob", "force"}
    unused |= {"delay"} if settings.delay == "wait" else set()
    unused |= {"time_max", "sub_max", "model"} if writer is None else set()
    if (given := settings.typed & unused) and (writer is None or writer.settings.decoder == "sequential"):
        what = f"--{min(given).replace('_', '-')} is for a pipelined decoder, and there is none"
        raise UserError(what, todo="leave it out" + (", or give --draft pipelined" if settings.exact else ""))
    if "unconstrained" in settings.typed and decoder.fields is None:
        raise UserError(
            "--unconstrained is for a model that writes objects, and this one does not", todo="leave it out"
        )
    return decoder


def load_exact(settings: GenerateSettings, notify: Notify) -> Decoder:
    """The model that was named, and what drafts its text."""
    unasked = replace(settings, prompt_template=None, chat=None)
    plain = load_decoder(replace(unasked, model=settings.exact), notify)
    there = settings.model or is_model(Workspace.find(settings.workspace).model("pipelined"))
    draft = settings.draft or ("pipelined" if there else "source")

    from pipedec_cli.model.exact import ExactDecoder

    if draft != "pipelined":
        read_as_asked(settings, plain)
        return ExactDecoder(plain, draft)
    drafter = load_decoder(unasked, notify)
    read_as_asked(settings, plain, drafter)
    read_alike(settings, plain, drafter)
    return ExactDecoder(plain, drafter)


def read_alike(settings: GenerateSettings | ReportSettings, plain: Decoder, pipelined: Decoder) -> None:
    """Give a model that `pipedec train` has not made, and that says nothing of a prefix, its sources as the pipelined decoder's.

    How it is asked follows that decoder, too, except for what the settings ask of it alone.
    """
    if plain.checkpoint.settings is None:
        like, trained = pipelined.text, pipelined.settings
        plain.text.prefix, plain.text.max_source_tokens = like.prefix, like.max_source_tokens
        if plain.text.prompt is not None and like.prompt is not None:
            plain.read_sources(like.prompt.template, chat=like.prompt.chat)
        elif plain.text.prompt is not None:  # what an encoder-decoder has stored is how its teacher was asked
            chat = trained.chat if settings.chat is None else settings.chat
            template = trained.prompt if chat == trained.chat else None
            plain.read_sources(settings.prompt_template or template, chat=chat)


def read_as_asked(settings: GenerateSettings | ReportSettings, *decoders: Decoder) -> None:
    """Give the prompt that was asked for to those of the decoders that read one; a `UserError` if none does."""
    prompted = [one for one in decoders if one.text.prompt is not None]
    for one in prompted or decoders[:1]:
        one.read_sources(settings.prompt_template, chat=settings.chat)


def find_model(settings: GenerateSettings) -> str:
    """The name of the model that was asked for, else of the workspace's; a `UserError` if it is not there, or no model."""
    place, name = Workspace.find(settings.workspace), settings.model
    if name is None:
        kind = settings.decoder or "pipelined"
        maker = "pipedec train" if kind == "pipelined" else "pipedec train --decoder sequential"
        name = str(place.require(place.model(kind), maker))
        if not is_model(Path(name)):
            todo = f"finish it with `{maker} --resume` and its settings, or start over with --overwrite"
            raise UserError("its training has not come to its end", where=name, todo=todo)
    require_model(name)
    return name


def load_decoder(
    settings: GenerateSettings, notify: Notify, *, consume: bool = True, role: str = ""
) -> Decoder:
    """The model that was asked for, else the workspace's; a `UserError` if it is not there or not for what was asked.

    `consume` is `Decoder`'s, the `role` what it is loaded for, if that is not plain.
    """
    place, name, device = Workspace.find(settings.workspace), find_model(settings), settings.device
    notify.say(f"loading {role}{name} …")  # torch, too, which takes some seconds

    import torch

    from pipedec_cli.model.arguments import choose_device
    from pipedec_cli.model.decoder import load

    if device == "mps" or (device == "auto" and torch.backends.mps.is_available()):
        notify.say("Apple's GPU is not supported: the CPU is used")
        device = "cpu"
    longest = settings.max_source_tokens
    announce_compiling(str(choose_device(device)), notify)
    decoder = load(name, dtype=settings.dtype, device=device, max_source_tokens=longest, consume=consume)
    decoder.unconstrained = settings.unconstrained
    if settings.source_prefix is not None:
        own = decoder.settings.source_prefix
        if decoder.checkpoint.settings is not None and settings.source_prefix != own:
            notify.warn(f"{name} was trained with the source prefix {own!r}, not {settings.source_prefix!r}")
        decoder.text.prefix = settings.source_prefix
    read_as_asked(settings, decoder)
    if decoder.checkpoint.settings is None and place.segmentation.exists():
        # a model from elsewhere: its texts are cut as the targets beside it were
        decoder.checkpoint.segmenter = load_segmenter(place.data)
    trained = decoder.settings.decoder
    if settings.decoder == "pipelined" and trained == "sequential":
        todo = "leave out --decoder pipelined, or make one with `pipedec train`"
        raise UserError(f"{name} is a sequential model, not a pipelined decoder", todo=todo)
    if settings.decoder == "sequential" and trained == "pipelined":
        todo = (
            "--delay wait is its waiting schedule; `pipedec train --decoder sequential` makes a plain model"
        )
        raise UserError(f"{name} was trained as a pipelined decoder", todo=todo)
    return decoder


def announce_compiling(device: str, notify: Notify) -> None:
    """Say why nothing seems to happen for some seconds, when the kernels are about to be compiled."""
    from pipedec_cli.model.engine.native.build import is_compiled
    from pipedec_cli.model.engine.native.library import VARIABLE

    if device == "cpu" and os.environ.get(VARIABLE) != "0" and not is_compiled():
        notify.say("compiling encoder and decoder step for this machine; this takes some seconds, once")
