"""The live view: the grid of one example while it is being decoded. It hears events and shows what they say.

    with LiveScreen(talk, LiveGrid(words)) as screen:
        for event in decode(model, sources, method):
            screen.on(event)

As a program it draws the picture in the README, from any workspace with a pipelined checkpoint and a test set::

    pipedec demo --out demo
    python -m pipedec_cli.terminal.live docs/images/live-grid.svg demo
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from rich.console import Console
from rich.live import Live

from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.grid_drawing import GridDrawing, Shown, Words

FRAMES_PER_SECOND: Final = 10
#: The most of the time that drawing may take; a large grid is drawn less often rather than slow the decoder.
SHARE: Final = 0.05


class LiveGrid:
    """A renderable that follows one example at a time: the oldest in flight.

    An event costs next to nothing; tokens are turned into text only when they are drawn.

    Args:
        words: token ids to text, special tokens left out.
        method: how it is decoded, for the heading, such as ``Δt = 2``.
        name: what an example is, given its index: its id, its source. It stands in the heading.
        total: how many examples there are to be, if known.
    """

    def __init__(
        self,
        words: Words,
        *,
        method: str = "",
        name: Callable[[int], str] | None = None,
        total: int | None = None,
    ) -> None:
        self._words = words
        self._method = method
        self._name = name
        self._total = total
        self._flying: dict[int, Shown] = {}

    def on(self, event: Event) -> GridDrawing | None:
        """Take in an event; gives the grid in full if it finished an example. The view has no further part in that."""
        if isinstance(event, Admitted):
            self._flying[event.example] = Shown(event.example, event.grid)
        elif isinstance(event, Finished):
            shown = self._flying.pop(event.example)
            shown.finished = True
            return self._drawing(shown)
        return None

    @property
    def followed(self) -> int | None:
        """The index of the example that is shown, the oldest in flight; None if there is none."""
        return next(iter(self._flying), None)

    def __rich__(self) -> GridDrawing | str:
        """The followed example as it stands; nothing if there is none."""
        return "" if self.followed is None else self._drawing(self._flying[self.followed])

    def _drawing(self, shown: Shown) -> GridDrawing:
        parts = [f"example {shown.example + 1}" + (f" of {self._total}" if self._total is not None else "")]
        if len(self._flying) > 1 and not shown.finished:
            parts.append(f"the oldest of {len(self._flying)} in flight")
        if self._method:
            parts.append(self._method)
        subject = self._name(shown.example) if self._name else ""
        return GridDrawing(shown, self._words, ", ".join(parts), subject)


class LiveScreen:
    """A `LiveGrid` on stderr: moving on a terminal, else each grid once, when its example has finished; a context manager.

    The grids of finished examples stay: on a terminal those that were followed, else all. Frames are drawn between
    events, never in a thread beside the decoder. Nothing is shown if the talk is quiet.
    """

    def __init__(self, talk: Talk, view: LiveGrid, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._talk = talk
        self._view = view
        self._clock = clock
        self._due = clock()
        # Data on stdout must never be led to stderr; only where both are one screen may Rich keep them apart.
        one_screen = sys.stdout.isatty()
        self._live = (
            Live(view, console=talk.console, auto_refresh=False, transient=True, redirect_stdout=one_screen)
            if talk.animated
            else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def on(self, event: Event) -> None:
        """Take in an event and draw a frame if one is due."""
        followed = self._view.followed
        finished = self._view.on(event)
        if finished and not self._talk.quiet and (self._live is None or finished.shown.example == followed):
            self._talk.console.print(finished)
        began = self._clock()
        if self._live and began >= self._due:
            self._live.refresh()
            self._due = began + max(1 / FRAMES_PER_SECOND, (self._clock() - began) / SHARE)


def draw_picture(path: Path, workspace: Path, *, delay: int = 2, steps: int = 14) -> None:
    """Save as SVG what the view shows of a workspace's first test example after so many decoder calls."""
    from pipedec_cli.data.workspace import Workspace, load_split
    from pipedec_cli.data.writing import write_text
    from pipedec_cli.model.decoder import load

    place = Workspace.find(workspace)
    source = load_split(place.data / "test.jsonl")[0].source
    decoder = load(place.model("pipelined"))
    method = decoder.method(delay)
    view = LiveGrid(decoder.text.decode, method=f"Δt = {delay}", name=lambda _: source)
    finished = None
    for event in decoder.run([source], method):
        if not isinstance(event, Event):
            break
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
    write_text(path, console.export_svg(title="pipedec generate --live", unique_id=path.stem))


if __name__ == "__main__":
    draw_picture(Path(sys.argv[1]), Path(sys.argv[2]))
