"""A run: a decoder on some records with every setting resolved, and the lines that it writes."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, Self

from msgspec import structs, to_builtins

from pipedec_cli.data.errors import UserError, log, many
from pipedec_cli.data.fields import Field, Keys, any_item, kind_of, leaves
from pipedec_cli.data.inputs import Inputs
from pipedec_cli.data.places import places_of
from pipedec_cli.data.predictions import PredictionsFile, begin_job, line
from pipedec_cli.data.reading import real
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.data.resumable import FREE_SETTINGS
from pipedec_cli.data.writing import JsonLinesAppender, manifest, named_by_hash
from pipedec_cli.decoding.batch_size import choose_batch_size
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.decoding.exact import measured
from pipedec_cli.decoding.plans import TextPlan
from pipedec_cli.decoding.whole import WholePlan
from pipedec_cli.events import Generating, Listen, shown
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.settings import spelled
from pipedec_cli.jobs.tally import GenerateResult, Tally
from pipedec_cli.model.arguments import computes_bfloat16
from pipedec_cli.objects.candidates import is_worded
from pipedec_cli.objects.chunks import Chunk, Chunks
from pipedec_cli.pipeline.grid import Method
from pipedec_cli.pipeline.schedule import (
    LARGEST,
    Fixed,
    Listed,
    Schedule,
    Together,
    Whole,
)

#: Settings that say what lines hold besides: lines that hold more serve as well.
_OF_LINES: Final = frozenset({"trace", "confidence"})


@dataclass(frozen=True, kw_only=True)
class Run:
    """The records that a decoder decodes, and how. Several runs may share inputs and decoder."""

    settings: GenerateSettings  # as a person gave them
    decoder: Decoder
    inputs: Inputs
    method: Method
    batch_size: int
    used: dict[str, Any]  # the resolved settings, as the manifest has them
    chunks: Chunks | None  # how long sources are cut, if they are

    def as_begun(self, begun: Mapping[str, Any]) -> Self:
        """This run, changed so that it continues a run that was begun with the settings `begun`.

        Its lines have a grid and confidences if the lines have them that are there, or
        if a person asks for them.
        """
        used = dict(self.used)
        used["trace"] = begun.get("trace") is True or bool(self.settings.trace)
        sure = begun.get("confidence") is True or self.settings.confidence
        used.pop("confidence", None)
        if sure:
            used["confidence"] = True
        method = replace(self.method, confident=self.method.confident or sure)
        return replace(self, used=used, method=method)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Model, data and settings of the lines. It hashes the weights, so only a run that writes a file computes it."""
        decoder = self.decoder
        inputs = self.inputs
        checkpoint = decoder.checkpoint
        segmentation = None  # of a model that `train` did not make
        if checkpoint.settings:
            segmentation = to_builtins(decoder.settings.segmentation)
        content = {
            "examples": inputs.count,
            "segmentation": segmentation,
            "model": {"name": checkpoint.name, "sha256": decoder.sha256},
            "data": {"name": inputs.file["path"], "sha256": inputs.sha256},
            **manifest(self.used),
            "inputs": [inputs.file],
        }
        if inputs.shard:
            content["shard"] = {**asdict(inputs.shard), "records": inputs.total}
        if decoder.drafter and decoder.drafter.decoder:
            drafting = decoder.drafter.decoder
            content["drafter"] = {
                "name": drafting.checkpoint.name,
                "sha256": drafting.sha256,
            }
        return content

    @cached_property
    def path(self) -> Path:
        """The file in the workspace, such as ``pipelined-delay2-1f0c77d2.jsonl``: model, method, data, and a hash.

        Runs that would write different lines have different files. It hashes the
        weights, as the manifest does.
        """
        settings = self.settings
        decoder = self.decoder
        schedule = self.method.schedule
        words = [_placed(decoder.checkpoint.name).name]
        if decoder.drafter:
            words.append(f"exact-{decoder.drafter.kind}")
        if not isinstance(schedule, Whole):
            words.append(schedule.name)
        if settings.text:
            words.append("text")
        elif settings.data is not None:
            # A file's name without its endings, a data set's without its owner.
            data = real(settings.data).name.removesuffix(".gz")
            words.append(data.rpartition(".")[0] or data)
        if settings.split not in (None, "test"):
            words.append(settings.split)
        return settings.place.generations(named_by_hash(words, self._identity))

    @property
    def _identity(self) -> dict[str, Any]:
        """What makes the lines what they are. All of it stands in the manifest."""
        free = {*FREE_SETTINGS, *_OF_LINES}
        identity: dict[str, Any] = {
            "settings": {
                name: value for name, value in self.used.items() if name not in free
            },
            "data": self.inputs.sha256,
        }
        for name in ("model", "drafter"):
            model = self.manifest.get(name)
            if model:
                folder = model["name"]
                if Path(folder).exists():
                    # Seen from the workspace: both may be moved together.
                    root = real(self.settings.place.root)
                    folder = os.path.relpath(_placed(folder), root)
                identity[name] = {"folder": folder, "sha256": model["sha256"]}
        return identity

    @property
    def labels(self) -> Sequence[str]:
        """The keys of the rows, where each row is a field of an object; () for other rows."""
        fields = self.decoder.fields
        if self.decoder.drafter or not fields or not self.method.openings:
            return ()
        return [field.name for field in fields.fields]

    @property
    def description(self) -> str:
        """The method in words, such as ``Δt = 2, empty rows retry``."""
        drafter = self.decoder.drafter
        method = self.method
        if drafter and drafter.decoder is None:
            return f"exact, drafted by {drafter.kind}"
        if isinstance(method.schedule, Whole):
            return "sequential decoder"
        if isinstance(method.schedule, Together):
            row = "key" if method.blind else "field"
            words = f"{many(len(method.openings), row)} at a time"
            if method.blind:
                words += ", each answered by itself"
            if isinstance(method.schedule, Listed):
                words += f", items: {_start(method.schedule.between)}"
        else:
            words = _start(method.schedule)
            words += f", empty rows {method.empty_rows}"
            if method.stop_on_repeat:
                words += ", stop on repeat"
        return f"exact, drafted by {words}" if drafter else words


