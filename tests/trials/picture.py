"""The picture of a page, as the README shows one of a report::

    python -m tests.trials.picture pipedec-workspace/report/report.html docs/images/report.png

Its upper part, at 1,200 pixels of width unless told otherwise. It takes chromium and playwright.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.browser import chromium, lacking


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--height", type=int, default=1100)
    parser.add_argument("--at", default="", help="the section to begin with, its id: plots, tables, …")
    parser.add_argument("--dark", action="store_true")
    asked = parser.parse_args()
    if not asked.page.is_file():
        parser.error(f"{asked.page}: no such file")
    if why := lacking():
        print(why, file=sys.stderr)
        return 1
    asked.picture.parent.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        size = {"width": asked.width, "height": asked.height}
        page = browser.new_page(viewport=size, color_scheme="dark" if asked.dark else "light")
        page.goto(f"{asked.page.resolve().as_uri()}{asked.at and '#'}{asked.at}")
        page.screenshot(path=asked.picture)
    print(f"{asked.picture}: {asked.picture.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
