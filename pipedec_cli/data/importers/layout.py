"""Files of published data sets: how they lie in folders, the fields of their rows, and the examples they give."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.inputs import files_by_split, given_splits, read_rows
from pipedec_cli.data.reading import checked, missing_field, some_names
from pipedec_cli.data.records import SPLIT_NAMES, SplitName

_DATA_SUFFIXES: Final = (
    ".jsonl",
    ".json",
    ".ndjson",
    ".csv",
    ".tsv",
    ".parquet",
    ".txt",
    ".src",
    ".source",
    ".conll",
    ".bio",
    ".iob2",
)
#: A folder with one of these is a data set without splits: stories of CNN/DailyMail,
#: summaries of SumPubMed.
_NO_SPLITS: Final = ("*.story", "shorter_abstract/")
#: The name of a split as a word of a file's name: ``kp20k_training.json``,
#: ``KPTimes.train.jsonl.gz``.
_SPLIT_WORD: Final = re.compile(
    rf"(?<![a-z0-9])({'|'.join(SPLIT_NAMES)})(?![a-z0-9])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Example:
    """One example of a data set, as it is published."""

    where: str  # its place, for messages
    id: str | None  # None: it gets its number
    source: str  # may be empty
    # A text, segments, or an object; None if the data set has no right answer.
    target: str | tuple[str, ...] | Mapping[str, Any] | None
    extra: Mapping[str, Any] = field(default_factory=dict)  # further fields


def splits_at(location: str) -> tuple[SplitName, ...]:
    """The splits of a place, in the order train, dev, test; () for a single file or a data set without splits."""
    folder = Path(location)
    if not folder.is_dir():
        return given_splits(location)
    undivided = any(True for mark in _NO_SPLITS for _ in folder.glob(mark))
    return () if undivided else tuple(split_files(folder))


def files_of(
    place: Path, split: SplitName | None, accepts: Callable[[Path], bool] | None = None
) -> list[Path]:
    """The data files of one split of a folder; with None, of its only split. A file stands for itself.

    `accepts` says which files are data; None: those with the usual endings. A UserError
    if there is no such split, or several for None.
    """
    if not place.exists():
        raise UserError("no such file or folder", where=place)
    if not place.is_dir():
        return [place]
    by_split = split_files(place, accepts)
    if split is None and len(by_split) == 1:
        split = next(iter(by_split))
    if split not in by_split:
        what = f"has no split {split}" if split else "has several splits"
        raise UserError(what, where=place, todo=f"it has {', '.join(by_split)}")
    return by_split[split]


def _has_data(file: Path) -> bool:
    """Whether a file's name ends as one with data of a published data set."""
    return file.name.lower().removesuffix(".gz").endswith(_DATA_SUFFIXES)


def split_files(
    folder: Path, accepts: Callable[[Path], bool] | None = None
) -> dict[SplitName, list[Path]]:
    """The data files of each split in a folder, or in its folder ``data``, found by their names; see `files_of`."""
    for place in (folder, folder / "data"):
        if place.is_dir():
            by_split = files_by_split(place, _SPLIT_WORD, accepts or _has_data)
            if by_split:
                return by_split
    what = "a folder without a file for any split (train…, valid…, test…)"
    inside = some_names(sorted(file.name for file in folder.iterdir()))
    todo = f"give a file or another folder; it holds {inside}"
    raise UserError(what, where=folder, todo=todo)


class Fields:
    """The fields of a published row, which must be an object. Reading a field checks its type."""

    def __init__(self, value: object, where: str) -> None:
        self.where = where
        self.values = checked(value, dict[str, Any], where)

    def has(self, *names: str) -> str | None:
        """The name of the first of several fields that is there and not null; None if none is."""
        return next((name for name in names if self.values.get(name) is not None), None)

    def first_of(self, *names: str) -> str:
        """The name of the first of several fields that is there; a UserError if none is."""
        name = self.has(*names)
        if name:
            return name
        raise missing_field(self.values, " or ".join(names), self.where)

    def text(self, *names: str) -> str:
        """The value of the first of several fields that is there; it must be a string."""
        name = self.first_of(*names)
        return checked(self.values[name], str, self.where, field=name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A field that must be a list of strings."""
        return checked(
            self.values[self.first_of(name)], tuple[str, ...], self.where, field=name
        )

    def example(
        self,
        source: str,
        target: str | tuple[str, ...] | None,
        *,
        id_names: Iterable[str] = ("id",),
        extra: Mapping[str, Any] = {},
    ) -> Example:
        """The example of the row; its identifier is the first of `id_names` that is there and not empty."""
        identifier = None
        text_or_number: Any = str | int
        for name in id_names:
            given = self.values.get(name)
            if given not in (None, ""):
                given = checked(given, text_or_number, self.where, field=name)
                identifier = str(given)
                break
        return Example(self.where, identifier, source, target, extra)


def rows_at(location: str, split: SplitName | None) -> Iterator[Fields]:
    """The rows of a file, of one split of a folder, or of one split of a hub data set."""
    path = Path(location)
    for file in files_of(path, split) if path.is_dir() else [location]:
        for row in read_rows(file, split):
            yield Fields(row.value, row.where)


def one_line(text: str) -> str:
    """The text with each run of white space as one space, and none at its ends."""
    return " ".join(text.split())


def parts(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts, each on one line, without empty ones."""
    return tuple(filter(None, map(one_line, texts)))


def qa_source(question: str, context: str) -> str:
    """Question and passage as one source, marked as T5 was trained on SQuAD (Raffel et al. 2020, appendix D)."""
    return f"question: {question} context: {context}"
