"""Tables of words, for the terminal and for Markdown, and how numbers are written in them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pipedec_cli.view.console import visible

if TYPE_CHECKING:
    from pipedec_cli.evaluate.comparison import Comparison, Entry
    from pipedec_cli.evaluate.failures import Failures

NONE: Final = "–"
_BETWEEN: Final = 2  # cells between two columns
_WORDS: Final = 30  # the last column is not made narrower than this
_SHORT: Final = 8  # a heading of so many cells is not broken
_LONG: Final = re.compile(r"\S{13,}")  # a word in a heading that may be broken after its hyphens
_FIGURE: Final = re.compile(r"[-+]?\d")
_MOST_ROWS: Final = 60
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

    Where a table is too wide, the `spare` columns are left out first, in this order, by their place after the labels;
    then those to the right.
    """

    title: str
    columns: Row
    sections: tuple[Section, ...]
    spare: tuple[int, ...] = ()
    notes: Row = ()
    corner: str = ""

    def column(self, place: int) -> list[str]:
        """The cells of a column; the first one holds the labels."""
        return [row[place] for section in self.sections for row in section.rows]

    def holds_figures(self, place: int) -> bool:
        """Whether a column is one of figures, which stand to the right; the labels are none."""
        return place > 0 and any(map(_FIGURE.match, self.column(place)))


def first_rows(rows: Sequence[Row]) -> tuple[tuple[Row, ...], Row]:
    """As many rows as are worth looking at, and a note of how many more there are; schemas may have hundreds of keys."""
    more = len(rows) - _MOST_ROWS
    return tuple(rows[:_MOST_ROWS]), (f"and {more:,} more, which --json has",) if more > 0 else ()


def what_goes_wrong(
    failures: Failures | None, part: str, write: Callable[[float | None], str], *, repeats: bool
) -> list[tuple[str, str]]:
    """Cells by label: how many parts a text has, of how many in its target, and rates; `part` is what one is called.

    Texts that were ended where they began to repeat themselves are shown if `repeats`: of this decoder or another.
    """
    lengths = NONE
    if failures is not None and failures.compared:
        made, right = failures.subsequences / failures.examples, failures.expected / failures.compared
        lengths = f"{made:.1f} of {right:.1f}"
    rates = {
        f"duplicated {part}s": "duplicated_rate",
        f"dropped {part}s": "dropped_rate",
        "truncated predictions": "truncated_rate",
        **({"stopped on repeat": "stopped_on_repeat_rate"} if repeats else {}),
        "alike predictions": "alike_rate",
    }
    return [(f"{part}s a text", lengths), *told(failures, write, rates)]


def parts(comparison: Comparison) -> dict[str, str]:
    """What the time of an example is made of: labels, and what of a `Timing` stands behind them."""
    if comparison.conditions.prompted:
        return {"reading the prompt": "encoder_seconds", "decoding": "decoding_seconds"}
    return {
        "encoder": "encoder_seconds",
        "source keys": "setup_seconds",
        "decoding": "decoding_seconds",
    }


def told(thing: object, write: Callable[[Any], str], rows: Mapping[str, str]) -> list[tuple[str, str]]:
    """Cells of a thing that may be None, by label: `rows` says which attribute stands behind it, `write` writes it."""
    return [(label, write(getattr(thing, name, None))) for label, name in rows.items()]


def computed(one: Entry, comparison: Comparison) -> list[tuple[str, str]]:
    """In what dtype and with how many threads a decoder computes."""
    threads = one.runner.settings.get("threads", str(comparison.conditions.machine.threads))
    return [("dtype", one.runner.settings["dtype"]), ("threads", threads)]


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
    where = comparison.conditions
    versions = (f"{name} {version or 'not installed'}" for name, version in where.versions.items())
    notes = (f"{what} on {where.device}; {where.machine.line}", ", ".join(versions), *notes)
    return Sheet(title, ("settings",), (Section("", tuple(rows)),), notes=notes)


def show_sheet(console: Console, sheet: Sheet) -> None:
    """Print one table with its title and notes; what a narrow terminal has no room for is named beneath."""
    fits, left_out = fitted(sheet, _room(console))
    show_lines(console, [sheet.title] if sheet.title else [], "bold")
    for line in drawn(fits, _room(console)):
        console.print(line, soft_wrap=True)
    more = [f"no room for {'; '.join(left_out)}: a wider terminal, a pipe or --json shows all"]
    show_lines(console, [*(more if left_out else ()), *sheet.notes], "dim")
    console.print()


