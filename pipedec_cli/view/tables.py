"""Sheets: tables with a title and notes, for the terminal and as Markdown. page/templates/tables.html shows them as HTML."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipedec_cli.view.console import broken, one_line, visible, width_of

NONE: Final = "–"
#: Stands before the name of a row below a heading.
_INDENT: Final = "  "
_FIGURE: Final = re.compile(r"[-+]?\d")
#: In a heading; it is broken after its hyphens.
_LONG_WORD: Final = re.compile(r"\S{13,}")
_MOST_ROWS: Final = 60
#: Cells. A heading that is no longer stays on one line.
_SHORT_HEADING: Final = 8
#: Cells. Longer headings of sections are broken, unless names of rows are as long.
_NAMES_WIDTH: Final = 28
#: Cells of a last column of text, which is broken to fit the width.
_LEAST_TEXT: Final = 30

Format = Callable[[Any], str]
Row = tuple[str, ...]
Cell = tuple[str, str]  # a row name, and its cell
Label = tuple[str, str]  # the heading of a section, and the name of a row in it
Labelled = tuple[Label, str]  # a cell with its label
Line = tuple[str, str, Format]  # a row name, an attribute of a result, and its format


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that belong together, under a heading, which may be empty. A row is its name and a cell for each column."""

    heading: str
    rows: tuple[Row, ...]


