"""When each subsequence starts, in time-steps. All else holds for any start_1 ≤ start_2 ≤ …, where the <bos> stand."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol


@dataclass(slots=True)
class Subsequence:
    """One row of the grid: <bos> at time `start`, then `tokens`, <eos> included; the j-th one stands at start + j.

    Tokens that are `known` beforehand stand between: the last of them at `start`, <bos> so much before it.
    """

    start: int
    tokens: list[int] = field(default_factory=list)
    ended: bool = False  # the newest token is <eos>
    eos_fed: bool = False  # and has gone through the decoder
    known: Sequence[int] = ()

    @property
    def end(self) -> int | None:
        """The time of its <eos>; None while live."""
        return self.start + len(self.tokens) if self.ended else None

    @property
    def empty(self) -> bool:
        """Whether it is a failed exploration: <bos> answered at once by <eos>."""
        return self.ended and len(self.tokens) == 1

    @property
    def text_tokens(self) -> list[int]:
        """The ids without <eos>."""
        return self.tokens[:-1] if self.ended else list(self.tokens)


class Schedule(Protocol):
    """A rule for the start times."""

    @property
    def name(self) -> str:
        """How settings, file names and tables call it."""

    def next_start(self, rows: Sequence[Subsequence]) -> int | None:
        """When the next subsequence starts, given those there are, at least one; None: not settled yet, or never."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The paper's schedule: start_i = (i − 1)·Δt."""

    delay: int

    def __post_init__(self) -> None:
        if self.delay < 1:
            raise ValueError(f"the delay must be at least 1 time-step, not {self.delay}")

    @property
    def name(self) -> str:
        """``delay2`` for Δt = 2."""
        return f"delay{self.delay}"

    def next_start(self, rows: Sequence[Subsequence]) -> int:
        """Δt after the newest start, whatever has become of that subsequence."""
        return rows[-1].start + self.delay


@dataclass(frozen=True, slots=True)
class Waiting:
    """A subsequence starts when the one before has ended: every token sees all before it."""

    name: ClassVar[str] = "wait"

    def next_start(self, rows: Sequence[Subsequence]) -> int | None:
        """The time of the newest one's <eos>."""
        return rows[-1].end


@dataclass(frozen=True, slots=True)
class Whole:
    """One subsequence and never another: the ordinary sequential decoder, the whole target as one string."""

    name: ClassVar[str] = "whole"

    def next_start(self, rows: Sequence[Subsequence]) -> None:
        """There is no next one."""


@dataclass(frozen=True, slots=True)
class Together:
    """All start at once: their number is known, and the source decides what each says."""

    name: ClassVar[str] = "together"

    def next_start(self, rows: Sequence[Subsequence]) -> int:
        """With the first one."""
        return rows[0].start


@dataclass(frozen=True, slots=True)
class Drawn:
    """Every start at its own distance from the one before, at the latest when nothing is live; the last one repeats.

    So grids are met in which a short subsequence has long ended while one above it is live, as attempts that were taken
    back leave them.
    """

    name: ClassVar[str] = "drawn"
    distances: tuple[float, ...]

    def next_start(self, rows: Sequence[Subsequence]) -> int | None:
        """The nearer of the drawn distance and the last one's end."""
        distance = self.distances[min(len(rows), len(self.distances)) - 1]
        ends = [row.end for row in rows if row.end is not None]
        last = max(ends) if len(ends) == len(rows) else None
        if math.isinf(distance):
            return last
        drawn = rows[-1].start + int(distance)
        return drawn if last is None else min(drawn, last)


#: Every distance at which a subsequence may be tried, and waiting; what is usual comes twice.
DISTANCES: Final = (1, 2, *range(1, 13), math.inf, math.inf)
PLAIN_KINDS: Final[tuple[Schedule, ...]] = (Waiting(), Fixed(1), Fixed(2), Fixed(3))


def draw_schedule(batch: random.Random, example: random.Random, subsequences: int) -> Schedule:
    """A schedule for an example of a training batch, so that one checkpoint serves every delay.

    With probability 1/8 each, the whole batch waits or has Δt = 1, 2 or 3; otherwise every start of every example is
    drawn on its own. What is drawn for all comes out of `batch`, the rest out of `example`, which has at most so many
    subsequences, the closing empty one included.
    """
    kind = batch.randrange(2 * len(PLAIN_KINDS))
    if kind < len(PLAIN_KINDS):
        return PLAIN_KINDS[kind]
    return Drawn(tuple(example.choices(DISTANCES, k=max(1, subsequences))))


def place(schedule: Schedule, lengths: Sequence[int]) -> list[int]:
    """The start times of subsequences with m_i tokens, <bos> and <eos> not counted, as in training."""
    rows: list[Subsequence] = []
    for length in lengths:
        start = schedule.next_start(rows) if rows else 0
        if start is None:
            raise ValueError(f"schedule {schedule.name!r} has no place for subsequence {len(rows) + 1}")
        rows.append(Subsequence(start, [0] * (length + 1), ended=True))
    return [row.start for row in rows]
