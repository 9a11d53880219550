"""When each subsequence starts, in time-steps. The rest of the method holds for any start_1 ≤ start_2 and so on."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

#: Δt where none is asked for, and the one to try first: a larger one costs less
#: quality, a smaller one less time.
USUAL_DELAY: Final = 2


@dataclass(slots=True)
class Subsequence:
    """One row of the grid: <bos> at time `start`, then `tokens`, <eos> included; the j-th token at start + j.

    `known` tokens stand between <bos> and the first generated token: the last of k
    known tokens at `start`, <bos> at start − k.
    """

    start: int  # the time-step of <bos>, or of the last known token
    tokens: list[int] = field(default_factory=list)
    ended: bool = False  # the newest token is <eos>, or another token that ends it
    eos_fed: bool = (
        False  # the <eos> has gone through the decoder, or no row would see it
    )
    #: Where they are asked for, the products of its tokens' probabilities among those
    #: that are allowed, and among all.
    confidence: float = 1.0
    probability: float = 1.0
    forced: float = 0.0  # the largest share of probability that tokens had in a step which were not allowed
    known: Sequence[int] = ()
    odds: list[Any] = field(
        default_factory=list
    )  # of each token, where they are asked for
    #: The most probable beginning with an end behind it: its probability and number of
    #: tokens; −1 if ends are not noted.
    best: tuple[float, int] = (0.0, -1)
    #: Of the answers that are scored as a whole: the scores so far, the number of the
    #: best one, and the probability of "no value". −1: the row writes its answer
    #: itself.
    scores: list[float] = field(default_factory=list)
    answer: int = -1
    nothing: float = 0.0
    #: The tokens that the row is to have, if its answer is one of these and other rows
    #: see it.
    script: tuple[int, ...] = ()
    at_once: bool = False  # whether one call gave all its tokens

    @property
    def end(self) -> int | None:
        """The time of <eos>; None while the subsequence is live."""
        if not self.ended:
            return None
        return self.start + 1 if self.at_once else self.start + len(self.tokens)

    @property
    def empty(self) -> bool:
        """Whether <bos> was answered at once by <eos>: an exploration that found nothing."""
        return self.ended and len(self.tokens) == 1

    @property
    def text_tokens(self) -> list[int]:
        """The token ids without <eos>."""
        return self.tokens[:-1] if self.ended else list(self.tokens)

    @property
    def value_tokens(self) -> list[int] | None:
        """The token ids of the row's value, without its end; None if the row has no end.

        Where ends are noted (`best`), the value stops at the most probable one, else
        before <eos>.
        """
        if self.best[1] >= 0:
            return self.tokens[: self.best[1]]
        return self.text_tokens if self.ended else None

    @property
    def value_probability(self) -> float:
        """The probability of the value among all texts: of its best beginning, if ends are noted."""
        return self.best[0] if self.best[1] >= 0 else self.probability

    @property
    def value_confidence(self) -> float:
        """The probability of the `value_tokens` and their end."""
        return self.best[0] if self.best[1] >= 0 else self.confidence


class Schedule(Protocol):
    """A rule for the start times."""

    @property
    def name(self) -> str:
        """The name in settings, file names and tables."""

    def next_start(self, rows: Sequence[Subsequence]) -> int | None:
        """The start of the next subsequence, given at least one row; None if it is not known yet, or there is none."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The paper's schedule: start_i = (i − 1)·Δt."""

    delay: int

    def __post_init__(self) -> None:
        if self.delay < 1:
            raise ValueError(
                f"the delay must be at least 1 time-step, not {self.delay}"
            )

    @property
    def name(self) -> str:
        """``delay2`` for Δt = 2."""
        return f"delay{self.delay}"

    def next_start(self, rows: Sequence[Subsequence]) -> int:
        """Δt after the newest start, whether or not that subsequence has ended."""
        return rows[-1].start + self.delay


@dataclass(frozen=True, slots=True)
class Waiting:
    """A subsequence starts when the one before has ended, so that every token sees all tokens before it."""

    name: ClassVar[str] = "wait"

    def next_start(self, rows: Sequence[Subsequence]) -> int | None:
        """The time of the newest row's <eos>."""
        return rows[-1].end


@dataclass(frozen=True, slots=True)
class Whole:
    """One subsequence only: the sequential decoder, which writes the whole target as one string."""

    name: ClassVar[str] = "whole"

    def next_start(self, rows: Sequence[Subsequence]) -> None:
        """There is no next subsequence."""


