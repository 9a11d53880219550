"""Progress on stderr: a bar on a terminal, a plain line every so often off one, nothing under ``--quiet``."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pipedec_cli.pipeline.decode import Admitted, Event, Stepped
from pipedec_cli.terminal.console import Talk, visible

if TYPE_CHECKING:
    from pipedec_cli.model.training import Progress as TrainingProgress

#: Seconds between two lines where nothing can be redrawn.
LINE_EVERY: Final = 10.0
#: Seconds that short work may take without a word.
PATIENCE: Final = 2.0

Item = TypeVar("Item")
Clock = Callable[[], float]


class _Display:
    """How far some work has come, on whatever stderr is."""

    def __init__(self, talk: Talk, label: str, total: int | None, *, patience: float, clock: Clock) -> None:
        self.talk = talk
        self.label = visible(label)
        self.total = total
        self.clock = clock
        self.since = clock()
        self.line_due = self.since + LINE_EVERY
        self.bar_due = self.since + patience
        self.bar: Progress | None = None
        self._lock = threading.Lock()  # a stage shows its bar from a timer's thread

    def update(self, done: int, state: str) -> None:
        if self.talk.animated:
            self._draw(done, state)
        elif self.clock() >= self.line_due:
            self.line_due = self.clock() + LINE_EVERY
            of = f" of {self.total:,}" if self.total is not None else ""
            self.talk.say(f"{self.label}: {done:,}{of}" + (f", {state}" if state else ""))

    def show(self) -> None:
        """Put the bar on the screen, if it is not there yet."""
        with self._lock:
            if self.bar is None:
                self.bar = self._make_bar()
                self.bar.start()

    def stop(self) -> None:
        if self.bar:
            self.bar.stop()

    def _draw(self, done: int, state: str) -> None:
        if self.bar is None and self.clock() >= self.bar_due:
            self.show()
        if self.bar is not None:
            count = f"{done:,}" if self.total is None else ""
            self.bar.update(self.bar.task_ids[0], completed=done, state=state, count=count)

    def _make_bar(self) -> Progress:
        known = self.total is not None
        measure = (
            [BarColumn(bar_width=None), MofNCompleteColumn()]
            if known
            else [TextColumn("{task.fields[count]}")]
        )
        bar = Progress(
            *([] if known else [SpinnerColumn()]),
            TextColumn("{task.description}", markup=False),
            *measure,
            TextColumn("{task.fields[state]}", style="dim", markup=False),
            TimeRemainingColumn(compact=True) if known else TimeElapsedColumn(),
            console=self.talk.console,
            transient=True,
            refresh_per_second=8,
            # Data on stdout must never be led to stderr; only where both are one screen may Rich keep them apart.
            redirect_stdout=sys.stdout.isatty(),
        )
        bar.add_task(self.label, total=self.total, state="", count="")
        return bar


class GenerationProgress:
    """Examples and tokens a second while texts are generated, from the first admission on; a context manager.

    Attributes:
        examples: finished so far.
        tokens: made so far, <eos> not counted in finished examples.
    """

    def __init__(
        self,
        talk: Talk,
        total: int | None,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        """Show nothing yet.

        Args:
            talk: where to.
            total: how many examples there are to be; None if not known.
            clock: seconds.
        """
        self.examples = 0
        self.tokens = 0
        self._flying: dict[int, int] = {}
        self._clock = clock
        self._since: float | None = None
        self._display = _Display(talk, "generating", total, patience=0.0, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop()

    def on(self, event: Event) -> None:
        """Take in an event of the decoding loop."""
        if self._since is None:
            self._since = self._clock()
        if isinstance(event, Admitted):
            self._flying[event.example] = 0
        elif isinstance(event, Stepped):
            self._flying[event.example] += len(event.step.made)
            self.tokens += len(event.step.made)
        else:
            self.examples += 1
            # an <eos> was counted like any token when it was made
            self.tokens += event.tokens - self._flying.pop(event.example, 0)
        self._display.update(self.examples, self.rates)

    @property
    def seconds(self) -> float:
        """Since the first event."""
        return 0.0 if self._since is None else self._clock() - self._since

    @property
    def rates(self) -> str:
        """Examples and tokens a second, in words; nothing before there is anything to divide by."""
        seconds = self.seconds
        if seconds <= 0:
            return ""
        return f"{_rate(self.examples / seconds)} examples/s, {_rate(self.tokens / seconds)} tokens/s"


@contextmanager
def stage(
    talk: Talk, label: str, total: int | None = None, *, clock: Clock = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Progress of a piece of work, shown once it has taken more than two seconds, whether or not it says how far it is.

    Args:
        talk: where to.
        label: what is being done.
        total: how many times the work will say that it got on; None if that is not known.
        clock: seconds.

    Yields:
        What to call each time that it did.
    """
    display = _Display(talk, label, total, patience=PATIENCE, clock=clock)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        display.update(done, "")

    timer = threading.Timer(PATIENCE, display.show)
    timer.daemon = True
    if talk.animated:
        timer.start()
    try:
        yield advance
    finally:
        timer.cancel()
        if talk.animated:
            timer.join()
        display.stop()


def track(
    talk: Talk,
    iterable: Iterable[Item],
    total: int | None,
    label: str,
    *,
    clock: Clock = time.monotonic,
) -> Iterator[Item]:
    """The items one by one, with progress shown once it has taken more than two seconds.

    Args:
        talk: where to.
        iterable: the work.
        total: how many items there are; None if not known.
        label: what is being done.
        clock: seconds.

    Yields:
        The items as they come.
    """
    with stage(talk, label, total, clock=clock) as advance:
        for item in iterable:
            yield item
            advance()


def _rate(number: float) -> str:
    """Three figures or so."""
    return f"{number:.2f}" if number < 10 else f"{number:,.0f}"


@contextmanager
def show_training(talk: Talk) -> Iterator[Callable[[TrainingProgress], None]]:
    """Show training as it runs: a bar on a terminal, a line at a time off one; a look at the dev set leaves a line."""
    bar = Progress(
        TextColumn("training"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
        console=talk.console,
        disable=not talk.animated,
        redirect_stdout=sys.stdout.isatty(),  # data on stdout must not go to stderr
    )
    task = bar.add_task("training", total=None, state="")
    said = time.perf_counter()

    def show(progress: TrainingProgress) -> None:
        nonlocal said
        step, total, looked = progress.step, progress.total, progress.dev_loss is not None
        known = (("loss", progress.loss), ("dev loss", progress.dev_loss))
        parts = [f"{name} {loss:.3f}" for name, loss in known if loss is not None]
        parts += [] if progress.dev_score is None else [f"dev ROUGE-L {progress.dev_score:.1f}"]
        state = ", ".join(parts)
        bar.update(task, completed=step, total=total, state=state)
        if looked or (not talk.animated and time.perf_counter() - said > 2 * LINE_EVERY):
            said = time.perf_counter()
            talk.say(f"update {step:,} of {total:,}, epoch {progress.epoch:.2f}: {state}")

    with bar:
        yield show
