"""Files of predictions: what a line holds, reading the lines back, the file as an artifact, and all parts of a job.

The file NAME.jsonl grows by one flushed line at a time, in input order.
NAME.manifest.json stands beside it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import mapped
from pipedec_cli.data.inputs import Shard, read_rows
from pipedec_cli.data.places import places_of
from pipedec_cli.data.records import FieldNames, Generated, Record, generated_of
from pipedec_cli.data.resumable import Artifact, settings_diff
from pipedec_cli.data.writing import (
    file_sha256,
    read_whole_lines,
    require_own,
    to_json,
    write_json,
    write_json_lines,
)

#: The ending of the file that lists invalid records.
INVALID: Final = ".invalid.jsonl"
#: What each line of ours holds, whatever was asked for.
_OWN: Final = frozenset({"id", "prediction", "steps", "truncated"})


def line(
    generated: Generated,
    names: FieldNames,
    *,
    trace: bool = False,
    confidence: bool = False,
    spans: bool = False,
    batch_size: int = 1,
) -> dict[str, Any]:
    """One line of predictions: what was generated, and every field of its record as it was.

    The source and the target are added under these names, if the input has other names
    for them: other commands look for these names. With `trace` the line also holds the
    grid and the token ids of the source, with `confidence` how sure each value is, how
    far the schema forced it and how probable each choice is, with `spans` where it stands in the source. Of several
    examples at a time the seconds are not of this one alone: the line has their number,
    the `batch_size`.
    """
    record = generated.record
    assert record is not None, "only what was generated from a record becomes a line"
    written = {
        "id": _given_id(record),
        **_text_values(generated),
        **_object_values(generated, record.source, confidence, spans),
        **_amounts(generated, batch_size),
    }
    made: dict[str, Any] = {}
    for name, value in written.items():
        if value is not None or name == "truncated":
            made[name] = value
    made |= _record_fields(record, names)
    if trace:
        made |= _trace_values(generated)
    return made


def _given_id(record: Record) -> Any:
    """The identifier as the input has it, a number for example; the record's own if it has none."""
    given = record.fields.get("id")
    if str(given) == record.id:
        return given
    return record.id


def _text_values(generated: Generated) -> dict[str, Any]:
    return {
        "prediction": generated.text,
        "segments": list(generated.segments),
        "fields": generated.fields,
    }


def _object_values(
    generated: Generated, source: str, confidence: bool, spans: bool
) -> dict[str, Any]:
    """What a line says of the values of an object; None for what it does not say."""
    values = generated.fields
    places = None
    if spans and values is not None:
        places = spans_of(values, source)
    return {
        "confidence": generated.confidence if confidence else None,
        "forced": generated.forced if confidence else None,
        "spans": places,
        "violations": list(generated.violations) or None,
        "missing": generated.missing or None,
        "probabilities": _rounded(generated.probabilities) if confidence else None,
    }


def _rounded(probabilities: Mapping[str, Mapping[str, float]]) -> Any:
    """The probabilities of choices to four digits; None if there are none."""
    rounded = {}
    for path, shares in probabilities.items():
        rounded[path] = {label: float(f"{shares[label]:.4g}") for label in shares}
    return rounded or None


def _amounts(generated: Generated, batch_size: int) -> dict[str, Any]:
    """How much was computed, and what cut it short; None for what a line does not say."""
    return {
        "steps": generated.steps,
        "draft_steps": generated.draft_steps,
        "tokens": generated.tokens,
        "truncated": generated.truncated,
        "stopped_on_repeat": generated.stopped_on_repeat or None,
        "seconds": round(generated.seconds, 6),
        "batch_size": batch_size if batch_size > 1 else None,
    }


def _record_fields(record: Record, names: FieldNames) -> dict[str, Any]:
    """The fields of the input but ``id``, with source and target under our names as well."""
    fields = {name: value for name, value in record.fields.items() if name != "id"}
    if names.source != "source":
        fields["source"] = record.source
    if names.target != "target" and names.target in fields:
        fields["target"] = fields[names.target]
    return fields


def _trace_values(generated: Generated) -> dict[str, Any]:
    """The grid, and the token ids of the source."""
    rows = [
        {"start": start, "tokens": list(tokens)} for start, tokens in generated.grid
    ]
    made: dict[str, Any] = {"grid": rows}
    if generated.calls:
        made["grid_calls"] = list(generated.calls)
    if generated.taken_back:
        made["grid_taken_back"] = list(generated.taken_back)
    made["source_token_ids"] = list(generated.source_ids)
    return made


