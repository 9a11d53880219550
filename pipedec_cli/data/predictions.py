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
#: The endings of files that hold tables of predictions.
ENDINGS: Final = (".csv", ".parquet")
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

    Source and target are there as ``source`` and ``target`` as well, whatever the input
    calls them: other commands look for these names.

    Args:
        generated: the prediction with its record.
        names: what the input calls source and target.
        trace: the line also holds the grid and the token ids of the source.
        confidence: it says how sure each value is, and how far the schema forced it.
        spans: it says where each value stands in the source.
        batch_size: how many examples were decoded together. Above 1 the seconds are not
            of this one alone, and the line says the number.
    """
    record = generated.record
    assert record is not None, "only what was generated from a record becomes a line"
    written = {
        "id": _given_id(record),
        **_text_values(generated),
        **_object_values(generated, record.source, confidence, spans),
        **_amounts(generated, batch_size),
    }
    values = {}
    for name, value in written.items():
        if value is not None or name == "truncated":  # null says that nothing was cut
            values[name] = value
    values |= _record_fields(record, names)
    if trace:
        values |= _trace_values(generated)
    return values


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
    """What a line says of the values of an object; None for what it does not say. See `line`."""
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
        "source_cut": generated.source_cut or None,
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
    values: dict[str, Any] = {"grid": rows}
    if generated.calls:
        values["grid_calls"] = list(generated.calls)
    if generated.taken_back:
        values["grid_taken_back"] = list(generated.taken_back)
    values["source_token_ids"] = list(generated.source_ids)
    return values


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


def lines_path(out: Path) -> Path:
    """The file of the lines of a run: NAME.jsonl beside a table NAME.csv, else `out` itself."""
    return out.with_suffix(".jsonl") if out.suffix.lower() in ENDINGS else out


def _refuse_table(path: Path, row: Any) -> None:
    """Raise a UserError for a table that `generate` made, by its first row: its lines hold the predictions."""
    lines = lines_path(path)
    if lines != path and lines.is_file() and "prediction" not in row:
        what = "a table of values, which has no predictions"
        raise UserError(what, where=path, todo=f"give its lines, {lines}")


def read_predictions(path: Path) -> list[Generated]:
    """Read the predictions of a JSON-lines file of `generate` or of another system; see `generated_of`."""
    if not path.is_file():
        raise UserError("no such file", where=path, todo="check its name")
    predictions: list[Generated] = []
    places: dict[str, str] = {}  # where each id stands
    for number, where, value in _rows(path):
        if not predictions:
            _refuse_table(path, value)
        prediction = generated_of(value, where, number)
        if prediction.id in places:
            before = places[prediction.id]
            what = f"id {prediction.id!r} was already used at {before}"
            raise UserError(what, where=where)
        places[prediction.id] = where
        predictions.append(prediction)
    if not predictions:
        todo = "it must hold at least one prediction"
        raise UserError("is empty", where=path, todo=todo)
    return predictions


def _rows(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Number, place and value of each row. The error of a last line that was cut short says how to finish the run."""
    try:
        for row in read_rows(path):
            yield row.number, row.where, row.value
    except UserError as error:
        # The number of the last line, if no line feed ends it.
        cut_line = PredictionsFile(path).count() + 1
        if path.suffix == ".gz" or error.where != f"{path}:{cut_line}":
            raise
        raise UserError(
            "the last line is cut short, as a stopped run leaves it",
            where=error.where,
            todo="finish the run with `pipedec generate --resume`",
        ) from None


class PredictionsFile(Artifact):
    """NAME.jsonl with NAME.manifest.json, and NAME.invalid.jsonl for records that cannot be used.

    A `shard` is the part of a job that the name of the file tells, or None.
    """

    def __init__(self, path: Path) -> None:
        # No other ending: each file of a run needs its own name.
        name = path.name.removesuffix(".jsonl")
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
        """What is wrong with each of the invalid records; nothing if there are none."""
        if self.invalid_path.exists():
            yield from read_whole_lines(self.invalid_path)

    def done(self, manifest: Mapping[str, Any], records: Iterable[Record]) -> int:
        """How many lines are there of a run that has this manifest and reads these `records`.

        A `UserError` if another run wrote them, or if they were altered.
        """
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
            if record is None:
                raise self._other_run(
                    f"it has more than the {count - 1:,} lines that there are to be"
                )
            identifier = written.get("id")
            if str(identifier) != record.id:
                raise self._other_run(
                    f"line {count:,} is of id {identifier!r} where {record.id!r} belongs"
                )
            given = {
                name: value for name, value in record.fields.items() if name != "id"
            }
            # As texts: NaN is no other NaN.
            if to_json(given) != to_json({name: written.get(name) for name in given}):
                raise self._other_run(f"the input in line {count:,} was altered")
            digest.update(to_json(written).encode())
            is_stop = count == stopped.get("lines")
            if is_stop and digest.hexdigest() != stopped["sha256"]:
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
        # A hash differs between two runs, as the seconds in the lines do.
        if self.shard:
            result["sha256"] = file_sha256(self.path)
        self.finish(result)

    def write_invalid(self, invalid: Iterable[Mapping[str, Any]]) -> int:
        """Write what is wrong with the invalid records, a line each; returns how many there are. Of none there is no file."""
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
        what = f"cannot go on: {what}"
        return UserError(what, where=self.path, todo=self._start_anew)


def begin_job(folder: Path, manifest: Mapping[str, Any], shards: int) -> None:
    """Begin a job of so many `shards` in a folder, or go on with it; a `UserError` if another job was begun there.

    The `manifest` is that of one shard, or of one run over all records; the job's own
    is made of it.
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
        raise UserError("no such folder", where=folder)
    job = Artifact.job(folder)
    if not job.begun:
        raise UserError(
            f"holds no {job.manifest_path.name} of a job",
            where=folder,
            todo="give the --out of `pipedec generate --part`",
        )
    manifest = job.manifest
    for field in ("shards", "examples"):
        if manifest.get(field) is None:
            raise UserError(
                f"field {field!r} is missing",
                where=job.manifest_path,
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
    todo = f"run the job's command with --part {missing[0]}"
    raise UserError(what, where=folder, todo=todo)


def _check_whole(part: PredictionsFile, manifest: Mapping[str, Any]) -> None:
    """Raise a `UserError` if a shard is not whole, was changed, or is of another job than that of the manifest."""
    where = str(part.path)
    again = f"run the job's command with --part {part.shard} again"
    if not part.path.is_file():
        todo = "take it away and run its part again"
        raise UserError("is no file", where=where, todo=todo)
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
        what = "was changed after it was written"
        raise UserError(what, where=where, todo=f"take it away and {again}")


def _shard_manifest(
    part: PredictionsFile, manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest that a shard of the job is to have."""
    shard: dict[str, Any] | None = None
    if part.shard is not None:
        shard = {**asdict(part.shard), "records": manifest["examples"]}
    return {**manifest, "shards": None, "shard": shard}
