"""Tables of words, for the terminal and for Markdown, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from pipedec_cli.terminal.console import visible

if TYPE_CHECKING:
    from pipedec_cli.evaluate.report import Comparison

NONE: Final = "–"
_BETWEEN: Final = 3  # cells that Rich puts between two columns
_WORDY: Final = 40  # a column with wider cells holds words, which may be broken
_SHORT: Final = 12  # a heading of so many cells is not broken at its spaces
_BAR_PER_TIME, _LONGEST_BAR = 3, 30

Row = tuple[str, ...]
Label = tuple[str, str]  # under which section a cell stands, and in which row


class Section(NamedTuple):
    """Rows that belong together: a heading, which may be empty, and for each row its label and a cell a column."""

    heading: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: its title, headings of all columns but the first (which has the corner's), sections, notes beneath.

    So many columns after the first as are `kept` stand in every part of a table that is too wide and is cut.
    """

    title: str
    columns: Row
    sections: tuple[Section, ...]
    kept: int = 0
    notes: Row = ()
    corner: str = ""

    def column(self, place: int) -> list[str]:
        """The cells of a column; the first one holds the labels."""
        return [row[place] for section in self.sections for row in section.rows]


def figures(*headings: str) -> list[Column]:
    """Columns of a Rich table that hold figures."""
    return [Column(heading, justify="right") for heading in headings]


def borderless(*columns: Column | str, title: str = "") -> Table:
    """A Rich table without lines."""
    shown = Text(title) if title else None
    return Table(*columns, title=shown, title_justify="left", box=None, pad_edge=False)


def told(thing: object, write: Callable[[Any], str], rows: Mapping[str, str]) -> list[tuple[str, str]]:
    """Cells of a thing that may be None, by label: `rows` says which attribute stands behind it, `write` writes it."""
    return [(label, write(getattr(thing, name, None))) for label, name in rows.items()]


def under(heading: str, cells: Iterable[tuple[str, str]]) -> Iterator[tuple[Label, str]]:
    """Cells by label, with the heading of their section."""
    return (((heading, label), cell) for label, cell in cells)


def columns_side_by_side(
    columns: Sequence[Iterable[tuple[Label, str]]], more: Sequence[Mapping[Label, str]] = ()
) -> tuple[Section, ...]:
    """Sections from columns that have the same labels in the same order, and from some that lack most of them."""
    sections: dict[str, list[Row]] = {}
    for cells in zip(*columns, strict=True):
        heading, name = label = cells[0][0]
        row = (name, *(cell for _, cell in cells), *(column.get(label, "") for column in more))
        sections.setdefault(heading, []).append(row)
    return tuple(Section(heading, tuple(rows)) for heading, rows in sections.items())


def settings_sheet(title: str, comparison: Comparison, what: str, notes: Row) -> Sheet:
    """Version and settings of each decoder, and where `what` was measured."""
    rows = [(one.name, ", ".join(map(" ".join, one.runner.settings.items()))) for one in comparison.entries]
    versions = (f"{name} {version or 'not installed'}" for name, version in comparison.versions.items())
    notes = (f"{what} on {comparison.device}; {comparison.machine.line}", ", ".join(versions), *notes)
    return Sheet(title, ("settings",), (Section("", tuple(rows)),), notes=notes)


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
    for place, heading in enumerate(sheet.columns, start=1):
        width = _width(sheet, place)
        words, bars = width > _WORDY, any(cell.startswith("█") for cell in sheet.column(place))
        side: Literal["left", "right"] = "left" if words or bars else "right"
        made.add_column(Text("\n".join(_lines(heading))), justify=side, width=None if words else width)
    for section in sheet.sections:
        if section.heading:
            made.add_row(Text(section.heading, style="italic"))
        for label, *cells in section.rows:
            name = f"  {label}" if section.heading else label
            made.add_row(Text(visible(name)), *(Text(visible(cell)) for cell in cells))
        made.add_section()
    return made