def _placed(model: str) -> Path:
    """Where a model's folder or file is, whatever way it was named. A link to a model keeps its own name."""
    path = Path(os.path.abspath(model))  # noqa: PTH100  # `Path.absolute` keeps `..`
    return real(path.parent) / path.name


def _start(schedule: Schedule) -> str:
    """When the next row starts, in words."""
    if isinstance(schedule, Fixed):
        return f"Δt = {schedule.delay}"
    return "waiting schedule"


def method_of(settings: GenerateSettings, decoder: Decoder) -> Method:
    """The decoding method of the settings; what they leave open the decoder's training says."""
    limits = ("time_max", "sub_max", "max_tokens")
    chosen = settings.some("delay", "empty_rows", "stop_on_repeat", *limits)
    method = decoder.method(**chosen)
    # Values of chunks are chosen by their confidence.
    is_asked = settings.confidence or bool(settings.chunk)
    return replace(method, confident=method.confident or is_asked)


def plan_run(settings: GenerateSettings, decoder: Decoder, inputs: Inputs) -> Run:
    """Resolve every setting; a `UserError` if the model was not trained for what is asked."""
    method = method_of(settings, decoder)
    decoder.text.source("")  # raises the error of a prompt that is too long
    chunks = decoder.chunks(settings.chunk) if settings.chunk else None
    batch_size = _batch_size(settings, decoder, inputs)
    return Run(
        settings=settings,
        decoder=decoder,
        inputs=inputs,
        method=method,
        batch_size=batch_size,
        used=_resolved(settings, decoder, inputs, method, batch_size),
        chunks=chunks,
    )


def _batch_size(settings: GenerateSettings, decoder: Decoder, inputs: Inputs) -> int:
    """How many examples are decoded at a time: a number that was given, or one that fits the memory."""
    if settings.batch_size != "auto":
        return settings.batch_size
    if settings.live:
        return 1
    longest = min(inputs.longest, settings.chunk or inputs.longest)
    tokens = min(decoder.text.max_source_tokens, longest + decoder.text.longest_around)
    return choose_batch_size(decoder.checkpoint.model, tokens, inputs.count)


