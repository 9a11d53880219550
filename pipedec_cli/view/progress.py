"""Progress on stderr (a bar on a terminal, a line every so often off one), and the count of what was generated."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from rich import progress as bars

from pipedec_cli.pipeline.decode import Admitted, Event, Stepped
from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.view.console import Talk, many, visible

if TYPE_CHECKING:
    from pipedec_cli.data.records import Generated
    from pipedec_cli.model.training.trainer import Progress as TrainingProgress

#: Seconds between two lines where nothing can be redrawn.
LINE_EVERY: Final = 10.0
#: Seconds that short work may take without a word.
PATIENCE: Final = 2.0
#: Identifiers that a warning names.
NAMED: Final = 5
#: Texts that give a first impression.
FIRST: Final = 16

Item = TypeVar("Item")


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
    """Examples and tokens a second while texts are generated, from the first admission on; a context manager."""

    def __init__(self, talk: Talk, total: int | None) -> None:
        self.examples = self.tokens = 0  # finished ones; without <eos> in these
        self._flying: dict[int, int] = {}
        self._since: float | None = None
        self._display = _Display(talk, "generating", total, patience=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
            self.tokens += event.tokens - self._flying.pop(event.example, 0)
        self._display.update(self.examples, self.rates)

    @property
    def rates(self) -> str:
        """Examples and tokens a second, in words; nothing before there is anything to divide by."""
        seconds = 0.0 if self._since is None else monotonic() - self._since
        if seconds <= 0:
            return ""
        counts = {"examples": self.examples / seconds, "tokens": self.tokens / seconds}
        return ", ".join(f"{n:.2f} {of}/s" if n < 10 else f"{n:,.0f} {of}/s" for of, n in counts.items())


@contextmanager
def stage(talk: Talk, label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show progress of a piece of work once it has taken more than two seconds, whether or not it says how far it is.

    What is yielded may be called each time that the work got on, `total` times in all if that is known.
    """
    display, done = _Display(talk, label, total, PATIENCE), count(1)
    timer = threading.Timer(PATIENCE, display.show)
    timer.daemon = True
    if talk.animated:
        timer.start()
    try:
        yield lambda: display.update(next(done), "")
    finally:
        timer.cancel()
        if talk.animated:
            timer.join()
        display.stop()


def track(talk: Talk, iterable: Iterable[Item], total: int | None, label: str) -> Iterator[Item]:
    """The items one by one, with progress shown once it has taken more than two seconds."""
    with stage(talk, label, total) as advance:
        for item in iterable:
            yield item
            advance()


@contextmanager
def show_training(talk: Talk, metric: str = "ROUGE-L") -> Iterator[Callable[[TrainingProgress], None]]:
    """Show training as it runs: a bar on a terminal, a line at a time off one; a look at the dev set leaves a line.

    The `metric` is what its score is called.
    """
    state, left = bars.TextColumn("{task.fields[state]}"), bars.TimeRemainingColumn()
    columns = (bars.TextColumn("training"), bars.BarColumn(), bars.TaskProgressColumn(), state, left)
    bar = _bar(talk, *columns, disable=not talk.animated)
    task, said = bar.add_task("training", total=None, state=""), monotonic()

    def show(progress: TrainingProgress) -> None:
        nonlocal said
        step, total, epoch, loss, dev_loss, score = progress
        parts = (("loss {:.3f}", loss), ("dev loss {:.3f}", dev_loss), (f"dev {metric} {{:.1f}}", score))
        state = ", ".join(words.format(value) for words, value in parts if value is not None)
        bar.update(task, completed=step, total=total, state=state)
        if dev_loss is not None or (not talk.animated and monotonic() - said > 2 * LINE_EVERY):
            said = monotonic()
            talk.say(f"update {step:,} of {total:,}, epoch {epoch:.2f}: {state}")

    with bar:
        yield show


