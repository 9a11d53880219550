"""The grid of one example: subsequences down, time-steps across. Integers only; no model.

A step has three parts: `plan` says which tokens go into the next decoder call, the
caller runs the model on them, and `commit` puts the answers in their places (Algorithm
1 of the paper, with one change: decoding ends when all subsequences are complete *and*
the newest is empty or there may be no more).
"""

from __future__ import annotations

import math
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, ClassVar, Final, Literal, NamedTuple

from pipedec_cli.pipeline.answers import (
    WRITTEN,
    Answer,
    Trial,
    Tried,
    due_of,
    judge,
    probabilities,
    score,
    trials_of,
)
from pipedec_cli.pipeline.schedule import Listed, Schedule, Subsequence, Whole


def before_repeats(subsequences: Sequence[Hashable]) -> int:
    """How many subsequences of a text stand before it repeats itself; all of them if it never does.

    It repeats itself where a subsequence is followed by its equal (A A: the first one
    stays), or where a pair of neighbours comes a second time (A B … A B: the second
    pair goes). A single subsequence that comes again later may be said of another
    thing. A subsequence is anything that can be compared; None stands for one that is
    empty or not finished, and equals nothing.
    """
    seen = set[tuple[Hashable, Hashable]]()
    for before_second, pair in enumerate(pairwise(subsequences), start=1):
        if None in pair:
            continue
        if pair in seen:
            return before_second - 1
        if pair[0] == pair[1]:
            return before_second
        seen.add(pair)
    return len(subsequences)