Sections = tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table with a title and notes."""

    title: str
    columns: Row  # the headings of the columns behind the names of the rows
    sections: Sections
    #: Of a table that is too wide, these columns are left out first, in this order, then
    #: those on the right. 0 is the first column behind the names.
    spare: tuple[int, ...] = ()
    notes: Row = ()
    corner: str = ""  # the heading above the names of the rows

    def column(self, number: int) -> list[str]:
        """The cells of a column; column 0 has the names of the rows."""
        column = []
        for section in self.sections:
            column += [row[number] for row in section.rows]
        return column

    def is_numeric(self, number: int) -> bool:
        """Whether a column has figures, which are aligned to the right; column 0 has the names of the rows."""
        if number == 0:
            return False
        return any(map(_FIGURE.match, self.column(number)))


# ---- the formats of cells: each shows None as a dash


def number(pattern: str, value: float | None) -> str:
    """A number in a format."""
    if value is None:
        return NONE
    return pattern.format(value)


def interval(bounds: Any, pattern: str = "{:.1f}") -> str:
    """The attributes `low` and `high` of an object in a format; a dash if it is None or has no bounds."""
    if bounds is None or bounds.low is None:
        return NONE
    low = pattern.format(bounds.low)
    high = pattern.format(bounds.high)
    return f"{low} to {high}"


count = partial(number, "{:,}")
points = partial(number, "{:.1f}")  # a score of 100
rate = partial(number, "{:.1%}")  # a share of 1


def times(ratio: float | None) -> str:
    """A ratio, with two places where it is below 1."""
    small = ratio is not None and ratio < 0.995
    return number("{:.2f} ×" if small else "{:.1f} ×", ratio)


def figure(value: float | None) -> str:
    """A number with three figures."""
    if value is None or value >= 100:
        return number("{:.0f}", value)
    return number("{:.1f}" if value >= 10 else "{:.2f}", value)


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    if seconds is None:
        return NONE
    return figure(1000 * seconds)


def megabytes(size: int | None) -> str:
    """Bytes in millions."""
    if size is None:
        return NONE
    return f"{size / 1e6:,.0f}"


# ---- sheets out of results


def one_section(rows: Iterable[Sequence[str]]) -> Sections:
    """Rows without a heading."""
    return grouped(("", row) for row in rows)


def first_rows(rows: Sequence[Row]) -> tuple[Sections, Row]:
    """The first 60 rows as a section, and a note about the others, if there are any: a schema may have hundreds of keys."""
    first = one_section(rows[:_MOST_ROWS])
    more = len(rows) - _MOST_ROWS
    if more <= 0:
        return first, ()
    return first, (f"and {more:,} more rows in --json",)


def grouped(rows: Iterable[tuple[str, Sequence[str]]]) -> Sections:
    """Sections from rows that have the heading of their section beside them."""
    groups: dict[str, list[Row]] = {}
    for heading, row in rows:
        group = groups.setdefault(heading, [])
        group.append(tuple(row))
    sections = []
    for heading, group in groups.items():
        sections.append(Section(heading, tuple(group)))
    return tuple(sections)


def cells(result: object, lines: Iterable[Line]) -> list[Cell]:
    """A cell for each of the lines, with its row name: an attribute of a result, formatted.

    Of a result that is None, or lacks the attribute, it is None that is formatted.
    """
    return [
        (name, form(getattr(result, attribute, None)))
        for name, attribute, form in lines
    ]


def with_section(heading: str, cells: Iterable[Cell]) -> Iterator[Labelled]:
    """The cells with the heading of their section."""
    for name, cell in cells:
        yield (heading, name), cell


def side_by_side(
    columns: Sequence[Iterable[Labelled]],
    more: Sequence[Mapping[Label, str]] = (),
) -> Sections:
    """The sections of a table whose columns are given, cell by cell, each cell with its label.

    `columns` all have the same labels in the same order; the columns `more`, on the
    right, may lack some.
    """
    rows = []
    for labelled in zip(*columns, strict=True):
        label, _ = labelled[0]
        heading, name = label
        cells = [cell for _, cell in labelled]
        cells += [column.get(label, "") for column in more]
        rows.append((heading, (name, *cells)))
    return grouped(rows)


# ---- on a terminal, or in a pipe, where nothing is broken or left out


def show_sheet(console: Console, sheet: Sheet) -> None:
    """Print a sheet. The columns that a narrow terminal has no room for are named below it."""
    table, left_out = fitting_table(console, sheet)
    if sheet.title:
        show_lines(console, [sheet.title], "bold")
    console.print(table, crop=False)
    if left_out:
        columns = "; ".join(left_out)
        note = f"no room for {columns}: a wider terminal, a pipe or --json shows all"
        show_lines(console, [note], "dim")
    show_lines(console, sheet.notes, "dim")
    console.print()


def show_lines(console: Console, lines: Iterable[str], style: str = "") -> None:
    """Print lines, broken between words on a terminal."""
    width = width_of(console)
    for line in lines:
        console.print(Text(broken(line, width), style), soft_wrap=True)


def fitting_table(console: Console, sheet: Sheet) -> tuple[Table, list[str]]:
    """The table of a sheet with the columns that fit the console, and the headings of those that were left out."""
    width = width_of(console)
    unbounded = console.options.update(width=sys.maxsize)
    kept = list(range(len(sheet.columns)))
    left_out = set()
    # One more column is left out until the rest fits; at least one stays.
    for number in (*sheet.spare, *reversed(kept), None):
        table = _table(sheet, kept)
        measured = console.measure(table, options=unbounded)
        if len(kept) == 1 or measured.minimum <= width:
            break
        if number in kept:
            kept.remove(number)
            left_out.add(number)
    # Else a pipe would have the width of COLUMNS.
    table.width = min(width, measured.maximum)
    columns = enumerate(sheet.columns)
    return table, [heading for number, heading in columns if number in left_out]


def _table(sheet: Sheet, kept: Sequence[int]) -> Table:
    """A table with the columns `kept`, by their numbers. Only a last column of text may be narrower than its cells."""
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        border_style="dim",
    )
    names = _row_names(sheet)
    room = max(_NAMES_WIDTH, *map(cell_len, names), 0)
    headings = [broken(section.heading, room) for section in sheet.sections]
    lines = "\n".join(headings).split("\n")
    _add_column(table, sheet.corner, [*names, *lines])
    for number in kept:
        heading = sheet.columns[number]
        column = sheet.column(1 + number)
        is_numeric = sheet.is_numeric(1 + number)
        if number == kept[-1] and not is_numeric:
            _add_text_column(table, heading, column)
        else:
            _add_column(table, heading, column, is_numeric=is_numeric)
    for heading, section in zip(headings, sheet.sections, strict=True):
        _add_section(table, heading, _kept_rows(section, kept))
    return table


def _row_names(sheet: Sheet) -> list[str]:
    """The names of all rows, indented below a heading."""
    names = []
    for section in sheet.sections:
        indent = _INDENT if section.heading else ""
        names += [indent + row[0] for row in section.rows]
    return names


def _kept_rows(section: Section, kept: Sequence[int]) -> list[Row]:
    """The rows of a section cut to the columns `kept`, without those that say nothing there."""
    rows = []
    for name, *cells in section.rows:
        shown = [cells[number] for number in kept]
        if any(cell not in ("", NONE) for cell in shown):
            rows.append((name, *shown))
    return rows


def _add_section(table: Table, heading: str, rows: Sequence[Row]) -> None:
    """Add rows below their heading, if they have one, and a blank line above it."""
    if rows and heading:
        if table.row_count:
            table.add_row()
        table.add_row(Text(heading, "italic"))
    indent = _INDENT if heading else ""
    for name, *cells in rows:
        texts = [Text(one_line(cell)) for cell in (indent + name, *cells)]
        table.add_row(*texts)


def _add_column(
    table: Table, heading: str, lines: Iterable[str], *, is_numeric: bool = False
) -> None:
    """Add a column that is as wide as its lines."""
    text, width = _fitted(heading, lines)
    side: Literal["left", "right"] = "right" if is_numeric else "left"
    table.add_column(text, justify=side, no_wrap=True, width=width)


def _add_text_column(table: Table, heading: str, lines: Iterable[str]) -> None:
    """Add a column whose lines are broken where the terminal has no room for them."""
    text, width = _fitted(heading, lines)
    least = min(width, _LEAST_TEXT)
    table.add_column(text, min_width=least)


def _fitted(heading: str, lines: Iterable[str]) -> tuple[Text, int]:
    """The heading of a column in lines no wider than its cells, `lines`, where that can be, and the width of the column.

    It is broken between words, and long words after their hyphens.
    """
    widths = [cell_len(one_line(line)) for line in lines]
    widest = max(widths, default=0)
    room = max(widest, _SHORT_HEADING)
    if cell_len(visible(heading)) > room:
        heading = _LONG_WORD.sub(_after_hyphens, heading)
    heading = broken(heading, room)
    for line in heading.split("\n"):
        widest = max(widest, cell_len(line))
    return Text(heading, "bold"), widest


def _after_hyphens(word: re.Match[str]) -> str:
    return word[0].replace("-", "- ")


# ---- as Markdown


def markdown(sheet: Sheet) -> str:
    """A table with its title and notes. Signs in a user's text stay text."""
    blanks = [""] * len(sheet.columns)
    side = "--:" if len(sheet.columns) > 1 else ":--"
    lines = [
        f"## {escaped(sheet.title)}",
        "",
        _markdown_row(map(escaped, (sheet.corner, *sheet.columns))),
        _markdown_row([":--", *(side for _ in sheet.columns)]),
    ]
    for section in sheet.sections:
        if section.heading:
            heading = f"**{escaped(section.heading)}**"
            lines.append(_markdown_row([heading, *blanks]))
        for row in section.rows:
            lines.append(_markdown_row(map(escaped, row)))
    lines.append("")
    for note in sheet.notes:
        lines.append(f"- {escaped(note)}")
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """The text on one line, as Markdown shows it unchanged."""
    line = visible(" ".join(text.split()))
    return re.sub(r"[\\|*_<>\[\]#]", r"\\\g<0>", line)
