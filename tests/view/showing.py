"""Displays that are stopped at the end of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def showing(display: Any) -> Iterator[Any]:
    """The display, stopped at the end."""
    try:
        yield display
    finally:
        display.stop()
