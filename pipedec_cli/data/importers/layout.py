"""What the published layouts share: the files they come in, rows whose fields are checked, and the examples they give."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import SPLIT_NAMES, SplitName
from pipedec_cli.data.rows import RawRow, files_by_split, given_splits, read_rows

_DATA_SUFFIXES: Final = (
    *(".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet", ".txt", ".src", ".source"),
    *(".conll", ".bio", ".iob2"),
)
#: What marks a folder that is one data set without splits: the stories of CNN/DailyMail, the summaries of SumPubMed.
_NO_SPLITS: Final = ("*.story", "shorter_abstract/")
#: The name of a split, set off from the rest of a file's name: ``kp20k_training.json``, ``KPTimes.train.jsonl.gz``,
#: ``validation-00000-of-00001.parquet``.
_SPLIT_WORD: Final = re.compile(rf"(?<![a-z0-9])({'|'.join(SPLIT_NAMES)})(?![a-z0-9])", re.IGNORECASE)
_KINDS = {type(None): "null", bool: "true or false", dict: "an object"}


def splits_at(location: str) -> tuple[SplitName, ...]:
    """The splits that a place holds, in the order train, dev, test; () where it is a single file or has none."""
    folder = Path(location)
    if folder.is_dir():
        whole = any(True for mark in _NO_SPLITS for _ in folder.glob(mark))
        return () if whole else tuple(split_files(folder))
    return given_splits(location)


def rows_at(location: str, split: SplitName | None) -> Iterator[RawRow]:
    """The raw rows of a file, of one split of a folder (see `split_files`), or of one split of a hub data set."""
    path = Path(location)
    for file in files_of(path, split) if path.is_dir() else [location]:
        yield from read_rows(file, split)


def files_of(
    folder: Path, split: SplitName | None, accepts: Callable[[Path], bool] | None = None
) -> list[Path]:
    """The data files of one split of a folder, see `split_files`; the only split there is, if none is named."""
    found = split_files(folder, accepts)
    if split is None and len(found) == 1:
        split = next(iter(found))
    if split not in found:
        what = f"has no split {split}" if split else "has several splits"
        raise UserError(what, where=str(folder), todo=f"it has {', '.join(found)}")
    return found[split]


def split_files(folder: Path, accepts: Callable[[Path], bool] | None = None) -> dict[SplitName, list[Path]]:
    """The data files of each split in a folder, or in its folder ``data``, told by their names."""
    accepts = accepts or (lambda file: file.name.lower().removesuffix(".gz").endswith(_DATA_SUFFIXES))
    for place in (folder, folder / "data"):
        if place.is_dir() and (found := files_by_split(place, _SPLIT_WORD, accepts)):
            return found
    inside = sorted(child.name for child in folder.iterdir() if child.is_dir())
    files = ", ".join(sorted(file.name for file in folder.iterdir() if file.is_file())[:8])
    todo = f"give one of its folders ({', '.join(inside[:8])}) or a file" if inside else "give a file"
    what = "a folder without a file for any split (train…, valid…, test…)"
    raise UserError(what, where=str(folder), todo=todo + (f", of {files}" if files else ""))


class Example(NamedTuple):
    """One example of a data set, as it is published."""

    where: str
    id: str | None
    source: str  # may be empty
    #: Text, its segments, or an object; None in an unlabelled split.
    target: str | tuple[str, ...] | Mapping[str, Any] | None
    extra: Mapping[str, Any] = {}


class Fields:
    """The fields of one published row, which must be an object, each read with its type checked."""

    def __init__(self, row: RawRow) -> None:
        self.where = row.where
        if not isinstance(row.value, Mapping):
            raise UserError(f"expected an object, found {kind(row.value)}", where=row.where)
        self.values: Mapping[str, Any] = row.value

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def first_of(self, *names: str) -> str:
        """The first of several names that a field has among the published layouts; one of them must be there."""
        if found := next(filter(self.has, names), None):
            return found
        wanted = " or ".join(map(repr, names))
        have = ", ".join(list(map(str, self.values))[:8]) or "none"
        raise UserError(f"expected a field {wanted}, found the fields {have}", where=self.where)

    def text(self, name: str) -> str:
        """A field that must hold a string."""
        value = self.values[self.first_of(name)]
        return value if isinstance(value, str) else self.refuse(name, "a string", value)

    def strings(self, name: str, what: str = "a list of strings") -> tuple[str, ...]:
        """A field that must hold a list of strings."""
        value = self.values[self.first_of(name)]
        if not isinstance(value, list):
            self.refuse(name, what, value)
        for place, item in enumerate(value, start=1):
            if not isinstance(item, str):
                self.refuse(name, what, item, place)
        return tuple(value)

    def example(
        self,
        source: str,
        target: str | tuple[str, ...] | None,
        *,
        identified_by: Iterable[str] = ("id",),
        extra: Mapping[str, Any] = {},
    ) -> Example:
        """The example that the row gives; its identifier is the first of some fields that is there and not empty."""
        name = next((name for name in identified_by if self.values.get(name) not in (None, "")), "")
        value = self.values.get(name)
        if name and (isinstance(value, bool) or not isinstance(value, str | int)):
            self.refuse(name, "a string or a whole number", value)
        return Example(self.where, str(value) if name else None, source, target, extra)

    def refuse(self, name: str, expected: str, found: object, place: int | None = None) -> NoReturn:
        """Say what a field, or the item of a list at a place counted from 1, should have been."""
        at = "" if place is None else f", item {place}"
        raise UserError(f"field {name!r}{at}: expected {expected}, found {kind(found)}", where=self.where)


def kind(value: object) -> str:
    """What a value is, in words for a message; a number or a short string is shown."""
    if isinstance(value, str):
        return f"the string {value!r}" if len(value) <= 40 else f"a string of {len(value)} characters"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {value}"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def one_line(text: str) -> str:
    """The text with each run of white space made one space, and none at its ends."""
    return " ".join(text.split())


def parts(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts, each on one line, the empty ones left out."""
    return tuple(filter(None, map(one_line, texts)))


def qa_source(question: str, context: str) -> str:
    """Question and passage as one source, marked as T5 was trained on SQuAD (Raffel et al. 2020, appendix D)."""
    return f"question: {question} context: {context}"