@dataclass(frozen=True, slots=True)
class Together:
    """All rows start at time 0. Their number is known: one for each field."""

    name: ClassVar[str] = "together"

    def next_start(self, rows: Sequence[Subsequence]) -> int:
        """The start of the first row."""
        return rows[0].start


@dataclass(frozen=True, slots=True)
class Listed(Together):
    """As `Together`, and lists whose items have several rows each. Item 1 of a list starts at time 0 with all other rows.

    An item starts when the schedule `between` starts a subsequence after subsequences
    as long as the items before. Nothing follows an empty item, all of whose rows were
    answered by <eos> at once. A list has at most `item_max` items, the empty one that
    closes it included.
    """

    between: Fixed | Waiting
    item_max: int = 20

    @property
    def name(self) -> str:  # type: ignore[override]
        """``together-delay2`` where items start Δt = 2 time-steps apart."""
        return f"together-{self.between.name}"

    def next_item(self, items: Sequence[Sequence[Subsequence]]) -> int | None:
        """The time at which a list's next item starts; None if it is not known yet, or there is none.

        `items` has the rows of each item so far. The newest item counts as a single
        subsequence: as long as its longest row, and ended when all of its rows have.
        """
        rows = items[-1]
        longest = max(rows, key=lambda row: len(row.tokens))
        has_ended = all(row.ended for row in rows)
        newest = Subsequence(longest.start, longest.tokens, has_ended)
        if newest.empty or len(items) >= self.item_max:
            return None
        # `Fixed` and `Waiting` look at the newest subsequence alone.
        return self.between.next_start([newest])


@dataclass(frozen=True, slots=True)
class RandomStarts:
    """Row i + 1 starts `distances`[i] after row i, and at the latest when nothing is live. The last distance repeats.

    Training on these starts shows grids in which a short subsequence has long ended
    while one above it is live.
    """

    name: ClassVar[str] = "random"
    distances: tuple[float, ...]

    def next_start(self, rows: Sequence[Subsequence]) -> int | None:
        """The newest start and the distance that was drawn for it, or the end of all rows if that comes first.

        None if the distance is infinite and not all rows have ended.
        """
        distance = self.distances[min(len(rows), len(self.distances)) - 1]
        ends = [row.end for row in rows if row.end is not None]
        all_ended = max(ends) if len(ends) == len(rows) else None
        if math.isinf(distance):
            return all_ended
        start = rows[-1].start + int(distance)
        return start if all_ended is None else min(start, all_ended)


LARGEST: Final = 12  # the largest distance that is drawn
#: The distances that are drawn from: 1 to 12, and infinity, which waits. The usual
#: distances are there twice.
_DISTANCES: Final = (1, 2, *range(1, LARGEST + 1), math.inf, math.inf)
_FOR_A_BATCH: Final[tuple[Schedule, ...]] = (Waiting(), Fixed(1), Fixed(2), Fixed(3))


def draw_schedule(
    batch: random.Random, example: random.Random, subsequences: int
) -> Schedule:
    """Draw a schedule for an example of a training batch, so that one checkpoint serves every delay.

    With probability 1/8 each, the whole batch waits (each subsequence starts when the
    one before has ended) or has the delay Δt = 1, 2 or 3. Otherwise every start of
    every example is drawn. `batch` and `example` are the two random generators: the
    first one gives the same for all examples of the batch. `subsequences` is the number
    of rows of the example, the closing empty one included.
    """
    number = batch.randrange(2 * len(_FOR_A_BATCH))
    if number < len(_FOR_A_BATCH):
        return _FOR_A_BATCH[number]
    return RandomStarts(tuple(example.choices(_DISTANCES, k=max(1, subsequences))))


def place(schedule: Schedule, lengths: Sequence[int]) -> list[int]:
    """The start time of each subsequence of a training example, whose tokens are known.

    `lengths` are their numbers of tokens, <bos> and <eos> not counted. A ValueError if
    the schedule has no start for all of them.
    """
    rows: list[Subsequence] = []
    for length in lengths:
        start = schedule.next_start(rows) if rows else 0
        if start is None:
            raise ValueError(
                f"schedule {schedule.name!r} has no place for subsequence {len(rows) + 1}"
            )
        rows.append(Subsequence(start, [0] * (length + 1), ended=True))
    return [row.start for row in rows]
