"""What predictions begin with: records that have been looked through, and a decoder that has been loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import Inputs, look_through
from pipedec_cli.data.records import FieldNames, Record, whole_text
from pipedec_cli.data.rows import STDIN, given_splits, read_records
from pipedec_cli.data.workspace import Workspace, load_segmenter
from pipedec_cli.model.decoder import Decoder, load
from pipedec_cli.model.native.library import VARIABLE, is_compiled
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.generate import GenerateSettings


def read_inputs(settings: GenerateSettings, talk: Talk) -> Inputs:
    """Look through the records to generate from: texts from the command line, a split of the workspace, or any data.

    Files are read once here and once more while generating, so that memory does not grow with them; standard input,
    pipes and hub data sets are held in memory.

    Raises:
        UserError: nothing is there, or a record is not as it must be.
    """
    names = FieldNames(settings.source_field, settings.target_field, settings.id_field)
    location, split = location_of(settings), settings.split or "test"
    if settings.text:
        texts = [_from_text(number, text) for number, text in enumerate(settings.text, start=1)]
        return look_through(lambda: iter(texts), FieldNames())
    if settings.data is None:
        Workspace.find(settings.workspace).require(Path(location), "pipedec segment DATA")
        if Path(location).stat().st_size == 0:
            todo = "give --split dev, or data of your own to generate from"
            raise UserError("is empty", where=location, todo=todo)
        names = FieldNames()  # `segment` has given the fields their plain names
    elif Path(location).is_dir():
        if split not in (there := given_splits(location)):
            todo = f"give --split {' or '.join(there)}"
            raise UserError(f"has no file for {split}", where=location, todo=todo)
    elif settings.split is not None and (location == STDIN or Path(location).exists()):
        raise UserError("a single file has no splits", where=location, todo="leave out --split")
    warn: Callable[[str], None] | None = talk.warn

    def read() -> Iterator[Record]:
        nonlocal warn
        first, warn = warn, None  # what is read again was said the first time
        yield from read_records(location, names, split=split, warn=first)

    keep = location == STDIN or not (Path(location).is_file() or Path(location).is_dir())
    return look_through(read, names, limit=settings.limit, keep=keep)


def location_of(settings: GenerateSettings) -> str:
    """Where the records come from, as manifests name it."""
    if settings.text:
        return "--text"
    return settings.data or str(Workspace.find(settings.workspace).split(settings.split or "test"))


def _from_text(number: int, text: str) -> Record:
    where = f"--text {number}"
    if not text.strip():
        raise UserError("is empty", where=where, todo="there must be something to generate from")
    whole = whole_text(text)  # bytes that are not UTF-8 come as halves of surrogate pairs
    return Record(str(number), whole, None, None, (), where, {"id": str(number), "source": whole})


def load_decoder(settings: GenerateSettings, talk: Talk, *, consume: bool = True) -> Decoder:
    """The model that was asked for, else the workspace's; `consume` is `Decoder`'s.

    Raises:
        UserError: the model is not there, or is not for what was asked.
    """
    import torch

    place, name, device = Workspace.find(settings.workspace), settings.model, settings.device
    if name is None:
        kind = settings.decoder or "pipelined"
        maker = "pipedec train" if kind == "pipelined" else "pipedec train --decoder sequential"
        name = str(place.require(place.model(kind), maker))
        if not (Path(name) / "config.json").exists():
            todo = f"run `{maker} --resume` first"
            raise UserError("its training has not come to its end", where=name, todo=todo)
    if device == "mps" or (device == "auto" and torch.backends.mps.is_available()):
        talk.say("Apple's GPU is not supported: the CPU is used")
        device = "cpu"
    longest = settings.max_source_tokens
    decoder = load(name, dtype=settings.dtype, device=device, max_source_tokens=longest, consume=consume)
    if decoder.checkpoint.settings is None and place.segmentation.exists():
        # a T5 from elsewhere: its texts are cut as the targets beside it were
        decoder.checkpoint.segmenter = load_segmenter(place.data)
    trained = decoder.settings.decoder
    if settings.decoder not in (None, trained):
        told = ("is an ordinary T5, not", "leave out --decoder pipelined, or make one with `pipedec train`")
        if trained == "pipelined":
            maker = "`pipedec train --decoder sequential` makes a plain T5"
            told = ("was trained as", f"--delay wait is its waiting schedule; {maker}")
        raise UserError(f"{name} {told[0]} a pipelined decoder", todo=told[1])
    return decoder


def announce_compiling(device: str, talk: Talk) -> None:
    """Say why nothing seems to happen for some seconds, when the kernels are about to be compiled."""
    if device == "cpu" and os.environ.get(VARIABLE) != "0" and not is_compiled():
        talk.say("compiling encoder and decoder step for this machine; this takes some seconds, once")