def spans_of(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """All places of each value in a source: an object of the same shape, with places for each item of a list.

    A place is [start, end) in characters; see `places_of`. None if a value stands
    nowhere.
    """

    def spans(value: Any) -> Any:
        if isinstance(value, list):
            return [spans(item) for item in value]
        return [[start, end] for start, end in places_of(value, source)] or None

    return mapped(values, lambda _, value: spans(value))


def limit_options(limits: Iterable[str]) -> str:
    """The options of `generate` that allow more than limits that cut texts, such as ``--set time_max=N``."""
    options = {"max_tokens": "--max-tokens N"}
    return " ".join(options.get(name, f"--set {name}=N") for name in limits)


def read_predictions(path: Path) -> list[Generated]:
    """Read the predictions of a JSON-lines file of `generate` or of another system; see `generated_of`."""
    if not path.is_file():
        raise UserError("no such file", where=str(path), todo="check its name")
    predictions: list[Generated] = []
    places: dict[str, str] = {}  # where each id stands
    for number, where, value in _rows(path):
        prediction = generated_of(value, where, number)
        if prediction.id in places:
            raise UserError(
                f"id {prediction.id!r} was already used at {places[prediction.id]}",
                where=where,
            )
        places[prediction.id] = where
        predictions.append(prediction)
    if not predictions:
        raise UserError(
            "is empty", where=str(path), todo="it must hold at least one prediction"
        )
    return predictions


def _rows(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Number, place and value of each row. The error of a last line that was cut short says how to finish the run."""
    try:
        for row in read_rows(path):
            yield row.number, row.where, row.value
    except UserError as error:
        cut_line = (
            PredictionsFile(path).count() + 1
        )  # the last line, if no line feed ends it
        if path.suffix == ".gz" or error.where != f"{path}:{cut_line}":
            raise
        what = "the last line is cut short, as a stopped run leaves it"
        todo = "finish the run with `pipedec generate --resume`"
        raise UserError(what, where=error.where, todo=todo) from None


class PredictionsFile(Artifact):
    """NAME.jsonl with NAME.manifest.json, and NAME.invalid.jsonl for records that cannot be used.

    A `shard` is the part of a job that the name of the file tells, or None.
    """

    def __init__(self, path: Path) -> None:
        name = path.name.removesuffix(
            ".jsonl"
        )  # no other ending: each file of a run needs its own name
        super().__init__(
            path, path.with_name(f"{name}.manifest.json"), "pipedec generate"
        )
        self.invalid_path = path.with_name(f"{name}{INVALID}")
        self.shard = Shard.named(path.name)

    def require_own(self) -> None:
        """A `UserError` if something stands there that no run of ours wrote, such as the weights of a model."""
        require_own(self.manifest_path, {"settings", "versions"}, self.made_by)
        if not self.manifest_path.is_file():
            require_own(self.path, _OWN, self.made_by)
        require_own(self.invalid_path, {"where", "what"}, self.made_by)

    @property
    def begun(self) -> bool:
        """Whether there is a file to go on with."""
        return self.path.exists()

    @property
    def whole(self) -> bool:
        """Whether a run wrote all lines, and they are all there."""
        result = self.manifest.get("result") or {}
        return self.begun and result.get("examples") == self.count()

    def count(self) -> int:
        """How many whole lines there are."""
        with self.path.open("rb") as file:
            return sum(line.endswith(b"\n") for line in file)

    def lines(self) -> Iterator[dict[str, Any]]:
        """The whole lines."""
        return read_whole_lines(self.path)

    def invalid(self) -> Iterator[dict[str, Any]]:
        """What is wrong with the invalid records."""
        return (
            read_whole_lines(self.invalid_path)
            if self.invalid_path.exists()
            else iter(())
        )

    def done(self, manifest: Mapping[str, Any], records: Iterable[Record]) -> int:
        """How many lines a run with this manifest and these records has; a `UserError` if another run wrote them."""
        if not self.manifest_path.exists():
            what = f"there is no {self.manifest_path.name} beside it to say what it was made with"
            raise self._other_run(what)
        self.check_same(manifest, todo=self._start_anew)
        stopped = self.manifest.get("stopped") or {}
        following = iter(records)
        count = 0
        digest = hashlib.sha256()
        for count, written in enumerate(self.lines(), start=1):
            record = next(following, None)
            found = written.get("id")
            if record is None:
                raise self._other_run(
                    f"it has more than the {count - 1:,} lines that there are to be"
                )
            if str(found) != record.id:
                raise self._other_run(
                    f"line {count:,} is of id {found!r} where {record.id!r} belongs"
                )
            given = {
                name: value for name, value in record.fields.items() if name != "id"
            }
            if to_json(given) != to_json(
                {name: written.get(name) for name in given}
            ):  # NaN is no other NaN
                raise self._other_run(f"the input in line {count:,} was altered")
            digest.update(to_json(written).encode())
            if (
                count == stopped.get("lines")
                and digest.hexdigest() != stopped["sha256"]
            ):
                raise self._other_run(
                    f"a line was altered since the run stopped behind line {count:,}"
                )
        return count

    def note_stop(self) -> None:
        """Note in the manifest how many lines there are, and their hash: a run that goes on sees if one was altered."""
        digest = hashlib.sha256()
        for written in self.lines():
            digest.update(to_json(written).encode())
        stopped = {"lines": self.count(), "sha256": digest.hexdigest()}
        write_json(self.manifest_path, {**self.manifest, "stopped": stopped})

    def finish_lines(self) -> None:
        """Note in the manifest that all lines are written: how many and, of a shard, their hash."""
        result: dict[str, Any] = {"examples": self.count()}
        if (
            self.shard
        ):  # a hash differs between two runs, as the seconds in the lines do
            result["sha256"] = file_sha256(self.path)
        self.finish(result)

    def write_invalid(self, invalid: Iterable[Mapping[str, Any]]) -> int:
        """Write what is wrong with the invalid records, a line each; returns how many there are. None: no file."""
        count = write_json_lines(self.invalid_path, invalid)
        if not count:
            self.invalid_path.unlink()
        return count

    @property
    def _start_anew(self) -> str:
        if self.shard:
            return (
                "name another folder with --out, or take this file away to start anew"
            )
        return "leave out --resume to start anew, or name another file with --out"

    def _other_run(self, what: str) -> UserError:
        return UserError(
            f"cannot go on: {what}", where=str(self.path), todo=self._start_anew
        )


def begin_job(folder: Path, manifest: Mapping[str, Any], shards: int) -> None:
    """Begin a job of so many shards in a folder, or go on with it; a `UserError` if another job was begun there.

    The `manifest` is that of one shard, or of one run over all records.
    """
    shared = {name: value for name, value in manifest.items() if name != "shard"}
    total = (manifest.get("shard") or {}).get("records", manifest["examples"])
    wanted = {**shared, "examples": total, "shards": shards}
    job = Artifact.job(folder)
    if job.begun:
        job.check_same(wanted, todo="name another folder with --out")
    else:
        job.start(wanted)


def whole_parts(folder: Path) -> list[PredictionsFile]:
    """The files of all shards of a job, in order; a `UserError` if a shard is not whole or of another job."""
    manifest = _job_manifest(folder)
    count = manifest["shards"]
    parts = [
        PredictionsFile(folder / Shard(number, count).file)
        for number in range(1, count + 1)
    ]
    _require_all(parts, folder)
    for part in parts:
        _check_whole(part, manifest)
    return parts


def _job_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the job in a folder. It has the number of shards and that of examples."""
    if not folder.is_dir():
        raise UserError("no such folder", where=str(folder))
    job = Artifact.job(folder)
    if not job.begun:
        raise UserError(
            f"holds no {job.manifest_path.name} of a job",
            where=str(folder),
            todo="give the --out of `pipedec generate --part`",
        )
    manifest = job.manifest
    for field in ("shards", "examples"):
        if manifest.get(field) is None:
            raise UserError(
                f"field {field!r} is missing",
                where=str(job.manifest_path),
                todo="take it away and run a part again",
            )
    return manifest


def _require_all(parts: Sequence[PredictionsFile], folder: Path) -> None:
    """Raise a `UserError` if files of shards are missing. It names the first of them."""
    missing = [str(part.shard) for part in parts if not part.begun]
    if not missing:
        return
    some = ", ".join(missing[:5])
    if len(missing) > 5:
        some += ", …"
    what = f"shards {some} are missing"
    if len(missing) == 1:
        what = f"shard {some} is missing"
    raise UserError(
        what,
        where=str(folder),
        todo=f"run the job's command with --part {missing[0]}",
    )


def _check_whole(part: PredictionsFile, manifest: Mapping[str, Any]) -> None:
    """Raise a `UserError` if a shard is not whole, was changed, or is of another job than that of the manifest."""
    where = str(part.path)
    again = f"run the job's command with --part {part.shard} again"
    if not part.path.is_file():
        raise UserError(
            "is no file", where=where, todo="take it away and run its part again"
        )
    own = part.manifest
    if not own:
        what = f"there is no {part.manifest_path.name} beside it"
        raise UserError(what, where=where, todo=again)
    changed = "; ".join(settings_diff(_shard_manifest(part, manifest), own))
    if changed:
        todo = "each job has a folder of its own"
        raise UserError(f"is of another job: {changed}", where=where, todo=todo)
    result = own.get("result")
    if result is None:
        total = own.get("examples") or 0
        what = f"has {part.count():,} of {total:,} lines and no end"
        raise UserError(what, where=where, todo=again)
    if result.get("sha256") != file_sha256(part.path):
        raise UserError(
            "was changed after it was written",
            where=where,
            todo=f"take it away and {again}",
        )


def _shard_manifest(
    part: PredictionsFile, manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest that a shard of the job is to have."""
    shard: dict[str, Any] | None = None
    if part.shard is not None:
        shard = {**asdict(part.shard), "records": manifest["examples"]}
    return {**manifest, "shards": None, "shard": shard}
