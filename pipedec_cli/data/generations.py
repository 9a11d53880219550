"""Predictions as they are written: what a line holds, and how a stopped run goes on.

A run has two files. NAME.manifest.json, written before the first line, says what the run is: its settings, its data and
how many lines there are to be. NAME.jsonl grows by one flushed line at a time, in input order. A run is whole when it
has as many lines as its manifest says; else it was stopped, and another run of the same settings and data goes on
behind the last whole line.

A new run takes the names over. What stood there is kept beside it as NAME.jsonl.bak and NAME.manifest.json.bak, but for
the lines of a stopped run where the results of a whole one are kept already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import FieldNames, Generated, Record
from pipedec_cli.data.writing import read_json, read_whole_lines, to_json, write_json

#: Settings that a resumed run may have otherwise: they change how fast the lines come, not what is in them.
FREE_SETTINGS: Final = frozenset({"batch_size", "threads"})


def line(generated: Generated, names: FieldNames, *, trace: bool = False) -> dict[str, Any]:
    """One line of predictions: what was generated, and every field of its record as it was.

    The input's source and target are there under these names, too, whatever the input calls them, since that is where
    the other commands look.

    Args:
        generated: what was generated, with its record.
        names: what the input calls its fields.
        trace: add the grid and what the encoder saw.
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
        "steps": generated.steps,
        "tokens": generated.tokens,
        "truncated": generated.truncated,
        "seconds": round(generated.seconds, 6),
        **fields,
    }
    if trace:
        made["grid"] = [{"start": start, "tokens": list(tokens)} for start, tokens in generated.grid]
        made["source_token_ids"] = list(generated.source_ids)
    return made


@dataclass(frozen=True, slots=True)
class Inputs:
    """Records that have all been looked at once, so that what is wrong with them is said before anything is generated.

    Attributes:
        count: how many there are.
        sha256: of all that they hold, in order.
        longest: characters of the longest source.
        names: what they call their fields.
        read: gives them again, from the first one on.
    """

    count: int
    sha256: str
    longest: int
    names: FieldNames
    read: Callable[[], Iterator[Record]]


def look_through(
    read: Callable[[], Iterator[Record]], names: FieldNames, *, limit: int | None = None, keep: bool = False
) -> Inputs:
    """Check and count records.

    Args:
        read: gives the records.
        names: what the input calls its fields.
        limit: take the first ones only.
        keep: hold the records in memory, as what comes through a pipe can be read only once.

    Raises:
        UserError: a record is not as it must be, or has a field that `generate` writes.
    """
    kept: list[Record] = []
    count = longest = 0
    digest = hashlib.sha256()
    for record in islice(read(), limit):
        names.check([record])
        count, longest = count + 1, max(longest, len(record.source))
        digest.update((to_json([record.id, record.source, dict(record.fields)]) + "\n").encode())
        if keep:
            kept.append(record)
    again = (lambda: iter(kept)) if keep else (lambda: islice(read(), limit))
    return Inputs(count, digest.hexdigest(), longest, names, again)


class GenerationFiles:
    """The two files of a run.

    Attributes:
        lines: NAME.jsonl.
        manifest: NAME.manifest.json.
    """

    def __init__(self, lines: Path) -> None:
        """Touch nothing yet.

        Args:
            lines: where the predictions are to be.
        """
        self.lines = lines
        self.manifest = lines.with_name(f"{lines.stem}.manifest.json")

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on with."""
        return self.lines.exists()

    def count(self) -> int:
        """How many whole lines there are."""
        with self.lines.open("rb") as file:
            return sum(line.endswith(b"\n") for line in file)

    def done(self, manifest: Mapping[str, Any], records: Iterable[Record]) -> int:
        """How many whole lines a stopped run has left.

        Args:
            manifest: of the run that is to go on.
            records: its records, from the first one on.

        Raises:
            UserError: the file is of another run: it names what differs.
        """
        if not self.manifest.exists():
            raise UserError(
                f"there is no {self.manifest.name} beside it to say what it was made with",
                where=str(self.lines),
                todo="leave out --resume to start anew",
            )
        changed = list(differences(_manifest(self.manifest), manifest))
        if changed:
            raise self._other_run("; ".join(changed))
        following = iter(records)
        count = 0
        for written in read_whole_lines(self.lines):
            record = next(following, None)
            count += 1
            if record is None:
                raise self._other_run(f"it has more than the {count - 1:,} lines that there are to be")
            if str(written.get("id")) != record.id:
                raise self._other_run(
                    f"line {count:,} is of id {written.get('id')!r} where {record.id!r} belongs"
                )
        return count

    def start(self, manifest: Mapping[str, Any]) -> Path | None:
        """Take the names over for a new run.

        Args:
            manifest: of the new run.

        Returns:
            Where the lines that stood there are kept; None if there were none, or none worth keeping.
        """
        kept = None
        if self.lines.exists():
            backup = _backup(self.lines)
            if self._stopped() and backup.exists():
                self.lines.unlink()  # a whole run, or an older part of one, is worth no less than this part
            elif self.lines.stat().st_size:
                self.lines.replace(backup)
                kept = backup
                with suppress(FileNotFoundError):
                    self.manifest.replace(_backup(self.manifest))
        # The old lines have gone before the new manifest comes: a kill in between leaves nothing that passes for its own.
        write_json(self.manifest, manifest)
        return kept

    def _stopped(self) -> bool:
        """Whether the lines that are there are fewer than they were to be."""
        expected = _manifest(self.manifest).get("examples") if self.manifest.exists() else None
        if not isinstance(expected, int):
            return False
        return self.count() < expected

    def _other_run(self, what: str) -> UserError:
        return UserError(
            f"cannot go on: {what}",
            where=str(self.lines),
            todo="leave out --resume to start anew, or name another file with --out",
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs between the manifests of two runs and keeps their lines from being alike, in words."""
    old, new = before.get("settings") or {}, now["settings"]
    for name in new:
        if name not in FREE_SETTINGS and old.get(name) != new[name]:
            yield f"{name} was {to_json(old.get(name))} and is now {to_json(new[name])}"
    for what in ("model", "data"):
        if (before.get(what) or {}).get("sha256") != now[what]["sha256"]:
            yield f"the {what} changed"


def other_versions(manifest: Path, now: Mapping[str, Any]) -> list[str]:
    """Packages that have another version than when a run was begun, in words: their results may differ a little."""
    before = _manifest(manifest).get("versions") or {}
    return [
        f"{name} {before.get(name)} → {version}"
        for name, version in now["versions"].items()
        if before.get(name) != version
    ]


def _backup(path: Path) -> Path:
    return path.with_name(f"{path.name}.bak")


def _manifest(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError("not what `pipedec generate` writes", where=str(path))
    return content