#: What happens after an exploration came out empty. ``retry``, the paper's rule, goes
#: on; ``stop`` starts no other row.
EmptyRows = Literal["retry", "stop"]
Truncated = Literal["time_max", "sub_max", "max_tokens", "item_max"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the decoding of one example; None is no bound."""

    time_max: int | None = 50  # the last time-step
    sub_max: int | None = (
        20  # the most subsequences that are established, empty ones included
    )
    max_tokens: int | None = None  # the most tokens, <eos> not counted

    def __post_init__(self) -> None:
        for name in ("time_max", "sub_max", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.time_max is None and self.max_tokens is None:
            raise ValueError("decoding needs a bound: time_max or max_tokens")


#: The bounds of the sequential decoder and of the schedule that waits: tokens only.
SEQUENTIAL_LIMITS = Limits(time_max=None, sub_max=None, max_tokens=512)


#: The tokens that may follow those that a row has made, <eos> among them, as a bit
#: mask: token t is bit t % 8 of byte t // 8. At least one bit is set. b"" is any token.
Allowed = Callable[[Sequence[int]], bytes]


def any_token(_: Sequence[int]) -> bytes:
    """Allows every token."""
    return b""


def mask_of(tokens: Collection[int]) -> bytes:
    """The bit mask of token ids: token t is bit t % 8 of byte t // 8, as `Allowed` functions return it."""
    return sum(1 << token for token in {*tokens}).to_bytes(
        max(tokens, default=-1) // 8 + 1, "little"
    )


@dataclass(frozen=True, slots=True)
class Opening:
    """How a row begins that is known beforehand: with `known` tokens behind <bos>, such as the key of a field."""

    known: tuple[int, ...]
    allowed: Allowed = any_token
    place: Any = ()  # what its answer is for, such as the path of a field
    label: str = ""
    #: The token that ends it, if the text may end in any place and the most probable
    #: one is chosen; −1 if the row ends itself.
    end: int = -1
    #: How the rows begin that start when this row has ended, since its answer says
    #: which there are.
    opens: Callable[[Opening, Subsequence], Sequence[Opening]] | None = None
    #: Answers that are scored as a whole. The row takes the best one, unless it is
    #: `written`: then it writes an answer itself, and its known answer is "no value"
    #: alone.
    answers: tuple[Answer, ...] = ()
    written: bool = True
    #: The least confidence of a value, if one is known. Else a value counts if it is
    #: more probable than "no value". A row that `must` have a value has the best one in
    #: any case.
    least: float | None = None
    must: bool = False
    #: What the scores of its answers are divided by.
    temperature: float = 1.0

    @property
    def chooses(self) -> bool:
        """Whether the row takes one of its known answers, and writes none itself."""
        return bool(self.answers) and not self.written

    def probabilities(self, row: Subsequence) -> dict[str, float]:
        """How probable each of the answers is by its meaning, "" being no value; {} unless the row has taken one."""
        if not self.chooses or len(row.scores) < len(self.answers):
            return {}
        shares = probabilities(self.answers, row.scores, self.temperature)
        meanings = [answer.text for answer in self.answers]
        return dict(zip(meanings, shares, strict=True))

    def absence(self, row: Subsequence) -> float:
        """The probability of "no value" as a share of its own and that of the row's value together, from 0 to 1.

        0 if "no value" is none of the answers.
        """
        if not row.nothing:
            return 0.0
        return row.nothing / (row.nothing + row.value_probability)

    def lacks(self, row: Subsequence) -> bool:
        """Whether a row with this opening says that there is no value: it is too unsure of the one it has."""
        if self.least is not None:
            return row.value_confidence < self.least
        return self.absence(row) > _EVEN

    def is_hopeless(self, row: Subsequence) -> bool:
        """Whether a row will say that there is no value, whatever it still writes: it can only become less probable."""
        if self.must or not self.answers:
            return False
        most = max(row.best[0], row.probability)
        if self.least is not None:
            return most < self.least
        return row.nothing > most

    def text(self, row: Subsequence) -> str:
        """What the known answer means that a row has taken; "" if it has taken none, or stands for no value."""
        if row.answer < 0 or (self.lacks(row) and not self.must):
            return ""
        return self.answers[row.answer].text


#: "No value" is chosen if its share of the probability is above this, where no least
#: confidence was fitted.
_EVEN: Final = 0.5


#: How all rows begin of which nothing is known: with no known tokens. It is made once,
#: since it is asked for at every token.
_FREE: Final = Opening(())


@dataclass(frozen=True, slots=True)
class ItemRows:
    """A list whose items follow each other; see `Listed`."""

    places: tuple[int, ...]  # of the rows of its first item in `Method.openings`
    openings: Callable[
        [int], Sequence[Opening]
    ]  # how the rows of an item begin, by its number from 1


@dataclass(frozen=True, slots=True)
class Method:
    """How to decode: everything but the model and the sources.

    Without a `bos` the source's last token opens the only row, as a decoder-only model
    goes on behind its prompt. With `openings` nothing is explored: each opening makes a
    row. Later come the rows of `lists`, and those that a row opens when it ends. At
    sub_max rows no more are opened. A ValueError where settings do not go together.
    """

    schedule: Schedule
    bos: int | None  # opens a subsequence: it stands before its first token
    eos: int  # ends it
    limits: Limits = field(default_factory=Limits)
    empty_rows: EmptyRows = "retry"
    stop_on_repeat: bool = (
        False  # a text ends where it begins to repeat itself; see `before_repeats`
    )
    openings: tuple[Opening, ...] = ()
    #: Blind rows: each sees the prompt and itself alone, and has its known tokens right
    #: behind the prompt, without <bos>.
    blind: bool = False
    free: Opening = _FREE  # how a row without an opening begins, and what it may say
    ends: frozenset[int] = frozenset()  # other tokens that end a subsequence
    confident: bool = False  # whether the probabilities of all answers are wanted
    top: int = 0  # so many of the most probable tokens are wanted with each answer; rows keep their `odds` then
    lists: tuple[ItemRows, ...] = ()
    #: This method for a source, if rows are held to what the source says; and the
    #: source of such a method.
    of_source: Callable[[Method, str], Method] | None = None
    source: str = ""
    guesses: ClassVar[bool] = False  # whether a call may make several tokens of a row

    def __post_init__(self) -> None:
        if self.blind and not all(opening.known for opening in self.openings):
            raise ValueError("a blind row begins with a known token")
        if self.stop_on_repeat and self.openings:
            raise ValueError("rows of a known number may say the same")

    def new_grid(self, example: int = 0, source: Sequence[int] = ()) -> Grid:
        """The grid of an example, with nothing established."""
        return Grid(self, split_opener(self.bos, source)[1])


def split_opener(bos: int | None, source: Sequence[int]) -> tuple[Sequence[int], int]:
    """The ids of a source that stand before the grid, and the token that opens a subsequence (its <bos>).

    A decoder-only model that goes on behind its prompt has no `bos`: there the source's
    last token is the opener, and the rest stands before the grid.
    """
    if bos is None:
        return source[:-1], source[-1]
    return source, bos


class Slot(NamedTuple):
    """One token in its place; subsequences are counted from 1.

    A NamedTuple, because a frozen dataclass takes 4 times as long to make: 2 µs more,
    several times a call of 11 µs.
    """

    subsequence: int
    time: int
    token: int
    #: False for the <eos> of an ended subsequence, which is fed once for later tokens
    #: to see, and for all known tokens but the last.
    answers: bool = True
    allowed: bytes = b""  # the tokens that the answer is chosen from; see `Allowed`
    number: int = -1  # in a blind row: the tokens before it in the row
    end: int = -1  # the token whose probability is wanted, too; see `Opening`
    branch: int = 0  # of its row; see `answers.branched`
    lift: int = 0  # by so many time-steps other tokens see it later
    others: tuple[int, ...] = ()  # more tokens whose probabilities are wanted


class Odds(NamedTuple):
    """Of a row: the probabilities of its answer and of its slot's `end` among the tokens that are allowed, and theirs in all."""

    answer: float = 1.0
    end: float = 0.0
    allowed: float = 1.0
    #: The most probable tokens of all, with the logarithms of their probabilities.
    top: Sequence[tuple[int, float]] = ()
    others: Sequence[float] = ()  # the probabilities of the slot's `others`


@dataclass(frozen=True, slots=True)
class Step:
    """One decoder call, the example's `number`-th: the tokens that were fed and made, by subsequence."""

    number: int
    time: int  # the time-step t of the call, at which the new tokens stand
    fed: tuple[Slot, ...]
    made: tuple[Slot, ...]
    taken_back: tuple[
        Slot, ...
    ] = ()  # in exact mode, the wrong guesses: the last of the fed tokens
    tried: int = 0  # tokens of known answers that went through the decoder behind `fed`, and are forgotten


@dataclass(slots=True)
class Grid:
    """The subsequences of one example, and the clock. It starts with nothing established, at time 0."""

    method: Method
    bos: int
    subsequences: list[Subsequence] = field(default_factory=list, init=False)
    time: int = field(default=0, init=False)  # of the newest tokens
    steps: int = field(default=0, init=False)  # decoder calls
    cached: int = field(
        default=0, init=False
    )  # tokens of the source that need not be read
    stopped_on_repeat: bool = field(
        default=False, init=False
    )  # rows that repeat others were dropped
    #: How each subsequence begins, where that is known; else the list stays empty.
    openings: list[Opening] = field(default_factory=list, init=False)
    #: The rows of each item of each list, by list, item and leaf.
    _items: list[list[list[Subsequence]]] = field(default_factory=list, init=False)
    #: The rows, counted from 0, that open other rows when they end.
    _to_open: list[int] = field(default_factory=list, init=False)
    _unopened: bool = field(
        default=False, init=False
    )  # whether there was no room for all rows
    _planned: tuple[Slot, ...] = field(default=(), init=False)
    #: The known answers that are still to be tried, each with its row from 1; and those
    #: that are tried in the call.
    _due_answers: list[tuple[int, Answer]] = field(default_factory=list, init=False)
    _trials: list[Trial] = field(default_factory=list, init=False)
    _tried: list[Tried] = field(default_factory=list, init=False)
    #: Whether answers were too many for a call: all rows wait until all of them are
    #: tried.
    _waits: bool = field(default=False, init=False)

    @property
    def live(self) -> list[Subsequence]:
        """The established subsequences that have not ended."""
        return [row for row in self.subsequences if not row.ended]

    @property
    def is_regular(self) -> bool:
        """Whether the rows alone tell the time of every call: none was dropped, and no call made several tokens of a row."""
        if self.stopped_on_repeat or self.method.guesses:
            return False
        return not any(row.scores for row in self.subsequences)

    @property
    def wants_odds(self) -> bool:
        """Whether the planned call is to tell probabilities."""
        return self.method.confident or bool(self._trials)

    @property
    def placed(self) -> dict[Any, Subsequence]:
        """The rows by what their answers are for: the `place` of each row's opening."""
        rows = zip(self.openings, self.subsequences, strict=True)
        return {opening.place: row for opening, row in rows}

    @property
    def tokens(self) -> int:
        """Tokens made so far, <eos> not counted."""
        return sum(len(row.tokens) - row.ended for row in self.subsequences)

    @property
    def empty(self) -> int:
        """How many explorations (rows tried without knowing whether there is anything to say) came out empty."""
        if self.method.openings:
            return 0
        return sum(row.empty for row in self.subsequences)

    @property
    def truncated(self) -> Truncated | None:
        """The bound that cut the text short, None for a whole text. It is known once `plan` has returned nothing."""
        # A row that was due and could not start is missing as well as one that is live.
        if self.live or self._next_start() is not None:
            return "max_tokens" if self._out_of_tokens else "time_max"
        if isinstance(self.method.schedule, Listed):
            return None if self._lists_are_closed else "item_max"
        if self.method.openings:
            return "sub_max" if self._unopened else None
        if isinstance(self.method.schedule, Whole) or self.stopped_on_repeat:
            return None
        return "sub_max" if self._is_full and not self.subsequences[-1].empty else None

    @property
    def _lists_are_closed(self) -> bool:
        """Whether the newest item of every list is empty, which says that no other follows."""
        return all(row.empty for items in self._items for row in items[-1])

    @property
    def _is_full(self) -> bool:
        """Whether there are as many subsequences as sub_max allows, empty ones included."""
        return len(self.subsequences) == self.method.limits.sub_max

    @property
    def row_budget_exhausted(self) -> bool:
        """Whether rows that were tried and stayed empty used up sub_max, the most rows, when the text needed another.

        It did if a row was due before the last token, or if sub_max cut the text. Known
        once decoding has ended.
        """
        rows = self.subsequences
        if self.method.empty_rows != "retry" or not self._is_full:
            return False
        if not any(row.empty for row in rows):
            return False
        due = self.method.schedule.next_start(rows)
        end = max(row.start + len(row.tokens) for row in rows)
        return due is not None and (due < end or self.truncated == "sub_max")

    def has_said_all(self, number: int) -> bool:
        """Whether a row of a known number, from 1, has ended, and the rows that it opens stand here."""
        row = self.subsequences[number - 1]
        is_scored = len(row.scores) == len(self.openings[number - 1].answers)
        return row.ended and is_scored and number - 1 not in self._to_open

    def has_all_items(self, number: int) -> bool:
        """Whether no item can follow in one of the lists of the method."""
        items = self._items[number]
        are_ended = all(row.ended for rows in items for row in rows)
        return are_ended and number not in self._due()

    def only(self, numbers: Iterable[int]) -> Grid:
        """A grid that has these rows alone, which are of a known number, from 1. It is for reading."""
        grid = Grid(self.method, self.bos)
        for number in numbers:
            grid.openings.append(self.openings[number - 1])
            grid.subsequences.append(self.subsequences[number - 1])
        return grid

    def plan(self) -> tuple[Slot, ...]:
        """Establish the rows that are due and give the tokens of the next decoder call; none once decoding has ended.

        They come by subsequence: the newest token of each live one, in a row's first
        call <bos> with all known tokens behind it, and, once each, the <eos> of those
        that ended in the last call. While nothing is live, the clock runs on to the
        next start without a call. Planning again changes nothing.
        """
        self._planned = ()
        time_max = self.method.limits.time_max or math.inf
        if self._waits:
            self._plan_call()
            return self._planned
        while self.time < time_max and not self._out_of_tokens:
            later_start = self._establish_due()
            if self.live:
                self._plan_call()
                break
            if later_start is None:
                break
            self.time = later_start
        return self._planned

    def _establish_due(self) -> int | None:
        """Establish all rows that start by now. Returns when the next one starts; None if that is not known or none does."""
        while (start := self._next_start()) is not None and start <= self.time:
            if self.method.openings:
                self._establish(start)
            else:
                self.subsequences.append(Subsequence(start))
        return start

    def _plan_call(self) -> None:
        """Set the slots of the next call: of all rows, unless these wait, and of known answers."""
        slots = list[Slot]()
        if not self._waits:
            for number, row in enumerate(self.subsequences, start=1):
                if not row.eos_fed:
                    slots += self._slots(number, row)
        due = due_of(self._due_answers, WRITTEN - 1)
        self._trials, self._tried = trials_of(due)
        slots += [self._slot_of_trial(trial) for trial in self._trials]
        self._planned = tuple(slots)

    def _slot_of_trial(self, trial: Trial) -> Slot:
        """The slot of a token of answers, which asks for the probabilities of those that follow."""
        row = self.subsequences[trial.row - 1]
        token = trial.token
        if trial.depth == 0:
            token = row.known[-1] if row.known else self.bos
        number = -1
        if self.method.blind:
            number = len(row.known) - 1 + trial.depth
        following, *others = trial.wanted
        return Slot(
            trial.row,
            row.start + trial.depth,
            token,
            number=number,
            end=following,
            branch=trial.branch,
            lift=trial.lift,
            others=tuple(others),
        )

    def _establish(self, start: int) -> None:
        """Add the rows with known openings that are due: at first all fields, later items of lists and what rows open."""
        if self.subsequences:
            self._establish_items(start)
            self._open_rows(start)
            return
        rows = self._add(start, self.method.openings)
        for list_rows in self.method.lists:
            first_item = [rows[place] for place in list_rows.places]
            self._items.append([first_item])

    def _establish_items(self, start: int) -> None:
        """Add an item to each list whose next one is due at time `start`: all their rows, in the order of the schema."""
        # Of each new row its place in the schema, how it begins, and its item.
        new = list[tuple[int, Opening, list[Subsequence]]]()
        for number, due in self._due().items():
            if due != start:
                continue
            list_rows = self.method.lists[number]
            openings = list_rows.openings(len(self._items[number]) + 1)
            item = list[Subsequence]()
            self._items[number].append(item)
            for place, opening in zip(list_rows.places, openings, strict=True):
                new.append((place, opening, item))
        new.sort(key=itemgetter(0))
        rows = self._add(start, [opening for _, opening, _ in new])
        for row, (_, _, item) in zip(rows, new, strict=True):
            item.append(row)

    def _open_rows(self, start: int) -> None:
        """Add the rows that are opened by the answers of others, which have ended at time `start`: up to sub_max rows in all."""
        most = self.method.limits.sub_max or math.inf
        ended = [row for row in self._to_open if self.subsequences[row].end == start]
        for number in ended:
            self._to_open.remove(number)
            opening = self.openings[number]
            assert opening.opens is not None
            for opened in opening.opens(opening, self.subsequences[number]):
                if len(self.openings) < most:
                    self._add(start, [opened])
                else:
                    self._unopened = True

    def _add(self, start: int, openings: Sequence[Opening]) -> Sequence[Subsequence]:
        """Add a row for each opening, and note which of them open others and which answers are to be tried."""
        rows = [Subsequence(start, known=opening.known) for opening in openings]
        for number, opening in enumerate(openings, start=len(self.openings)):
            if opening.opens:
                self._to_open.append(number)
            self._due_answers += [(number + 1, answer) for answer in opening.answers]
        self.openings += openings
        self.subsequences += rows
        return rows

    def _due(self) -> dict[int, int]:
        """The time at which the next item of each list starts, by the number of the list, for lists that have a next item."""
        schedule = self.method.schedule
        if not isinstance(schedule, Listed):
            return {}
        starts = dict[int, int]()
        for number, items in enumerate(self._items):
            start = schedule.next_item(items)
            if start is not None:
                starts[number] = start
        return starts

    def _slots(self, number: int, row: Subsequence) -> Iterator[Slot]:
        """The tokens of row `number` (from 1) that have not gone through the decoder: at first the known ones.

        The last one asks for the next token, unless the row has ended or takes a known
        answer. If it takes one and is blind (it sees the prompt and itself alone), the
        last one is left out: each known answer that is tried brings it along.
        """
        opening = self._opening_of(number)
        blind = self.method.blind
        time = row.start + len(row.tokens)  # of the last one
        if row.tokens:
            last = row.tokens[-1]
        else:
            *before, last = row.known if blind else (self.bos, *row.known)
            first_time = time - len(before)
            for index, token in enumerate(before):
                place = index if blind else -1
                yield Slot(number, first_time + index, token, False, number=place)
        if opening.chooses and blind:
            return
        place = len(row.known) + len(row.tokens) - 1 if blind else -1
        branch = WRITTEN if opening.answers else 0
        if opening.chooses or row.ended:
            yield Slot(number, time, last, False, number=place, branch=branch)
            return
        allowed = opening.allowed(row.tokens)
        yield Slot(number, time, last, True, allowed, place, opening.end, branch)

    def _opening_of(self, number: int) -> Opening:
        """How subsequence `number`, counted from 1, begins."""
        return self.openings[number - 1] if self.openings else self.method.free

    def commit(self, answers: Sequence[int], odds: Sequence[Odds] = ()) -> Step:
        """Put the model's answer to each planned slot, a token id, behind its row, and let the clock tick.

        Answers to slots that do not ask are ignored. The `odds`, one a slot where
        `wants_odds`, make the confidence of each row, and score the known answers,
        whose slots are the last ones. Returns what the call did. Raises ValueError if
        there are not as many answers as planned slots.
        """
        planned = self._take_planned(answers)
        chances = odds or [Odds()] * len(answers)
        tried = len(self._trials)
        fed = planned[: len(planned) - tried]
        self.time += not self._waits
        self.steps += 1
        made = self._judge(chances[len(fed) :])
        for slot, answer, chance in zip(fed, answers, chances, strict=False):
            row = self.subsequences[slot.subsequence - 1]
            if not slot.answers:
                # A known token is of a row that has not begun to answer.
                row.eos_fed = row.at_once or row.ended
                continue
            token = self._write(row, slot, answer, chance)
            made.append(Slot(slot.subsequence, self.time, token))
        made += self._follow_scripts()
        if self.method.stop_on_repeat and any(
            self.subsequences[slot.subsequence - 1].ended for slot in made
        ):
            self._drop_repeats()
        return Step(self.steps, self.time, fed, tuple(made), tried=tried)

    def _write(self, row: Subsequence, slot: Slot, answer: int, chance: Odds) -> int:
        """Add the answer to a row's slot, or the end where nothing better can follow. Returns the token that was added.

        It also updates the row's probabilities by `chance`, the odds of the answer, and
        its best ending so far.
        """
        method = self.method
        opening = self._opening_of(slot.subsequence)
        # The probability that the text ends here, before this answer.
        ending = row.probability * chance.end * chance.allowed
        if ending and ending >= row.best[0]:  # of equals the longest
            row.best = ending, len(row.tokens)
        row.probability *= chance.answer * chance.allowed
        token = answer
        # A blind row ends when no later end can be more probable: no other row sees its
        # tokens.
        if method.blind and row.probability < row.best[0]:
            token = slot.end
        elif method.blind and opening.is_hopeless(row):
            token = method.eos
        row.tokens.append(token)
        row.ended = token == method.eos or token in method.ends
        row.eos_fed = row.ended and method.blind  # no other row would see it
        row.confidence *= chance.answer
        row.forced = max(row.forced, 1 - chance.allowed)
        if method.top:
            row.odds.append(chance)
        return token

    def _judge(self, chances: Sequence[Odds]) -> list[Slot]:
        """Score the known answers that were tried in this call. A row whose answers all have a score takes the best one.

        `chances` has the odds of all their tokens, one answer behind the other. Returns
        the tokens of blind rows that have taken an answer: no other row sees them, so
        they need no call of their own. The trials of the call are done with.
        """
        taken = list[Slot]()
        shares = [(chance.end, *chance.others) for chance in chances]
        for tried in self._tried:
            row = self.subsequences[tried.row - 1]
            row.scores.append(score([shares[trial][at] for trial, at in tried.steps]))
            if len(row.scores) == len(self.openings[tried.row - 1].answers):
                taken += self._take(tried.row, row)
        del self._due_answers[: len(self._tried)]
        self._waits = bool(self._due_answers)
        self._trials = []
        self._tried = []
        return taken

    def _take(self, number: int, row: Subsequence) -> list[Slot]:
        """Give row `number` (from 1) the best of its known answers, all of which have scores.

        A row that writes its answer itself only notes how probable "no value" is. A row
        that others see gets the answer's tokens as its `script`, one in each following
        call; a blind row gets all of them now, and they are returned.
        """
        opening = self.openings[number - 1]
        verdict = judge(opening.answers, row.scores, opening.temperature)
        row.nothing = verdict.nothing
        if opening.written:
            return []
        row.answer = verdict.best
        row.probability = verdict.probability
        row.confidence = verdict.share
        row.forced = max(0.0, 1 - verdict.known)
        taken = verdict.best
        if taken < 0 or (opening.lacks(row) and not opening.must):
            texts = [answer.text for answer in opening.answers]
            taken = texts.index("")
        tokens = opening.answers[taken].tokens
        if not self.method.blind:
            row.script = tokens
            return []
        row.tokens += tokens
        row.ended = row.eos_fed = row.at_once = True
        return [
            Slot(number, row.start + place, token)
            for place, token in enumerate(tokens, start=1)
        ]

    def _follow_scripts(self) -> list[Slot]:
        """Add to each row with a script (the tokens of the answer it has chosen) its next token, if its time has come.

        Returns the tokens that were added.
        """
        added = list[Slot]()
        if self._waits:
            return added
        for number, row in enumerate(self.subsequences, start=1):
            if not row.script or row.ended:
                continue
            if row.start + len(row.tokens) < self.time:
                token = row.script[len(row.tokens)]
                row.tokens.append(token)
                row.ended = len(row.tokens) == len(row.script)
                added.append(Slot(number, self.time, token))
        return added

    def _take_planned(self, answers: Sequence[int]) -> tuple[Slot, ...]:
        """The slots that `plan` gave, which are then no longer planned. A ValueError if there is not an answer to each."""
        planned = self._planned
        if len(answers) != len(planned) or not planned:
            raise ValueError(f"{len(answers)} answers to {len(planned)} planned rows")
        self._planned = ()
        return planned

    def _drop_repeats(self) -> None:
        """Drop the rows from where the text begins to repeat itself. No row sees a later row: they leave no trace."""
        rows = [
            tuple(row.text_tokens) if row.ended and not row.empty else None
            for row in self.subsequences
        ]
        if (kept := before_repeats(rows)) < len(rows):
            del self.subsequences[kept:]
            self.stopped_on_repeat = True

    @property
    def _out_of_tokens(self) -> bool:
        most = self.method.limits.max_tokens
        return most is not None and self.tokens >= most

    def _next_start(self) -> int | None:
        """The time at which the next subsequence starts; None if it is not known yet, or there is none."""
        method = self.method
        rows = self.subsequences
        if method.openings and rows:
            starts = list(self._due().values())
            for number in self._to_open:
                end = rows[number].end
                if end is not None:
                    starts.append(end)
            return min(starts, default=None)
        if self._is_full or self.stopped_on_repeat:
            return None
        if not rows:
            return 0
        # An empty row says that nothing follows, unless a live one may still go on.
        if rows[-1].empty and (method.empty_rows == "stop" or not self.live):
            return None
        return method.schedule.next_start(rows)


def replay(
    lengths: Sequence[int], schedule: Schedule, limits: Limits | None = None
) -> Grid:
    """The finished grid of a text of known lengths, as if a model had written it; its token ids mean nothing.

    `lengths` are the tokens of each subsequence, at least 1, <bos> and <eos> not
    counted. The schedule `Whole` takes the text as one subsequence. The limits are the
    paper's by default.
    """
    bos = 0
    eos = 1
    word = 2
    wanted = [sum(lengths)] if isinstance(schedule, Whole) else lengths
    grid = Method(schedule, bos, eos, limits or Limits()).new_grid()
    while planned := grid.plan():
        answers = []
        for slot in planned:
            number = slot.subsequence - 1
            done = len(grid.subsequences[number].tokens)
            has_more = number < len(wanted) and done < wanted[number]
            answers.append(word if has_more else eos)
        grid.commit(answers)
    return grid


def openings_of(
    method: Method, rows: Sequence[tuple[int, Sequence[int]]]
) -> Sequence[Opening]:
    """How each row of a finished grid began, found by playing the grid again.

    `rows` are the rows as they were kept: (start, token ids). Where they do not fit the
    method, it returns how the first rows begin, those that every grid has.
    """
    if not method.lists:
        return method.openings
    grid = Grid(_written(method), 0)
    try:
        while planned := grid.plan():
            answers = []
            for slot in planned:
                number = slot.subsequence - 1
                done = len(grid.subsequences[number].tokens)
                answers.append(rows[number][1][done] if slot.answers else 0)
            grid.commit(answers)
    except IndexError:
        return method.openings
    return grid.openings


def _written(method: Method) -> Method:
    """The method with rows that write what they would choose: their tokens stand at the same times."""

    def write(openings: Sequence[Opening]) -> tuple[Opening, ...]:
        return tuple(replace(opening, answers=(), written=True) for opening in openings)

    lists = []
    for rows in method.lists:

        def of_item(item: int, openings: Any = rows.openings) -> Sequence[Opening]:
            return write(openings(item))

        lists.append(replace(rows, openings=of_item))
    return replace(method, openings=write(method.openings), lists=tuple(lists))
