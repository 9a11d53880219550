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
from dataclasses import asdict, replace
from functools import cached_property
from io import TextIOBase
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from time import perf_counter
from typing import Any, Final

from pipedec_cli.data.artifact import Artifact, settings_diff
from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.inputs import Inputs
from pipedec_cli.data.merging import begin_job, whole_parts
from pipedec_cli.data.places import STDIN
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.shards import Shard
from pipedec_cli.data.wording import many
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import write_text
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
        if changed := "; ".join(settings_diff(self.job, {**made.manifest, "shard": None})):
            raise UserError(
                f"{socket.gethostname()} has another job: {changed}", todo="is it the same data and model?"
            )
        path = job_folder(self.settings) / shard.file
        with self._try(PredictionsFile(path)):
            made.write(path)
        return made.tally

    @contextmanager
    def _try(self, files: PredictionsFile) -> Iterator[None]:
        """Count the tries of a shard in a file that is gone once it has ended, in whatever way a worker can tell of."""
        note = files.path.with_name(f".{files.path.stem}.tries")
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
    artifact = Artifact.job(folder)
    begun = artifact.manifest.get("shards")
    with ExitStack() as stack:
        stack.enter_context(artifact.lock(notify.warn))
        if begun:  # before Ray is started; Ray tells the device
            artifact.check_same(
                {**job, "shards": begun}, todo="name another folder with --out", free={"device"}
            )
        ray = stack.enter_context(_ray(settings, notify))
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if settings.device != "cpu" else 0
        workers = settings.workers or gpus or max(1, int(resources.get("CPU", 1)) // threads)
        job["settings"]["device"] = "cuda" if gpus else "cpu"
        count = begun or max(1, min(workers * SHARDS_A_WORKER, inputs.count // FEWEST_RECORDS))
        begin_job(folder, job, count)
        shards = Shard.all_of(count)
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
    rows = ray.data.from_items([asdict(shard) for shard in todo], override_num_blocks=len(todo))
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


def _is_whole(folder: Path, shard: Shard) -> bool:
    return PredictionsFile(folder / shard.file).whole


def _end(folder: Path, tally: Tally, seconds: float, notify: Notify) -> dict[str, Any]:
    """Check what the workers have left, finish the job and say what came of it."""
    parts, job = whole_parts(folder), Artifact.job(folder)
    count, bad = job.manifest["examples"], sum(1 for part in parts for _ in part.invalid())
    job.finish({"examples": count, "set_aside": bad})
    used = job.settings
    limits = Limits(used["time_max"], used["sub_max"], used["max_tokens"])
    for said in tally.warnings(used["max_source_tokens"]):
        notify.warn(said)
    for said in tally.lines(seconds, limits):
        notify.say(said)
    if bad:
        notify.warn(f"{many(bad, 'record')} set aside, in {folder}/part-*.invalid.jsonl")
    notify.say(f"{many(count, 'prediction')} in {folder}; next: {command_line('generate', merge=folder)}")
    return {
        "out": str(folder),
        "rows": count,
        "shards": len(parts),
        "set_aside": bad,
        **tally.as_json(),
        "seconds": round(seconds, 3),
        "examples_per_second": round(tally.examples / seconds, 3),
        "tokens_per_second": round(tally.tokens / seconds, 3),
        "settings": used,
    }
