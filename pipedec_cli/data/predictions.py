"""Files of predictions: what a line holds, reading them back, and how a stopped run goes on.

A run has two files. NAME.manifest.json, written before the first line, says what the run is: its settings, its data and
how many lines there are to be. NAME.jsonl grows by one flushed line at a time, in input order. A run is whole when it
has as many lines as its manifest says; else it was stopped, and another run of the same settings and data goes on
behind the last whole line.

A new run takes the names over. What stood there is kept beside it as NAME.jsonl.bak and NAME.manifest.json.bak, except
that the lines of a stopped run never replace a whole run that is kept already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError, skipping_invalid
from pipedec_cli.data.reading import read_json
from pipedec_cli.data.records import FieldNames, Generated, Manifest, Record, generated_of
from pipedec_cli.data.rows import RawRow, read_rows
from pipedec_cli.data.shards import Shard
from pipedec_cli.data.stored import InvalidRecords, StoredRecords
from pipedec_cli.data.writing import (
    changes,
    file_sha256,
    hashed,
    read_whole_lines,
    to_json,
    write_json,
    write_json_lines,
)

#: How the name of a list of records that were passed over ends.
BAD: Final = ".bad.jsonl"
#: Settings that a resumed run may have otherwise: they change how fast the lines come, not what is in them.
FREE_SETTINGS: Final = frozenset({"batch_size", "threads"})


def line(generated: Generated, names: FieldNames, *, trace: bool = False) -> dict[str, Any]:
    """One line of predictions: what was generated, and every field of its record as it was.

    The input's source and target are there under these names, too, whatever the input calls them, as other commands
    look for them there. With `trace` it holds the grid, with what was taken back of it, and what the encoder saw.
    """
    record = generated.record
    assert record is not None, "a line is written of what was generated from a record"
    fields = {name: value for name, value in record.fields.items() if name != "id"}
    if names.source != "source":
        fields["source"] = record.source
    if names.target != "target" and names.target in fields:
        fields["target"] = fields[names.target]
    given = record.fields.get("id")
    made = {
        "id": given if str(given) == record.id else record.id,
        "prediction": generated.text,
        "segments": list(generated.segments),
        **({} if generated.fields is None else {"fields": dict(generated.fields)}),
        "steps": generated.steps,
        **({} if generated.draft_steps is None else {"draft_steps": generated.draft_steps}),
        "tokens": generated.tokens,
        "truncated": generated.truncated,
        **({"stopped_on_repeat": True} if generated.stopped_on_repeat else {}),
        "seconds": round(generated.seconds, 6),
        **fields,
    }
    if trace:
        made["grid"] = [{"start": start, "tokens": list(tokens)} for start, tokens in generated.grid]
        more = {"grid_calls": generated.calls, "grid_taken_back": generated.taken_back}
        made |= {name: list(value) for name, value in more.items() if value}
        made["source_token_ids"] = list(generated.source_ids)
    return made


def read_predictions(path: Path) -> list[Generated]:
    """Read the predictions of a JSON-lines file, as `generate` or another system writes them; see `generated_of`."""
    if not path.is_file():
        raise UserError("no such file", where=str(path))
    predictions: dict[str, tuple[str, Generated]] = {}  # by id, with the place
    for number, where, value in _whole_rows(path):
        prediction = generated_of(value, where, number)
        if prediction.id in predictions:
            what = f"id {prediction.id!r} was already used at {predictions[prediction.id][0]}"
            raise UserError(what, where=where)
        predictions[prediction.id] = where, prediction
    if not predictions:
        raise UserError("is empty", where=str(path), todo="it must hold at least one prediction")
    return [prediction for _, prediction in predictions.values()]


def _whole_rows(path: Path) -> Iterator[RawRow]:
    """The file's rows; a last line that a stopped run left unfinished is told from one that is wrong."""
    try:
        yield from read_rows(path)
    except UserError as error:
        unended = GenerationFiles(path).count() + 1  # the number of a last line that no line feed ends
        if path.suffix == ".gz" or error.where != f"{path}:{unended}":
            raise
        what = "the last line is cut short, as a stopped run leaves it"
        todo = "finish the run with `pipedec generate --resume`"
        raise UserError(what, where=error.where, todo=todo) from None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Records that have all been looked at once, so that what is wrong with them is said before anything is generated."""

    count: int
    sha256: str  # of all that the records of the job hold, in order
    longest: int  # characters of the longest source
    names: FieldNames
    read: Callable[
        ..., Iterator[Record]
    ]  # gives them again, from the first one on, or those of a range of places
    file: Mapping[str, str | None]  # where they come from, as a manifest lists it
    aside: InvalidRecords | None = None  # what was wrong with those that are passed over, where any may be
    shard: Shard | None = None  # of a job; None where this is all of it
    whole: int = 0  # the job's records

    def part(self, shard: Shard) -> Inputs:
        """The records of one shard of the job that these are."""
        first, end = shard.records(self.count)
        read = lambda: self.read(first, end)  # noqa: E731
        return replace(self, count=end - first, read=read, shard=shard, whole=self.count)

    @property
    def bad(self) -> Iterator[dict[str, Any]]:
        """What is wrong with the records between these that are passed over."""
        if self.aside is None:
            return iter(())
        return self.aside.between(*(self.shard.records(self.whole) if self.shard else ()))


def scan_inputs(
    read: Callable[[], Iterator[Record]],
    names: FieldNames,
    *,
    limit: int | None = None,
    keep: Path | None = None,
    location: str = "",
    aside: InvalidRecords | None = None,
) -> Inputs:
    """Check and count the first `limit` records; `keep` near a folder those of a pipe, which can be read only once.

    With `aside`, which `read` must tell, too, those that cannot be used are passed over.
    """
    kept = StoredRecords(keep) if keep else None
    count = longest = 0
    digest = hashlib.sha256()

    def usable() -> Iterator[Record]:
        for record in read():
            with skipping_invalid(aside):
                names.check(record)
                yield record

    def again(first: int = 0, end: int | None = None) -> Iterator[Record]:
        return islice(usable(), first, limit if end is None else end)

    def stored(first: int = 0, end: int | None = None) -> Iterator[Record]:
        assert kept is not None
        return iter(kept[first:end])

    for record in again():
        count, longest = count + 1, max(longest, len(record.source))
        digest.update(to_json([record.id, record.source, dict(record.fields)]).encode() + b"\n")
        if kept is not None:
            kept.append(record)
        if aside:
            aside.good = count
    if aside:
        aside.closed = True
        if not count:
            first = next(aside.between(), None)
            why = (
                f"none of its records can be used; the first: {first['where']}: {first['what']}"
                if first
                else "is empty"
            )
            raise UserError(why, where=location)
    return Inputs(
        count, digest.hexdigest(), longest, names, stored if kept else again, hashed(location), aside
    )


class GenerationFiles:
    """The files of a run: `lines`, NAME.jsonl, `manifest`, NAME.manifest.json, and of records that were passed over `bad`.

    Older lines and their manifest are kept in `backups`. Nothing is touched yet.
    """

    def __init__(self, lines: Path) -> None:
        self.lines = lines
        name = lines.name.removesuffix(".jsonl")  # no other ending: each file of a run has its own
        self.manifest = lines.with_name(f"{name}.manifest.json")
        self.bad = lines.with_name(f"{name}{BAD}")
        self.backups = [file.with_name(f"{file.name}.bak") for file in (lines, self.manifest)]
        self.shard = Shard.named(lines.name)

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on with."""
        return self.lines.exists()

    @property
    def made_with(self) -> dict[str, Any]:
        """The manifest, with no settings where there is none."""
        content = read_manifest(self.manifest) if self.manifest.is_file() else {}
        return {**content, "settings": content.get("settings") or {}}

    def count(self) -> int:
        """How many whole lines there are."""
        with self.lines.open("rb") as file:
            return sum(line.endswith(b"\n") for line in file)

    def set_aside(self, told: Iterable[Mapping[str, Any]]) -> int:
        """Keep what is wrong with records that are passed over, a line each; gives how many there are."""
        write_json_lines(self.bad, told)
        count = sum(1 for _ in read_whole_lines(self.bad))
        if not count:
            self.bad.unlink()
        return count

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Put into the manifest that the run has come to its end, and what its lines are then."""
        whole = {"examples": self.count(), "sha256": file_sha256(self.lines)}
        if self.made_with.get("result") != whole:
            write_json(self.manifest, {**manifest, "result": whole})

    def done(self, manifest: Mapping[str, Any], records: Iterable[Record]) -> int:
        """How many whole lines there are of a run with this manifest and these records; a `UserError` if it is another."""
        if not self.manifest.exists():
            raise self._other_run(f"there is no {self.manifest.name} beside it to say what it was made with")
        if changed := "; ".join(differences(read_manifest(self.manifest), manifest)):
            raise self._other_run(changed)
        following, count = iter(records), 0
        for count, written in enumerate(read_whole_lines(self.lines), start=1):
            record, found = next(following, None), written.get("id")
            if record is None:
                raise self._other_run(f"it has more than the {count - 1:,} lines that there are to be")
            if str(found) != record.id:
                raise self._other_run(f"line {count:,} is of id {found!r} where {record.id!r} belongs")
        return count

    def start(self, manifest: Mapping[str, Any]) -> Path | None:
        """Take the names over for a new run; returns where the lines that stood there are kept, if they are."""
        kept = None
        if self.begun:
            backup, manifest_backup = self.backups
            expected = read_manifest(self.manifest).get("examples") if self.manifest.exists() else None
            stopped = isinstance(expected, int) and self.count() < expected
            if stopped and backup.exists():
                self.lines.unlink()  # what is kept already is a whole run, or as good a part of one
            elif self.lines.stat().st_size:
                self.lines.replace(backup)
                kept = backup
                with suppress(FileNotFoundError):
                    self.manifest.replace(manifest_backup)
        # The old lines have gone before the new manifest comes: a kill in between leaves nothing that passes for its own.
        write_json(self.manifest, manifest)
        return kept

    def _other_run(self, what: str) -> UserError:
        todo = "leave out --resume to start anew, or name another file with --out"
        if self.shard:
            todo = "name another folder with --out, or take this file away to start anew"
        return UserError(f"cannot go on: {what}", where=str(self.lines), todo=todo)


def first_lines(
    longer: GenerationFiles, manifest: Mapping[str, Any], records: Iterable[Record]
) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """What a run with a limit would write, its manifest and its lines, taken from a longer run, if that has the same.

    That is: settings, model, and in each line what its record holds. Lines with a trace serve without one, too.
    """
    before, now = longer.made_with, manifest["settings"]
    settings = {**before["settings"], "limit": now["limit"]}
    ours = {name: manifest[name] for name in ("examples", "data", "inputs")}
    taken = before | ours | {"settings": settings}
    wanted = {**now, "trace": now["trace"] or settings.get("trace")}
    if any(differences(taken, {**manifest, "settings": wanted})):
        return None
    lines, written = [], read_whole_lines(longer.lines)
    for record in records:
        found = next(written, None)
        given = {name: value for name, value in record.fields.items() if name != "id"}
        if found is None or str(found.get("id")) != record.id or not given.items() <= found.items():
            return None
        lines.append(found)
    return taken, lines


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run."""
    return read_json(path, Manifest, "pipedec generate")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs between the manifests of two runs and keeps their lines from being alike, in words."""
    old, new = before.get("settings") or {}, now["settings"]
    yield from changes(old, new, (name for name in new if name not in FREE_SETTINGS))
    if before.get("shard") != now.get("shard"):
        yield "it is of another shard"
    for what in ("model", "drafter", "data"):
        if (before.get(what) or {}).get("sha256") != (now.get(what) or {}).get("sha256"):
            yield f"the {what} changed"


def other_versions(manifest: Path, now: Mapping[str, Any]) -> list[str]:
    """Packages that have another version than when a run was begun, in words: their results may differ a little."""
    before = read_manifest(manifest).get("versions") or {}
    pairs = ((name, before.get(name), version) for name, version in now["versions"].items())
    return [f"{name} {old} → {new}" for name, old, new in pairs if old != new]
