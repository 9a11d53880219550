"""How far a job is. A job prints nothing: it sends events to a listener, and what it says to `log`. A view shows both."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

Item = TypeVar("Item")


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


@dataclass(frozen=True, slots=True, eq=False)
class Generating:
    """Decoding begins. The events of `pipeline.decode` follow, and `Ended` is the last."""

    total: int | None  # of examples; None where sources are decoded in parts
    method: str  # the decoding method in words, such as ``Δt = 2``
    decode: Callable[[Sequence[int]], str]  # token ids to text, special tokens left out
    name: Callable[[int], str]  # the heading of an example, given its number from 0
    labels: Sequence[str] = ()  # the keys of the rows of objects; () for texts
    opener: bool = True  # whether each row begins with an opener token (<bos>)
    live: bool = False  # whether the grid is to be shown


@dataclass(frozen=True, slots=True)
class Training:
    """Training begins. Events of `training.hyperparameters.TrainingProgress` follow, and `Ended` is the last."""

    metric: str  # the name of the dev score


@dataclass(frozen=True, slots=True)
class Ended:
    """A stage, decoding or training has ended, by success or by an error."""

    work: Stage | Generating | Training


#: Takes each event.
Listen = Callable[[object], None]


def silent(event: object) -> None:
    """The listener that shows nothing."""


@contextmanager
def shown(listen: Listen, work: Stage | Generating | Training) -> Iterator[None]:
    """Send an event as work begins, and `Ended` at its end."""
    listen(work)
    try:
        yield
    finally:
        listen(Ended(work))


@contextmanager
def stage(
    listen: Listen, label: str, total: int | None = None
) -> Iterator[Callable[[], None]]:
    """Show a piece of work. Call the yielded function after each of its `total` parts."""
    work = Stage(label, total)
    done = count(1)
    with shown(listen, work):
        yield lambda: listen(Advanced(work, next(done)))


def track(
    listen: Listen, items: Iterable[Item], total: int | None, label: str
) -> Iterator[Item]:
    """Yield the items, and show how many have been used."""
    with stage(listen, label, total) as advance:
        for item in items:
            yield item
            advance()
