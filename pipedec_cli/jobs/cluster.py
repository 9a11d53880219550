"""`pipedec generate --engine ray`: the shards of a job, made by the workers of a Ray cluster.

Ray Data hands each worker one shard after the other, and hands the shard of a worker that has died to another one. What a shard is,
how it is written and how it goes on is the same as with ``--shard``; here is only who makes which.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from functools import cached_property
from io import TextIOBase
from itertools import starmap
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from time import perf_counter
from typing import Any, Final

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.locking import only_writer
from pipedec_cli.data.merging import whole_job
from pipedec_cli.data.predictions import GenerationFiles, Inputs, differences
from pipedec_cli.data.rows import STDIN
from pipedec_cli.data.shards import Shard
from pipedec_cli.data.wording import many
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import write_json, write_text
from pipedec_cli.jobs.commands import command_line
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate import GenerateSettings, job_folder
from pipedec_cli.jobs.loading import load_any, read_inputs
from pipedec_cli.jobs.predicting import Predictions
from pipedec_cli.jobs.tally import Tally
from pipedec_cli.jobs.threads import settle_threads
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.pipeline.grid import Limits

#: Enough for the workers to end at about the same time, and few enough that each shard is worth its while.
SHARDS_A_WORKER, FEWEST_RECORDS = 16, 64
#: How often a shard is tried whose worker dies behind the same line; Ray itself would go on for ever.
TRIES: Final = 3
#: Seconds in which a cluster's machine has to answer; Ray itself would try for minutes and say nothing.
CONNECTING: Final = 10

Row = dict[str, list[Any]]


class ShardWorker:
    """What runs in each of Ray's workers: one loaded decoder, and the corpus in a file of its own."""

    def __init__(self, settings: GenerateSettings, place: str, job: Mapping[str, Any], run: str) -> None:
        self.settings, self.place, self.job, self.run = settings, place, job, run
        settle_threads(settings.threads)

    @cached_property
    def inputs(self) -> Inputs:
        """All records, kept where the system has its temporary files: each shard starts at its first one at once."""
        return read_inputs(self.settings, Notify(), keep=Path(gettempdir()))

    @cached_property
    def decoder(self) -> Decoder:
        """Loaded with the first shard, so that what goes wrong is told as what goes wrong with a shard."""
        return load_any(self.settings, Notify())

    def __call__(self, row: Mapping[str, Any]) -> Row:
        """Make one shard; gives its number, the pickled tally, and what went wrong."""
        shard, tally, wrong = Shard(int(row["number"][0]), int(row["of"][0])), b"", ""
        try:
            tally = pickle.dumps(self.make(shard))
        except UserError as error:
            wrong = str(error)
        except Exception as error:  # one shard's trouble is not the job's
            wrong = f"{type(error).__name__}: {first_line(error)}"
        return {"shard": [str(shard)], "tally": [tally], "wrong": [wrong]}

    def make(self, shard: Shard) -> Tally:
        """Write a shard's file, whole; a `UserError` if what this worker sees is not the job."""
        os.chdir(self.place)  # which paths are relative to
        made = Predictions(self.settings, self.decoder, self.inputs.part(shard), Notify())
        if changed := "; ".join(differences(self.job, {**made.manifest, "shard": None})):
            raise UserError(
                f"{socket.gethostname()} has another job: {changed}", todo="is it the same data and model?"
            )
        path = job_folder(self.settings) / shard.file
        with self._try(GenerationFiles(path)):
            made.write(path)
        return made.tally

    @contextmanager
    def _try(self, files: GenerationFiles) -> Iterator[None]:
        """Count the tries of a shard in a file that is gone once it has ended, in whatever way a worker can tell of."""
        note = files.lines.with_name(f".{files.lines.stem}.tries")
        there, tries = files.count() if files.begun else 0, 0
        with suppress(FileNotFoundError, ValueError):
            run, behind, count = note.read_text().split()
            tries = int(count) if (run, behind) == (self.run, str(there)) else 0
        if tries >= TRIES:
            raise UserError(
                f"its worker died {tries} times behind line {there:,}", todo="was there memory enough?"
            )
        write_text(note, f"{self.run} {there} {tries + 1}")
        try:
            yield
        finally:  # which a worker that is killed does not come to
            note.unlink()


