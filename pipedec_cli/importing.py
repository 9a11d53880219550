"""Imports of large libraries."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_freeze_once = cache(gc.freeze)


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python's collector of cycles rest, which visits what an import makes again and again: a fifth of a start.

    It never visits what is there at the end of the first time.
    """
    gc.disable()
    try:
        yield
    finally:
        _freeze_once()
        gc.enable()
