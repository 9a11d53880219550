"""Debian's chromium, driven by playwright: for the tests that are marked `browser`, and for the picture in the README."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

QUIET = "gpu quic background-networking component-update sync"
FLAGS = [
    "--no-sandbox",
    "--no-first-run",
    *(f"--disable-{part}" for part in QUIET.split()),
]


def lacking() -> str | None:
    """What is missing and how to get it; None if there is all that it takes."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "there is no playwright (pip install --group browser)"
    return (
        None
        if shutil.which("chromium")
        else "there is no chromium (apt-get install chromium)"
    )


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=FLAGS
        )
        try:
            yield browser
        finally:
            browser.close()
