"""What the tables of a report are made of: sheets of words, and how numbers are written in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipedec_cli.data.paper import METRIC_TITLES
from pipedec_cli.evaluate.significance import Difference
from pipedec_cli.terminal.score import LABELS

NONE: Final = "–"
_PER_TIME: Final = 3
_LONGEST: Final = 30


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that belong together: a heading, which may be empty, and for each row its label and a cell a column."""

    heading: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table.

    Attributes:
        title: what it shows.
        columns: headings of all columns but the first.
        sections: at least one.
        kept: how many columns after the first stand in every part of a table that is too wide and is cut.
        notes: what stands beneath.
        corner: the heading of the first column.
    """

    title: str
    columns: tuple[str, ...]
    sections: tuple[Section, ...]
    kept: int = 0
    notes: tuple[str, ...] = ()
    corner: str = ""


def label(metric: str) -> str:
    """What a metric is called."""
    return LABELS.get(metric, METRIC_TITLES.get(metric, metric))


def points(value: float | None) -> str:
    """A score of 100."""
    return NONE if value is None else f"{value:.1f}"


def signed(value: Difference | None) -> str:
    """A difference of scores; nothing where there is none."""
    return "" if value is None else f"{value.value:+.1f}"


def interval(value: Difference | None) -> str:
    """Its interval; nothing where there is none."""
    if value is None or value.low is None or value.high is None:
        return ""
    return f"{value.low:+.1f} to {value.high:+.1f}"


def times(ratio: float | None) -> str:
    """A ratio, to two figures where it is below 1."""
    if ratio is None:
        return NONE
    return f"{ratio:.1f} ×" if ratio >= 0.995 else f"{ratio:.2f} ×"


def figure(value: float) -> str:
    """A number to three figures."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def milliseconds(seconds: float | None, count: int = 1) -> str:
    """Seconds for `count` things, as milliseconds for each."""
    return NONE if seconds is None or not count else figure(1000 * seconds / count)


def megabytes(count: int | None) -> str:
    """Bytes in millions."""
    return NONE if count is None else f"{count / 1e6:,.0f}"


def rate(share: float | None) -> str:
    """A share of 1 in per cent."""
    return NONE if share is None else f"{share:.1%}"


def bar(ratio: float | None) -> str:
    """A bar as long as a ratio is large."""
    return "" if ratio is None else "█" * min(_LONGEST, max(1, round(_PER_TIME * ratio)))
