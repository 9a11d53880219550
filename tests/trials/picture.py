"""The pictures of the README: the upper part of a report's page, and the live grid of a workspace's first test example::

    python -m tests.trials.picture pipedec-workspace/report/report.html docs/images/report.png
    python -m tests.trials.picture demo docs/images/live-grid.svg

A page takes chromium and playwright; a grid takes a workspace with a pipelined model and a test set.
"""

import argparse
import io
import sys
from pathlib import Path

from rich.console import Console

from pipedec_cli.data.workspace import Workspace, read_split
from pipedec_cli.data.writing import write_text
from pipedec_cli.model.decoder import load
from pipedec_cli.pipeline.decode import Event, Stepped
from pipedec_cli.view.live import LiveGrid
from tests.browser import chromium, lacking


def draw_picture(path: Path, workspace: Path, *, delay: int = 2, steps: int = 14) -> None:
    """Save the live grid of a workspace's first test example after `steps` decoder calls, as SVG."""
    place = Workspace.find(workspace)
    source = next(read_split(place.data / "test.jsonl", need_target=False)).source
    decoder, finished = load(place.model("pipelined")), None
    view = LiveGrid(decoder.text.decode, method=f"Δt = {delay}", name=lambda _: source)
    for event in decoder.run([source], decoder.method(delay)):
        if isinstance(event, Event):
            finished = view.on(event)
        if isinstance(event, Stepped) and event.step.number == steps:
            break
    console = Console(
        record=True, width=116, height=40, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(finished or view)
    write_text(path, console.export_svg(title="pipedec generate --live", unique_id=path.stem))


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
    if asked.page.is_dir():
        draw_picture(asked.picture, asked.page)
        return 0
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
