"""Progress on stderr: a bar on a terminal, a line every so often elsewhere."""

from __future__ import annotations

import sys
import threading
from time import monotonic
from typing import Any, Final

from rich import progress as bars

from pipedec_cli.jobs.events import Stage
from pipedec_cli.model.training.result import TrainingProgress
from pipedec_cli.pipeline.decode import Admitted, Event, Stepped
from pipedec_cli.view.console import Talk, visible

#: Seconds between two lines where nothing can be redrawn.
LINE_EVERY: Final = 10.0
#: Seconds that short work may take without a word.
PATIENCE: Final = 2.0


def _bar(talk: Talk, *columns: bars.ProgressColumn, **more: Any) -> bars.Progress:
    # Data on stdout must never be led to stderr; only where both are one screen may Rich keep them apart.
    return bars.Progress(*columns, console=talk.console, redirect_stdout=sys.stdout.isatty(), **more)


class _Display:
    """How far some work has come, on whatever stderr is; a bar appears once so many seconds have gone by."""

    def __init__(self, talk: Talk, label: str, total: int | None, patience: float) -> None:
        self.talk, self.label, self.total = talk, visible(label), total
        self.line_due, self.bar_due = monotonic() + LINE_EVERY, monotonic() + patience
        self.bar: bars.Progress | None = None
        self._lock = threading.Lock()  # a stage shows its bar from a timer's thread

    def update(self, done: int, state: str) -> None:
        if not self.talk.animated:
            if monotonic() >= self.line_due:
                self.line_due = monotonic() + LINE_EVERY
                of = f" of {self.total:,}" if self.total is not None else ""
                self.talk.say(f"{self.label}: {done:,}{of}" + (f", {state}" if state else ""))
            return
        if monotonic() >= self.bar_due:
            self.show()
        if self.bar is not None:
            counted = f"{done:,}" if self.total is None else ""
            self.bar.update(self.bar.task_ids[0], completed=done, state=state, count=counted)

    def show(self) -> None:
        """Put the bar on the screen, if it is not there yet."""
        with self._lock:
            if self.bar is not None:
                return
            known = self.total is not None
            label = bars.TextColumn("{task.description}", markup=False)
            self.bar = _bar(
                self.talk,
                *((label, bars.BarColumn(bar_width=None), bars.MofNCompleteColumn()) if known else ()),
                *(() if known else (bars.SpinnerColumn(), label, bars.TextColumn("{task.fields[count]}"))),
                bars.TextColumn("{task.fields[state]}", style="dim", markup=False),
                bars.TimeRemainingColumn(compact=True) if known else bars.TimeElapsedColumn(),
                transient=True,
                refresh_per_second=8,
            )
            self.bar.add_task(self.label, total=self.total, state="", count="")
            self.bar.start()

    def stop(self) -> None:
        if self.bar:
            self.bar.stop()


class GenerationProgress:
    """Examples and tokens a second while texts are generated, from the first admission on."""

    def __init__(self, talk: Talk, total: int | None) -> None:
        self.examples = self.tokens = 0  # finished ones; without <eos> in these
        self._flying: dict[int, int] = {}
        self._since: float | None = None
        self._display = _Display(talk, "generating", total, patience=0.0)

    def start(self) -> None:
        """Begin. The bar appears with the first event."""

    def stop(self) -> None:
        """Take the bar away."""
        self._display.stop()

    def on(self, event: Event) -> None:
        """Take in an event of the decoding loop."""
        if self._since is None:
            self._since = monotonic()
        if isinstance(event, Admitted):
            self._flying[event.example] = 0
        elif isinstance(event, Stepped):
            self._flying[event.example] += len(event.step.made)
            self.tokens += len(event.step.made)
        else:
            self.examples += 1
            # an <eos> was counted like any token when it was made
            self.tokens += event.grid.tokens - self._flying.pop(event.example, 0)
        self._display.update(self.examples, self.rates)

    @property
    def rates(self) -> str:
        """Examples and tokens a second, in words; nothing before there is anything to divide by."""
        seconds = 0.0 if self._since is None else monotonic() - self._since
        if seconds <= 0:
            return ""
        counts = {"examples": self.examples / seconds, "tokens": self.tokens / seconds}
        return ", ".join(f"{n:.2f} {of}/s" if n < 10 else f"{n:,.0f} {of}/s" for of, n in counts.items())


class StageDisplay:
    """Progress of one stage, shown once it has taken more than two seconds, whether or not it advances."""

    def __init__(self, talk: Talk, stage: Stage) -> None:
        self._display = _Display(talk, stage.label, stage.total, PATIENCE)
        self._timer = threading.Timer(PATIENCE, self._display.show)
        self._timer.daemon = True
        self._animated = talk.animated
        if self._animated:
            self._timer.start()

    def advance(self, done: int) -> None:
        """So many parts are done."""
        self._display.update(done, "")

    def stop(self) -> None:
        """Take the bar away."""
        self._timer.cancel()
        if self._animated:
            self._timer.join()
        self._display.stop()


class TrainingDisplay:
    """Training as it runs: a bar on a terminal, a line at a time elsewhere. Each evaluation leaves a line."""

    def __init__(self, talk: Talk, metric: str) -> None:
        self._talk, self._metric, self._said = talk, metric, monotonic()
        state, left = bars.TextColumn("{task.fields[state]}"), bars.TimeRemainingColumn()
        columns = (bars.TextColumn("training"), bars.BarColumn(), bars.TaskProgressColumn(), state, left)
        self._bar = _bar(talk, *columns, disable=not talk.animated)
        self._task = self._bar.add_task("training", total=None, state="")
        self._bar.start()

    def on(self, progress: TrainingProgress) -> None:
        """Show the state of training."""
        parts = (
            ("loss {:.3f}", progress.loss),
            ("dev loss {:.3f}", progress.dev_loss),
            (f"dev {self._metric} {{:.1f}}", progress.dev_score),
        )
        state = ", ".join(words.format(value) for words, value in parts if value is not None)
        self._bar.update(self._task, completed=progress.update, total=progress.updates, state=state)
        evaluated = progress.dev_loss is not None
        if evaluated or (not self._talk.animated and monotonic() - self._said > 2 * LINE_EVERY):
            self._said = monotonic()
            self._talk.say(
                f"update {progress.update:,} of {progress.updates:,}, epoch {progress.epoch:.2f}: {state}"
            )

    def stop(self) -> None:
        """Take the bar away."""
        self._bar.stop()
