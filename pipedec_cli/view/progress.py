"""What a job says and how far it is, on stderr: a moving bar on a terminal, elsewhere a line every ten seconds."""

import logging
import sys
import threading
from time import monotonic
from typing import Any, Final

from rich import progress as bars
from rich.console import Console

from pipedec_cli.data.errors import duration, log
from pipedec_cli.events import Advanced, Ended, Generating, Stage, Training
from pipedec_cli.pipeline.decode import Admitted, Event, Stepped
from pipedec_cli.training.hyperparameters import TrainingProgress
from pipedec_cli.view.console import Talk, make_console, visible
from pipedec_cli.view.live import LiveGrid, LiveScreen

#: Seconds between two lines where nothing can be redrawn.
LINE_EVERY: Final = 10.0
#: Seconds before a stage shows its bar, so that short work shows none.
PATIENCE: Final = 2.0


class ProgressDisplay:
    """How far a piece of work has come: on a terminal a bar, elsewhere a line every ten seconds."""

    def __init__(
        self, talk: Talk, label: str, total: int | None = None, patience: float = 0.0
    ) -> None:
        """Show work, called `label`, of so many parts in all; None: it is not known how many.

        The bar comes `patience` seconds after the start, by a timer.
        """
        self._talk = talk
        self._label = visible(label)
        self._total = total
        self._line_due = monotonic() + LINE_EVERY
        clock: bars.ProgressColumn = bars.TimeRemainingColumn(compact=True)
        if total is None:
            clock = bars.TimeElapsedColumn()
        self.bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=None),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[state]}", style="dim", markup=False),
            clock,
            console=talk.console,
            transient=True,
            refresh_per_second=8,
            # Rich may capture stdout only if it is the same screen: data must never go
            # to stderr.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self.bar.add_task(self._label, total=total, state="")
        self._timer = threading.Timer(patience, self.bar.start)
        self._timer.daemon = True
        if talk.animated and patience:
            self._timer.start()
        elif talk.animated:
            self.bar.start()

    def update(self, done: int, state: str = "", *, line: bool = False) -> None:
        """Show that so many parts are `done`, with the words `state` behind. With `line` a line is printed now in any case."""
        if self._talk.animated:
            self.bar.update(self._task, completed=done, state=state)
        elif monotonic() >= self._line_due:
            line = True
        if line:
            self._line_due = monotonic() + LINE_EVERY
            total = "" if self._total is None else f" of {self._total:,}"
            state = f", {state}" if state else ""
            self._talk.say(f"{self._label}: {done:,}{total}{state}")

    def stop(self) -> None:
        """Take the bar away."""
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()
        if self.bar.live.is_started:
            self.bar.stop()


class GenerationProgress:
    """Examples and tokens per second while texts are generated, from the first admission on."""

    def __init__(self, talk: Talk, total: int | None) -> None:
        self.examples = 0  # finished ones
        self.tokens = 0  # without the <eos> of finished examples
        self._in_flight: dict[int, int] = {}  # tokens by example
        self._since: float | None = None
        self._display = ProgressDisplay(talk, "generating", total)
        self.stop = self._display.stop

    def on(self, event: Event) -> None:
        """Show an event of the decoding loop."""
        if self._since is None:
            self._since = monotonic()
        if isinstance(event, Admitted):
            self._in_flight[event.example] = 0
        elif isinstance(event, Stepped):
            self._in_flight[event.example] += len(event.step.made)
            self.tokens += len(event.step.made)
        else:
            self.examples += 1
            # The steps counted <eos> as a token.
            self.tokens += event.grid.tokens - self._in_flight.pop(event.example, 0)
        self._display.update(self.examples, self.rates)

    @property
    def rates(self) -> str:
        """Examples and tokens per second in words; empty before any time has passed."""
        seconds = 0.0 if self._since is None else monotonic() - self._since
        if seconds <= 0:
            return ""
        rates = []
        for count, noun in ((self.examples, "examples"), (self.tokens, "tokens")):
            rate = count / seconds
            figure = f"{rate:.2f}" if rate < 10 else f"{rate:,.0f}"
            rates.append(f"{figure} {noun}/s")
        return ", ".join(rates)


class TrainingDisplay:
    """The course of a training. Each evaluation leaves a line."""

    def __init__(self, talk: Talk, metric: str) -> None:
        self._talk = talk
        self._metric = metric
        self._display: ProgressDisplay | None = None
        self._left = "about {} left without evaluations"

    def on(self, progress: TrainingProgress) -> None:
        """Show the state of training."""
        if self._display is None:
            self._display = ProgressDisplay(self._talk, "update", progress.updates)
        if progress.dev_loss is not None:  # from now on the time has evaluations in it
            self._left = "about {} left"
        figures = (
            ("epoch {:.2f}", progress.epoch),
            ("loss {:.3f}", progress.loss),
            ("dev loss {:.3f}", progress.dev_loss),
            (f"dev {self._metric} {{:.1f}}", progress.dev_score),
            (self._left, duration(progress.left) if progress.left else None),
        )
        state = ", ".join(
            words.format(value) for words, value in figures if value is not None
        )
        self._display.update(progress.update, state, line=progress.dev_loss is not None)

    def stop(self) -> None:
        """Take the bar away."""
        if self._display is not None:
            self._display.stop()


class Terminal(logging.Handler):
    """Shows what jobs log, each different warning once, and their events: bars, the live grid, the course of training.

    It takes the place of an earlier terminal.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        super().__init__()
        self.talk = Talk(quiet, console or make_console(stderr=True))
        self._warned: set[str] = set()
        self._stages: dict[Stage, ProgressDisplay] = {}
        self._display: LiveScreen | GenerationProgress | TrainingDisplay | None = None
        log.setLevel(logging.INFO)
        for handler in list(log.handlers):
            if isinstance(handler, Terminal):
                log.removeHandler(handler)
        log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Show one message."""
        text = record.getMessage()
        if record.levelno < logging.WARNING:
            self.talk.say(text)
        elif text not in self._warned:
            self._warned.add(text)
            self.talk.warn(text)

    def __call__(self, event: Any) -> None:
        """Show one event."""
        match event:
            case Stage(label, total):
                self._stages[event] = ProgressDisplay(self.talk, label, total, PATIENCE)
            case Advanced(stage, done):
                self._stages[stage].update(done)
            case Ended(Stage() as stage):
                self._stages.pop(stage).stop()
            case Generating():
                live = LiveScreen(self.talk, LiveGrid(event)) if event.live else None
                self._display = live or GenerationProgress(self.talk, event.total)
            case Training(metric):
                self._display = TrainingDisplay(self.talk, metric)
            case Ended() if self._display:
                self._display.stop()
                self._display = None
            case _ if self._display:  # an event of the decoding loop or of the trainer
                self._display.on(event)
