"""When each subsequence starts: the schedules, which are one family.

Placement, visibility, distance and loss hold for any start_1 ≤ start_2 ≤ …; a schedule says where the next
start lies, given the subsequence before. Times are in time-steps, and <bos> of a subsequence stands at its start.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol


class Schedule(Protocol):
    """A rule for the start times."""

    @property
    def name(self) -> str:
        """How settings, file names and tables call it."""

    def next_start(self, count: int, start: int, end: int | None) -> int | None:
        """The time at which the next subsequence starts.

        Args:
            count: how many subsequences there are already, at least 1.
            start: the time of the newest one's <bos>.
            end: the time of the newest one's <eos>; None while it is live.

        Returns:
            The start time; None if it is not settled yet, or if there is never to be another.
        """


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

    def next_start(self, count: int, start: int, end: int | None) -> int:
        """Δt after the newest start, whatever has become of that subsequence."""
        return start + self.delay


@dataclass(frozen=True, slots=True)
class Sequential:
    """A subsequence starts when the one before has ended: every token sees all before it."""

    @property
    def name(self) -> str:
        """``sequential``."""
        return "sequential"

    def next_start(self, count: int, start: int, end: int | None) -> int | None:
        """The time of the newest one's <eos>."""
        return end


@dataclass(frozen=True, slots=True)
class Whole:
    """One subsequence and never another: the ordinary sequential decoder, the whole target as one string."""

    @property
    def name(self) -> str:
        """``whole``."""
        return "whole"

    def next_start(self, count: int, start: int, end: int | None) -> None:
        """There is no next one."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Every start at its own distance from the one before, at the latest when that one ends.

    Attributes:
        distances: time-steps between one start and the next; ``math.inf`` waits for the end. The last one
            serves all that follow.
    """

    distances: tuple[float, ...]

    @property
    def name(self) -> str:
        """``drawn``."""
        return "drawn"

    def next_start(self, count: int, start: int, end: int | None) -> int | None:
        """The nearer of the drawn distance and the newest one's end."""
        distance = self.distances[min(count, len(self.distances)) - 1]
        if math.isinf(distance):
            return end
        drawn = start + int(distance)
        return drawn if end is None else min(drawn, end)


DISTANCES: Final = (1, 1, 2, 3, 4, 6, 8, 10, math.inf)
PLAIN_KINDS: Final[tuple[Schedule, ...]] = (Sequential(), Fixed(1), Fixed(2), Fixed(3))


def draw_schedules(rng: random.Random, examples: int, subsequences: int) -> list[Schedule]:
    """Schedules for one training batch, so that one checkpoint serves every delay.

    With probability 1/8 each, the whole batch is sequential or has Δt = 1, 2 or 3; otherwise every start of every
    example is drawn on its own.

    Args:
        rng: where the chance comes from.
        examples: how many schedules are wanted, one an example.
        subsequences: the most subsequences that an example has, the closing empty one included.
    """
    kind = rng.randrange(2 * len(PLAIN_KINDS))
    if kind < len(PLAIN_KINDS):
        return [PLAIN_KINDS[kind]] * examples
    return [Drawn(tuple(rng.choices(DISTANCES, k=max(1, subsequences)))) for _ in range(examples)]


def place(schedule: Schedule, lengths: Sequence[int]) -> list[int]:
    """The start times of subsequences whose lengths are known, as in training.

    Args:
        schedule: the rule.
        lengths: m_i, tokens without <bos> and <eos>; the closing empty subsequence is one of length 0.

    Raises:
        ValueError: the schedule has no place for that many subsequences.
    """
    starts: list[int] = []
    for count, _ in enumerate(lengths):
        if count == 0:
            starts.append(0)
            continue
        before = starts[-1]
        following = schedule.next_start(count, before, before + lengths[count - 1] + 1)
        if following is None:
            raise ValueError(f"schedule {schedule.name!r} has no place for subsequence {count + 1}")
        starts.append(following)
    return starts
