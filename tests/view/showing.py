"""Displays that begin and end with a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def showing(display: Any) -> Iterator[Any]:
    """The display, started, and stopped in the end."""
    display.start()
    try:
        yield display
    finally:
        display.stop()
