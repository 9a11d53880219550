"""A report on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipedec_cli.evaluate.comparison import Report
from pipedec_cli.terminal.console import visible
from pipedec_cli.terminal.views.report_sheet import NONE, Sheet
from pipedec_cli.terminal.views.report_tables import sheets

#: What Rich puts between two columns.
_BETWEEN = 3
#: A column with wider cells holds words, which may be broken.
_WORDY = 40
#: A heading of so many cells is not broken at its spaces.
_SHORT = 12


def show(console: Console, report: Report) -> None:
    """Print every table, and the advice at the end."""
    for sheet in sheets(report):
        show_sheet(console, sheet)
    console.print(Text(visible(report.advice.text), style="bold"))
    for caution in report.advice.cautions:
        console.print(Text(visible(caution)))


def show_sheet(console: Console, sheet: Sheet) -> None:
    """Print one table with its title and notes, in as many parts as the width needs."""
    console.print(Text(visible(sheet.title), style="bold"))
    for part in fitted(sheet, console.width):
        console.print(table(part))
    for note in sheet.notes:
        console.print(Text(visible(note), style="dim"), soft_wrap=True)
    console.print()


def table(sheet: Sheet) -> Table:
    """A sheet as a Rich table; the headings of its sections are rows of their own."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    made.add_column(Text(sheet.corner), no_wrap=True)
    for place, column in enumerate(sheet.columns, start=1):
        width = _width(sheet, place)
        leftward = width > _WORDY or _is_bars(sheet, place)
        made.add_column(
            Text("\n".join(_lines(column))),
            justify="left" if leftward else "right",
            width=None if width > _WORDY else width,
        )
    for section in sheet.sections:
        if section.heading:
            made.add_row(Text(section.heading, style="italic"))
        for label, *cells in section.rows:
            name = f"  {label}" if section.heading else label
            made.add_row(Text(visible(name)), *(Text(visible(cell)) for cell in cells))
        made.add_section()
    return made


def fitted(sheet: Sheet, width: int) -> Iterator[Sheet]:
    """The sheet in as many parts as the width needs; the kept columns stand in every part where there is room.

    Args:
        sheet: what is to be shown.
        width: of the terminal, in cells.
    """
    widths = [_width(sheet, place) + _BETWEEN for place in range(1, 1 + len(sheet.columns))]
    room = width - _width(sheet, 0)
    kept = sheet.kept
    if kept and sum(widths[:kept]) + max(widths[kept:], default=0) > room:
        kept = 0
    part: list[int] = []
    for place in range(kept, len(sheet.columns)):
        if part and sum(widths[:kept]) + sum(widths[other] for other in (*part, place)) > room:
            yield _part(sheet, kept, part)
            part = []
        part.append(place)
    yield _part(sheet, kept, part)


def _part(sheet: Sheet, kept: int, more: list[int]) -> Sheet:
    """The sheet with its kept columns and some more; rows that tell nothing about these are left out."""
    places = [*range(kept), *more]
    sections = []
    for section in sheet.sections:
        rows = [row for row in section.rows if any(row[1 + place] not in ("", NONE) for place in more)]
        if rows:
            cut = tuple((row[0], *(row[1 + place] for place in places)) for row in rows)
            sections.append(replace(section, rows=cut))
    columns = tuple(sheet.columns[place] for place in places)
    return replace(sheet, columns=columns, sections=tuple(sections))


def _width(sheet: Sheet, place: int) -> int:
    """Cells that a column needs; headings may be broken, cells may not."""
    cells = [row[place] for section in sheet.sections for row in section.rows]
    widest = max(map(cell_len, cells), default=0)
    if place == 0:
        indented = any(section.heading for section in sheet.sections)
        headings = [cell_len(section.heading) for section in sheet.sections]
        return max(widest + (2 if indented else 0), cell_len(sheet.corner), *headings)
    return max([widest, *(_line_width(line) for line in _lines(sheet.columns[place - 1]))])


def _lines(heading: str) -> list[str]:
    """A heading broken after its commas."""
    return visible(heading).replace(", ", ",\n").split("\n")


def _line_width(line: str) -> int:
    """Of a line that is broken further only if it is long."""
    whole = cell_len(line)
    return whole if whole <= _SHORT else max(map(cell_len, line.split()))


def _is_bars(sheet: Sheet, place: int) -> bool:
    return any(row[place].startswith("█") for section in sheet.sections for row in section.rows)