def _resolved(
    settings: GenerateSettings,
    decoder: Decoder,
    inputs: Inputs,
    method: Method,
    batch_size: int,
) -> dict[str, Any]:
    """All settings of a run with their values, in the order of the manifest."""
    import torch

    of_lines = settings.some("confidence", "spans", "chunk")
    trace = settings.trace
    if trace is None:
        trace = not (settings.out or settings.to_stdout)
    used = {
        "decoder": decoder.settings.decoder,
        **_resolved_schedule(method),
        "exact": decoder.drafter and decoder.drafter.kind,
        **{name: value for name, value in of_lines.items() if value},
    }
    if decoder.fields:
        used["grounded"] = _is_grounded(decoder)
    used |= asdict(method.limits)
    used |= decoder.text.described
    if decoder.blind:
        used["rows"] = decoder.blind.described
    if isinstance(decoder.plan, WholePlan):
        used["whole"] = decoder.plan.sha256
    return used | {
        "dtype": decoder.dtype,
        "device": decoder.checkpoint.device.type,
        "source_field": inputs.names.source,
        "target_field": inputs.names.target,
        "limit": settings.limit,
        "trace": trace,
        "batch_size": batch_size,
        "threads": torch.get_num_threads(),
    }


def _resolved_schedule(method: Method) -> dict[str, Any]:
    """The settings that say when rows start, None where they have no meaning."""
    schedule = method.schedule
    if isinstance(schedule, Listed):
        schedule = schedule.between
    delay: int | str | None = schedule.name
    if isinstance(schedule, Fixed):
        delay = schedule.delay
    elif isinstance(schedule, Whole):
        delay = None
    has_starts = not isinstance(method.schedule, Whole | Together)
    return {
        "delay": delay,
        "empty_rows": method.empty_rows if has_starts else None,
        "stop_on_repeat": method.stop_on_repeat if has_starts else None,
    }


def _is_grounded(decoder: Decoder) -> bool:
    """Whether values are parts of the source."""
    plan = decoder.plan
    return not isinstance(plan, TextPlan | WholePlan) and plan.grounded


#: Characters of a source in the heading of the live view.
HEADING: Final = 200
#: A value with more words is likely a sentence.
SENTENCE: Final = 8


def announce(run: Run) -> None:
    """Say with which model and how a run decodes, and warn of a choice that is slow or was not trained."""
    checkpoint = run.decoder.checkpoint
    schedule = run.method.schedule
    used = run.used
    on_cpu = checkpoint.device.type == "cpu"
    threads = f" with {many(used['threads'], 'thread')}" if on_cpu else ""
    auto = " (auto)" if run.settings.batch_size == "auto" else ""
    on = f"{used['dtype']} on {checkpoint.device}{threads}"
    log.info(
        f"{checkpoint.name}: {run.description}, {on}, batch size {run.batch_size}{auto}"
    )
    if checkpoint.settings is None:
        log.info(
            "it was not trained by `pipedec train`: it is decoded as a sequential model"
        )
    if isinstance(schedule, Fixed) and schedule.delay > LARGEST:
        log.warning(
            f"Δt = {schedule.delay} is larger than any delay of a training (up to {LARGEST})"
        )
    if on_cpu and used["dtype"] == "bfloat16" and not computes_bfloat16():
        log.info("this CPU has no kernels for bfloat16: float32 is likely to be faster")


def stream(
    run: Run,
    listen: Listen,
    emit: Callable[[Generated, Mapping[str, Any]], None],
    done: int = 0,
) -> Tally:
    """Generate from the records of a run behind the first `done`. Returns what was counted.

    Args:
        run: the run.
        listen: takes the events of decoding; what they take is not counted as time.
        emit: takes each result and its line as soon as the order of the records allows.
        done: the number of records whose lines are there already.
    """
    import torch

    checkpoint = run.decoder.checkpoint
    results = _Results(run, done)
    log.info(f"decoder steps: {run.decoder.weights.kernels}")
    generating = Generating(
        total=None if run.chunks else results.total,
        method=run.description,
        decode=run.decoder.text.decode,
        name=results.heading,
        labels=run.labels,
        opener=run.method.bos is not None,
        live=run.settings.live,
    )
    showing = 0.0  # seconds
    began = time.perf_counter()
    try:
        with shown(listen, generating):
            for item in run.decoder.run(results.texts(), run.method, run.batch_size):
                if isinstance(item, Generated):
                    results.take(item, emit)
                    continue
                before = time.perf_counter()
                listen(item)
                showing += time.perf_counter() - before
    except torch.OutOfMemoryError as error:
        what = f"{run.batch_size} examples at a time do not fit the memory of {checkpoint.device}"
        raise UserError(what, todo="give a smaller --batch-size") from error
    tally = results.tally
    tally.seconds = time.perf_counter() - began - showing
    tally.report(run.used, run.decoder.drafter.costs if run.decoder.drafter else None)
    if results.asked and tally.examples:
        _warn_of_values(run, results.read_off)
    return tally


