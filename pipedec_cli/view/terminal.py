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
from pipedec_cli.model.training.result import TrainingProgress
from pipedec_cli.view.console import Talk, make_console
from pipedec_cli.view.grid_drawing import BEHIND_PROMPT, BOS
from pipedec_cli.view.live import LiveGrid, LiveScreen
from pipedec_cli.view.progress import GenerationProgress, StageDisplay, TrainingDisplay


class Terminal:
    """Shows what jobs send to `notify`: messages, progress bars, the live grid, the course of training."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.talk = Talk(quiet, console or make_console(stderr=True))
        self.notify = Notify(self)
        self._stages: dict[Stage, StageDisplay] = {}
        self._decoding: LiveScreen | GenerationProgress | None = None
        self._training: TrainingDisplay | None = None

    def __call__(self, event: Any) -> None:
        """Show one event."""
        match event:
            case Message(text, warning):
                (self.talk.warn if warning else self.talk.say)(text)
            case Stage():
                self._stages[event] = StageDisplay(self.talk, event)
            case Advanced(stage, done):
                self._stages[stage].advance(done)
            case Ended(stage):
                self._stages.pop(stage).stop()
            case Generating():
                self._decoding = self._screen(event)
                self._decoding.start()
            case Training(metric):
                self._training = TrainingDisplay(self.talk, metric)
            case GenerationEnded() if self._decoding:
                self._decoding.stop()
                self._decoding = None
            case TrainingEnded() if self._training:
                self._training.stop()
                self._training = None
            case TrainingProgress() if self._training:
                self._training.on(event)
            case _ if self._decoding:  # an event of the decoding loop
                self._decoding.on(event)

    def _screen(self, event: Generating) -> LiveScreen | GenerationProgress:
        if not event.live:
            return GenerationProgress(self.talk, event.total)
        opener = BOS if event.opener else BEHIND_PROMPT
        grid = LiveGrid(event.decode, event.method, event.name, event.total, event.labels, opener)
        return LiveScreen(self.talk, grid, event.live_speed)