@dataclass(slots=True)
class Marked:
    """Examples that have something in common: how many, and the ids of the first few, so that memory does not grow."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, identifier: str) -> None:
        """Count one."""
        self.count += 1
        if self.count <= NAMED:
            self.first.append(identifier)

    def __add__(self, other: Marked) -> Marked:
        return Marked(self.count + other.count, [*self.first, *other.first][:NAMED])


@dataclass(slots=True)
class Tally:
    """Counts over the examples that a run has generated; those that a resumed run found done are not among them."""

    unknown_id: int | None  # the tokenizer's unknown token, if it has one
    positions: int | None = None  # that a decoder-only model was made for
    examples: int = 0
    steps: int = 0  # the examples' own decoder calls, added up
    draft_steps: int = 0  # those of them that made a draft, in exact mode
    tokens: int = 0  # without <eos>
    truncated: Counter[str] = field(default_factory=Counter)  # examples by what cut them short
    lost: int = 0  # values of objects that are null, having been cut or being none that the schema allows
    exhausted: int = 0  # examples of which empty explorations took the last of `sub_max` subsequences
    stopped_on_repeat: int = 0  # examples that ended where they began to repeat themselves
    cut: Marked = field(default_factory=Marked)  # examples whose source was cut,
    unknown: Marked = field(default_factory=Marked)  # those whose source holds unknown characters,
    beyond: Marked = field(default_factory=Marked)  # and those that went beyond the model's positions

    def add(self, generated: Generated) -> None:
        """Count one example."""
        self.examples += 1
        self.steps += generated.steps
        self.draft_steps += generated.draft_steps or 0
        self.tokens += generated.tokens
        self.lost += sum(value is None for value in (generated.fields or {}).values())
        self.exhausted += generated.row_budget_exhausted
        self.stopped_on_repeat += generated.stopped_on_repeat
        self.truncated.update(filter(None, [generated.truncated]))
        if generated.source_cut:
            self.cut.add(generated.id)
        if self.unknown_id in generated.source_ids:
            self.unknown.add(generated.id)
        if self.positions is not None:
            rows = enumerate(generated.grid)
            farthest = max((start + len(tokens) + number for number, (start, tokens) in rows), default=0)
            if len(generated.source_ids) + farthest > self.positions:
                self.beyond.add(generated.id)

    def include(self, other: Tally) -> None:
        """Count what another one has counted."""
        self.positions = other.positions
        for name in (one.name for one in fields(self) if one.name not in ("unknown_id", "positions")):
            ours, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, ours + theirs)

    def as_json(self) -> dict[str, Any]:
        """The counts as plain values."""
        return {
            "examples": self.examples,
            "steps": self.steps,
            "draft_steps": self.draft_steps,
            "tokens": self.tokens,
            "tokens_per_step": round(self.tokens / self.steps, 4) if self.steps else 0.0,
            "truncated": dict(sorted(self.truncated.items())),
            "values_lost": self.lost,
            "explorations_exhausted": self.exhausted,
            "stopped_on_repeat": self.stopped_on_repeat,
            "sources_cut": self.cut.count,
            "sources_with_unknown": self.unknown.count,
            "beyond_positions": self.beyond.count,
        }

    def warnings(self, limit: int) -> Iterator[str]:
        """What the model could not see of the sources, of which it takes so many tokens."""
        cut, hint = f"longer than {limit:,} tokens and cut", "; --max-source-tokens sets the limit"
        unknown = "with characters that the tokenizer does not know"
        beyond = (
            f"with what was written beyond the {self.positions or 0:,} positions that the model was made for"
        )
        told = ((self.cut, cut, hint), (self.beyond, beyond, hint), (self.unknown, unknown, ""))
        for marked, what, todo in told:
            if count := marked.count:
                some = f"{count:,} of {many(self.examples, 'source')} {'was' if count == 1 else 'were'}"
                yield f"{some} {what}: id {', '.join(marked.first)}{', …' if count > NAMED else ''}{todo}"

    def first_impression(self, total: int) -> str | None:
        """What is to be said while most of the work is to be done: a model that does not end its texts takes hours for nothing."""
        if self.examples != FIRST or total <= FIRST or self.truncated.total() < FIRST:
            return None
        reasons = ", ".join(sorted(self.truncated))
        return f"all of the first {FIRST} texts were cut short by {reasons}: the model may not end its texts (Ctrl-C stops)"

    def saved_none(self, costs: Sequence[float] | None) -> str | None:
        """That drafts have saved no call, if so, where calls cost so much by the guesses in them."""
        alone = self.tokens + self.examples - self.truncated.total()  # the plain model's calls
        if not self.examples or costs is None or self.steps < alone:
            return None
        if self.steps - self.draft_steps < alone:
            calls = f"{self.steps:,} calls, the drafts' {self.draft_steps:,} among them"
            alike = f"the plain model alone makes {alone:,}: the drafts are too unlike its texts"
            return f"{calls}, where {alike}; --draft source takes no calls for them"
        more = (
            f"one more guess makes a call {costs[1]:.2g} times as long here"
            if len(costs) > 1
            else "none is made"
        )
        return f"no guess has saved a decoder call: {more}; fewer examples at a time make it cheaper (--batch-size 1)"

    def lines(self, seconds: float, limits: Limits) -> Iterator[str]:
        """Counts and rates, a line each."""
        if not self.examples:
            return
        rates = f"{self.examples / seconds:.2f} examples/s, {self.tokens / seconds:,.0f} tokens/s"
        yield f"{many(self.examples, 'example')} in {seconds:.1f} s: {rates}"
        calls = f"{self.tokens:,} tokens in {self.steps:,} decoder calls, each example's own"
        drafting = f"; {self.draft_steps:,} of the calls made drafts" if self.draft_steps else ""
        yield f"{calls}: {self.tokens / max(1, self.steps):.2f} tokens a call{drafting}"
        if self.truncated:
            reasons = ", ".join(f"{times:,} by {reason}" for reason, times in sorted(self.truncated.items()))
            yield f"cut short: {reasons}, of {self.examples:,}"
        if self.stopped_on_repeat:
            yield f"{self.stopped_on_repeat:,} of {self.examples:,} began to repeat themselves: each ends there"
        if self.lost:
            yield f"{many(self.lost, 'value')} of fields null: cut short, or none that the schema allows"
        if self.exhausted:
            yield (
                f"empty explorations used up all {limits.sub_max} subsequences in {self.exhausted:,} of "
                f"{self.examples:,}: text may be missing there; see --empty-rows stop, a larger --delay or --sub-max"
            )