class _Results:
    """The texts of a run and what comes of them: parts of a source are put together, and all is counted."""

    def __init__(self, run: Run, done: int) -> None:
        self.run = run
        self.done = done  # records whose lines are there already
        self.total = run.inputs.count - done
        self.tally = Tally()
        self.asked = _read_fields(run)  # the keys whose values are looked up there
        #: How many of these values stand in the source, and how many do not.
        self.read_off = Counter[bool]()
        #: The record of each text, its part of the source, and whether that is the
        #: last part.
        self._records: dict[int, tuple[Record, Chunk, bool]] = {}
        self._parts: list[tuple[Chunk, Generated]] = []

    def texts(self) -> Iterator[str]:
        """The sources behind those that are done, in chunks if they are cut."""
        chunks = self.run.chunks
        numbers = count()
        for record in islice(self.run.inputs.read(), self.done, None):
            cut = [Chunk(record.source)]
            if chunks:
                cut = chunks.cut(record.source)
            for chunk in cut:
                self._records[next(numbers)] = record, chunk, chunk is cut[-1]
                yield chunk.text

    def heading(self, index: int) -> str:
        """The beginning of the source of a text that is being decoded."""
        record, _, _ = self._records[index]
        return record.source[:HEADING]

    def take(
        self, item: Generated, emit: Callable[[Generated, Mapping[str, Any]], None]
    ) -> None:
        """Take what was generated from one of the `texts`; with the last part of a source, count the whole and `emit` it."""
        record, chunk, is_last = self._records.pop(item.index)
        self._parts.append((chunk, item))
        if not is_last:
            return
        run = self.run
        whole = run.chunks.merged(self._parts) if run.chunks else item
        generated = structs.replace(whole, record=record)
        if len(self._parts) > 1:
            self.tally.chunked += 1
            self.tally.chunks += len(self._parts)
        self._parts.clear()
        emit(generated, self._line(generated))
        self._count(generated, record)

    def _line(self, generated: Generated) -> dict[str, Any]:
        """The line of a result, with what the run's settings ask for."""
        used = self.run.used
        return line(
            generated,
            self.run.inputs.names,
            batch_size=self.run.batch_size,
            trace=bool(used.get("trace")),
            confidence=bool(used.get("confidence")),
            spans=bool(used.get("spans")),
        )

    def _count(self, generated: Generated, record: Record) -> None:
        """Count a result, and warn early if the model does not end its texts."""
        checkpoint = self.run.decoder.checkpoint
        self.tally.add(
            generated, checkpoint.tokenizer.unk_token_id, checkpoint.positions
        )
        self.tally.keys += len(self.run.labels)
        values = generated.fields or {}
        self.read_off.update(_read_off(record.source, values, self.asked))
        self.tally.warn_early(self.total)


def _read_fields(run: Run) -> tuple[Field, ...]:
    """The keys whose values an untrained model is to read off the source: not those of a choice, yes or no, or words it makes.

    None if the model was trained for its keys, or answers questions.
    """
    blind = run.decoder.blind
    if blind is None or blind.rows.questions:
        return ()
    fields = blind.rows.tree.values()
    return tuple(
        field
        for field in fields
        if not (field.enum or field.kind == "boolean" or is_worded(field))
    )


