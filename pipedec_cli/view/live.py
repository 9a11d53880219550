"""The live view: the grid of one example while it is decoded, drawn from the events of the decoding loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Final

from rich.live import Live

from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped
from pipedec_cli.view.console import Talk
from pipedec_cli.view.grid_drawing import BOS, GridDrawing, Words

FRAMES_PER_SECOND: Final = 10
#: Steps per second of a single example, if no speed is given.
SINGLE_SPEED: Final = 10.0
#: The largest share of the time that drawing may take. A large grid is drawn less often, so that it does not slow the decoder.
SHARE: Final = 0.05


@dataclass
class LiveGrid:
    """A renderable that follows one example at a time: the oldest in flight.

    `words` turns token ids into text when a frame is drawn. `method` is the decoding method in words, ``Δt = 2``; `name`
    gives the heading of an example by its index; `total` is the number of examples. `labels` are the keys of the rows, at
    level field.
    """

    words: Words
    method: str = ""
    name: Callable[[int], str] = lambda _: ""
    total: int | None = None
    labels: Sequence[str] = ()
    opener: str = BOS
    _in_flight: dict[int, GridDrawing] = field(default_factory=dict, init=False)

    def on(self, event: Event) -> GridDrawing | None:
        """Take in an event. Returns the whole grid of an example that has just finished."""
        if isinstance(event, Admitted):
            self._in_flight[event.example] = GridDrawing(
                event.example,
                event.grid,
                self.words,
                self.name(event.example),
                labels=self.labels,
                opener=self.opener,
            )
        elif isinstance(event, Stepped):
            self._in_flight[event.example].step = event.step
        elif isinstance(event, Finished):
            drawing = self._in_flight.pop(event.example)
            drawing.finished = True
            return self._with_heading(drawing)
        return None

    @property
    def followed(self) -> int | None:
        """The index of the example that is shown, None if none is in flight."""
        return next(iter(self._in_flight), None)

    def __rich__(self) -> GridDrawing | str:
        """The followed example as it stands."""
        return "" if self.followed is None else self._with_heading(self._in_flight[self.followed])

    def _with_heading(self, drawing: GridDrawing) -> GridDrawing:
        of = "" if self.total is None else f" of {self.total}"
        parts = [f"example {drawing.example + 1}{of}"]
        if len(self._in_flight) > 1 and not drawing.finished:
            parts.append(f"the oldest of {len(self._in_flight)} in flight")
        if self.method:
            parts.append(self.method)
        drawing.heading = ", ".join(parts)
        return drawing


class LiveScreen:
    """A `LiveGrid` on stderr: moving on a terminal; elsewhere each grid is printed once, when its example has finished.

    Frames are drawn between events, never in a thread beside the decoder. At most `speed` steps per second are shown; a
    single example has `SINGLE_SPEED` by default. Nothing is shown if the talk is quiet.
    """

    def __init__(self, talk: Talk, view: LiveGrid, speed: float | None = None) -> None:
        self._talk, self._view = talk, view
        self._speed = speed or (SINGLE_SPEED if view.total == 1 else None)
        self._frame_due = self._step_due = monotonic()
        self._live = Live(
            view,
            console=talk.console,
            auto_refresh=False,
            transient=True,
            # Rich may capture stdout only if it is the same screen: data must never go to stderr.
            redirect_stdout=sys.stdout.isatty(),
        )
        if talk.animated:
            self._live.start()

    def stop(self) -> None:
        """Take the moving grid away."""
        self._live.stop()

    def on(self, event: Event) -> None:
        """Show an event of the decoding loop, and draw a frame if one is due."""
        moving, followed = self._live.is_started, self._view.followed
        if self._speed and moving and event.example == followed:
            sleep(max(0.0, self._step_due - monotonic()))
            self._frame_due = monotonic()
            self._step_due = self._frame_due + 1 / self._speed
        finished = self._view.on(event)
        if finished and not self._talk.quiet and (finished.example == followed or not moving):
            self._talk.console.print(finished)
        began = monotonic()
        if moving and began >= self._frame_due:
            self._live.refresh()
            self._frame_due = began + max(1 / FRAMES_PER_SECOND, (monotonic() - began) / SHARE)
