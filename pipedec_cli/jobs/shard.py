"""A large corpus in parts: generate a part on each machine, or all parts with Ray, then merge them."""

from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from pipedec_cli.data.errors import UserError, log, many
from pipedec_cli.data.predictions import PredictionsFile, whole_parts
from pipedec_cli.data.reading import real, require_place
from pipedec_cli.data.resumable import Artifact
from pipedec_cli.data.writing import write_json_lines
from pipedec_cli.events import Listen, track
from pipedec_cli.jobs.command_lines import command_line
from pipedec_cli.jobs.generate_settings import GenerateSettings, MergeSettings
from pipedec_cli.jobs.loading import check_out, load_model, read_inputs
from pipedec_cli.jobs.score import ScoreSettings
from pipedec_cli.jobs.tally import GenerateResult


class MergeResult(Struct, frozen=True):
    """What was merged."""

    out: str
    rows: int
    shards: int
    invalid: int


def run(settings: GenerateSettings, listen: Listen) -> GenerateResult:
    """Generate one part of a job, or all parts with Ray, into the folder of the job."""
    whole_run = ("text", "show_prompt", "live", "resume")
    settings.refuse(*whole_run, what="is for a run that is not in parts")
    if settings.out in (None, "-"):
        raise UserError(
            "each part is a file in a folder", todo="name the folder with --out"
        )
    assert settings.out is not None
    folder = Path(settings.out)
    if folder.exists() and not folder.is_dir():
        raise UserError(
            "is a file",
            where=settings.out,
            todo="name a folder, in which each part has a file",
        )
    if settings.data is not None and real(folder) == real(settings.data):
        raise UserError(
            "is the folder that is read from",
            where=settings.out,
            todo="give another --out",
        )
    if settings.ray:
        from pipedec_cli.jobs.ray import run_on_ray

        return run_on_ray(settings, folder, listen)
    assert settings.part is not None
    check_out(settings, folder / settings.part.file)

    inputs = read_inputs(settings)
    decoder = load_model(settings, listen)

    from pipedec_cli.jobs.run import plan_run, write_part

    planned = plan_run(settings, decoder, inputs.part(settings.part))
    result = write_part(planned, folder, listen)
    then = command_line("shard merge", MergeSettings(folder=folder))
    log.info(f"next: `{then}`, once all parts are there")
    return result


def merge(
    settings: MergeSettings, listen: Listen, emit: Callable[[Mapping[str, Any]], None]
) -> MergeResult | None:
    """Put the parts of a job together, as one run would have written them. Returns None if the lines went to `emit`."""
    folder = settings.folder
    parts = whole_parts(folder)
    lines = chain.from_iterable(part.lines() for part in parts)
    if settings.out == "-":
        for line in lines:
            emit(line)
        return None
    merged = PredictionsFile(Path(settings.out or folder / "predictions.jsonl"))
    require_place(merged.path)
    if real(merged.path) in (real(part.path) for part in parts):
        raise UserError(
            "is a part that is to be merged",
            where=merged.path,
            todo="choose another --out",
        )
    merged.require_own()
    manifest = Artifact.job(folder).manifest
    del manifest["shards"]
    manifest.pop("result", None)
    with merged.lock():
        kept = merged.start(manifest)
        if kept:
            log.info(f"what stood in {merged.path.name} is kept as {kept.name}")
        count = manifest["examples"]
        write_json_lines(merged.path, track(listen, lines, count, "merging"))
        invalid = merged.write_invalid(
            chain.from_iterable(part.invalid() for part in parts)
        )
        merged.finish_lines()
    log.info(
        f"{many(count, 'prediction')} of {many(len(parts), 'shard')} in {merged.path}"
    )
    if invalid:
        log.warning(
            f"{many(invalid, 'invalid record')} skipped, listed in {merged.invalid_path}"
        )
    log.info(f"next: `{command_line('score', ScoreSettings(predictions=merged.path))}`")
    return MergeResult(str(merged.path), count, len(parts), invalid)
