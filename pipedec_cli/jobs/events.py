"""What a job says while it works. A job prints nothing: it sends events to a listener, and a view shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Message:
    """One line for the person who runs the job. A warning is shown even when the view is quiet."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A piece of work begins. `total` is the number of its parts, None if it is not known."""

    label: str
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Advanced:
    """So many parts of a stage are done."""

    stage: Stage
    done: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A stage has ended, by success or by an error."""

    stage: Stage


@dataclass(frozen=True, slots=True, eq=False)
class Generating:
    """Decoding begins. The events of `pipeline.decode` follow, and `GenerationEnded` is the last."""

    total: int | None  # None where sources are decoded in parts
    method: str  # the decoding method in words, such as ``Δt = 2``
    decode: Callable[[Sequence[int]], str]  # token ids to text, special tokens left out
    name: Callable[[int], str]  # the heading of an example, given its index
    labels: Sequence[str] = ()  # the keys of the rows, at level field
    opener: bool = True  # whether each row begins with an opener token (<bos>)
    live: bool = False  # whether the grid is to be shown


@dataclass(frozen=True, slots=True)
class GenerationEnded:
    """Decoding has ended, by success or by an error."""


@dataclass(frozen=True, slots=True)
class Training:
    """Training begins. Events of `model.training.result.TrainingProgress` follow, and `TrainingEnded` is the last."""

    metric: str  # the name of the dev score


@dataclass(frozen=True, slots=True)
class TrainingEnded:
    """Training has ended, by success or by an error."""


class Notify:
    """How a job speaks to its listener. Without a listener it speaks to nobody."""

    def __init__(self, listener: Callable[[Any], None] | None = None) -> None:
        self._listener, self._warned = listener, set[str]()

    def __call__(self, event: object) -> None:
        """Send one event."""
        if self._listener is not None:
            self._listener(event)

    def say(self, text: str) -> None:
        """Send one line of progress."""
        self(Message(text))

    def warn(self, text: str) -> None:
        """Send one warning; nothing if it was sent before."""
        if text not in self._warned:
            self._warned.add(text)
            self(Message(text, warning=True))

    @contextmanager
    def stage(self, label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        """Tell of a piece of work. Call the yielded function after each of its `total` parts."""
        stage, done = Stage(label, total), count(1)
        self(stage)
        try:
            yield lambda: self(Advanced(stage, next(done)))
        finally:
            self(Ended(stage))

    def track(self, items: Iterable[Item], total: int | None, label: str) -> Iterator[Item]:
        """Yield the items, and tell of each."""
        with self.stage(label, total) as advance:
            for item in items:
                yield item
                advance()