def fitted(sheet: Sheet, width: int) -> Iterator[Sheet]:
    """The sheet in as many parts as a terminal of so many cells needs; the kept columns stand in each that has room."""
    widths = [_width(sheet, place) + _BETWEEN for place in range(1, 1 + len(sheet.columns))]
    room, kept = width - _width(sheet, 0), sheet.kept
    if sum(widths[:kept]) + max(widths[kept:], default=0) > room:
        kept = 0
    parts: list[list[int]] = [[]]
    for place in range(kept, len(sheet.columns)):
        if parts[-1] and sum(widths[other] for other in (*range(kept), *parts[-1], place)) > room:
            parts.append([])
        parts[-1].append(place)
    for part in parts:
        places, sections = [*range(kept), *part], []
        for heading, rows in sheet.sections:  # without rows that tell nothing about this part
            told = [row for row in rows if {row[1 + place] for place in part} - {"", NONE}]
            cut = tuple((row[0], *(row[1 + place] for place in places)) for row in told)
            sections += [Section(heading, cut)] if cut else []
        columns = tuple(sheet.columns[place] for place in places)
        yield replace(sheet, columns=columns, sections=tuple(sections))


def _width(sheet: Sheet, place: int) -> int:
    """Cells that a column needs; headings may be broken, cells may not."""
    if place == 0:
        headings = [section.heading for section in sheet.sections]
        indent = "  " if any(headings) else ""
        needed = [*(indent + cell for cell in sheet.column(0)), sheet.corner, *headings]
    else:
        lines = _lines(sheet.columns[place - 1])
        words = chain(*([line] if cell_len(line) <= _SHORT else line.split() for line in lines))
        needed = [*sheet.column(place), *words]
    return max(map(cell_len, needed))


def _lines(heading: str) -> list[str]:
    """A heading broken after its commas."""
    return visible(heading).replace(", ", ",\n").split("\n")


def as_markdown(sheet: Sheet) -> Iterator[str]:
    """The lines of a table with its title and notes."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    side = "--:" if len(sheet.columns) > 1 else ":--"
    yield from (f"## {plain(sheet.title)}", "")
    yield line(map(plain, (sheet.corner, *sheet.columns)))
    yield line([":--", *[side for _ in sheet.columns]])
    for heading, rows in sheet.sections:
        if heading:
            yield line([f"**{plain(heading)}**", *["" for _ in sheet.columns]])
        yield from (line(map(plain, row)) for row in rows)
    yield from ("", *(f"- {plain(note)}" for note in sheet.notes))


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    shown = visible(" ".join(text.split()))
    for sign in "\\|*_<>[]#":
        shown = shown.replace(sign, "\\" + sign)
    return shown


def written(how: str, value: float | None) -> str:
    """A number in a format, or a dash for None."""
    return NONE if value is None else how.format(value)


points = partial(written, "{:.1f}")  # a score of 100
rate = partial(written, "{:.1%}")  # a share of 1


def times(ratio: float | None) -> str:
    """A ratio, to two figures where it is below 1."""
    return written("{:.1f} ×" if ratio is None or ratio >= 0.995 else "{:.2f} ×", ratio)


def figure(value: float | None) -> str:
    """A number to three figures."""
    places = 0 if value is None or value >= 100 else 1 if value >= 10 else 2
    return written(f"{{:.{places}f}}", value)


def milliseconds(seconds: float | None, count: int = 1) -> str:
    """Seconds for `count` things, as milliseconds for each."""
    return figure(None if seconds is None or not count else 1000 * seconds / count)


def megabytes(count: int | None) -> str:
    """Bytes in millions."""
    return written("{:,.0f}", None if count is None else count / 1e6)


def bar(ratio: float | None) -> str:
    """A bar as long as a ratio is large."""
    return "" if ratio is None else "█" * min(_LONGEST_BAR, max(1, round(_BAR_PER_TIME * ratio)))
