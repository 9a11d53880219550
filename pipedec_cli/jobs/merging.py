"""`pipedec generate --merge`: shards become one file of predictions, as one run would have written it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.locking import only_writer
from pipedec_cli.data.merging import whole_job
from pipedec_cli.data.predictions import GenerationFiles
from pipedec_cli.data.reading import real
from pipedec_cli.data.writing import to_json, write_json_lines
from pipedec_cli.jobs.generate import GenerateSettings
from pipedec_cli.view.console import Talk, many, write_stdout
from pipedec_cli.view.progress import track


def merge(folder: Path, settings: GenerateSettings, talk: Talk) -> dict[str, Any] | None:
    """Put the shards in a folder together; gives what was done as plain values, or None if the lines went to stdout."""
    if settings.text or settings.data or settings.shard:
        raise UserError("--merge takes what was generated", todo="leave out DATA, --text and --shard")
    whole = whole_job(folder)
    if settings.out == "-":
        for item in whole.lines:
            write_stdout(to_json(item) + "\n")
        return None
    files = GenerationFiles(Path(settings.out or folder / "predictions.jsonl"))
    if real(files.lines) in (real(part.lines) for part in whole.parts):
        raise UserError(
            "is a shard that is to be merged", where=str(files.lines), todo="choose another --out"
        )
    with only_writer(files.lines, todo="choose another --out", warn=talk.warn):
        if kept := files.start(whole.manifest):
            talk.say(f"what stood in {files.lines.name} is kept as {kept.name}")
        count, shards = whole.manifest["examples"], many(len(whole.parts), "shard")
        write_json_lines(files.lines, track(talk, whole.lines, count, "merging"))
        bad = files.set_aside(whole.bad)
    talk.say(f"{many(count, 'prediction')} of {shards} in {files.lines}")
    if bad:
        talk.warn(f"{many(bad, 'record')} set aside in {files.bad}")
    return {"out": str(files.lines), "rows": count, "shards": len(whole.parts), "set_aside": bad}
