"""The terminal: it listens to a job and shows its events on stderr."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from pipedec_cli.jobs.events import (
    Advanced,
    Ended,
    Generating,
    GenerationEnded,
    Message,
    Notify,
    Stage,
    Training,
    TrainingEnded,
)
from pipedec_cli.view.console import Talk, make_console
from pipedec_cli.view.grid_drawing import AFTER_PROMPT, BOS
from pipedec_cli.view.live import LiveGrid, LiveScreen
from pipedec_cli.view.progress import PATIENCE, GenerationProgress, ProgressDisplay, TrainingDisplay


class Terminal:
    """Shows what jobs send to `notify`: messages, progress bars, the live grid, the course of training."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.talk = Talk(quiet, console or make_console(stderr=True))
        self.notify = Notify(self)
        self._stages: dict[Stage, ProgressDisplay] = {}
        self._display: LiveScreen | GenerationProgress | TrainingDisplay | None = None

    def __call__(self, event: Any) -> None:
        """Show one event."""
        match event:
            case Message(text, warning):
                (self.talk.warn if warning else self.talk.say)(text)
            case Stage(label, total):
                self._stages[event] = ProgressDisplay(self.talk, label, total, PATIENCE)
            case Advanced(stage, done):
                self._stages[stage].update(done)
            case Ended(stage):
                self._stages.pop(stage).stop()
            case Generating():
                self._display = self._generating(event)
            case Training(metric):
                self._display = TrainingDisplay(self.talk, metric)
            case GenerationEnded() | TrainingEnded() if self._display:
                self._display.stop()
                self._display = None
            case _ if self._display:  # an event of the decoding loop or of the trainer
                self._display.on(event)

    def _generating(self, event: Generating) -> LiveScreen | GenerationProgress:
        if not event.live:
            return GenerationProgress(self.talk, event.total)
        opener = BOS if event.opener else AFTER_PROMPT
        grid = LiveGrid(event.decode, event.method, event.name, event.total, event.labels, opener)
        return LiveScreen(self.talk, grid, event.live_speed)
