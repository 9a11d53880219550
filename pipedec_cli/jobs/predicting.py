"""A file of predictions made whole: what `generate` and `report` share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.inputs import Inputs
from pipedec_cli.data.locking import only_writer
from pipedec_cli.data.merging import begin_job
from pipedec_cli.data.predictions import PredictionsFile, line
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.data.wording import many
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import JsonLinesAppender, manifest, write_json_lines
from pipedec_cli.jobs.events import Generating, GenerationEnded, Notify
from pipedec_cli.jobs.generate import GenerateSettings
from pipedec_cli.jobs.naming import name_of
from pipedec_cli.jobs.tally import Tally
from pipedec_cli.model.batch_size import choose_batch_size
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.engine.torch.block import can_prepack
from pipedec_cli.model.exact import ExactDecoder
from pipedec_cli.pipeline.schedule import Fixed, Together, Whole

#: Characters of a source that the live view's heading gets to see.
HEADING: Final = 200


class Predictions:
    """What one decoder makes of some records: how, under which name, and how the file comes to be whole.

    Inputs and decoder may serve several, whose settings differ in how they decode. The `name` that the file goes by
    tells decoder and delay, such as ``pipelined-delay2``, and all that is unusual; the `manifest` beside it says what the
    predictions are made with. `tally` and `seconds`, the wall time of generating, are those of this run.
    """

    def __init__(self, settings: GenerateSettings, decoder: Decoder, inputs: Inputs, notify: Notify) -> None:
        """Resolve every setting, generating nothing; a `UserError` if the checkpoint was not trained for the delay."""
        import torch

        self.settings, self.decoder, self.inputs, self.notify = settings, decoder, inputs, notify
        self.exact = decoder if isinstance(decoder, ExactDecoder) else None
        draft = self.exact.kind if self.exact else None
        checkpoint, trained, longest = decoder.checkpoint, decoder.settings, decoder.text.max_source_tokens
        how = settings.some("empty_rows", "stop_on_repeat", "min_start_prob")
        chosen = partial(decoder.method, settings.delay, force=settings.force, **how)
        self.method = chosen(**settings.some("time_max", "sub_max", "max_tokens"))
        self.name = name_of(settings, self.method, chosen().limits, draft)
        if settings.batch_size == "auto" and not settings.live:
            tokens = min(longest, inputs.longest + decoder.text.longest_around)
            self.batch_size = choose_batch_size(checkpoint.model, tokens, inputs.count)
        else:
            self.batch_size = 1 if settings.batch_size == "auto" else settings.batch_size
        schedule, fields = self.method.schedule, decoder.fields
        plain, together = isinstance(schedule, Whole), isinstance(schedule, Together)
        self._traced = settings.trace if settings.trace is not None else not (settings.out or settings.text)
        resolved = {
            "decoder": trained.decoder,
            "delay": schedule.delay if isinstance(schedule, Fixed) else None if plain else schedule.name,
            "empty_rows": None if plain or together else self.method.empty_rows,
            "stop_on_repeat": None if plain or together else self.method.stop_on_repeat,
            "min_start_prob": self.method.min_start_prob or None,
            "exact": draft,
            **({"unconstrained": decoder.unconstrained} if fields else {}),
            **asdict(self.method.limits),
            **decoder.text.described,
            "dtype": settings.dtype,
            "device": checkpoint.device.type,
            **{f"{name}_field": value for name, value in to_builtins(inputs.names).items()},
            "limit": settings.limit,
            "trace": self._traced,
            "batch_size": self.batch_size,
            "threads": torch.get_num_threads(),
        }
        self.manifest: dict[str, Any] = {
            "examples": inputs.count,
            "segmentation": to_builtins(trained.segmentation) if checkpoint.settings else None,
            "model": {"name": checkpoint.name, "sha256": decoder.sha256},
            "data": {"name": inputs.file["path"], "sha256": inputs.sha256},
            **manifest(resolved),
            "inputs": [inputs.file],
        }
        if shard := inputs.shard:
            self.manifest["shard"] = {**asdict(shard), "records": inputs.total}
        if self.exact and (drafter := self.exact.drafter):
            self.manifest["drafter"] = {"name": drafter.checkpoint.name, "sha256": drafter.sha256}
        self.tally = Tally(checkpoint.tokenizer.unk_token_id, checkpoint.positions)
        self._resumes = False  # whether a stopped run goes on with --resume, and not by itself
        self.seconds = 0.0

    def path(self) -> Path:
        """The file in the workspace."""
        return Workspace.find(self.settings.workspace).generations(self.name)

    @property
    def _described(self) -> str:
        delay = self.manifest["settings"]["delay"]
        kind = "waiting schedule" if delay == "wait" else f"Δt = {delay}"
        ends = ", stop on repeat" if self.method.stop_on_repeat else ""
        early = f", min start prob {self.method.min_start_prob:g}" if self.method.min_start_prob else ""
        told = f"{kind}, empty rows {self.method.empty_rows}{ends}{early}"
        if delay == "together":
            told = f"{many(len(self.method.openings), 'field')} at a time{', unconstrained' if self.decoder.unconstrained else ''}"
        if self.exact:
            return f"exact, drafted by {told if self.exact.drafter else self.exact.kind}"
        return told if delay else "sequential decoder"

    @property
    def _labels(self) -> Sequence[str]:
        """What the rows are called, where each is a key's."""
        fields = None if self.exact else self.decoder.fields
        return [field.name for field in fields.fields] if fields and self.method.openings else ()

    def announce(self) -> None:
        """Say what was chosen."""
        import torch

        say, settings, made_with = self.notify.say, self.settings, self.manifest["settings"]
        checkpoint, trained = self.decoder.checkpoint, self.decoder.checkpoint.settings
        on_cpu = checkpoint.device.type == "cpu"
        threads = f" with {many(made_with['threads'], 'thread')}" if on_cpu else ""
        auto = " (auto)" if settings.batch_size == "auto" else ""
        on = f"{settings.dtype} on {checkpoint.device}{threads}"
        say(f"{checkpoint.name}: {self._described}, {on}, batch size {self.batch_size}{auto}")
        if trained is None:
            say("it was not trained by `pipedec train`: it is decoded as the sequential model that it is")
        elif trained.decoder == "pipelined" and trained.delay not in ("any", made_with["delay"]):
            self.notify.warn(
                f"{checkpoint.name} was trained for delay {trained.delay} only: it may take the first later "
                "exploration for the end and drop the rest of the text"
            )
        if on_cpu and settings.dtype == "bfloat16" and not can_prepack(torch.bfloat16):
            say("this CPU has no kernels for bfloat16: float32 is likely to be faster")

    def line(self, generated: Generated) -> dict[str, Any]:
        """How a file holds what was generated."""
        return line(generated, self.inputs.names, trace=self.manifest["settings"]["trace"])

    def generate(self, emit: Callable[[Generated], None], done: int = 0) -> None:
        """Generate, passing over the records that are done, and say what came of it.

        `emit` gets each result, in input order, as soon as the order allows.
        """
        import torch

        records: dict[int, Record] = {}

        def sources() -> Iterator[str]:
            for index, record in enumerate(islice(self.inputs.read(), done, None)):
                records[index] = record
                yield record.source

        text, total = self.decoder.text, self.inputs.count - done
        self.notify.say(f"decoder steps: {self.decoder.engine(self.batch_size).kernels}")
        generating = Generating(
            total=total,
            method=self._described,
            decode=text.decode,
            name=lambda index: records[index].source[:HEADING],
            labels=self._labels,
            opener=self.method.bos is not None,
            live=self.settings.live,
            live_speed=self.settings.live_speed,
        )
        began, shown = time.perf_counter(), 0.0  # what showing takes is no time of the decoder's
        self.notify(generating)
        try:
            for item in self.decoder.run(sources(), self.method, self.batch_size):
                if isinstance(item, Generated):
                    generated = replace(item, record=records.pop(item.index))
                    emit(generated)
                    self.tally.add(generated)
                    if said := self.tally.first_impression(total):
                        self.notify.warn(said)
                else:
                    before = time.perf_counter()
                    self.notify(item)
                    shown += time.perf_counter() - before
        except torch.OutOfMemoryError as error:
            what = f"{self.batch_size} examples at a time do not fit the memory of {self.decoder.checkpoint.device}"
            todo = "give a smaller --batch-size" + (", and --resume to go on" if self._resumes else "")
            raise UserError(what, todo=todo) from error
        finally:
            self.notify(GenerationEnded())
        self.seconds = time.perf_counter() - began - shown
        for said in self.tally.warnings(text.max_source_tokens):
            self.notify.warn(said)
        for said in self.tally.lines(self.seconds, self.method.limits):
            self.notify.say(said)
        if self.exact and (said := self.tally.saved_none(self.exact.costs)):
            self.notify.warn(said)

    def write(self, path: Path) -> dict[str, Any]:
        """Generate to a file, with its manifest beside it unless the file is no regular one, such as /dev/null.

        With ``--resume``, and for a shard, it goes on behind the lines that are there, a `UserError` if they are of another run;
        else what stands there is kept as FILE.bak. With a limit, a longer run in the workspace gives its first lines, unless they
        are to be watched. Gives what was done, as plain values.
        """
        files, done = PredictionsFile(path) if path.is_file() or not path.exists() else None, None
        with self._only_writer(path, "choose another --out") if files else nullcontext():
            shard = self.inputs.shard
            if shard:
                begin_job(path.parent, self.manifest, shard.of)
            self._resumes = files is not None and not shard
            if files and (self.settings.resume or shard) and files.begun:
                if self.settings.trace is None:
                    self._trace_as(files)
                done = files.done(self.manifest, self.inputs.read())
            alone = files if done is None and not self.settings.live and not shard else None
            if alone and self._take_from_longer(alone, str(path)):
                done = self.inputs.count
            else:
                self._append(path, files, done)
            bad = self._set_aside(files) if files and self.inputs.invalid else 0
            if files:
                files.finish_lines()
        return {
            "out": str(path),
            "rows": self.inputs.count,
            "resumed_from": done or 0,
            **({"set_aside": bad} if self.inputs.invalid else {}),
            **self.tally.as_json(),
            "seconds": round(self.seconds, 3),
            "examples_per_second": round(self.tally.examples / self.seconds, 3) if self.seconds else None,
            "tokens_per_second": round(self.tally.tokens / self.seconds, 3) if self.seconds else None,
            "settings": self.manifest["settings"],
        }

    def whole(self) -> bool:
        """Whether all of these predictions are in the workspace's file; lines that hold more serve as well."""
        files = PredictionsFile(self.path())
        if files.begun:
            self._trace_as(files)
        with suppress(UserError):
            return files.begun and files.done(self.manifest, self.inputs.read()) == self.inputs.count
        return False

    def complete(self, label: str) -> Path:
        """The workspace's file of these predictions, whole; nothing is generated that is there already.

        A stopped run goes on. Of a run with --limit, the lines may be the first ones of a longer run. The label is what
        the decoder is called in what is said.
        """
        files = PredictionsFile(self.path())
        if self.whole():
            self.notify.say(f"{label}: all {self.inputs.count:,} predictions are in {files.path}")
            return files.path
        with self._only_writer(self.path(), "choose another --workspace"):
            done = None
            if files.begun:
                try:
                    done = files.done(self.manifest, self.inputs.read())
                except UserError as error:
                    told = f"is of another run and is generated anew ({error.what})"
                    self.notify.say(f"{label}: {files.path} {told}")
                    files = PredictionsFile(self.path())
                    self.manifest["settings"]["trace"] = self._traced
            if done or not self._take_from_longer(files, label):
                self.announce()
                self._append(files.path, files, done)
            files.finish_lines()
        return files.path

    def _trace_as(self, files: PredictionsFile) -> None:
        """Take lines as they are, with a trace or without one, unless one was asked for."""
        begun = files.settings.get("trace") is True
        self.manifest["settings"]["trace"] = begun or self.settings.trace is True

    def _only_writer(self, path: Path, todo: str) -> AbstractContextManager[None]:
        return only_writer(path, todo=todo, warn=self.notify.warn)

    def _take_from_longer(self, files: PredictionsFile, label: str) -> bool:
        """Take the first lines of a longer run of the same settings, model and data, if there is one with a --limit."""
        settings = {**self.manifest["settings"], "trace": self.settings.trace is True}
        for path in sorted(self.path().parent.glob("*.jsonl")):
            name = re.sub(r"-first\d+$", "", path.stem)
            longer, same = PredictionsFile(path), f"{name}-first{self.settings.limit}" == self.name
            other = same and path != files.path
            if other and (
                taken := longer.first_lines({**self.manifest, "settings": settings}, self.inputs.read())
            ):
                made_with, lines = taken
                if changed := longer.version_changes(self.manifest):
                    self.notify.warn(f"other versions than when {path} was made: {', '.join(changed)}")
                if kept := files.start(made_with):
                    self.notify.say(f"what stood in {files.path.name} is kept as {kept.name}")
                write_json_lines(files.path, lines)
                self.notify.say(f"{label}: the first {len(lines):,} predictions of {path} are taken")
                return True
        return False

    def _set_aside(self, files: PredictionsFile) -> int:
        """Keep what is wrong with the records that were passed over, and say it of the first; gives how many there are."""
        if count := files.write_invalid(self.inputs.skipped()):
            first = next(self.inputs.skipped())
            what = f"{many(count, 'record')} set aside in {files.invalid_path}"
            self.notify.warn(f"{what}; the first: {first['where']}: {first['what']}")
        return count

    def _append(self, path: Path, files: PredictionsFile | None, done: int | None) -> None:
        """Generate what is not done, all of it anew if that is None; say what stood there, and what a stop leaves."""
        say, count = self.notify.say, self.inputs.count
        if exact := self.exact:  # how much is guessed must not change on the way
            begun = files.manifest.get("costs") if files and done is not None else None
            exact.costs = self.manifest["costs"] = tuple(begun or exact.measured(self.batch_size))
        if files and done is not None:
            if changed := files.version_changes(self.manifest):
                self.notify.warn(f"other versions than when this run was begun: {', '.join(changed)}")
            what = "is whole already" if done == count else "goes on"
            say(f"{path} {what}: {done:,} of {count:,} lines are there")
        elif files:
            if kept := files.start(self.manifest):
                say(f"what stood in {path.name} is kept as {kept.name}")
            if self.settings.resume and not self.inputs.shard:
                say(f"there is no {path} to go on with: starting at the beginning")
        if done is None or done < count:
            try:
                with JsonLinesAppender(path, resume=bool(done)) as lines:
                    self.generate(lambda generated: lines.write(self.line(generated)), done or 0)
            except (KeyboardInterrupt, OSError) as error:
                hint = "there is nothing to resume from"
                if files and files.begun:
                    whole = f"{files.count():,} of {count:,} lines are in {path}"
                    again = "the same command" + (" with --resume" if self._resumes else "")
                    hint = f"{whole}; {again} goes on"
                if isinstance(error, OSError) and error.filename in (None, str(path)):
                    raise OSError(error.errno, f"{error.strerror}; {hint}", str(path)) from error
                self.notify.warn(f"stopped: {hint}")
                raise
        say(f"{many(count, 'prediction')} in {path}")
