"""A sheet: a table with its title and notes, as every medium shows it. And the formats of its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pipedec_cli.evaluate.comparison import Comparison, Entry
    from pipedec_cli.evaluate.failures import Failures

NONE: Final = "–"
_FIGURE: Final = re.compile(r"[-+]?\d")
_MOST_ROWS: Final = 60
_BAR_PER_TIME, _LONGEST_BAR = 3, 30

Row = tuple[str, ...]
Label = tuple[str, str]  # the heading of a section, and the name of a row in it
Format = Callable[[Any], str]  # of a value, which may be None
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


def failure_cells(
    failures: Failures | None, part: str, form: Format, *, repeats: bool
) -> list[tuple[str, str]]:
    """What goes wrong with a decoder: its rates, and the lengths of its texts in `part`, a subsequence or a field.

    `repeats` says whether there is a row for texts that were stopped because they repeated themselves.
    """
    lengths = NONE
    if failures is not None and failures.expected_per_text is not None:
        lengths = f"{failures.subsequences_per_text:.1f} of {failures.expected_per_text:.1f}"
    rates: list[Line] = [
        (f"duplicated {part}s", "duplicated_rate", form),
        (f"dropped {part}s", "dropped_rate", form),
        ("truncated predictions", "truncated_rate", form),
        ("stopped on repeat", "stopped_on_repeat_rate", form),
        ("alike predictions", "alike_rate", form),
    ]
    if not repeats:
        del rates[3]
    return [(f"{part}s per text", lengths), *cells(failures, rates)]


def time_parts(comparison: Comparison) -> dict[str, str]:
    """The parts of an example's time: row names, and the attributes of a `Timing`."""
    if comparison.conditions.prompted:
        return {"reading the prompt": "encoder_seconds", "decoding": "decoding_seconds"}
    return {"encoder": "encoder_seconds", "source keys": "setup_seconds", "decoding": "decoding_seconds"}


def precision_cells(entry: Entry, comparison: Comparison) -> list[tuple[str, str]]:
    """The dtype and the number of threads of a decoder."""
    threads = entry.runner.settings.get("threads", str(comparison.conditions.machine.threads))
    return [("dtype", entry.runner.settings["dtype"]), ("threads", threads)]


def settings_sheet(title: str, comparison: Comparison, measured: str, notes: Row) -> Sheet:
    """Version and settings of each decoder, and the machine that it was `measured` on."""
    rows = [
        (entry.name, ", ".join(map(" ".join, entry.runner.settings.items()))) for entry in comparison.entries
    ]
    where = comparison.conditions
    versions = (f"{name} {version or 'not installed'}" for name, version in where.versions.items())
    notes = (f"{measured} on {where.device}; {where.machine.line}", ", ".join(versions), *notes)
    return Sheet(title, ("settings",), (Section("", tuple(rows)),), notes=notes)


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


def bar(ratio: float | None, largest: float = 1) -> str:
    """A bar as long as a ratio is large. Bars up to the `largest` ratio have one scale."""
    scale = min(_BAR_PER_TIME, _LONGEST_BAR / largest)
    return "" if ratio is None else "█" * max(1, round(scale * ratio))
