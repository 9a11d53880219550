"""All shards of a job by the workers of a Ray cluster.

Ray Data hands each worker a shard at a time, and hands the shard of a worker that died
to another worker. A shard is written by the same job as with ``--part``.
"""

import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from io import TextIOBase
from itertools import chain
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from time import perf_counter
from typing import Any, Final, Self

import msgspec

from pipedec_cli.data.errors import UserError, first_line, log, many
from pipedec_cli.data.inputs import STDIN, Inputs, Shard
from pipedec_cli.data.predictions import PredictionsFile, begin_job, whole_parts
from pipedec_cli.data.resumable import Artifact, settings_diff
from pipedec_cli.data.writing import write_text
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.events import Listen, silent, stage
from pipedec_cli.jobs.command_lines import command_line
from pipedec_cli.jobs.generate_settings import GenerateSettings, MergeSettings
from pipedec_cli.jobs.loading import load_model, read_inputs
from pipedec_cli.jobs.run import plan_run, write_part
from pipedec_cli.jobs.tally import GenerateResult, Tally
from pipedec_cli.threads import settle_threads

#: Enough shards for the workers to end at about the same time, and enough records in
#: each to be worth a start.
SHARDS_A_WORKER: Final = 16
FEWEST_RECORDS: Final = 64
#: How often a shard is tried whose worker dies behind the same line. Ray itself would
#: never stop.
TRIES: Final = 3
#: Seconds in which a cluster's machine has to answer. Ray itself would try for minutes
#: in silence.
CONNECTING: Final = 10


