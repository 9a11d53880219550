"""The live grid as an SVG picture, for documents.

The one in the README is that of a text which the demo's model writes::

    pipedec demo --out demo
    python -m pipedec_cli.terminal.views.live_picture docs/images/live-grid.svg demo

Any workspace with a pipelined checkpoint and a test set will do.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rich.console import Console

from pipedec_cli.data.segmented import load_split
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import write_text
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.generation import Generator
from pipedec_cli.pipeline.decode import Event, Finished, Stepped
from pipedec_cli.terminal.views.live import LiveGrid

WIDTH: Final = 116
HEIGHT: Final = 40
DELAY: Final = 2
#: Decoder calls after which the picture is taken, with some subsequences finished and some under way.
STEPS: Final = 14


def save_picture(path: Path, view: LiveGrid, events: Iterable[Event], *, steps: int = STEPS) -> None:
    """Save what a view shows after so many decoder calls of its first example.

    Args:
        path: the SVG file.
        view: the view; nothing has happened in it yet.
        events: of a decoding run.
        steps: decoder calls; the finished grid if it has fewer.
    """
    finished = None
    for event in events:
        if isinstance(event, Stepped) and event.step.number > steps:
            break
        finished = view.on(event)
        if isinstance(event, Finished):
            break
    console = Console(
        record=True,
        width=WIDTH,
        height=HEIGHT,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(finished or view)
    write_text(path, console.export_svg(title="pipedec generate --live", unique_id=path.stem))


def main(path: Path, workspace: Path, *, steps: int = STEPS) -> None:
    """Draw the first test example of a workspace while its model writes.

    Args:
        path: the SVG file.
        workspace: where `pipedec segment` and `pipedec train` left their results.
        steps: decoder calls after which the picture is taken.
    """
    place = Workspace.find(workspace)
    source = load_split(place.data / "test.jsonl")[0].source
    generator = Generator(load_checkpoint(str(place.model("pipelined"))))
    method = generator.method(DELAY)
    view = LiveGrid(generator.text.text, eos=method.eos, method=f"Δt = {DELAY}", name=lambda _: source)
    events = (event for event in generator.run([source], method) if isinstance(event, Event))
    save_picture(path, view, events, steps=steps)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
