"""A sheet: a table with its title and notes, as every medium shows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from textwrap import wrap
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pipedec_cli.view.console import visible

NONE: Final = "–"
Format = Callable[[Any], str]


def number(pattern: str, value: float | None) -> str:
    """A number in a format, or a dash for None."""
    return NONE if value is None else pattern.format(value)


def interval(thing: Any, pattern: str = "{:.1f}") -> str:
    """The `low` and `high` of a thing, or a dash if it has none."""
    if thing is None or thing.low is None:
        return NONE
    return f"{pattern.format(thing.low)} to {pattern.format(thing.high)}"


count = partial(number, "{:,}")
points = partial(number, "{:.1f}")  # a score of 100
rate = partial(number, "{:.1%}")  # a share of 1


def times(ratio: float | None) -> str:
    """A ratio, with two places where it is below 1."""
    return number("{:.1f} ×" if ratio is None or ratio >= 0.995 else "{:.2f} ×", ratio)


def figure(value: float | None) -> str:
    """A number with three figures."""
    places = 0 if value is None or value >= 100 else 1 if value >= 10 else 2
    return number(f"{{:.{places}f}}", value)


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    return figure(None if seconds is None else 1000 * seconds)


def megabytes(size: int | None) -> str:
    """Bytes in millions."""
    return number("{:,.0f}", None if size is None else size / 1e6)


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


_BETWEEN: Final = 2  # cells between two columns
_LEAST_LAST: Final = 30  # the least cells of a last column that is broken
_SHORT: Final = 8  # a heading of so many cells is not broken
_LONG: Final = re.compile(r"\S{13,}")  # a word in a heading that may be broken after its hyphens


def show_sheet(console: Console, sheet: Sheet) -> None:
    """Print a sheet. The columns that a narrow terminal has no room for are named below it."""
    fitting, left_out = fit_columns(sheet, _width_of(console))
    show_lines(console, [sheet.title] if sheet.title else [], "bold")
    for line in sheet_lines(fitting, _width_of(console)):
        console.print(line, soft_wrap=True)
    more = [f"no room for {'; '.join(left_out)}: a wider terminal, a pipe or --json shows all"]
    show_lines(console, [*(more if left_out else ()), *sheet.notes], "dim")
    console.print()


def show_lines(console: Console, lines: Iterable[str], style: str = "") -> None:
    """Print lines, broken between words on a terminal."""
    for line in lines:
        for part in _broken(line, _width_of(console)):
            console.print(Text(part, style), soft_wrap=True)


def _width_of(console: Console) -> int:
    """The width of a terminal. A pipe or a file has no bound, whatever COLUMNS says."""
    return console.width if console.file.isatty() else sys.maxsize


def _broken(text: str, width: int) -> list[str]:
    """The text in lines that are broken between words, never within a word or at the sign in ``Δt = 2``."""
    text = visible(text).replace(" = ", "\xa0=\xa0")
    lines = wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [line.replace("\xa0", " ") for line in lines]


def fit_columns(sheet: Sheet, width: int) -> tuple[Sheet, list[str]]:
    """The sheet with the columns that fit the width, and the headings of the others."""
    widths = [_column_width(sheet, place) + _BETWEEN for place in range(1, 1 + len(sheet.columns))]
    kept = list(range(len(widths)))
    for place in dict.fromkeys((*sheet.spare, *reversed(kept))):
        if len(kept) > 1 and _column_width(sheet, 0) + sum(widths[place] for place in kept) > width:
            kept.remove(place)
    sections = []
    for section in sheet.sections:
        rows = [(row[0], *(row[1 + place] for place in kept)) for row in section.rows]
        # The others say nothing about these columns.
        rows = [row for row in rows if set(row[1:]) - {"", NONE}]
        sections += [Section(section.heading, tuple(rows))] if rows else []
    columns = tuple(sheet.columns[place] for place in kept)
    left_out = [heading for place, heading in enumerate(sheet.columns) if place not in kept]
    return replace(sheet, columns=columns, sections=tuple(sections)), left_out


def sheet_lines(sheet: Sheet, width: int = sys.maxsize) -> Iterator[Text]:
    """The lines of a table. Only the last column is broken to fit the width."""
    places = range(1 + len(sheet.columns))
    widths = [_column_width(sheet, place) for place in places]
    room = width - sum(widths[:-1]) - _BETWEEN * len(sheet.columns)
    widths[-1] = min(widths[-1], max(_LEAST_LAST, room))
    numeric = [sheet.is_numeric(place) for place in places]

    def lines(cells: Iterable[list[str]], style: str = "") -> Iterator[Text]:
        """The lines of one row, whose cells have lines each."""
        for parts in zip_longest(*cells, fillvalue=""):
            aligned = []
            for part, cells_wide, right in zip(parts, widths, numeric, strict=True):
                blank = " " * (cells_wide - cell_len(part))
                aligned.append(blank + part if right else part + blank)
            yield Text((" " * _BETWEEN).join(aligned).rstrip(), style)

    # Headings stand at the bottom: their lines are filled in from the last.
    headings = [_heading(sheet, place, widths[place])[::-1] for place in places]
    yield from reversed(list(lines(headings, "bold")))
    yield Text("─" * (sum(widths) + _BETWEEN * len(sheet.columns)), "dim")
    for number, section in enumerate(sheet.sections):
        if section.heading:
            yield from [Text()] if number else []
            yield Text(visible(section.heading), "italic")
        for name, *cells in section.rows:
            indent = "  " if section.heading else ""
            yield from lines([[visible(indent + name)], *map(_broken, cells, widths[1:])])


def _column_width(sheet: Sheet, place: int) -> int:
    """The cells that a column needs for its rows and for the words of its heading."""
    indent = "  " if place == 0 and any(section.heading for section in sheet.sections) else ""
    cells = (cell_len(visible(indent + cell)) for cell in sheet.column(place))
    return max(*map(cell_len, _heading(sheet, place, _SHORT)), *cells, 0)


def _heading(sheet: Sheet, place: int, width: int) -> list[str]:
    """The heading of a column, broken between words, and long words after their hyphens."""
    heading = (sheet.corner, *sheet.columns)[place]
    if cell_len(visible(heading)) > width:
        heading = _LONG.sub(lambda word: word[0].replace("-", "- "), heading)
    return _broken(heading, width)


def markdown_lines(sheet: Sheet) -> Iterator[str]:
    """The lines of a table with its title and notes."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    side = "--:" if len(sheet.columns) > 1 else ":--"
    yield from (f"## {escaped(sheet.title)}", "")
    yield line(map(escaped, (sheet.corner, *sheet.columns)))
    yield line([":--", *[side for _ in sheet.columns]])
    for section in sheet.sections:
        if section.heading:
            yield line([f"**{escaped(section.heading)}**", *["" for _ in sheet.columns]])
        yield from (line(map(escaped, row)) for row in section.rows)
    yield from ("", *(f"- {escaped(note)}" for note in sheet.notes))


def escaped(text: str) -> str:
    """The text on one line, as Markdown shows it unchanged."""
    shown = visible(" ".join(text.split()))
    for sign in "\\|*_<>[]#":
        shown = shown.replace(sign, "\\" + sign)
    return shown