def _warn_of_values(run: Run, read_off: Mapping[bool, int]) -> None:
    """Warn if most values of an untrained model are not read off their texts, or if there is none.

    `read_off` counts the values by whether they are.
    """
    blind = run.decoder.blind
    assert blind is not None, "only such rows are counted"
    todo = "a training (`pipedec segment --level field`) teaches the model"
    if not blind.rows.shots:
        todo = f"--shots FILE:4 shows the model four examples, and {todo}"
    count = read_off[True] + read_off[False]
    if not count:
        log.warning(f"no value was found in the texts; {todo}")
    elif read_off[False] >= read_off[True]:
        what = "values that are not in their text, or as long as a sentence"
        log.warning(f"{what}: {read_off[False]:,} of {count:,}; {todo}")


def _read_off(
    source: str, values: Mapping[str, Any], fields: Sequence[Field]
) -> Iterator[bool]:
    """Of each string and number of an object that belongs to these fields: whether it stands in the source and is no sentence."""
    paths = set[Keys]()
    for field in fields:
        is_item = isinstance(field.keys[-1], int)  # of a list, which has the value
        paths.add(field.keys[:-1] if is_item else field.keys)
    for keys, value in leaves(values):
        if any_item(keys) not in paths:
            continue
        for item in value if isinstance(value, list) else [value]:
            if not kind_of(item) or isinstance(item, bool):
                continue
            is_sentence = isinstance(item, str) and len(item.split()) > SENTENCE
            yield bool(places_of(item, source)) and not is_sentence


def write(
    run: Run,
    path: Path,
    listen: Listen,
    *,
    resume: bool,
    again: str,
    todo: str = "choose another --out",
    checked: int | None = None,
) -> GenerateResult:
    """Write a run to a file, with its manifest beside it unless the file is no regular one, such as /dev/null.

    Args:
        run: the run.
        path: the file.
        listen: takes the events of decoding.
        resume: go on behind the lines that are there. Without it an earlier file is
            kept as FILE.bak.
        again: the words for how to go on after a stop.
        todo: the words for what to do if another process writes to the file.
        checked: so many lines were just compared with the inputs, and are not compared
            again.

    Raises:
        UserError: another run wrote the lines that are there.
    """
    file = None
    if path.is_file() or not path.exists():
        file = PredictionsFile(path)
    done = None
    with file.lock(todo=todo) if file else nullcontext():
        if file and resume and file.begun:
            run = run.as_begun(file.settings)
            file.spell = partial(spelled, kind=GenerateSettings)
            done = checked
            if done != file.count():
                done = file.done(run.manifest, run.inputs.read())
        elif file and resume and not file.shard:
            log.info(f"there is no {path} to go on with: starting at the beginning")
        tally = _append(run, path, file, done, listen, again)
        invalid = list_invalid(run, file)
        if file:
            file.finish_lines()
    return _result(run, path, tally, done or 0, invalid)


def is_complete(run: Run) -> bool:
    """Whether all lines of a run are in the workspace's file. Lines that hold more serve as well."""
    with suppress(UserError):
        return _lines_there(run) == run.inputs.count
    return False


def _lines_there(run: Run) -> int | None:
    """How many lines of a run are in the workspace's file, None if there is no file; a `UserError` if another run wrote it."""
    file = PredictionsFile(run.path)
    if not file.begun:
        return None
    return file.done(run.as_begun(file.settings).manifest, run.inputs.read())


def complete(run: Run, label: str, listen: Listen) -> GenerateResult:
    """Have all lines of a run in its file in the workspace: a stopped run goes on, and lines that are there stay.

    Messages call the run `label`.
    """
    path = run.path
    count = run.inputs.count
    done = None
    try:
        done = _lines_there(run)
    except UserError as error:
        log.info(
            f"{label}: {path} is of another run and is generated anew ({error.what})"
        )
    if done == count:
        log.info(f"{label}: all {count:,} predictions are in {path}")
        return _result(run, path, Tally(), count)
    announce(run)
    return write(
        run,
        path,
        listen,
        resume=done is not None,
        again="the same command",
        todo="choose another --workspace",
        checked=done,
    )


