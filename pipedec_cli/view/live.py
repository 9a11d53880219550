"""The live view: the grid of one example while it is being decoded. It hears events and shows what they say.

As a program it draws the picture in the README, from any workspace with a pipelined checkpoint and a test set::

    pipedec demo --out demo
    python -m pipedec_cli.view.live docs/images/live-grid.svg demo
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped
from pipedec_cli.view.console import Talk
from pipedec_cli.view.grid_drawing import BOS, GridDrawing, Words

FRAMES_PER_SECOND: Final = 10
#: Steps a second of a single text, unless another speed is given.
SINGLE_SPEED: Final = 10.0
#: The most of the time that drawing may take; a large grid is drawn less often rather than slow the decoder.
SHARE: Final = 0.05


@dataclass
class LiveGrid:
    """A renderable that follows one example at a time: the oldest in flight.

    An event costs next to nothing; tokens are turned into text by `words`, special tokens left out, only when they are
    drawn. The heading tells how it is decoded, such as ``Δt = 2``, how many examples there are to be, if that is known,
    and an example's `name`, its source for example, given its index. Rows that are a key's are called by its `labels`,
    and begin with the `opener`.
    """

    words: Words
    method: str = ""
    name: Callable[[int], str] = lambda _: ""
    total: int | None = None
    labels: Sequence[str] = ()
    opener: str = BOS
    _flying: dict[int, GridDrawing] = field(default_factory=dict, init=False)

    def on(self, event: Event) -> GridDrawing | None:
        """Take in an event; gives the grid in full if it finished an example. The view has no further part in that."""
        if isinstance(event, Admitted):
            drawing = GridDrawing(event.example, event.grid, self.words, self.name(event.example))
            drawing.labels, drawing.opener = self.labels, self.opener
            self._flying[event.example] = drawing
        elif isinstance(event, Stepped):
            self._flying[event.example].step = event.step
        elif isinstance(event, Finished):
            drawing = self._flying.pop(event.example)
            drawing.finished = True
            return self._headed(drawing)
        return None

    @property
    def followed(self) -> int | None:
        """The index of the example that is shown, the oldest in flight; None if there is none."""
        return next(iter(self._flying), None)

    def __rich__(self) -> GridDrawing | str:
        """The followed example as it stands; nothing if there is none."""
        return "" if self.followed is None else self._headed(self._flying[self.followed])

    def _headed(self, drawing: GridDrawing) -> GridDrawing:
        several = len(self._flying) > 1 and not drawing.finished
        parts = [
            f"example {drawing.example + 1}" + (f" of {self.total}" if self.total is not None else ""),
            f"the oldest of {len(self._flying)} in flight" if several else "",
            self.method,
        ]
        drawing.heading = ", ".join(filter(None, parts))
        return drawing


class LiveScreen:
    """A `LiveGrid` on stderr: moving on a terminal, else each grid once, when its example has finished.

    The grids of finished examples stay: on a terminal those that were followed, else all. Frames are drawn between
    events, never in a thread beside the decoder. A moving grid takes in no more than `speed` steps a second and draws each; without
    one `SINGLE_SPEED` if a single example is to come, else all as they come. Nothing is shown if the talk is quiet.
    """

    def __init__(
        self,
        talk: Talk,
        view: LiveGrid,
        speed: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._talk, self._view, self._clock, self._sleep = talk, view, clock, sleep
        self._speed = speed or (SINGLE_SPEED if view.total == 1 else None)
        self._due = self._step_due = clock()
        # Data on stdout must never be led to stderr; only where both are one screen may Rich keep them apart.
        shared = sys.stdout.isatty()
        self._live = Live(
            view, console=talk.console, auto_refresh=False, transient=True, redirect_stdout=shared
        )

    def start(self) -> None:
        """Put the grid on the screen, if it may move."""
        if self._talk.animated:
            self._live.start()

    def stop(self) -> None:
        """Take the moving grid away."""
        self._live.stop()

    def on(self, event: Event) -> None:
        """Take in an event and draw a frame if one is due."""
        followed = self._view.followed
        if self._speed and self._live.is_started and event.example == followed:
            self._sleep(max(0.0, self._step_due - self._clock()))
            self._due = self._clock()
            self._step_due = self._due + 1 / self._speed
        finished = self._view.on(event)
        if finished and not self._talk.quiet and (finished.example == followed or not self._live.is_started):
            self._talk.console.print(finished)
        began = self._clock()
        if self._live.is_started and began >= self._due:
            self._live.refresh()
            self._due = began + max(1 / FRAMES_PER_SECOND, (self._clock() - began) / SHARE)


def draw_picture(path: Path, workspace: Path, *, delay: int = 2, steps: int = 14) -> None:
    """Save as SVG what the view shows of a workspace's first test example after so many decoder calls."""
    from pipedec_cli.data.workspace import Workspace, load_split
    from pipedec_cli.data.writing import write_text
    from pipedec_cli.model.decoder import load

    place = Workspace.find(workspace)
    source = load_split(place.data / "test.jsonl", need_target=False)[0].source
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


if __name__ == "__main__":
    draw_picture(Path(sys.argv[1]), Path(sys.argv[2]))
