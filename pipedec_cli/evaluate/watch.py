"""Counting and timing the calls of one part of a model, from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipedec_cli.evaluate.timing import Clock


@dataclass(slots=True)
class Watch:
    """How often a module was called, and how long that took in all; 0.0 without a clock."""

    calls: int = 0
    seconds: float = 0.0


@contextmanager
def watched(module: Any, clock: Clock | None = None) -> Iterator[Watch]:
    """Watch a module's calls.

    Args:
        module: a torch module that does not call itself.
        clock: reads the time once the device has finished; None to count only, which waits for nothing.
    """
    watch = Watch()
    began = 0.0

    def before(*_: object) -> None:
        nonlocal began
        began = clock() if clock else 0.0

    def after(*_: object) -> None:
        watch.calls += 1
        if clock:
            watch.seconds += clock() - began

    handles = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield watch
    finally:
        for handle in handles:
            handle.remove()
