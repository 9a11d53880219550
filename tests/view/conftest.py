"""A clock that stands still unless a test moves it, and displays that are stopped."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Clock:
    """Seconds, and how long the code under test has slept."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("progress", "live"):
        monkeypatch.setattr(f"pipedec_cli.view.{module}.monotonic", lambda: clock.now)
    monkeypatch.setattr("pipedec_cli.view.live.sleep", clock.sleep)
    return clock


@contextmanager
def showing(display: Any) -> Iterator[Any]:
    """The display, stopped at the end."""
    try:
        yield display
    finally:
        display.stop()