def generate_on_ray(settings: GenerateSettings, notify: Notify) -> dict[str, Any]:
    """Make all shards of a job that are not whole yet; gives what was done, as plain values."""
    folder = job_folder(settings)
    if settings.live or settings.data == STDIN or settings.shard:
        raise UserError(
            "--engine ray takes files, and makes all shards unwatched", todo="leave out -, --live and --shard"
        )
    # Workers have neither this environment nor, unless they are told, all threads for each of them.
    place, threads = Workspace.find(settings.workspace).root, settings.threads or 1
    settings = replace(settings, set_aside=True, workspace=place, threads=threads)
    inputs = read_inputs(settings, notify)
    job = _job(settings, inputs, notify)
    of_any_device = {name: value for name, value in job["settings"].items() if name != "device"}
    with ExitStack() as stack:
        stack.enter_context(only_writer(folder, folder=True, todo="choose another --out", warn=notify.warn))
        _begun(folder, {**job, "settings": of_any_device})  # before Ray is started, which tells the device
        ray = stack.enter_context(_ray(settings, notify))
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if settings.device != "cpu" else 0
        workers = settings.workers or gpus or max(1, int(resources.get("CPU", 1)) // threads)
        job["settings"]["device"] = "cuda" if gpus else "cpu"
        shards = _shards(folder, job, inputs.count, workers)
        todo = [shard for shard in shards if not _is_whole(folder, shard)]
        device = "a GPU each" if gpus else f"{many(threads, 'thread')} each"
        where = "this machine" if settings.address is None else "the cluster"
        notify.say(
            f"{many(inputs.count, 'record')} in {many(len(shards), 'shard')}, by {many(workers, 'worker')} of {where}, {device}"
        )
        if len(todo) < len(shards):
            notify.say(
                f"{many(len(shards) - len(todo), 'shard')} of {len(shards):,} in {folder} whole already"
            )
        if not settings.workers and (needed := workers * threads) > resources.get("CPU", 0):
            notify.warn(f"the workers need {needed} CPUs, and the cluster has {resources.get('CPU', 0):g}")
        began, tally, wrong = perf_counter(), Tally(unknown_id=None), dict[str, str]()
        try:
            with notify.stage("shards", len(todo)) as advance:
                for row in _run(ray, settings, job, todo, workers, gpus):
                    advance()
                    if row["wrong"]:
                        wrong[row["shard"]] = row["wrong"]
                        notify.warn(f"shard {row['shard']}: {row['wrong']}")
                    else:
                        tally.include(pickle.loads(row["tally"]))  # noqa: S301  (our own worker's)
        except KeyboardInterrupt:
            there = sum(_is_whole(folder, shard) for shard in shards)
            notify.warn(
                f"stopped: {there:,} of {many(len(shards), 'shard')} are whole in {folder}; the same command goes on"
            )
            raise
        seconds = perf_counter() - began
    left = [shard for shard in shards if not _is_whole(folder, shard)]
    if left:
        first = left[0]
        why = wrong.get(str(first), "Ray lost it")
        what = f"{len(left):,} of {many(len(shards), 'shard')} could not be made; the first, {first}: {why}"
        raise UserError(what, where=str(folder), todo="the same command goes on with them")
    return _end(folder, tally, seconds, notify)


@contextmanager
def _ray(settings: GenerateSettings, notify: Notify) -> Iterator[Any]:
    """Ray, connected to a cluster or to one of its own on this machine; it reports nothing to anybody."""
    quiet = {"USAGE_STATS_ENABLED": "0", "BACKEND_LOG_LEVEL": "fatal", "ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    for name, value in quiet.items():
        os.environ.setdefault(f"RAY_{name}", value)
    try:
        import ray
        import ray.data
    except ImportError:
        raise UserError("Ray is not installed here", todo="pip install '.[ray]'") from None
    address = settings.address or os.environ.get("RAY_ADDRESS")
    cores = settings.workers * (settings.threads or 1) if settings.workers else None
    here = {"num_cpus": cores, "include_dashboard": False} if address is None else {}
    terminate = signal.getsignal(signal.SIGTERM)
    notify.say("starting Ray …" if address is None else f"connecting to Ray at {address} …")
    try:
        try:
            if address and (host := re.fullmatch(r"([^/:]+):(\d+)", address)):
                socket.create_connection((host[1], int(host[2])), timeout=CONNECTING).close()
            with _muted():
                ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
        except (OSError, OverflowError, ValueError) as error:
            raise UserError(
                f"no Ray cluster at {address}: {first_line(error)}", todo="see `ray status` there"
            ) from None
        signal.signal(signal.SIGTERM, terminate)  # Ray sets its own
        with redirect_stdout(_Quoted(notify)):
            yield ray
    finally:
        ray.shutdown()


@contextmanager
def _muted() -> Iterator[None]:
    """Keep what Ray's libraries in C++ write to stderr as they are loaded: that their log level was set, for one."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class _Quoted(TextIOBase):
    """Standard output while Ray runs, where it tells at length of workers that died: how each line begins, as messages."""

    def __init__(self, notify: Notify) -> None:
        self.notify = notify

    def write(self, text: str) -> int:
        for line in re.sub(r"\x1b\[\d*m", "", text).splitlines():
            if line.strip():
                self.notify.say(f"Ray: {line[:150]}{' …' if len(line) > 150 else ''}")
        return len(text)


def _run(
    ray: Any, settings: GenerateSettings, job: Mapping[str, Any], todo: list[Shard], workers: int, gpus: int
) -> Iterator[dict[str, Any]]:
    """What each shard came to, as they end."""
    if not todo:
        return
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.max_errored_blocks = -1  # what Ray itself loses is no reason to stop the others
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    rows = ray.data.from_items([shard._asdict() for shard in todo], override_num_blocks=len(todo))
    made = rows.map_batches(
        ShardWorker,
        fn_constructor_args=(settings, str(Path.cwd()), job, token_hex(8)),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(todo)), max_tasks_in_flight_per_actor=1),
        num_cpus=settings.threads,
        num_gpus=1 if gpus else 0,
    )
    yield from made.iter_rows()


def _job(settings: GenerateSettings, inputs: Inputs, notify: Notify) -> dict[str, Any]:
    """What all shards are made with, as a manifest; the model is loaded for it, and on a CPU, since this may be no worker's machine."""
    here = replace(settings, device="cpu", dtype="float32")
    made = Predictions(here, load_any(here, notify), inputs, notify).manifest
    return {**made, "settings": {**made["settings"], "dtype": settings.dtype}}


def _shards(folder: Path, job: Mapping[str, Any], count: int, workers: int) -> list[Shard]:
    """All shards, as many as there were when the job was begun; a `UserError` if another one was begun here."""
    of = _begun(folder, job) or max(1, min(workers * SHARDS_A_WORKER, count // FEWEST_RECORDS))
    return list(starmap(Shard, ((number, of) for number in range(1, of + 1))))


def _begun(folder: Path, job: Mapping[str, Any]) -> int:
    """How many shards the job had that was begun here, 0 if none was; a `UserError` if it was another one."""
    of = 0
    for path in sorted(folder.glob("part-*.jsonl")):
        if begun := Shard.named(path.name):
            of, made_with = begun.of, GenerationFiles(path).made_with
            if changed := "; ".join(differences({**made_with, "shard": None}, job)):
                raise UserError(
                    f"is of another job: {changed}", where=str(path), todo="name another folder with --out"
                )
    return of


def _is_whole(folder: Path, shard: Shard) -> bool:
    """Whether a shard has come to its end, and its lines are there."""
    files = GenerationFiles(folder / shard.file)
    ended = files.made_with.get("result") or {}
    return files.begun and ended.get("examples") == files.count()


def _end(folder: Path, tally: Tally, seconds: float, notify: Notify) -> dict[str, Any]:
    """Look at what the workers have left, write the manifest over all of it and say what came of it."""
    whole = whole_job(folder)
    bad, count = sum(1 for _ in whole.bad), whole.manifest["examples"]
    write_json(folder / "manifest.json", {**whole.manifest, "shards": len(whole.parts), "set_aside": bad})
    used = whole.manifest["settings"]
    limits = Limits(used["time_max"], used["sub_max"], used["max_tokens"])
    for said in tally.warnings(used["max_source_tokens"]):
        notify.warn(said)
    for said in tally.lines(seconds, limits):
        notify.say(said)
    if bad:
        notify.warn(f"{many(bad, 'record')} set aside, in {folder}/part-*.bad.jsonl")
    notify.say(f"{many(count, 'prediction')} in {folder}; next: {command_line('generate', merge=folder)}")
    return {
        "out": str(folder),
        "rows": count,
        "shards": len(whole.parts),
        "set_aside": bad,
        **tally.as_json(),
        "seconds": round(seconds, 3),
        "examples_per_second": round(tally.examples / seconds, 3),
        "tokens_per_second": round(tally.tokens / seconds, 3),
        "settings": used,
    }
