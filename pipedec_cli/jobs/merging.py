"""`pipedec generate --merge`: shards become one file of predictions, as one run would have written it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from pipedec_cli.data.artifact import Artifact
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.merging import whole_parts
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.reading import real
from pipedec_cli.data.wording import many
from pipedec_cli.data.writing import write_json_lines
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate import GenerateSettings


def merge(folder: Path, settings: GenerateSettings, notify: Notify, emit: Any) -> dict[str, Any] | None:
    """Put the shards in a folder together; gives what was done as plain values, or None if the lines went to stdout."""
    if settings.text or settings.data or settings.shard:
        raise UserError("--merge takes what was generated", todo="leave out DATA, --text and --shard")
    parts = whole_parts(folder)
    lines = chain.from_iterable(part.lines() for part in parts)
    if settings.out == "-":
        for item in lines:
            emit(None, item)
        return None
    merged = PredictionsFile(Path(settings.out or folder / "predictions.jsonl"))
    if real(merged.path) in (real(part.path) for part in parts):
        raise UserError(
            "is a shard that is to be merged", where=str(merged.path), todo="choose another --out"
        )
    manifest = Artifact.job(folder).manifest
    del manifest["shards"]
    with merged.lock(notify.warn):
        if kept := merged.start(manifest):
            notify.say(f"what stood in {merged.path.name} is kept as {kept.name}")
        count, shards = manifest["examples"], many(len(parts), "shard")
        write_json_lines(merged.path, notify.track(lines, count, "merging"))
        invalid = merged.write_invalid(chain.from_iterable(part.invalid() for part in parts))
        merged.finish_lines()
    notify.say(f"{many(count, 'prediction')} of {shards} in {merged.path}")
    if invalid:
        notify.warn(f"{many(invalid, 'record')} set aside in {merged.invalid_path}")
    return {"out": str(merged.path), "rows": count, "shards": len(parts), "set_aside": invalid}
