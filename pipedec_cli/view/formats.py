"""How the cells of a sheet show numbers. Each format takes None, which is a dash."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

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
