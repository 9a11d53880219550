"""What `pipedec import` does: read a published data set, write it whole, and describe what came out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import Example, Importer, Tally, cleaned, parallel
from pipedec_cli.data.reading import read_records
from pipedec_cli.data.records import Level, Record, SplitName
from pipedec_cli.data.segmentation import Segmenter, cut, make_segmenter
from pipedec_cli.data.sentences import TRAINING_CHARACTERS
from pipedec_cli.data.statistics import TargetStatistics, describe_targets
from pipedec_cli.data.writing import write_json_lines
from pipedec_cli.terminal.console import Talk, write_stdout
from pipedec_cli.terminal.progress import track

T = TypeVar("T")

STDOUT = "-"

#: Put before the name of a split without a right answer, so that `segment`, which needs answers, passes it over.
UNLABELLED = "unlabelled-"


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What is to be imported.

    Attributes:
        importer: how the data set is read.
        location: where it is.
        split: one split of a folder or hub data set; None for all of them, or for a single file.
        out: the file to write, or the folder if there are several splits; ``-`` for stdout; None for a name of its own.
        limit: examples of each split at most.
        targets: the target file of parallel text; None to find it by its name.
        separator: what stands between phrases in parallel text; None for its usual one.
    """

    importer: Importer
    location: str
    split: SplitName | None = None
    out: Path | None = None
    limit: int | None = None
    targets: Path | None = None
    separator: str | None = None

    @property
    def level(self) -> Level:
        """What a subsequence is: parallel text without a separator is in sentences."""
        return "sentence" if self.separator == "" else self.importer.level


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """One file that was written.

    Attributes:
        path: the file; None for stdout.
        split: the split that it holds; None for a single file.
        tally: what was read, and what had to be changed.
        statistics: its targets as in the paper's Table 1.
    """

    path: Path | None
    split: SplitName | None
    tally: Tally
    statistics: TargetStatistics

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "path": str(self.path) if self.path else None,
            "split": self.split,
            **self.tally.as_json(),
            "statistics": self.statistics.to_json(),
        }


def run_import(request: ImportRequest, talk: Talk) -> list[ImportedFile]:
    """Import a data set: one file, or one for each split.

    Nothing is written before all of it was read: where the layout of the last split differs, no first one is left
    behind. A split of which no example has a target is written under a name that `segment` passes over.

    Raises:
        UserError: the location is not in a layout of the data set, or holds nothing.
    """
    if str(request.out) == STDOUT:
        return _to_stdout(request, talk)
    paths = _paths(request)
    _keep_inputs(request, list(paths.values()))
    with _staging(next(iter(paths.values())).parent) as stage:
        tallies = {split: _write(request, stage / path.name, split, talk) for split, path in paths.items()}
    written = [_Written(path, split, tallies[split]) for split, path in paths.items()]
    for file in written:
        _say_notes(file, talk)
    if len(written) > 1:
        written = [_without_answers(file, talk) for file in written]
    described = _described(request, written, talk)
    talk.say(f"wrote {', '.join(str(file.path) for file in written)}")
    return described


def _paths(request: ImportRequest) -> dict[SplitName | None, Path]:
    """The file to write for each split; None stands for a location that is a single file.

    Raises:
        UserError: several splits are to go into one file, or there is nothing at the location.
    """
    splits = (request.split,) if request.split else request.importer.splits(request.location)
    if len(splits) <= 1:
        return {next(iter(splits), None): request.out or _file_name(request)}
    folder = request.out or Path(request.importer.name)
    if folder.is_file():
        raise UserError(
            "is a file, and there are several splits to write",
            where=str(folder),
            todo="give a folder, or --split",
        )
    return {split: folder / f"{split}.jsonl" for split in splits}


def _keep_inputs(request: ImportRequest, paths: Sequence[Path]) -> None:
    """Refuse to write over what is read, or beside it, where the next import would read it too.

    Raises:
        UserError: a file to write is an input, or lies in the folder that is read.
    """
    inputs = [Path(request.location), *([request.targets] if request.targets else ())]
    for path in paths:
        for given in inputs:
            place = path.parent if given.is_dir() else path
            if given.exists() and place.resolve() == given.resolve():
                what = (
                    "would be written into the folder" if given.is_dir() else "would be written over the file"
                )
                raise UserError(f"{what} that is read", where=str(path), todo="give another place as --out")


