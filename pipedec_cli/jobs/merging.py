"""`pipedec generate --merge`: shards become one file of predictions, as one run would have written it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.locking import only_writer
from pipedec_cli.data.merging import whole_job
from pipedec_cli.data.predictions import GenerationFiles
from pipedec_cli.data.reading import real
from pipedec_cli.data.wording import many
from pipedec_cli.data.writing import write_json_lines
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate import GenerateSettings


def merge(folder: Path, settings: GenerateSettings, notify: Notify, emit: Any) -> dict[str, Any] | None:
    """Put the shards in a folder together; gives what was done as plain values, or None if the lines went to stdout."""
    if settings.text or settings.data or settings.shard:
        raise UserError("--merge takes what was generated", todo="leave out DATA, --text and --shard")
    whole = whole_job(folder)
    if settings.out == "-":
        for item in whole.lines:
            emit(None, item)
        return None
    files = GenerationFiles(Path(settings.out or folder / "predictions.jsonl"))
    if real(files.lines) in (real(part.lines) for part in whole.parts):
        raise UserError(
            "is a shard that is to be merged", where=str(files.lines), todo="choose another --out"
        )
    with only_writer(files.lines, todo="choose another --out", warn=notify.warn):
        if kept := files.start(whole.manifest):
            notify.say(f"what stood in {files.lines.name} is kept as {kept.name}")
        count, shards = whole.manifest["examples"], many(len(whole.parts), "shard")
        write_json_lines(files.lines, notify.track(whole.lines, count, "merging"))
        bad = files.set_aside(whole.bad)
    notify.say(f"{many(count, 'prediction')} of {shards} in {files.lines}")
    if bad:
        notify.warn(f"{many(bad, 'record')} set aside in {files.bad}")
    return {"out": str(files.lines), "rows": count, "shards": len(whole.parts), "set_aside": bad}
