"""Tables of predictions, a column a key: as CSV that a spreadsheet opens, and as parquet."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

from pipedec_cli.data.fields import Keys, Kind, path_name
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.reading import mended_text
from pipedec_cli.data.records import OUTPUT_FIELDS
from pipedec_cli.data.writing import atomic_writer, to_json

#: What lines say of each value, if it was asked for.
_BESIDE: Final = ("confidence", "spans")
#: What lines say of some objects and texts.
_NOTES: Final = ("probabilities", "violations", "missing", "truncated", "source_cut")
#: The kinds that a column has a type for. All others are text.
_TYPED: Final[tuple[Kind, ...]] = ("boolean", "integer", "number")
#: What a spreadsheet takes for the beginning of a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
#: Whole numbers up to this one are exact as floats.
_EXACT: Final = 2**53
#: The lines that are turned into columns at once.
_BATCH: Final = 1_000


def write_table(out: Path, file: PredictionsFile, keys: Mapping[Keys, Kind]) -> None:
    """Write a table of the lines of a file, whole.

    `keys` are those of the objects, by their paths; without any the text is a column.
    A list or an object in a cell is JSON.
    """
    columns = _columns(file, keys)
    for line in file.lines():
        for column in columns:
            column.see(line)
    with atomic_writer(out) as stream:
        if out.suffix.lower() == ".csv":
            _write_csv(stream, file, columns)
        else:
            _write_parquet(stream, file, columns)


@dataclass(slots=True)
class _Column:
    """A column: its heading, where its values stand in a line, and the kinds that hold all of them."""

    name: str
    path: Sequence[str | int]
    kind: Kind = "any"  # as the schema has it
    kinds: set[Kind] = field(default_factory=lambda: {*_TYPED})

    def value(self, line: Mapping[str, Any]) -> Any:
        """The value in a line; None without one."""
        value: Any = line
        for key in self.path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value

    def see(self, line: Mapping[str, Any]) -> None:
        """Learn which kinds hold the value of a line."""
        value = self.value(line)
        if value is not None:
            self.kinds &= _kinds_of(value)

    @property
    def type(self) -> Kind:
        """The kind that holds all values: that of the schema if it does, else one without loss."""
        if self.kind in self.kinds:
            return self.kind
        is_empty = self.kinds == {*_TYPED}
        fitting = [kind for kind in _TYPED if kind in self.kinds]
        return fitting[0] if fitting and not is_empty else "string"

    def cell(self, line: Mapping[str, Any], kind: Kind) -> Any:
        """The value in a line, as the `type` of the column has it."""
        value = self.value(line)
        if kind == "number" and value is not None:
            return float(value)
        return value if kind in _TYPED else _text(value)


def _kinds_of(value: Any) -> set[Kind]:
    """The kinds of `_TYPED` that hold a value without loss."""
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, float):
        return {"number"}
    kinds: set[Kind] = set()
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        kinds.add("integer")
    if isinstance(value, int) and abs(value) <= _EXACT:
        kinds.add("number")
    return kinds


def _columns(file: PredictionsFile, keys: Mapping[Keys, Kind]) -> list[_Column]:
    """The id, each key with what is said of it, the fields of the records, and notes."""
    names = dict.fromkeys(name for line in file.lines() for name in line)
    columns = [_Column("id", ("id",))]
    for path, kind in keys.items():
        name = path_name(path)
        columns.append(_Column(name, ("fields", *path), kind))
        for beside in _BESIDE:
            if beside in names:
                columns.append(_Column(f"{name}.{beside}", (beside, *path)))
    if not keys:
        columns.append(_Column("prediction", ("prediction",)))
    for name in names:
        if name in _NOTES or name not in ("id", *OUTPUT_FIELDS):
            columns.append(_Column(name, (name,)))
    _name_apart(columns)
    return columns


def _name_apart(columns: Sequence[_Column]) -> None:
    """Give columns that have the name of a key, or of one before them, another one."""
    taken = set[str]()
    for column in sorted(columns, key=lambda each: each.path[0] != "fields"):
        while column.name in taken:
            column.name += "_"
        taken.add(column.name)


def _write_csv(
    stream: TextIO, file: PredictionsFile, columns: Sequence[_Column]
) -> None:
    """Write UTF-8 with the mark at its beginning by which Excel knows it."""
    stream.write("\ufeff")
    writer = csv.writer(stream)
    writer.writerow([_cell(column.name) for column in columns])
    for line in file.lines():
        writer.writerow([_cell(column.value(line)) for column in columns])


def _cell(value: Any) -> str:
    """A value in CSV. A text that a spreadsheet would compute has an apostrophe before it."""
    text = _text(value) or ""
    is_formula = isinstance(value, str) and text.startswith(_FORMULA)
    return f"'{text}" if is_formula else text


def _text(value: Any) -> str | None:
    """A text as it is, but for halves of surrogate pairs; any other value as JSON; None for none."""
    if value is None:
        return None
    return mended_text(value) if isinstance(value, str) else to_json(value)


def _write_parquet(
    stream: TextIO, file: PredictionsFile, columns: Sequence[_Column]
) -> None:
    import pyarrow
    from pyarrow import parquet

    types = {
        "boolean": pyarrow.bool_(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
    }
    kinds = [column.type for column in columns]
    fields = []
    for column, kind in zip(columns, kinds, strict=True):
        fields.append((mended_text(column.name), types.get(kind, pyarrow.string())))
    schema = pyarrow.schema(fields)
    lines = file.lines()
    with parquet.ParquetWriter(stream.buffer, schema) as writer:
        while batch := list(islice(lines, _BATCH)):
            cells = []
            for column, kind in zip(columns, kinds, strict=True):
                cells.append([column.cell(line, kind) for line in batch])
            writer.write_table(pyarrow.table(cells, schema=schema))
