"""`pipedec import`: published data sets as JSON lines that `segment` takes."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import MISSING, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from msgspec import to_builtins
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.fields import text_of
from pipedec_cli.data.importers import (
    IMPORTERS,
    CleaningCounts,
    ImportedFile,
    cleaned,
    importer,
    splits_at,
)
from pipedec_cli.data.inputs import read_records
from pipedec_cli.data.paper import RECIPES, TARGET_LENGTHS
from pipedec_cli.data.reading import is_same_place, require_place, require_writable
from pipedec_cli.data.records import Level, Record, SplitName
from pipedec_cli.data.segmentation import (
    describe_targets,
    make_segmenter,
)
from pipedec_cli.data.sentences import TRAINING_CHARACTERS
from pipedec_cli.data.writing import atomic_writer, require_own, rounded, to_json
from pipedec_cli.events import Listen, track
from pipedec_cli.jobs.segment import SegmentSettings
from pipedec_cli.jobs.settings import (
    Count,
    Settings,
    argument,
    option,
    unescaped,
)

if TYPE_CHECKING:
    DataSet = str
else:
    DataSet = Literal[tuple(IMPORTERS)]


@dataclass(frozen=True, kw_only=True)
class ImportSettings(Settings):
    """What `pipedec import` is asked for."""

    name: DataSet = argument(
        "The data set: one of the paper's six, or a kind of file.", MISSING
    )
    location: str = argument(
        "A file, a folder with its splits, or OWNER/NAME[:CONFIG] of the hub.", MISSING
    )
    # None comes first: to typing `SplitName | None` is the type of `generate --split`,
    # in that one's order.
    split: None | SplitName = option(  # noqa: RUF036
        None, "One split of a folder or hub data set [default: all]."
    )
    out: Path | None = option(
        None,
        "The file or folder to write, - for stdout [default: named after the data set].",
        metavar="FILE|-",
    )
    limit: Count | None = option(None, "The first N examples of each split.")
    targets: Path | None = option(
        None, "parallel: the file of targets [default: the source's name with trg]."
    )
    separator: str | None = option(
        None, "parallel: ends a phrase of a target; '' for plain text [default: ;]."
    )

    @property
    def to_stdout(self) -> bool:
        """Whether the examples are written to stdout."""
        return str(self.out) == "-"


@dataclass(frozen=True)
class ImportedData:
    """What `import` wrote: its files, and the paper's figures for the data set, if it is one of the paper's."""

    dataset: str
    files: Sequence[ImportedFile]

    @property
    def content(self) -> dict[str, Any]:
        """All of it as plain values."""
        written = [
            {
                "path": file.path,
                "split": file.split,
                **file.tally.as_json(),
                "statistics": rounded(to_builtins(file.statistics), 3),
            }
            for file in self.files
        ]
        paper = to_builtins(TARGET_LENGTHS.get(self.dataset))
        return {"dataset": self.dataset, "files": written, "paper": paper}


def import_data(
    settings: ImportSettings, listen: Listen, emit: Callable[[str], None]
) -> ImportedData:
    """Write a published data set as JSON lines. `emit` takes each line where the output is standard output."""
    for name, value in settings.some("targets", "separator").items():
        if value is not None and settings.name != "parallel":
            raise UserError(f"--{name} is for parallel text, not for {settings.name}")
    paths = _paths(settings)
    if settings.to_stdout:
        with tempfile.TemporaryDirectory(prefix="pipedec-") as folder:
            path = Path(folder, "stdout")
            files = _import(settings, {settings.split: path}, listen)
            with path.open(encoding="utf-8", newline="") as lines:
                for line in lines:
                    emit(line)
    else:
        for path in paths.values():
            require_writable(path)
        files = _import(settings, paths, listen)
        log.info(f"wrote {', '.join(file.path for file in files)}")
    return ImportedData(settings.name, files)


def segmenting(
    settings: ImportSettings, imported: ImportedData
) -> tuple[SegmentSettings, str | None]:
    """The settings of the command that segments what was imported, and the recipe for it, if there is one."""
    path = Path(imported.files[0].path)
    data = path if len(imported.files) == 1 else path.parent
    if settings.name in RECIPES:
        return SegmentSettings(data=str(data)), settings.name
    return SegmentSettings(data=str(data), level=_level(settings)), None


def _paths(settings: ImportSettings) -> dict[SplitName | None, Path]:
    """The file that is written for each split; None stands for a single file without splits.

    A `UserError` for a file that cannot be written, that would be over or beside an
    input, or that stands there and is not ours.
    """
    paths = _named(settings, _splits_of(settings))
    for path in paths.values():
        if not settings.to_stdout:
            _keep_inputs(settings, path)
            require_place(path)
            require_own(path, {"id", "source"}, "pipedec import")
    return paths


def _splits_of(settings: ImportSettings) -> tuple[SplitName, ...]:
    """The splits to write: the one that is asked for, or those that are there."""
    if settings.split:
        return (settings.split,)
    if settings.name == "parallel" and not Path(settings.location).is_dir():
        return ()  # the hub has no parallel text
    return splits_at(settings.location)


def _named(
    settings: ImportSettings, splits: Sequence[SplitName]
) -> dict[SplitName | None, Path]:
    """The file for each of the splits: of one split the file that is asked for, of several a file each in a folder."""
    if len(splits) <= 1:
        name = f"{settings.name}.jsonl"
        if settings.split:
            name = f"{settings.name}-{settings.split}.jsonl"
        return {next(iter(splits), None): settings.out or Path(name)}
    if settings.to_stdout:
        raise UserError(
            "there are several splits, and stdout is one file",
            todo="choose one with --split",
        )
    folder = settings.out or Path(settings.name)
    if folder.is_file():
        what = "is a file, and there are several splits to write"
        raise UserError(what, where=folder, todo="give a folder, or --split")
    return {split: folder / f"{split}.jsonl" for split in splits}


def _keep_inputs(settings: ImportSettings, path: Path) -> None:
    """A `UserError` if a file would be written over an input, or into its folder."""
    for given in filter(None, (Path(settings.location), settings.targets)):
        written = path.parent if given.is_dir() else path
        if is_same_place(given, written):
            over = "into the folder" if given.is_dir() else "over the file"
            what = f"would be written {over} that is read"
            raise UserError(what, where=path, todo="give another place as --out")


def _import(
    settings: ImportSettings, paths: dict[SplitName | None, Path], listen: Listen
) -> list[ImportedFile]:
    """Write the file of each split, and count what it holds; returns a record for each file.

    Of several splits, the file of one without any target, as test splits are published,
    gets a name that `pipedec segment` passes over; `paths` is changed to it.
    """
    tallies = _write_all(settings, paths, listen)
    for split, tally in tallies.items():
        for note in tally.notes():
            log.warning(f"{'stdout' if settings.to_stdout else paths[split]}: {note}")
    if len(paths) > 1:
        _rename_unlabelled(paths, tallies)
    segmented = _segmenting(settings, next(iter(paths.values())))
    files = []
    for split, path in paths.items():
        records = track(listen, read_records(path), None, f"counting {path}")
        name = "stdout" if settings.to_stdout else str(path)
        statistics = describe_targets(map(segmented, records))
        files.append(ImportedFile(name, split, tallies[split], statistics))
    return files


def _write_all(
    settings: ImportSettings, paths: Mapping[SplitName | None, Path], listen: Listen
) -> dict[SplitName | None, CleaningCounts]:
    """Write the files of all splits, or none of them. Returns what was counted in each."""
    folder = next(iter(paths.values())).parent
    is_new = not folder.exists()
    tallies = {}
    try:
        with ExitStack() as written:  # all files get their names at its end
            for split, path in paths.items():
                file = written.enter_context(atomic_writer(path))
                tallies[split] = _write(settings, file, split, listen)
    except BaseException:
        with suppress(OSError):  # it holds something
            if is_new:
                folder.rmdir()
        raise
    return tallies


def _rename_unlabelled(
    paths: dict[SplitName | None, Path],
    tallies: Mapping[SplitName | None, CleaningCounts],
) -> None:
    """Rename the files without any target, and their entries in `paths`: `pipedec segment` takes no record without one."""
    for split, tally in tallies.items():
        if tally.times["without_target"] == tally.examples:
            path = paths[split].with_name(f"unlabelled-{split}.jsonl")
            paths[split] = paths[split].replace(path)
            log.info(
                f"{path}: named so that `pipedec segment`, which needs targets, passes it over"
            )


def _segmenting(settings: ImportSettings, path: Path) -> Callable[[Record], Record]:
    """What cuts the target of a record into its parts, which are then counted.

    Text is cut by what is learnt from the first targets in the file at `path`.
    """
    segmenter = make_segmenter(_level(settings), targets=_first_targets(path))

    def segmented(record: Record) -> Record:
        if record.target is None or record.target_segments is not None:
            return record
        if record.target_fields is not None:
            values = map(text_of, record.target_fields.values())
            return replace(record, target_segments=tuple(values))
        return replace(record, target_segments=segmenter.cut(record.target))

    return segmented


def _level(settings: ImportSettings) -> Level:
    """The level at which the targets of a data set are cut."""
    # Parallel text without a separator is in sentences.
    if settings.separator == "":
        return "sentence"
    return IMPORTERS[settings.name][0]


def _first_targets(path: Path) -> list[str]:
    """The first targets of a file that are texts, as many as sentences are learnt from."""
    characters = 0
    targets = []
    for record in read_records(path):
        if characters > TRAINING_CHARACTERS:
            break
        if record.target and record.target_segments is None:
            characters += len(record.target)
            targets.append(record.target)
    return targets


def _write(
    settings: ImportSettings, file: TextIO, split: SplitName | None, listen: Listen
) -> CleaningCounts:
    """Write one split, or with None all of the location, to a file. Returns what was counted; a `UserError` if it holds nothing."""
    tally = CleaningCounts()
    read = importer(settings.name)
    if settings.name == "parallel":
        separator = settings.separator and unescaped(settings.separator)
        read = partial(read, targets=settings.targets, separator=separator)
    objects = islice(cleaned(read(settings.location, split), tally), settings.limit)
    for item in track(listen, objects, None, f"reading {split or settings.location}"):
        file.write(to_json(item) + "\n")
    if not tally.examples:
        raise UserError("holds no example", where=settings.location)
    return tally
