"""The folder of a job whose shards are all there: each once, whole, and of the same job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipedec_cli.data.artifact import Artifact, settings_diff
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.shards import Shard
from pipedec_cli.data.writing import file_sha256


def begin_job(folder: Path, manifest: Mapping[str, Any], shards: int) -> None:
    """Begin a job of so many shards in a folder, or go on with it; a `UserError` if another job was begun there.

    The `manifest` is that of one shard, or of one run over all records.
    """
    shared = {name: value for name, value in manifest.items() if name != "shard"}
    total = (manifest.get("shard") or {}).get("records", manifest["examples"])
    wanted, job = {**shared, "examples": total, "shards": shards}, Artifact.job(folder)
    if job.begun:
        job.check_same(wanted, todo="name another folder with --out")
    else:
        job.start(wanted)


def whole_parts(folder: Path) -> list[PredictionsFile]:
    """The files of all shards of the job in a folder, in order.

    A `UserError` if a shard is missing, is not at its end, was changed, or is of another job.
    """
    if not folder.is_dir():
        raise UserError("no such folder", where=str(folder))
    job = Artifact.job(folder)
    if not job.begun:
        todo = "give the --out of `pipedec generate --part`"
        raise UserError(f"holds no {job.manifest_path.name} of a job", where=str(folder), todo=todo)
    manifest = job.manifest
    shards = Shard.all_of(manifest.get("shards") or 1)
    parts = [PredictionsFile(folder / shard.file) for shard in shards]
    missing = [str(shard) for shard, part in zip(shards, parts, strict=True) if not part.begun]
    if missing:
        some = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        what = f"shard {some} is missing" if len(missing) == 1 else f"shards {some} are missing"
        raise UserError(what, where=str(folder), todo=f"run the job's command with --part {missing[0]}")
    for part in parts:
        _check_whole(part, manifest)
    return parts


def _check_whole(part: PredictionsFile, job: Mapping[str, Any]) -> None:
    where, own = str(part.path), part.manifest
    again = f"run the job's command with --part {part.shard} again"
    if not own:
        raise UserError(f"there is no {part.manifest_path.name} beside it", where=where, todo=again)
    records = {"records": job["examples"]}
    expected = {**job, "shards": None, "shard": part.shard and asdict(part.shard) | records}
    if changed := "; ".join(settings_diff(expected, own)):
        raise UserError(f"is of another job: {changed}", where=where, todo="each job has a folder of its own")
    result = own.get("result")
    if result is None:
        what = f"has {part.count():,} of {own.get('examples') or 0:,} lines and no end"
        raise UserError(what, where=where, todo=again)
    if result.get("sha256") != file_sha256(part.path):
        raise UserError("was changed after it was written", where=where, todo=f"take it away and {again}")