def _to_stdout(request: ImportRequest, talk: Talk) -> list[ImportedFile]:
    if request.split is None and len(request.importer.splits(request.location)) > 1:
        raise UserError("there are several splits, and stdout is one file", todo="choose one with --split")
    with tempfile.TemporaryDirectory(prefix="pipedec-") as folder:
        path = Path(folder) / "import.jsonl"
        tally = _write(request, path, request.split, talk)
        _say_notes(_Written(Path("stdout"), request.split, tally), talk)
        (file,) = _described(request, [_Written(path, request.split, tally)], talk)
        with path.open(encoding="utf-8", newline="") as lines:
            for line in lines:
                write_stdout(line)
    return [replace(file, path=None)]


def _file_name(request: ImportRequest) -> Path:
    return Path("-".join(filter(None, (request.importer.name, request.split))) + ".jsonl")


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A folder to write into, whose files move to another one once all of them are there; else nothing is left of it.

    It lies in the nearest folder that is there, so that moving is renaming.
    """
    there = next(place for place in (folder, *folder.parents) if place.is_dir())
    with tempfile.TemporaryDirectory(prefix=".pipedec-", dir=there) as name:
        yield Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for file in Path(name).iterdir():
            file.replace(folder / file.name)


@dataclass(frozen=True, slots=True)
class _Written:
    path: Path
    split: SplitName | None
    tally: Tally


def _write(request: ImportRequest, path: Path, split: SplitName | None, talk: Talk) -> Tally:
    """Write one split, or one file.

    Raises:
        UserError: there is nothing in it.
    """
    tally = Tally()
    objects = islice(cleaned(_examples(request, split), tally), request.limit)
    write_json_lines(
        path, track(talk, _some(objects, request, tally), None, f"reading {split or request.location}")
    )
    return tally


def _say_notes(file: _Written, talk: Talk) -> None:
    for note in file.tally.notes():
        talk.warn(f"{file.path}: {note}")


def _examples(request: ImportRequest, split: SplitName | None) -> Iterator[Example]:
    read: Callable[[str, SplitName | None], Iterator[Example]] = request.importer.read
    own = {"targets": request.targets, "separator": request.separator}
    given = {name: value for name, value in own.items() if value is not None}
    if given:
        if read is not parallel.read:
            raise UserError(f"--{next(iter(given))} is for parallel text, not for {request.importer.name}")
        read = partial(parallel.read, **given)  # type: ignore[arg-type]
    return read(request.location, split)


def _some(
    objects: Iterable[dict[str, Any]], request: ImportRequest, tally: Tally
) -> Iterator[dict[str, Any]]:
    """The objects; an empty file is worth no name."""
    yield from objects
    if not tally.examples:
        raise UserError("holds no example", where=request.location)


def _without_answers(file: _Written, talk: Talk) -> _Written:
    if file.tally.unlabelled.times < file.tally.examples:
        return file
    path = file.path.with_name(f"{UNLABELLED}{file.path.name}")
    file.path.replace(path)
    talk.say(f"{path}: named so that `pipedec segment`, which needs targets, passes it over")
    return _Written(path, file.split, file.tally)


# --- Table 1 ---------------------------------------------------------------------------------------------


def _described(request: ImportRequest, files: list[_Written], talk: Talk) -> list[ImportedFile]:
    """Each file with its statistics. Text is cut by one segmenter, trained on the first file's targets."""
    segmenter = make_segmenter(request.level, targets=_training_text(files[0].path))
    described = []
    for file in files:
        records = track(talk, _segmented(file.path, segmenter), None, f"counting {file.path}")
        described.append(ImportedFile(file.path, file.split, file.tally, describe_targets(records)))
    return described


def _training_text(path: Path) -> list[str]:
    """As many of the targets that are text as the sentence model is trained on."""
    texts, characters = [], 0
    for record in read_records(path):
        if record.target and record.target_segments is None:
            texts.append(record.target)
            characters += len(record.target)
            if characters > TRAINING_CHARACTERS:
                break
    return texts


def _segmented(path: Path, segmenter: Segmenter) -> Iterator[Record]:
    for record in read_records(path):
        if record.target is None or record.target_segments is not None:
            yield record
        else:
            yield structs.replace(record, target_segments=cut(record.target, segmenter))
