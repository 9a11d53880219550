"""Training as it runs: a bar with loss, dev loss and dev score on a terminal, a line at a time off one."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pipedec_cli.terminal.console import Talk

if TYPE_CHECKING:
    from pipedec_cli.model.training import Progress

#: Seconds between two lines where nothing can be redrawn.
LINE_EVERY = 20.0


class TrainingView:
    """Shows `Progress` as it comes; a context manager, so that a bar is put away whatever happens."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.bar = Bar(
            TextColumn("training"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=talk.console,
            disable=not talk.animated,
            redirect_stdout=sys.stdout.isatty(),  # data on stdout must not go to stderr
        )
        self.task = self.bar.add_task("training", total=None, state="")
        self.said = time.perf_counter()

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def show(self, progress: Progress) -> None:
        """Draw the newest state; looks at the dev set get a line that stays."""
        self.bar.update(self.task, completed=progress.step, total=progress.total, state=describe(progress))
        looked = progress.dev_loss is not None
        due = not self.talk.animated and time.perf_counter() - self.said > LINE_EVERY
        if looked or due:
            self.said = time.perf_counter()
            self.talk.say(
                f"update {progress.step:,} of {progress.total:,}, epoch {progress.epoch:.2f}: {describe(progress)}"
            )


def describe(progress: Progress) -> str:
    """Losses and score in words, those that are known."""
    parts = []
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.3f}")
    if progress.dev_loss is not None:
        parts.append(f"dev loss {progress.dev_loss:.3f}")
    if progress.dev_score is not None:
        parts.append(f"dev ROUGE-L {progress.dev_score:.1f}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