@dataclass(frozen=True)
class Workers:
    """How many workers a cluster carries, and what each has."""

    count: int
    gpus: int  # of the cluster, 0 if they are not used
    threads: int  # of each worker
    cpus: float  # of the cluster

    @classmethod
    def of(cls, resources: Mapping[str, float], device: str, threads: int) -> Self:
        """A worker a GPU, or as many as the CPUs have threads for."""
        gpus = int(resources.get("GPU", 0)) if device != "cpu" else 0
        count = gpus or max(1, int(resources.get("CPU", 1)) // threads)
        return cls(count, gpus, threads, resources.get("CPU", 0))

    def described(self, where: str) -> str:
        """The workers in words."""
        device = "a GPU each" if self.gpus else f"{many(self.threads, 'thread')} each"
        return f"{many(self.count, 'worker')} of {where}, {device}"

    def warn_of_cpus(self) -> None:
        """Warn if the cluster has fewer CPUs than the workers ask for: Ray would wait."""
        needed = self.count * self.threads
        if needed > self.cpus:
            log.warning(
                f"the workers need {needed} CPUs, and the cluster has {self.cpus:g}"
            )


class Outcome(msgspec.Struct, frozen=True):
    """What became of a shard: its counts, or what went wrong. Workers send it as JSON."""

    shard: str
    tally: Tally = msgspec.field(default_factory=Tally)
    error: str = ""


@dataclass
class ShardWorker:
    """What runs in each Ray worker: one loaded decoder, and the records in a temporary file."""

    settings: GenerateSettings
    place: str  # the working folder, for relative paths
    job: Mapping[str, Any]  # the job's manifest
    run: str  # a random name of this command: shards are tried anew in each

    def __post_init__(self) -> None:
        settle_threads(self.settings.threads)

    @cached_property
    def inputs(self) -> Inputs:
        """All records, on this machine's disk: each shard finds its first record at once."""
        return read_inputs(self.settings, keep=Path(gettempdir()))

    @cached_property
    def decoder(self) -> Decoder:
        """Loaded with the first shard, so that an error is an error of a shard."""
        return load_model(self.settings)

    def __call__(self, row: Mapping[str, Any]) -> dict[str, list[bytes]]:
        """Write one shard; gives its `Outcome` as JSON, in the form of Ray's batches."""
        shard = Shard(int(row["number"][0]), int(row["of"][0]))
        error = ""
        tally = Tally()
        try:
            tally = self.write(shard)
        except UserError as problem:
            error = str(problem)
        # The trouble of one shard does not stop the others.
        except Exception as problem:
            error = f"{type(problem).__name__}: {first_line(problem)}"
        return {"outcome": [msgspec.json.encode(Outcome(str(shard), tally, error))]}

    def write(self, shard: Shard) -> Tally:
        """Write the file of a shard, behind the lines that are there; returns what was counted.

        A `UserError` if this worker sees other data or another model, or if workers have
        died too often at the same line of the shard.
        """
        os.chdir(self.place)
        file = PredictionsFile(Path(self.settings.out or "") / shard.file)
        # The tries are counted in a hidden file, which stays only if the worker is
        # killed.
        note = file.path.with_name(f".{file.path.stem}.tries")
        lines = file.count() if file.begun else 0
        tries = 0
        with suppress(FileNotFoundError, ValueError):
            run, behind, count = note.read_text().split()
            tries = int(count) if (run, behind) == (self.run, str(lines)) else 0
        if tries >= TRIES:
            what = f"its worker died {tries} times behind line {lines:,}"
            raise UserError(what, todo="was there memory enough?")
        write_text(note, f"{self.run} {lines} {tries + 1}")
        try:
            planned = plan_run(self.settings, self.decoder, self.inputs.part(shard))
            job = {**planned.manifest, "shard": None}
            changed = "; ".join(settings_diff(self.job, job))
            if changed:
                what = f"{socket.gethostname()} has another job: {changed}"
                raise UserError(what, todo="is it the same data and model?")
            return write_part(planned, Path(self.settings.out or ""), silent).counts
        finally:
            note.unlink()


def run_on_ray(
    settings: GenerateSettings, folder: Path, listen: Listen
) -> GenerateResult:
    """Write all shards of a job in a folder that are not whole yet, each by a worker of the cluster."""
    if settings.part:
        raise UserError("give either --part K/N or --ray", todo="--ray makes all parts")
    if settings.data == STDIN:
        raise UserError(
            "--ray takes files, not standard input", todo="save the records in a file"
        )
    # Workers have another environment. Without a number each worker would take all
    # threads.
    threads = settings.threads or 1
    settings = replace(settings, workspace=settings.place.root, threads=threads)
    inputs = read_inputs(settings)
    # The model is loaded on a CPU: this machine may be no worker.
    here = replace(settings, device="cpu")
    job = plan_run(here, load_model(here, listen), inputs).manifest
    artifact = Artifact.job(folder)
    with ExitStack() as stack:
        stack.enter_context(artifact.lock())
        begun = _shards_begun(artifact, job)
        ray = stack.enter_context(_ray())
        workers = Workers.of(ray.cluster_resources(), settings.device, threads)
        job["settings"]["device"] = "cuda" if workers.gpus else "cpu"
        count = begun or _shard_count(workers, inputs)
        begin_job(folder, job, count)
        shards = [Shard(number, count) for number in range(1, count + 1)]
        missing = _not_whole(folder, shards)
        where = "the cluster" if os.environ.get("RAY_ADDRESS") else "this machine"
        log.info(
            f"{many(inputs.count, 'record')} in {many(count, 'shard')}, by {workers.described(where)}"
        )
        if len(missing) < count:
            log.info(
                f"{many(count - len(missing), 'shard')} of {count:,} in {folder} whole already"
            )
        workers.warn_of_cpus()
        outcomes = _run(ray, settings, job, missing, workers)
        tally, errors = _gather(outcomes, len(missing), listen)
    left = _not_whole(folder, shards)
    if left:
        why = errors.get(str(left[0]), "Ray lost it")
        what = f"{len(left):,} of {many(count, 'shard')} could not be made; the first, {left[0]}: {why}"
        raise UserError(what, where=folder, todo="the same command goes on with them")
    return _end(folder, tally)


def _shards_begun(artifact: Artifact, job: Mapping[str, Any]) -> int | None:
    """In how many shards the folder's job was begun, if it was; a `UserError` if that is another job.

    It is refused before Ray is started, which tells the device.
    """
    begun: int | None = artifact.manifest.get("shards")
    if begun:
        wanted = {**job, "shards": begun}
        todo = "name another folder with --out"
        artifact.check_same(wanted, todo=todo, free={"device"})
    return begun


def _shard_count(workers: Workers, inputs: Inputs) -> int:
    """In how many shards a new job is cut."""
    most = inputs.count // FEWEST_RECORDS
    return max(1, min(workers.count * SHARDS_A_WORKER, most))


def _not_whole(folder: Path, shards: Iterable[Shard]) -> list[Shard]:
    """The shards whose files are still to be written."""
    return [shard for shard in shards if not PredictionsFile(folder / shard.file).whole]


def _gather(
    outcomes: Iterable[bytes], total: int, listen: Listen
) -> tuple[Tally, dict[str, str]]:
    """The counts of the shards that were written, and what went wrong with others, by shard.

    `outcomes` come as shards end, an `Outcome` each as JSON, `total` of them.
    """
    tally = Tally()
    errors = {}
    began = perf_counter()
    try:
        with stage(listen, "shards", total) as advance:
            for encoded in outcomes:
                outcome = msgspec.json.decode(encoded, type=Outcome)
                advance()
                if outcome.error:
                    errors[outcome.shard] = outcome.error
                    log.warning(f"shard {outcome.shard}: {outcome.error}")
                else:
                    tally.include(outcome.tally)
    except KeyboardInterrupt:
        log.warning(
            "stopped: the same command goes on with the shards that are not whole"
        )
        raise
    tally.seconds = perf_counter() - began
    return tally, errors


def _end(folder: Path, tally: Tally) -> GenerateResult:
    """Check what the workers have left, finish the job and say what came of it."""
    parts = whole_parts(folder)
    job = Artifact.job(folder)
    count = job.manifest["examples"]
    invalid = sum(1 for _ in chain.from_iterable(part.invalid() for part in parts))
    job.finish({"examples": count, "invalid": invalid})
    tally.report(job.settings)
    if invalid:
        log.warning(
            f"{many(invalid, 'invalid record')} skipped, listed in {folder}/part-*.invalid.jsonl"
        )
    then = command_line("shard merge", MergeSettings(folder=folder))
    log.info(f"{many(count, 'prediction')} in {folder}; next: `{then}`")
    return GenerateResult(
        out=str(folder),
        rows=count,
        counts=tally,
        settings=job.settings,
        invalid=invalid,
        shards=len(parts),
    )


# ---- Ray
# ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _ray() -> Iterator[Any]:
    """Ray, connected to a cluster or to a cluster of its own on this machine. It sends no usage reports."""
    quiet = {
        "USAGE_STATS_ENABLED": "0",
        "BACKEND_LOG_LEVEL": "fatal",
        "ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    for name, value in quiet.items():
        os.environ.setdefault(f"RAY_{name}", value)
    try:
        import ray
        import ray.data
    except ImportError:
        raise UserError(
            "Ray is not installed here", todo="pip install '.[ray]'"
        ) from None
    address = os.environ.get("RAY_ADDRESS") or None
    here = {} if address else {"include_dashboard": False}
    terminate = signal.getsignal(signal.SIGTERM)
    log.info(
        "starting Ray …" if address is None else f"connecting to Ray at {address} …"
    )
    try:
        try:
            host = re.fullmatch(r"([^/:]+):(\d+)", address or "")
            if host:
                socket.create_connection(
                    (host[1], int(host[2])), timeout=CONNECTING
                ).close()
            # What Ray's C++ libraries write to stderr while they are loaded is
            # discarded.
            sys.stderr.flush()
            kept = os.dup(2)
            with Path(os.devnull).open("wb") as nothing:
                os.dup2(nothing.fileno(), 2)
            try:
                ray.init(
                    address or "local",
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **here,
                )
            finally:
                os.dup2(kept, 2)
                os.close(kept)
        except (OSError, OverflowError, ValueError) as error:
            what = f"no Ray cluster at {address}: {first_line(error)}"
            raise UserError(what, todo="see `ray status` there") from None
        signal.signal(signal.SIGTERM, terminate)  # Ray sets its own
        with redirect_stdout(_Quoted()):
            yield ray
    finally:
        ray.shutdown()


class _Quoted(TextIOBase):
    """Standard output while Ray runs. Ray writes long lines about workers that died; their beginnings become messages."""

    def write(self, text: str) -> int:
        for line in re.sub(r"\x1b\[\d*m", "", text).splitlines():
            if line.strip():
                log.info(f"Ray: {line[:150]}{' …' if len(line) > 150 else ''}")
        return len(text)


def _run(
    ray: Any,
    settings: GenerateSettings,
    job: Mapping[str, Any],
    missing: list[Shard],
    workers: Workers,
) -> Iterator[bytes]:
    """Have the `missing` shards of a job written; the `Outcome` of each as JSON, as they end."""
    if not missing:
        return
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.max_errored_blocks = -1  # a block that Ray loses does not stop the others
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    rows = ray.data.from_items(
        [asdict(shard) for shard in missing], override_num_blocks=len(missing)
    )
    outcomes = rows.map_batches(
        ShardWorker,
        fn_constructor_args=(settings, str(Path.cwd()), job, token_hex(8)),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(
            size=min(workers.count, len(missing)), max_tasks_in_flight_per_actor=1
        ),
        num_cpus=settings.threads,
        num_gpus=1 if workers.gpus else 0,
    )
    for row in outcomes.iter_rows():
        yield row["outcome"]