def write_part(run: Run, folder: Path, listen: Listen) -> GenerateResult:
    """Write the file of a run over one shard of a job, or go on with it."""
    shard = run.inputs.shard
    assert shard is not None
    announce(run)
    begin_job(folder, run.manifest, shard.of)
    return write(
        run, folder / shard.file, listen, resume=True, again="the same command"
    )


def _result(
    run: Run, path: Path, tally: Tally, done: int, invalid: int = 0
) -> GenerateResult:
    """What a run has left in its file: behind `done` lines that were there, what `tally` counts."""
    return GenerateResult(
        out=str(path),
        rows=run.inputs.count,
        counts=tally,
        settings=run.used,
        resumed_from=done,
        invalid=invalid,
    )


def list_invalid(run: Run, file: PredictionsFile | None) -> int:
    """List the skipped records beside the file, if any, and say what is wrong with the first; returns how many there are."""
    if run.inputs.invalid is None:
        return 0
    listed = ""
    if file:
        count = file.write_invalid(run.inputs.skipped())
        listed = f", listed in {file.invalid_path}"
    else:
        count = sum(1 for _ in run.inputs.skipped())
    if count:
        first = next(run.inputs.skipped())
        what = f"{many(count, 'invalid record')} skipped{listed}"
        log.warning(f"{what}; the first: {first['where']}: {first['what']}")
    return count


def _append(
    run: Run,
    path: Path,
    file: PredictionsFile | None,
    done: int | None,
    listen: Listen,
    again: str,
) -> Tally:
    """Generate the lines of a run into the file at `path`, behind those that are there. Returns what was counted.

    Args:
        run: the run.
        path: where it writes.
        file: the same with its manifest; None for a device or a pipe.
        done: the number of lines that are there; None for a new file.
        listen: takes the events of decoding.
        again: the words for how to go on after a stop.
    """
    count = run.inputs.count
    manifest = _with_costs(run, file, done)
    if file and done is not None:
        _tell_of_lines(file, manifest, path, done, count)
    elif file:
        kept = file.start(manifest)
        if kept:
            log.info(f"what stood in {file.path.name} is kept as {kept.name}")
    tally = Tally()
    if done is None or done < count:
        try:
            with JsonLinesAppender(path, resume=bool(done)) as lines:
                tally = stream(
                    run, listen, lambda _, line: lines.write(line), done or 0
                )
        except (KeyboardInterrupt, OSError) as error:
            hint = _note_stop(path, file, count, again)
            if isinstance(error, OSError) and error.filename in (None, str(path)):
                what = f"{error.strerror}; {hint}"
                raise OSError(error.errno, what, str(path)) from error
            log.warning(f"stopped: {hint}")
            raise
    log.info(f"{many(count, 'prediction')} in {path}")
    return tally


def _with_costs(
    run: Run, file: PredictionsFile | None, done: int | None
) -> dict[str, Any]:
    """The manifest of a run, in exact mode with the costs of decoder calls, by which the drafter is told how much to guess.

    The costs are measured now, or are those that a run that goes on was begun with, so
    that it guesses as much. `file` and `done` are as in `_append`.
    """
    manifest = run.manifest
    drafter = run.decoder.drafter
    if not drafter:
        return manifest
    begun = file.manifest.get("costs") if file and done is not None else None
    drafter.costs = tuple(begun or measured(run.decoder, run.batch_size))
    return {**manifest, "costs": drafter.costs}


def _tell_of_lines(
    file: PredictionsFile,
    manifest: Mapping[str, Any],
    path: Path,
    done: int,
    count: int,
) -> None:
    """Say how many lines are there of a run that goes on, and what has other versions now."""
    changed = file.version_changes(manifest)
    if changed:
        log.warning(
            f"other versions than when this run was begun: {', '.join(changed)}"
        )
    what = "is whole already" if done == count else "goes on"
    log.info(f"{path} {what}: {done:,} of {count:,} lines are there")


def _note_stop(path: Path, file: PredictionsFile | None, count: int, again: str) -> str:
    """Note beside a file that its run was stopped. Returns how to go on with it."""
    if not (file and file.begun):
        return "there is nothing to resume from"
    hint = f"{file.count():,} of {count:,} lines are in {path}; {again} goes on"
    with suppress(OSError):  # the disk may be full
        file.note_stop()
    return hint
