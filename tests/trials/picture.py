"""The pictures of the README: the upper part of a report's page, and the live grid of a workspace's first test example::

    python -m tests.trials.picture pipedec-workspace/report/report.html
    docs/images/report.png python -m tests.trials.picture demo docs/images/live-grid.svg

A page takes chromium and playwright; a grid takes a workspace with a pipelined model
and a test set.
"""

import io
import sys
from pathlib import Path

from rich.console import Console

from pipedec_cli.data.workspace import Workspace, read_split
from pipedec_cli.data.writing import write_text
from pipedec_cli.decoding.decoder import load
from pipedec_cli.events import Generating
from pipedec_cli.pipeline.decode import Event, Stepped
from pipedec_cli.view.live import LiveGrid
from tests.browser import chromium, lacking


def draw_picture(
    path: Path, workspace: Path, *, delay: int = 2, steps: int = 14
) -> None:
    """Save the live grid of a workspace's first test example after `steps` decoder calls, as SVG."""
    place = Workspace.find(workspace)
    source = next(read_split(place.data / "test.jsonl", need_target=False)).source
    decoder, finished = load(place.model("pipelined")), None
    view = LiveGrid(
        Generating(None, f"Δt = {delay}", decoder.text.decode, name=lambda _: source)
    )
    for event in decoder.run([source], decoder.method(delay)):
        if isinstance(event, Event):
            finished = view.on(event)
        if isinstance(event, Stepped) and event.step.number == steps:
            break
    console = Console(
        record=True,
        width=116,
        height=40,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(finished or view)
    write_text(
        path, console.export_svg(title="pipedec generate --live", unique_id=path.stem)
    )


def main() -> None:
    place, picture = map(Path, sys.argv[1:])
    if place.is_dir():
        draw_picture(picture, place)
        return
    if why := lacking():
        raise SystemExit(why)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 1100})
        page.goto(place.resolve(strict=True).as_uri())
        page.screenshot(path=picture)


if __name__ == "__main__":
    main()
