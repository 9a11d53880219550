"""The grid: subsequences down, time-steps across. Pure integers; the state of one example's decoding.

A step has three parts: `plan` says which tokens go into the next decoder call, the caller runs the model on
them, and `commit` puts the answers in their places (Algorithm 1 of the paper, as mended in the method's text:
decoding ends when all subsequences are complete *and* the newest is empty or there may be no more).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from pipedec_cli.pipeline.schedule import Schedule, Subsequence, Whole

#: What happens after an exploration came out empty. ``retry``, the paper's rule, leaves it in the grid and goes on;
#: ``stop`` leaves it and starts no other row; ``retract`` takes it back and tries the same subsequence again.
EmptyRows = Literal["retry", "stop", "retract"]
Truncated = Literal["time_max", "sub_max", "max_tokens"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the decoding of one example; None is no bound."""

    time_max: int | None = 50  # the last time-step
    sub_max: int | None = 20  # the most subsequences that are established, empty ones included
    max_tokens: int | None = None  # the most tokens, <eos> not counted

    def __post_init__(self) -> None:
        for name in ("time_max", "sub_max", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.time_max is None and self.max_tokens is None:
            raise ValueError("decoding needs a bound: time_max or max_tokens")


#: The bounds of the plain model and of the schedule that waits: tokens only.
SEQUENTIAL_LIMITS = Limits(time_max=None, sub_max=None, max_tokens=512)


class Slot(NamedTuple):
    """One token in its place; subsequences are counted from 1."""

    subsequence: int
    time: int
    token: int
    #: False for the <eos> of an ended subsequence, fed once for later tokens to see, and before the last known token.
    answers: bool = True
    allowed: Sequence[int] = ()  # the tokens that the answer is chosen from, rising; any, if there are none


class Opening(NamedTuple):
    """How a row begins that is known to come: with tokens behind <bos>, such as a key's.

    `allowed` says which tokens may follow those that the row has made, <eos> among them, rising; () is any.
    """

    known: tuple[int, ...]
    allowed: Callable[[Sequence[int]], Sequence[int]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class Step:
    """What one decoder call, the example's `number`-th, did: tokens that were fed and those made, by subsequence."""

    number: int
    time: int  # the time-step t of the call, at which the new tokens stand
    fed: tuple[Slot, ...]
    made: tuple[Slot, ...]
    taken_back: tuple[Slot, ...] = ()  # the last ones of those fed, which nothing later is to see


@dataclass(slots=True)
class Grid:
    """The subsequences of one example, and the clock. It starts with nothing established, at time 0.

    `subsequences` are those established, empty ones included but for those taken back, which are counted; `time` is that
    of the newest tokens, `steps` counts decoder calls; `stopped_on_repeat` is whether rows were dropped with which the text
    repeated itself, which only `stop_on_repeat` does. Under ``retract``, an attempt made while something is live is kept only if its first token has at least the probability `min_start_prob`. Where there are `openings`, there is a row for each
    and no other: nothing is explored, and sub_max does not apply.
    """

    schedule: Schedule
    limits: Limits
    empty_rows: EmptyRows
    stop_on_repeat: bool = field(default=False, kw_only=True)
    bos: int = field(kw_only=True)
    eos: int = field(kw_only=True)
    min_start_prob: float = field(default=0.0, kw_only=True)
    openings: Sequence[Opening] = field(default=(), kw_only=True)
    subsequences: list[Subsequence] = field(default_factory=list, init=False)
    time: int = field(default=0, init=False)
    steps: int = field(default=0, init=False)
    taken_back: int = field(default=0, init=False)
    stopped_on_repeat: bool = field(default=False, init=False)
    _planned: tuple[Slot, ...] = field(default=(), init=False)
    _alone: bool = field(
        default=False, init=False
    )  # the newest subsequence was established while nothing was live
    _tried: int = field(default=-1, init=False)  # when a subsequence was last tried and taken back
    _over: bool = field(
        default=False, init=False
    )  # such an attempt, made while nothing was live, came out empty

    def __post_init__(self) -> None:
        if self.empty_rows == "retract" and isinstance(self.schedule, Whole):
            raise ValueError("the whole text is one subsequence, and no other is ever tried")
        if self.empty_rows == "retract" and self.openings:
            raise ValueError("rows that are known to come are no attempts, to be taken back")
        if self.stop_on_repeat and self.openings:
            raise ValueError("rows that are known to come may well say the same")
        if self.min_start_prob and self.empty_rows != "retract":
            raise ValueError(
                f"min_start_prob needs attempts that can be taken back, which {self.empty_rows!r} does not"
            )

    @property
    def live(self) -> list[Subsequence]:
        """The established subsequences that have not ended."""
        return [subsequence for subsequence in self.subsequences if not subsequence.ended]

    @property
    def tokens(self) -> int:
        """Tokens made so far, <eos> not counted."""
        return sum(len(subsequence.tokens) - subsequence.ended for subsequence in self.subsequences)

    @property
    def empty(self) -> int:
        """Explorations that came to nothing."""
        if self.openings:
            return 0
        return self.taken_back + sum(row.empty for row in self.subsequences)

    @property
    def truncated(self) -> Truncated | None:
        """What cut the text short, once `plan` has returned nothing."""
        if self.live:
            return "max_tokens" if self._out_of_tokens else "time_max"
        explored = not (self.openings or isinstance(self.schedule, Whole) or self.stopped_on_repeat)
        stood = len(self.subsequences) == self.limits.sub_max and explored
        if stood and not self.subsequences[-1].empty:
            return "sub_max"
        return (
            "time_max"
            if self.empty_rows == "retract" and not (self._over or self.stopped_on_repeat)
            else None
        )

    @property
    def row_budget_exhausted(self) -> bool:
        """Whether empty explorations had, in the end, taken up places of sub_max when another one was due."""
        rows = self.subsequences
        if (
            self.empty_rows != "retry"
            or len(rows) != self.limits.sub_max
            or not any(row.empty for row in rows)
        ):
            return False
        due = self.schedule.next_start(rows)
        end = max(row.start + len(row.tokens) for row in rows)
        return due is not None and (due < end or self.truncated == "sub_max")

    def plan(self) -> tuple[Slot, ...]:
        """Establish what is due and say which tokens go into the next decoder call; none once decoding has ended.

        They come by subsequence: the newest token of each live one, <bos> with all known tokens behind it in a row's first
        call, and, once each, the <eos> of those that have ended since the last call. While nothing is live the clock runs on to the next establishing time without a call.
        """
        self._planned = ()
        while not (self._out_of_tokens or self.time >= (self.limits.time_max or math.inf)):
            while (following := self._next_start()) is not None and following <= self.time:
                self._alone = not self.live
                self.subsequences.append(self._established(following))
            if self.live:
                self._planned = tuple(
                    slot
                    for number, row in enumerate(self.subsequences, start=1)
                    if not row.eos_fed
                    for slot in self._slots(number, row)
                )
                break
            if following is None:
                break
            self.time = following
        return self._planned

    def _established(self, start: int) -> Subsequence:
        known = self.openings[len(self.subsequences)].known if self.openings else ()
        return Subsequence(start, known=known)

    def _slots(self, number: int, row: Subsequence) -> Iterator[Slot]:
        """What a row has that has not gone through the decoder; the last of it asks for the next token."""
        time, live = row.start + len(row.tokens), not row.ended
        if row.tokens:
            last = row.tokens[-1]
        else:
            *before, last = self.bos, *row.known
            for earlier, token in enumerate(before, start=time - len(before)):
                yield Slot(number, earlier, token, answers=False)
        allowed = self.openings[number - 1].allowed(row.tokens) if self.openings and live else ()
        yield Slot(number, time, last, live, allowed)

    def commit(self, answers: Sequence[int], probabilities: Sequence[float] = ()) -> Step:
        """Put the answer to each planned row, a token id, in its place and let the clock tick; some rows ignore theirs.

        Their probabilities are needed where `min_start_prob` is not 0. The row of an attempt that is taken back was the last
        of those planned.
        """
        if len(answers) != len(self._planned) or not self._planned:
            raise ValueError(f"{len(answers)} answers to {len(self._planned)} planned rows")
        if self.min_start_prob and len(probabilities) != len(answers):
            raise ValueError(f"{len(probabilities)} probabilities of {len(answers)} answers")
        self.time += 1
        self.steps += 1
        made: list[Slot] = []
        for slot, token in zip(self._planned, answers, strict=True):
            subsequence = self.subsequences[slot.subsequence - 1]
            if not slot.answers:
                subsequence.eos_fed = subsequence.ended  # a known token's row has not begun to answer
                continue
            subsequence.tokens.append(token)
            subsequence.ended = token == self.eos
            made.append(Slot(slot.subsequence, self.time, token))
        certain = not self.min_start_prob or probabilities[-1] >= self.min_start_prob
        gone: tuple[Slot, ...] = ()
        if self.empty_rows == "retract" and self._take_back(certain=certain):
            made.pop()
            gone = self._planned[-1:]
        if self.stop_on_repeat and any(slot.token == self.eos for slot in made):
            self._stop_at_repeat()
        step = Step(self.steps, self.time, self._planned, tuple(made), gone)
        self._planned = ()
        return step

    def _take_back(self, *, certain: bool) -> bool:
        """Take the newest subsequence back if it was an attempt, and came to nothing."""
        newest = self.subsequences[-1]
        if len(newest.tokens) != 1 or not (newest.empty or not (certain or self._alone)):
            return False
        self._over, self._tried = self._alone, newest.start
        self.taken_back += 1
        self.subsequences.pop()
        return True

    def _stop_at_repeat(self) -> None:
        """Drop the rows from where the text begins to repeat itself. No row sees a later one: they leave no trace."""
        rows = [tuple(row.tokens) if row.ended and not row.empty else None for row in self.subsequences]
        if (kept := before_repeats(rows)) < len(rows):
            del self.subsequences[kept:]
            self.stopped_on_repeat = True

    @property
    def _out_of_tokens(self) -> bool:
        return self.limits.max_tokens is not None and self.tokens >= self.limits.max_tokens

    def _next_start(self) -> int | None:
        """When the next subsequence is to be established; None if not known yet or never."""
        most = len(self.openings) or self.limits.sub_max
        if len(self.subsequences) == most or self._over or self.stopped_on_repeat:
            return None
        if not self.subsequences:
            return 0
        if self.openings:
            return self.schedule.next_start(self.subsequences)
        if self.empty_rows == "retract":
            return self._next_attempt()
        over = self.subsequences[-1].empty and (self.empty_rows != "retry" or not self.live)
        return None if over else self.schedule.next_start(self.subsequences)

    def _next_attempt(self) -> int | None:
        """At once when nothing is live, else as the schedule says, counted from the last attempt."""
        if not self.live:
            return self.time
        *before, newest = self.subsequences
        return self.schedule.next_start(
            [*before, newest if newest.start > self._tried else Subsequence(self._tried)]
        )


def before_repeats(subsequences: Sequence[Hashable]) -> int:
    """How many subsequences of a text stand before it repeats itself: one comes again at once, or two in a row do.

    One by itself may well be said of another thing. None stands for one that is empty, or not known to its end.
    """
    had = set[tuple[Hashable, Hashable]]()
    for number, pair in enumerate(pairwise(subsequences), start=1):
        if None not in pair:
            if pair in had or pair[0] == pair[1]:
                return number - (pair in had)
            had.add(pair)
    return len(subsequences)


def replay(
    lengths: Sequence[int], schedule: Schedule, limits: Limits | None = None, empty_rows: EmptyRows = "retry"
) -> Grid:
    """The grid of a text that is known beforehand, whose subsequences have m_i ≥ 1 tokens, <bos> and <eos> not counted.

    Each established subsequence is answered with the next text; `Whole` takes the text as one. The limits are the
    paper's by default.
    """
    word, bos, eos = 2, 0, 1
    wanted = dict(enumerate([sum(lengths)] if isinstance(schedule, Whole) else lengths, start=1))
    grid = Grid(schedule, limits or Limits(), empty_rows, bos=bos, eos=eos)
    while rows := grid.plan():
        made = {number: len(row.tokens) for number, row in enumerate(grid.subsequences, start=1)}
        numbers = [slot.subsequence for slot in rows]
        grid.commit([word if made[number] < wanted.get(number, 0) else eos for number in numbers])
    return grid
