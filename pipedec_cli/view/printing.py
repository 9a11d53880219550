"""Sheets and lines on a terminal, or in a pipe, where nothing is broken or left out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from textwrap import wrap
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pipedec_cli.view.console import visible
from pipedec_cli.view.formats import NONE
from pipedec_cli.view.sheet import Section, Sheet

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
