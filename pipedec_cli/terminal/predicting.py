"""A file of predictions made whole: what `generate` and `report` share.

    inputs = read_inputs(settings, talk)
    decoder = load_decoder(settings, talk)
    path = Predictions(settings, decoder, inputs, talk).complete("Δt = 2")

Inputs and decoder may serve several `Predictions`, whose settings differ in how they decode.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import (
    GenerationFiles,
    Inputs,
    differences,
    line,
    look_through,
    other_versions,
    read_manifest,
)
from pipedec_cli.data.records import FieldNames, Generated, Record, whole_text
from pipedec_cli.data.rows import STDIN, given_splits, read_records
from pipedec_cli.data.workspace import Workspace, load_segmenter
from pipedec_cli.data.writing import JsonLinesAppender, manifest, read_whole_lines, write_json_lines
from pipedec_cli.model.decoder import Decoder, load
from pipedec_cli.model.device import choose_batch_size
from pipedec_cli.model.native.build import is_compiled
from pipedec_cli.model.native.library import VARIABLE
from pipedec_cli.model.steps.weights import can_prepack
from pipedec_cli.pipeline.decode import Method
from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.pipeline.schedule import Fixed, Whole
from pipedec_cli.terminal.console import Talk, many
from pipedec_cli.terminal.generate import GenerateSettings
from pipedec_cli.terminal.live import LiveGrid, LiveScreen
from pipedec_cli.terminal.progress import GenerationProgress

#: Characters of a source that the live view's heading gets to see.
HEADING: Final = 200
#: What the files of the schedule that waits begin with, and what older versions had them begin with.
WAITING, OLDER_WAITING = "pipelined-wait", "pipelined-sequential"


def read_inputs(settings: GenerateSettings, talk: Talk) -> Inputs:
    """Look through the records to generate from: texts from the command line, a split of the workspace, or any data.

    Files are read once here and once more while generating, so that memory does not grow with them; standard input,
    pipes and hub data sets are held in memory.

    Raises:
        UserError: nothing is there, or a record is not as it must be.
    """
    if settings.text:
        texts = [_from_text(number, text) for number, text in enumerate(settings.text, start=1)]
        return look_through(lambda: iter(texts), FieldNames())
    location, split = _location(settings), settings.split or "test"
    names = FieldNames(settings.source_field, settings.target_field, settings.id_field)
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


def _location(settings: GenerateSettings) -> str:
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
    """The model that was asked for, else the workspace's.

    Args:
        settings: name model, decoder, dtype and device.
        talk: where to say what is not supported.
        consume: have the weights in memory once; the checkpoint's own model is of no use afterwards.

    Raises:
        UserError: the model is not there, or is not for what was asked.
    """
    import torch

    place, device = Workspace.find(settings.workspace), settings.device
    name = settings.model
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
    decoder = load(
        name,
        dtype=settings.dtype,
        device=device,
        max_source_tokens=settings.max_source_tokens,
        consume=consume,
    )
    if decoder.checkpoint.settings is None and place.segmentation.exists():
        # a T5 from elsewhere: its texts are cut as the targets beside it were
        decoder.checkpoint.segmenter = load_segmenter(place.data)
    trained = decoder.settings.decoder
    if settings.decoder not in (None, trained):
        if trained == "sequential":
            raise UserError(
                f"{name} is an ordinary T5, not a pipelined decoder",
                todo="leave out --decoder pipelined, or make one with `pipedec train`",
            )
        raise UserError(
            f"{name} was trained as a pipelined decoder",
            todo="--delay wait is its waiting schedule; `pipedec train --decoder sequential` makes a plain T5",
        )
    return decoder


def announce_compiling(device: str, talk: Talk) -> None:
    """Say why nothing seems to happen for some seconds, when the kernels are about to be compiled."""
    if device == "cpu" and os.environ.get(VARIABLE) != "0" and not is_compiled():
        talk.say("compiling encoder and decoder step for this machine; this takes some seconds, once")


def describe(method: Method) -> str:
    """Decoder, schedule and exploration rule, for a heading."""
    if isinstance(method.schedule, Whole):
        return "sequential decoder"
    kind = f"Δt = {method.schedule.delay}" if isinstance(method.schedule, Fixed) else "waiting schedule"
    return f"{kind}, explore {method.explore}"


class Predictions:
    """What one decoder makes of some records: under which name, with which settings, and how the file becomes whole.

    Attributes:
        method: how to decode.
        batch_size: examples in flight at once.
        name: what the file is called: decoder and delay, such as ``pipelined-delay2``, and all that is unusual.
        manifest: what the predictions are made with, to be saved beside them.
        tally: what was counted in this run.
        seconds: wall time of generating, loading left out.
    """

    def __init__(self, settings: GenerateSettings, decoder: Decoder, inputs: Inputs, talk: Talk) -> None:
        """Resolve every setting; nothing is generated yet.

        Raises:
            UserError: the checkpoint was not trained for the delay.
        """
        import torch

        self.settings, self.decoder, self.inputs, self.talk = settings, decoder, inputs, talk
        chosen = partial(
            decoder.method, settings.delay, explore=settings.explore, untrained=settings.untrained_delay
        )
        self.method = chosen(
            time_max=settings.time_max, sub_max=settings.sub_max, max_tokens=settings.max_tokens
        )
        self.name = _name(settings, self.method, usual=chosen().limits)
        trained, schedule, longest = decoder.settings, self.method.schedule, decoder.text.max_source_tokens
        if settings.batch_size != "auto":
            self.batch_size = settings.batch_size
        elif settings.live:
            self.batch_size = 1
        else:
            tokens = min(longest, inputs.longest + len(trained.source_prefix) + 1)
            self.batch_size = choose_batch_size(decoder.checkpoint.model, tokens, inputs.count)
        whole = isinstance(schedule, Whole)
        resolved = {
            "decoder": trained.decoder,
            "delay": schedule.delay if isinstance(schedule, Fixed) else None if whole else "wait",
            "explore": None if whole else self.method.explore,
            **asdict(self.method.limits),
            "source_prefix": trained.source_prefix,
            "max_source_tokens": longest,
            "dtype": settings.dtype,
            "device": decoder.checkpoint.device.type,
            **{f"{name}_field": value for name, value in asdict(inputs.names).items()},
            "limit": settings.limit,
            "trace": settings.trace,
            "batch_size": self.batch_size,
            "threads": torch.get_num_threads(),
        }
        location = _location(settings)
        self.manifest: dict[str, Any] = {
            "examples": inputs.count,
            "segmentation": to_builtins(trained.segmentation) if decoder.checkpoint.settings else None,
            "model": {"name": decoder.checkpoint.name, "sha256": decoder.sha256},
            "data": {"name": location, "sha256": inputs.sha256},
            **manifest(resolved, inputs=[location]),
        }
        self.tally = Tally(unknown_id=decoder.checkpoint.tokenizer.unk_token_id)
        self.seconds = 0.0

    def announce(self) -> None:
        """Say what was chosen."""
        import torch

        checkpoint, settings = self.decoder.checkpoint, self.settings
        on_cpu = checkpoint.device.type == "cpu"
        threads = f" with {many(torch.get_num_threads(), 'thread')}" if on_cpu else ""
        auto = " (auto)" if settings.batch_size == "auto" else ""
        self.talk.say(
            f"{checkpoint.name}: {describe(self.method)}, {settings.dtype} on {checkpoint.device}{threads}, "
            f"batch size {self.batch_size}{auto}"
        )
        trained, delay = checkpoint.settings, self.manifest["settings"]["delay"]
        if trained is None:
            self.talk.say(
                "it was not trained by `pipedec train`: it is decoded as the ordinary T5 that it is"
            )
        elif trained.decoder == "pipelined" and trained.delay not in ("any", delay):
            self.talk.warn(
                f"{checkpoint.name} was trained for delay {trained.delay} only: it may take the first later "
                "exploration for the end and drop the rest of the text"
            )
        if on_cpu and settings.dtype == "bfloat16" and not can_prepack(torch.bfloat16):
            self.talk.say("this CPU has no kernels for bfloat16: float32 is likely to be faster")

    @property
    def path(self) -> Path:
        """The file in the workspace; under its older name where that is what is there."""
        place = Workspace.find(self.settings.workspace)
        path = place.generations(self.name)
        older = place.generations(self.name.replace(WAITING, OLDER_WAITING, 1))
        return older if older.exists() and not path.exists() else path

    def line(self, generated: Generated) -> dict[str, Any]:
        """How a file holds what was generated."""
        return line(generated, self.inputs.names, trace=self.manifest["settings"]["trace"])

    def generate(self, emit: Callable[[Generated], None], done: int = 0) -> None:
        """Generate, and say what came of it.

        Args:
            emit: takes each result, in input order, as soon as the order allows.
            done: records to pass over.

        Raises:
            UserError: the examples in flight do not fit the device's memory.
        """
        import torch

        records: dict[int, Record] = {}

        def sources() -> Iterator[str]:
            for index, record in enumerate(islice(self.inputs.read(), done, None)):
                records[index] = record
                yield record.source

        def heading(index: int) -> str:
            return records[index].source[:HEADING] if index in records else ""

        device, total = self.decoder.checkpoint.device, self.inputs.count - done
        announce_compiling(device.type, self.talk)
        self.talk.say(f"decoder steps: {self.decoder.engine(self.batch_size).kernels}")
        screen: LiveScreen | GenerationProgress = GenerationProgress(self.talk, total)
        if self.settings.live:
            words, told = self.decoder.text.decode, describe(self.method)
            grid = LiveGrid(words, eos=self.method.eos, method=told, name=heading, total=total)
            screen = LiveScreen(self.talk, grid)
        began = time.perf_counter()
        try:
            with screen:
                for item in self.decoder.run(sources(), self.method, self.batch_size):
                    if isinstance(item, Generated):
                        generated = replace(item, record=records.pop(item.index))
                        emit(generated)
                        self.tally.add(generated)
                    else:
                        screen.on(item)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{self.batch_size} examples at a time do not fit the memory of {device}",
                todo="give a smaller --batch-size, and --resume to go on",
            ) from error
        self.seconds = time.perf_counter() - began
        for warning in self.tally.warnings(self.decoder.text.max_source_tokens):
            self.talk.warn(warning)
        for said in self.tally.lines(self.seconds, self.method.limits):
            self.talk.say(said)

    def write(self, path: Path, *, resume: bool) -> dict[str, Any]:
        """Generate to a file, with its manifest beside it unless the file is no regular one, such as /dev/null.

        Args:
            path: the file. What stands there is kept as FILE.bak, unless the run goes on with it.
            resume: go on behind the lines that are there.

        Returns:
            what was done, as plain values.

        Raises:
            UserError: the lines that are there are of another run.
        """
        files = GenerationFiles(path) if path.is_file() or not path.exists() else None
        done = 0
        if files is not None and resume and files.begun:
            done = files.done(self.manifest, self.inputs.read())
            self._say_what_is_there(files, done)
        elif files is not None:
            self._start(files)
            if resume:
                self.talk.say(f"there is no {path} to go on with: starting at the beginning")
        self._append(path, files, done)
        return {
            "out": str(path),
            "rows": self.inputs.count,
            "resumed_from": done,
            **self.tally.as_json(),
            "seconds": round(self.seconds, 3),
            "examples_per_second": round(self.tally.examples / self.seconds, 3) if self.seconds else None,
            "tokens_per_second": round(self.tally.tokens / self.seconds, 3) if self.seconds else None,
            "settings": self.manifest["settings"],
        }

    def complete(self, label: str) -> Path:
        """The workspace's file of these predictions, whole; nothing is generated that is there already.

        A stopped run goes on. Of a run with --limit, the lines may be the first ones of a longer run.

        Args:
            label: what the decoder is called in what is said.
        """
        files = GenerationFiles(self.path)
        settings = self.manifest["settings"]
        # lines that hold more than is needed serve as well
        settings["trace"] = settings["trace"] or _made_with(files)["settings"].get("trace") is True
        done = None
        if files.begun:
            try:
                done = files.done(self.manifest, self.inputs.read())
            except UserError as error:
                self.talk.say(
                    f"{label}: {files.lines} is of another run and is generated anew ({error.what})"
                )
        if done == self.inputs.count:
            self.talk.say(f"{label}: all {done:,} predictions are in {files.lines}")
            return files.lines
        if not done and self._take_from_longer(files, label):
            return files.lines
        self.announce()
        if done is None:
            self._start(files)
        else:
            self._say_what_is_there(files, done)
        self._append(files.lines, files, done or 0)
        return files.lines

    def _start(self, files: GenerationFiles) -> None:
        kept = files.start(self.manifest)
        if kept is not None:
            self.talk.say(f"what stood in {files.lines.name} is kept as {kept.name}")

    def _say_what_is_there(self, files: GenerationFiles, done: int) -> None:
        if changed := other_versions(files.manifest, self.manifest):
            self.talk.warn(f"other versions than when this run was begun: {', '.join(changed)}")
        what = "is whole already" if done == self.inputs.count else "goes on"
        self.talk.say(f"{files.lines} {what}: {done:,} of {self.inputs.count:,} lines are there")

    def _append(self, path: Path, files: GenerationFiles | None, done: int) -> None:
        """Generate what is not done, and say what is left of a run that is stopped and how it goes on."""
        if done < self.inputs.count:
            try:
                with JsonLinesAppender(path, resume=done > 0) as lines:
                    self.generate(lambda generated: lines.write(self.line(generated)), done)
            except (KeyboardInterrupt, OSError) as error:
                hint = "there is nothing to resume from"
                if files is not None and files.begun:
                    whole = f"{files.count():,} of {self.inputs.count:,} lines are in {path}"
                    hint = f"{whole}; the same command with --resume goes on"
                if isinstance(error, OSError) and error.filename in (None, str(path)):
                    raise OSError(error.errno, f"{error.strerror}; {hint}", str(path)) from error
                self.talk.warn(f"stopped: {hint}")
                raise
        self.talk.say(f"{many(self.inputs.count, 'prediction')} in {path}")

    def _take_from_longer(self, files: GenerationFiles, label: str) -> bool:
        """Take the first lines of a longer run of the same settings, model and data, if there is one with a --limit."""
        limit = f"-first{self.settings.limit}"
        if not self.name.endswith(limit):
            return False
        base = self.name.removesuffix(limit)
        for path in sorted(files.lines.parent.glob("*.jsonl")):
            name = re.sub(r"-first\d+$", "", path.stem).replace(OLDER_WAITING, WAITING, 1)
            if name != base or path == files.lines:
                continue
            before = _made_with(GenerationFiles(path))
            taken = {**before["settings"], "limit": self.settings.limit}
            now = {**self.manifest, "settings": {**self.manifest["settings"], "trace": taken.get("trace")}}
            same = {**before, "settings": taken, "data": self.manifest["data"]}
            if any(differences(same, now)):
                continue
            lines = self._first_lines(path)
            if lines is not None:
                files.start({**same, "examples": len(lines), "inputs": self.manifest["inputs"]})
                write_json_lines(files.lines, lines)
                self.talk.say(f"{label}: the first {len(lines):,} predictions of {path} are taken")
                return True
        return False

    def _first_lines(self, path: Path) -> list[dict[str, Any]] | None:
        """As many lines as there are records, if each holds what its record does."""
        lines = []
        written = read_whole_lines(path)
        for record in self.inputs.read():
            found = next(written, None)
            given = {name: value for name, value in record.fields.items() if name != "id"}
            if found is None or str(found.get("id")) != record.id or not given.items() <= found.items():
                return None
            lines.append(found)
        return lines


def _made_with(files: GenerationFiles) -> dict[str, Any]:
    """The manifest beside a file, with no settings where there is none."""
    content = read_manifest(files.manifest) if files.manifest.is_file() else {}
    return {**content, "settings": content.get("settings") or {}}


def _name(settings: GenerateSettings, method: Method, usual: Limits) -> str:
    """What a file of predictions is called, with all that is unusual about it."""
    whole = isinstance(method.schedule, Whole)
    parts = ["sequential" if whole else f"pipelined-{method.schedule.name}"]
    if method.explore == "once" and not whole:
        parts.append("once")
    for name, limit in asdict(method.limits).items():
        if limit != getattr(usual, name):
            parts.append(f"{name.replace('_', '')}{limit}")
    if settings.max_source_tokens is not None:
        parts.append(f"source{settings.max_source_tokens}")
    if settings.dtype != "float32":
        parts.append(settings.dtype)
    if settings.model is not None:
        parts.append(Path(settings.model).resolve().name)
    if settings.text:
        parts.append("text")
    elif settings.data == STDIN:
        parts.append("stdin")
    elif settings.data is not None:  # a file's name without its endings, a data set's without its owner
        name = Path(settings.data).resolve().name
        parts.append(name.removesuffix(".gz").rpartition(".")[0] or name)
    if settings.split not in (None, "test"):
        parts.append(settings.split)
    if settings.limit is not None:
        parts.append(f"first{settings.limit}")
    return re.sub(r"[^\w.-]+", "-", "-".join(parts))


@dataclass(slots=True)
class Tally:
    """Counts over the examples that a run has generated; those that a resumed run found done are not among them.

    Attributes:
        unknown_id: the id of the tokenizer's unknown token; None if it has none.
        steps: the examples' own decoder calls, added up.
        tokens: <eos> not counted.
        truncated: examples by what cut them short.
        exhausted: examples whose empty explorations kept a later one from being made, as `sub_max` was reached.
        cut: ids of the examples whose source was cut.
        unknown: ids of those whose source holds unknown characters.
    """

    unknown_id: int | None
    examples: int = 0
    steps: int = 0
    tokens: int = 0
    truncated: Counter[str] = field(default_factory=Counter)
    exhausted: int = 0
    cut: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add(self, generated: Generated) -> None:
        """Count one example."""
        self.examples += 1
        self.steps += generated.steps
        self.tokens += generated.tokens
        self.truncated.update([generated.truncated] if generated.truncated else [])
        self.exhausted += generated.used_up
        if generated.source_cut:
            self.cut.append(generated.id)
        if self.unknown_id in generated.source_ids:
            self.unknown.append(generated.id)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that an example's decoder call gives it on average."""
        return self.tokens / self.steps if self.steps else 0.0

    def as_json(self) -> dict[str, Any]:
        """The counts as plain values."""
        return {
            "examples": self.examples,
            "steps": self.steps,
            "tokens": self.tokens,
            "tokens_per_step": round(self.tokens_per_step, 4),
            "truncated": dict(sorted(self.truncated.items())),
            "explorations_exhausted": self.exhausted,
            "sources_cut": len(self.cut),
            "sources_with_unknown": len(self.unknown),
        }

    def warnings(self, limit: int) -> Iterator[str]:
        """What the model could not see of the sources, of which it takes so many tokens."""
        if self.cut:
            yield (
                f"{self._some(self.cut)} longer than {limit:,} tokens and cut: {_first(self.cut)}; "
                "--max-source-tokens sets the limit"
            )
        if self.unknown:
            yield (
                f"{self._some(self.unknown)} with characters that the tokenizer does not know: "
                f"{_first(self.unknown)}"
            )

    def lines(self, seconds: float, limits: Limits) -> Iterator[str]:
        """Counts and rates, a line each."""
        if not self.examples:
            return
        yield (
            f"{many(self.examples, 'example')} in {seconds:.1f} s: {self.examples / seconds:.2f} examples/s, "
            f"{self.tokens / seconds:,.0f} tokens/s"
        )
        yield (
            f"{self.tokens:,} tokens in {self.steps:,} decoder calls, each example's own: "
            f"{self.tokens_per_step:.2f} tokens a call"
        )
        if self.truncated:
            reasons = ", ".join(f"{count:,} by {reason}" for reason, count in sorted(self.truncated.items()))
            yield f"cut short: {reasons}, of {self.examples:,}"
        if self.exhausted:
            yield (
                f"empty explorations used up all {limits.sub_max} subsequences in {self.exhausted:,} of "
                f"{self.examples:,}: text may be missing there; see --explore once, a larger --delay or --sub-max"
            )

    def _some(self, ids: list[str]) -> str:
        return f"{len(ids):,} of {many(self.examples, 'source')} {'was' if len(ids) == 1 else 'were'}"


def _first(ids: list[str]) -> str:
    return f"id {', '.join(ids[:5])}{', …' if len(ids) > 5 else ''}"