def show_lines(console: Console, lines: Iterable[str], style: str = "") -> None:
    """Print lines, on a terminal broken between words, off one as they are."""
    for part in chain(*(_broken(line, _room(console)) for line in lines)):
        console.print(Text(part, style), soft_wrap=True)


def _room(console: Console) -> int:
    """Cells in a line: a terminal has so many, a pipe or a file as many as are needed, whatever COLUMNS says."""
    return console.width if console.file.isatty() else sys.maxsize


def _broken(text: str, room: int) -> list[str]:
    """The text in lines that are broken between words, never within one, and never at the sign in ``Δt = 2``."""
    kept = visible(text).replace(" = ", "\xa0=\xa0")
    lines = wrap(kept, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [line.replace("\xa0", " ") for line in lines]


def fitted(sheet: Sheet, room: int) -> tuple[Sheet, list[str]]:
    """The sheet without the columns that so many cells have no room for, and the headings of these."""
    widths = [_width(sheet, place) + _BETWEEN for place in range(1, 1 + len(sheet.columns))]
    places = list(range(len(widths)))
    for spare in dict.fromkeys((*sheet.spare, *reversed(places))):
        if len(places) > 1 and _width(sheet, 0) + sum(widths[place] for place in places) > room:
            places.remove(spare)
    sections = []
    for heading, rows in sheet.sections:  # without rows that tell nothing about these columns
        told = [row for row in rows if {row[1 + place] for place in places} - {"", NONE}]
        cut = tuple((row[0], *(row[1 + place] for place in places)) for row in told)
        sections += [Section(heading, cut)] if cut else []
    columns = tuple(sheet.columns[place] for place in places)
    left_out = [heading for place, heading in enumerate(sheet.columns) if place not in places]
    return replace(sheet, columns=columns, sections=tuple(sections)), left_out


def drawn(sheet: Sheet, room: int = sys.maxsize) -> Iterator[Text]:
    """The lines of a table. Columns of figures stand to the right; words are broken where the last one has too many."""
    places = range(1 + len(sheet.columns))
    widths = [_width(sheet, place) for place in places]
    last = room - sum(widths[:-1]) - _BETWEEN * len(sheet.columns)
    widths[-1] = min(widths[-1], max(_WORDS, last))
    right = [sheet.holds_figures(place) for place in places]

    def lines(cells: Iterable[list[str]], style: str = "") -> Iterator[Text]:
        for parts in zip_longest(*cells, fillvalue=""):
            blanks = [" " * (width - cell_len(part)) for width, part in zip(widths, parts, strict=True)]
            told = zip(right, blanks, parts, strict=True)
            line = (blank + part if to_right else part + blank for to_right, blank, part in told)
            yield Text((" " * _BETWEEN).join(line).rstrip(), style)

    headings = [_headed(sheet, place, widths[place])[::-1] for place in places]
    yield from reversed(list(lines(headings, "bold")))
    yield Text("─" * (sum(widths) + _BETWEEN * len(sheet.columns)), "dim")
    for number, (heading, rows) in enumerate(sheet.sections):
        if heading:
            yield from (*([Text()] if number else ()), Text(visible(heading), "italic"))
        for label, *cells in rows:
            name = visible(f"  {label}" if heading else label)
            yield from lines([[name], *map(_broken, cells, widths[1:])])


def _width(sheet: Sheet, place: int) -> int:
    """Cells that a column needs: of its heading, which may be broken, the longest word, but `_SHORT` if it has as many."""
    indent = "  " if place == 0 and any(section.heading for section in sheet.sections) else ""
    cells = (cell_len(visible(indent + cell)) for cell in sheet.column(place))
    words = map(cell_len, _headed(sheet, place, _SHORT))
    return max(*words, *cells, 0)


def _headed(sheet: Sheet, place: int, width: int) -> list[str]:
    """The heading of a column, broken between words, and long words after their hyphens."""
    heading = (sheet.corner, *sheet.columns)[place]
    if cell_len(visible(heading)) > width:
        heading = _LONG.sub(lambda word: word[0].replace("-", "- "), heading)
    return _broken(heading, width)


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


def bar(ratio: float | None, largest: float = 1) -> str:
    """A bar as long as a ratio is large, beside others of up to the `largest`, which all fit on a scale of their own."""
    scale = min(_BAR_PER_TIME, _LONGEST_BAR / largest)
    return "" if ratio is None else "█" * max(1, round(scale * ratio))
