"""A sheet: a table with its title and notes, as every medium shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipedec_cli.view.formats import Format

_FIGURE: Final = re.compile(r"[-+]?\d")
_MOST_ROWS: Final = 60

Row = tuple[str, ...]
Label = tuple[str, str]  # the heading of a section, and the name of a row in it
Line = tuple[str, str, Format]  # a row name, an attribute, and its format


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that belong together, under a heading, which may be empty. A row is its name and a cell for each column."""

    heading: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: its title, sections and notes. `columns` are the headings; `corner` is the heading above the row names.

    A sheet that is too wide loses the `spare` columns first, in this order (0 is the first after the names), then those
    on the right.
    """

    title: str
    columns: Row
    sections: tuple[Section, ...]
    spare: tuple[int, ...] = ()
    notes: Row = ()
    corner: str = ""

    def column(self, place: int) -> list[str]:
        """The cells of a column; column 0 has the names of the rows."""
        return [row[place] for section in self.sections for row in section.rows]

    def is_numeric(self, place: int) -> bool:
        """Whether a column has figures, which are aligned to the right."""
        return place > 0 and any(map(_FIGURE.match, self.column(place)))


def first_rows(rows: Sequence[Row]) -> tuple[Section, Row]:
    """At most 60 rows, and a note about the others: a schema may have hundreds of keys."""
    more = len(rows) - _MOST_ROWS
    return Section("", tuple(rows[:_MOST_ROWS])), (f"and {more:,} more rows in --json",) if more > 0 else ()


def grouped(rows: Iterable[tuple[str, Row]]) -> tuple[Section, ...]:
    """Sections from rows that have the heading of their section beside them."""
    groups: dict[str, list[Row]] = {}
    for heading, row in rows:
        groups.setdefault(heading, []).append(row)
    return tuple(Section(heading, tuple(rows)) for heading, rows in groups.items())


def cells(thing: object, lines: Iterable[Line]) -> list[tuple[str, str]]:
    """The cells of a thing, which may be None, by row name."""
    return [(name, form(getattr(thing, attribute, None))) for name, attribute, form in lines]


def with_section(heading: str, cells: Iterable[tuple[str, str]]) -> Iterator[tuple[Label, str]]:
    """The cells with the heading of their section."""
    return (((heading, name), cell) for name, cell in cells)


def side_by_side(
    columns: Sequence[Iterable[tuple[Label, str]]], more: Sequence[Mapping[Label, str]] = ()
) -> tuple[Section, ...]:
    """Sections from columns that have the same labels in the same order, and from `more` that may lack labels."""
    rows = []
    for cells in zip(*columns, strict=True):
        heading, name = label = cells[0][0]
        row = (name, *(cell for _, cell in cells), *(column.get(label, "") for column in more))
        rows.append((heading, row))
    return grouped(rows)
