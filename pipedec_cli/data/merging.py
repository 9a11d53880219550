"""The shards of a job put together: all of them, once each, in order, or a `UserError` that names the one at fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import GenerationFiles, differences
from pipedec_cli.data.shards import Shard
from pipedec_cli.data.writing import file_sha256, read_whole_lines


@dataclass(frozen=True, slots=True)
class Whole:
    """A job all of whose shards are there."""

    parts: tuple[GenerationFiles, ...]  # in the order of the shards
    manifest: dict[str, Any]  # as one run over all records would have it

    @property
    def lines(self) -> Iterator[dict[str, Any]]:
        """The predictions, in the order of the input."""
        return chain.from_iterable(read_whole_lines(part.lines) for part in self.parts)

    @property
    def bad(self) -> Iterator[dict[str, Any]]:
        """What is wrong with the records that were passed over."""
        return chain.from_iterable(read_whole_lines(part.bad) for part in self.parts if part.bad.exists())


def whole_job(folder: Path) -> Whole:
    """The job in a folder; a `UserError` if a shard is missing, there twice, not at its end, or of another job."""
    if not folder.is_dir():
        raise UserError("no such folder", where=str(folder))
    found = {path: shard for path in sorted(folder.iterdir()) if (shard := Shard.named(path.name))}
    if not found:
        todo = "give the --out of `pipedec generate --shard K/N`"
        raise UserError("holds no part-K-of-N.jsonl", where=str(folder), todo=todo)
    first, first_shard = next(iter(found.items()))
    made = {path: _manifest(path) for path in found}
    places: dict[Shard, Path] = {}
    for path, shard in found.items():
        told = made[path].get("shard") or {}
        own = Shard(told.get("number", 0), told.get("of", 0))
        if (other := places.get(own)) is not None:
            raise UserError(
                f"is shard {own}, as {other.name} is", where=str(path), todo="take one of them away"
            )
        if own != shard:
            raise UserError(
                f"is shard {own} by its manifest", where=str(path), todo=f"generate shard {shard} again"
            )
        expected = made[first] | {"shard": told}
        foreign = [f"there are {own.of} shards of it"] if own.of != first_shard.of else []
        if changed := "; ".join([*foreign, *differences(expected, made[path])]):
            todo = "each job has a folder of its own"
            raise UserError(f"is of another job than {first.name}: {changed}", where=str(path), todo=todo)
        places[own] = path
    missing = [one for k in range(first_shard.of) if (one := Shard(k + 1, first_shard.of)) not in places]
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        what = f"shard {some} is missing" if len(missing) == 1 else f"shards {some} are missing"
        raise UserError(what, where=str(folder), todo=f"run the job's command with --shard {missing[0]}")
    parts = tuple(GenerationFiles(places[shard]) for shard in sorted(places))
    for part in parts:
        _require_end(part, made[part.lines])
    total = sum(content.get("examples") or 0 for content in made.values())
    left = {name: value for name, value in made[first].items() if name not in ("shard", "result")}
    return Whole(parts, {**left, "examples": total})


def _manifest(path: Path) -> dict[str, Any]:
    files = GenerationFiles(path)
    if not files.manifest.exists():
        what = f"there is no {files.manifest.name} beside it"
        raise UserError(what, where=str(path), todo="generate this shard again")
    return files.made_with


def _require_end(part: GenerationFiles, manifest: dict[str, Any]) -> None:
    result, where = manifest.get("result"), str(part.lines)
    if result is None:
        what = f"has {part.count():,} of {manifest.get('examples') or 0:,} lines and no end"
        raise UserError(what, where=where, todo=f"run the job's command with --shard {part.shard} again")
    if result.get("sha256") != file_sha256(part.lines):
        todo = "take it away and generate this shard again"
        raise UserError("is not as it was written: it was changed afterwards", where=where, todo=todo)
