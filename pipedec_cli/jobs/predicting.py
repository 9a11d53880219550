"""A run becomes lines: the stream of results, and the file that is written, goes on, or is there already."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field
from pipedec_cli.data.merging import begin_job
from pipedec_cli.data.objects import any_item, leaves
from pipedec_cli.data.predictions import PredictionsFile, line
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.data.wording import many
from pipedec_cli.data.writing import JsonLinesAppender
from pipedec_cli.jobs.commands import spelled
from pipedec_cli.jobs.events import Generating, GenerationEnded, Notify
from pipedec_cli.jobs.generate_settings import RunSettings
from pipedec_cli.jobs.run import Run
from pipedec_cli.jobs.tally import GenerateResult, Tally
from pipedec_cli.model.engine.torch.block import can_prepack

#: Characters of a source in the heading of the live view.
HEADING: Final = 200


def announce(run: Run, notify: Notify) -> None:
    """Say what was chosen."""
    import torch

    checkpoint, trained = run.decoder.checkpoint, run.decoder.checkpoint.settings
    used = run.used
    on_cpu = checkpoint.device.type == "cpu"
    threads = f" with {many(used['threads'], 'thread')}" if on_cpu else ""
    auto = " (auto)" if run.is_auto else ""
    on = f"{used['dtype']} on {checkpoint.device}{threads}"
    notify.say(f"{checkpoint.name}: {run.description}, {on}, batch size {run.batch_size}{auto}")
    if trained is None:
        notify.say("it was not trained by `pipedec train`: it is decoded as a sequential model")
    elif trained.decoder == "pipelined" and trained.delay not in ("any", used["delay"]):
        notify.warn(
            f"{checkpoint.name} was trained for delay {trained.delay} only: it may take the first later exploration for "
            "the end and drop the rest of the text"
        )
    if on_cpu and used["dtype"] == "bfloat16" and not can_prepack(torch.bfloat16):
        notify.say("this CPU has no kernels for bfloat16: float32 is likely to be faster")


def stream(
    run: Run, notify: Notify, emit: Callable[[Generated, Mapping[str, Any]], None], done: int = 0
) -> Tally:
    """Generate behind `done` records, and count. `emit` takes each result and its line as soon as the order allows."""
    import torch

    checkpoint, total = run.decoder.checkpoint, run.inputs.count - done
    tally, chunks, parts = Tally(), run.chunks, list[Generated]()
    records: dict[int, tuple[Record, bool]] = {}  # the record of each part, and whether it is the last part
    rows = getattr(run.decoder, "rows", None)
    # The model has seen no value of these keys.
    unshown = rows.fields if rows and not rows.shots and not rows.questions else ()
    numbers, are_long = count(), Counter[bool]()  # strings of objects by whether they are longer than a name

    def sources() -> Iterator[str]:
        for record in islice(run.inputs.read(), done, None):
            *others, last = chunks.cut(record.source) if chunks else [record.source]
            for part in others:
                records[next(numbers)] = record, False
                yield part
            records[next(numbers)] = record, True
            yield last

    notify.say(f"decoder steps: {run.decoder.engine(run.batch_size).kernels}")
    generating = Generating(
        total=None if chunks else total,
        method=run.description,
        decode=run.decoder.text.decode,
        name=lambda index: records[index][0].source[:HEADING],
        labels=run.labels,
        opener=run.method.bos is not None,
        live=run.live,
        live_speed=run.live_speed,
    )
    began, shown = time.perf_counter(), 0.0
    notify(generating)
    try:
        for item in run.decoder.run(sources(), run.method, run.batch_size):
            if isinstance(item, Generated):
                record, is_last = records.pop(item.index)
                parts.append(item)
                if not is_last:
                    continue
                generated = replace(chunks.merged(parts) if chunks else item, record=record)
                if len(parts) > 1:
                    tally.chunked += 1
                    tally.chunks += len(parts)
                parts.clear()
                emit(generated, line(generated, run.inputs.names, **run.more))
                tally.add(generated, checkpoint.tokenizer.unk_token_id, checkpoint.positions)
                tally.keys += len(run.labels)
                are_long.update(_are_long(generated.fields or {}, unshown))
                if warning := tally.first_impression(total):
                    notify.warn(warning)
            else:
                before = time.perf_counter()
                notify(item)
                shown += time.perf_counter() - before
    except torch.OutOfMemoryError as error:
        what = f"{run.batch_size} examples at a time do not fit the memory of {checkpoint.device}"
        raise UserError(what, todo="give a smaller --batch-size") from error
    finally:
        notify(GenerationEnded())
    tally.seconds = time.perf_counter() - began - shown
    tally.report(run.used, notify, run.exact.costs if run.exact else None)
    if are_long[True] > are_long[False]:
        notify.warn("most values are sentences: --shots FILE:N shows the model N examples with short ones")
    return tally


def _are_long(values: Mapping[str, Any], fields: Sequence[Field]) -> Iterator[bool]:
    """Whether each string that the model was free to write is longer than a name."""
    free = {field.keys for field in fields if not field.enum}
    for keys, value in leaves(values):
        if isinstance(value, str) and any_item(keys) in free:
            yield len(value.split()) > 8


def write(
    run: Run,
    path: Path,
    notify: Notify,
    *,
    resume: bool,
    again: str,
    todo: str = "choose another --out",
    checked: int | None = None,
) -> GenerateResult:
    """Write a run to a file, with its manifest beside it unless the file is no regular one, such as /dev/null.

    With `resume` it goes on behind the lines that are there: a `UserError` if another run wrote them. So many lines as were
    `checked` just before are not compared with the inputs again. Without `resume` an earlier file is kept as FILE.bak.
    `again` says how to go on after a stop; `todo` is for another writer of the file.
    """
    is_regular = path.is_file() or not path.exists()
    file, done = PredictionsFile(path) if is_regular else None, None
    with file.lock(notify.warn, todo=todo) if file else nullcontext():
        if file and resume and file.begun:
            run, done = run.as_begun(file.settings), checked
            file.spell = partial(spelled, settings=RunSettings)
            if done != file.count():
                done = file.done(run.manifest, run.inputs.read())
        elif file and resume and not file.shard:
            notify.say(f"there is no {path} to go on with: starting at the beginning")
        tally = _append(run, path, file, done, notify, again)
        invalid = list_invalid(run, file, notify)
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
    return file.done(run.as_begun(file.settings).manifest, run.inputs.read()) if file.begun else None


def complete(run: Run, label: str, notify: Notify) -> GenerateResult:
    """Have all lines of a run in its file: a stopped run goes on, and lines that are there stay. `label` names it."""
    path, count, done = run.path, run.inputs.count, None
    try:
        done = _lines_there(run)
    except UserError as error:
        notify.say(f"{label}: {path} is of another run and is generated anew ({error.what})")
    if done == count:
        notify.say(f"{label}: all {count:,} predictions are in {path}")
        return _result(run, path, Tally(), count)
    announce(run, notify)
    how: Any = {"again": "the same command", "todo": "choose another --workspace", "checked": done}
    return write(run, path, notify, resume=done is not None, **how)


def write_part(run: Run, folder: Path, notify: Notify) -> GenerateResult:
    """Write the file of a run over one shard of a job, or go on with it."""
    shard = run.inputs.shard
    assert shard is not None
    announce(run, notify)
    begin_job(folder, run.manifest, shard.of)
    return write(run, folder / shard.file, notify, resume=True, again="the same command")


def _result(run: Run, path: Path, tally: Tally, done: int, invalid: int = 0) -> GenerateResult:
    settings, rows = run.used, run.inputs.count
    return GenerateResult(
        out=str(path), rows=rows, counts=tally, settings=settings, resumed_from=done, invalid=invalid
    )


def list_invalid(run: Run, file: PredictionsFile | None, notify: Notify) -> int:
    """List the skipped records beside the file, if any, and say what is wrong with the first; returns how many there are."""
    if run.inputs.invalid is None:
        return 0
    skipped = run.inputs.skipped
    if count := file.write_invalid(skipped()) if file else sum(1 for _ in skipped()):
        first, where = next(skipped()), f", listed in {file.invalid_path}" if file else ""
        what = f"{many(count, 'invalid record')} skipped{where}"
        notify.warn(f"{what}; the first: {first['where']}: {first['what']}")
    return count


def _append(
    run: Run, path: Path, file: PredictionsFile | None, done: int | None, notify: Notify, again: str
) -> Tally:
    """Generate the lines behind those that are `done`, or of a new file. `again` says how to go on after a stop."""
    count, manifest = run.inputs.count, run.manifest
    if run.exact:  # a run that goes on makes as many guesses as it was begun with
        begun = file.manifest.get("costs") if file and done is not None else None
        run.exact.costs = tuple(begun or run.exact.measured(run.batch_size))
        manifest = {**manifest, "costs": run.exact.costs}
    if file and done is not None:
        if changed := file.version_changes(manifest):
            notify.warn(f"other versions than when this run was begun: {', '.join(changed)}")
        what = "is whole already" if done == count else "goes on"
        notify.say(f"{path} {what}: {done:,} of {count:,} lines are there")
    elif file and (kept := file.start(manifest)):
        notify.say(f"what stood in {file.path.name} is kept as {kept.name}")
    tally = Tally()
    if done is None or done < count:
        try:
            with JsonLinesAppender(path, resume=bool(done)) as lines:
                tally = stream(run, notify, lambda _, line: lines.write(line), done or 0)
        except (KeyboardInterrupt, OSError) as error:
            hint = "there is nothing to resume from"
            if file and file.begun:
                hint = f"{file.count():,} of {count:,} lines are in {path}; {again} goes on"
                with suppress(OSError):  # the disk may be full
                    file.note_stop()
            if isinstance(error, OSError) and error.filename in (None, str(path)):
                raise OSError(error.errno, f"{error.strerror}; {hint}", str(path)) from error
            notify.warn(f"stopped: {hint}")
            raise
    notify.say(f"{many(count, 'prediction')} in {path}")
    return tally
