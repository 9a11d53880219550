"""The live view: the grid of one example while it is decoded, drawn from the events of the decoding loop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.live import Live

from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped
from pipedec_cli.view.console import Talk
from pipedec_cli.view.grid_drawing import BOS, GridDrawing, Words

FRAMES_PER_SECOND: Final = 10
#: Steps a second of a single text, if no speed is given.
SINGLE_SPEED: Final = 10.0
#: The largest share of the time that drawing may take. A large grid is drawn less often, so that it does not slow the decoder.
SHARE: Final = 0.05


@dataclass
class LiveGrid:
    """A renderable that follows one example at a time: the oldest in flight.

    `words` turns token ids into text when a frame is drawn. `method` describes the decoding, such as ``Δt = 2``; `name`
    gives an example's heading by its index; `total` is the number of examples. `labels` name the rows that are keys.
    """

    words: Words
    method: str = ""
    name: Callable[[int], str] = lambda _: ""
    total: int | None = None
    labels: Sequence[str] = ()
    opener: str = BOS
    _flying: dict[int, GridDrawing] = field(default_factory=dict, init=False)

    def on(self, event: Event) -> GridDrawing | None:
        """Take in an event. Gives the whole grid of an example that has just finished."""
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
        """The index of the example that is shown, None if none is in flight."""
        return next(iter(self._flying), None)

    def __rich__(self) -> GridDrawing | str:
        """The followed example as it stands."""
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
    """A `LiveGrid` on stderr: moving on a terminal, elsewhere each grid once, when its example has finished.

    Frames are drawn between events, never in a thread beside the decoder. At most `speed` steps are shown a second; a
    single example has `SINGLE_SPEED` by default. Nothing is shown if the talk is quiet.
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
