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
    """How many subsequences of a text stand before it repeats itself.

    It does where a subsequence comes twice in a row, or where two neighbours come
    again. A single subsequence that comes again later may be said of another thing.
    None stands for an empty subsequence, or for one that is live.
    """
    seen = set[tuple[Hashable, Hashable]]()
    for number, pair in enumerate(pairwise(subsequences), start=1):
        if None in pair:
            continue
        if pair in seen:
            return number - 1
        if pair[0] == pair[1]:
            return number
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
    """The bit mask of some tokens; see `Allowed`."""
    return sum(1 << token for token in {*tokens}).to_bytes(
        max(tokens, default=-1) // 8 + 1, "little"
    )


@dataclass(frozen=True, slots=True)
class Opening:
    """How a row begins whose number is known: with `known` tokens behind <bos>, such as the key of a field."""

    known: tuple[int, ...]
    allowed: Allowed = any_token
    place: Any = ()  # what its answer is for
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
        """Whether the row takes one of its answers."""
        return bool(self.answers) and not self.written

    def probabilities(self, row: Subsequence) -> dict[str, float]:
        """How probable each of the answers is by its meaning, "" being no value; {} unless the row has taken one."""
        if not self.chooses or len(row.scores) < len(self.answers):
            return {}
        shares = probabilities(self.answers, row.scores, self.temperature)
        meanings = [answer.text for answer in self.answers]
        return dict(zip(meanings, shares, strict=True))

    def absence(self, row: Subsequence) -> float:
        """The probability of "no value" against that of the row's value; 0 if "no value" is no answer."""
        return (
            row.nothing / (row.nothing + row.value_probability) if row.nothing else 0.0
        )

    def lacks(self, row: Subsequence) -> bool:
        """Whether a row with this opening says that there is no value."""
        if self.least is not None:
            return row.value_confidence < self.least
        return self.absence(row) > _EVEN

    def is_hopeless(self, row: Subsequence) -> bool:
        """Whether a row will say that there is no value, whatever it still writes."""
        if self.must or not self.answers:
            return False
        most = max(row.best[0], row.probability)
        return row.nothing > most if self.least is None else most < self.least

    def text(self, row: Subsequence) -> str:
        """What the answer means that a row has taken; "" for no value."""
        if row.answer < 0 or (self.lacks(row) and not self.must):
            return ""
        return self.answers[row.answer].text


#: "No value" is chosen above this, if nothing else is known.
_EVEN: Final = 0.5


#: Of rows whose number is not known: made once, since it is asked for at every token.
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
    bos: int | None  # opens a subsequence
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
    """The part of a source that stands before the grid, and the token that opens a subsequence; see `Method`."""
    return (source[:-1], source[-1]) if bos is None else (source, bos)


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
    #: Of the subsequences, where they are known.
    openings: list[Opening] = field(default_factory=list, init=False)
    #: The rows of each item of each list.
    _items: list[list[list[Subsequence]]] = field(default_factory=list, init=False)
    _opening: list[int] = field(
        default_factory=list, init=False
    )  # the rows that are to open others, from 0
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
        """Whether the rows tell the time of every call: none was dropped, and no call made several tokens of a row."""
        has_scores = any(row.scores for row in self.subsequences)
        return not (self.stopped_on_repeat or self.method.guesses or has_scores)

    @property
    def wants_odds(self) -> bool:
        """Whether the planned call is to tell probabilities."""
        return self.method.confident or bool(self._trials)

    @property
    def placed(self) -> dict[Any, Subsequence]:
        """The rows by the places of their openings."""
        return {
            one.place: row
            for one, row in zip(self.openings, self.subsequences, strict=True)
        }

    @property
    def tokens(self) -> int:
        """Tokens made so far, <eos> not counted."""
        return sum(len(row.tokens) - row.ended for row in self.subsequences)

    @property
    def empty(self) -> int:
        """Explorations that came out empty."""
        return (
            0 if self.method.openings else sum(row.empty for row in self.subsequences)
        )

    @property
    def truncated(self) -> Truncated | None:
        """What cut the text short, once `plan` has returned nothing."""
        if (
            self.live or self._next_start() is not None
        ):  # a row that could not start is missing as well
            return "max_tokens" if self._out_of_tokens else "time_max"
        if isinstance(self.method.schedule, Listed):
            return (
                None
                if all(row.empty for items in self._items for row in items[-1])
                else "item_max"
            )
        if self.method.openings:
            return "sub_max" if self._unopened else None
        if isinstance(self.method.schedule, Whole) or self.stopped_on_repeat:
            return None
        full = len(self.subsequences) == self.method.limits.sub_max
        return "sub_max" if full and not self.subsequences[-1].empty else None

    @property
    def row_budget_exhausted(self) -> bool:
        """Whether, in the end, empty explorations held places of sub_max when another subsequence was due."""
        rows = self.subsequences
        full = len(rows) == self.method.limits.sub_max and any(
            row.empty for row in rows
        )
        if self.method.empty_rows != "retry" or not full:
            return False
        due = self.method.schedule.next_start(rows)
        end = max(row.start + len(row.tokens) for row in rows)
        return due is not None and (due < end or self.truncated == "sub_max")

    def has_said_all(self, number: int) -> bool:
        """Whether a row of a known number, from 1, has ended, and the rows that it opens stand here."""
        row = self.subsequences[number - 1]
        is_scored = len(row.scores) == len(self.openings[number - 1].answers)
        return row.ended and is_scored and number - 1 not in self._opening

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
        """Establish what is due and give the tokens of the next decoder call; none once decoding has ended.

        They come by subsequence: the newest token of each live one, in a row's first
        call <bos> with all known tokens behind it, and, once each, the <eos> of those
        that ended in the last call. While nothing is live, the clock runs on to the
        next start without a call. Planning again changes nothing.
        """
        self._planned = ()
        time_max = self.method.limits.time_max or math.inf
        if self._waits:
            self._plan_call()
        while not self._waits and self.time < time_max and not self._out_of_tokens:
            while (start := self._next_start()) is not None and start <= self.time:
                if self.method.openings:
                    self._establish(start)
                else:
                    self.subsequences.append(Subsequence(start))
            if self.live:
                self._plan_call()
                break
            if start is None:
                break
            self.time = start
        return self._planned

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
            True,
            b"",
            number,
            following,
            trial.branch,
            trial.lift,
            tuple(others),
        )

    def _establish(self, start: int) -> None:
        """Add the rows whose openings are known: all fields, then the next items of lists, and what rows open."""
        if not self.subsequences:
            rows = self._add(start, self.method.openings)
            self._items = [
                [[rows[place] for place in rows_of.places]]
                for rows_of in self.method.lists
            ]
            return
        new = list[
            tuple[int, int, Opening]
        ]()  # the place in the schema, the number of the list, the opening
        for number in (number for number, due in self._due().items() if due == start):
            of = self.method.lists[number]
            openings = of.openings(len(self._items[number]) + 1)
            new += (
                (place, number, opening)
                for place, opening in zip(of.places, openings, strict=True)
            )
            self._items[number].append([])
        new.sort(key=itemgetter(0))
        rows = self._add(start, [opening for _, _, opening in new])
        for row, (_, number, _) in zip(rows, new, strict=True):
            self._items[number][-1].append(row)
        for number in [
            number for number in self._opening if self.subsequences[number].end == start
        ]:
            self._opening.remove(number)
            opens, most = self.openings[number].opens, self.method.limits.sub_max
            assert opens is not None
            openings = opens(self.openings[number], self.subsequences[number])
            room = len(openings) if most is None else max(0, most - len(self.openings))
            self._unopened = self._unopened or room < len(openings)
            self._add(start, openings[:room])

    def _add(self, start: int, openings: Sequence[Opening]) -> Sequence[Subsequence]:
        """Add a row for each opening."""
        rows = [Subsequence(start, known=opening.known) for opening in openings]
        first = len(self.openings)
        self._opening += (
            number for number, one in enumerate(openings, first) if one.opens
        )
        for number, opening in enumerate(openings, start=first + 1):
            self._due_answers += [(number, answer) for answer in opening.answers]
        self.openings += openings
        self.subsequences += rows
        return rows

    def _due(self) -> dict[int, int]:
        """The start of the next item of each list that has one, by the number of the list."""
        schedule = self.method.schedule
        if not isinstance(schedule, Listed):
            return {}
        starts = (
            (number, schedule.next_item(items))
            for number, items in enumerate(self._items)
        )
        return {number: start for number, start in starts if start is not None}

    def _slots(self, number: int, row: Subsequence) -> Iterator[Slot]:
        """The tokens of a row that have not gone through the decoder. The last one asks for the next token.

        The known tokens of a row that takes a known answer ask for nothing. If it is
        blind, each answer brings the last of them along.
        """
        blind = self.method.blind
        opening = self._opening_of(number)
        branch = WRITTEN if opening.answers else 0
        first_time = row.start + 1 - len(row.known)  # of a blind row
        time = row.start + len(row.tokens)
        if row.tokens:
            last = row.tokens[-1]
        else:
            *before, last = row.known if blind else (self.bos, *row.known)
            for earlier, token in enumerate(before, start=time - len(before)):
                yield Slot(
                    number,
                    earlier,
                    token,
                    False,
                    number=earlier - first_time if blind else -1,
                )
            if opening.chooses and blind:
                return
        fed = time - first_time if blind else -1
        if opening.chooses:
            yield Slot(number, time, last, False, number=fed, branch=branch)
            return
        if row.ended:
            yield Slot(number, time, last, False, branch=branch)
            return
        allowed = opening.allowed(row.tokens)
        yield Slot(number, time, last, True, allowed, fed, opening.end, branch)

    def _opening_of(self, number: int) -> Opening:
        """How a subsequence begins, counted from 1."""
        return self.openings[number - 1] if self.openings else self.method.free

    def commit(self, answers: Sequence[int], odds: Sequence[Odds] = ()) -> Step:
        """Put the answer to each planned row, a token id, in its place, and let the clock tick.

        Rows that do not answer ignore theirs. The `odds` make the confidence of each
        row, and score known answers. Raises ValueError if the numbers do not fit.
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
        """Add to a row the answer to its slot, or its end. Returns the token."""
        method = self.method
        opening = self._opening_of(slot.subsequence)
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
        """Score the answers that were tried. A row whose answers all have a score takes the best one.

        Returns the tokens of blind rows that have taken one: no other row sees them, so
        they need no call of their own.
        """
        made = list[Slot]()
        shares = [(chance.end, *chance.others) for chance in chances]
        for tried in self._tried:
            row = self.subsequences[tried.row - 1]
            row.scores.append(score([shares[trial][at] for trial, at in tried.steps]))
            if len(row.scores) == len(self.openings[tried.row - 1].answers):
                made += self._take(tried.row, row)
        del self._due_answers[: len(self._tried)]
        self._waits = bool(self._due_answers)
        self._trials = []
        self._tried = []
        return made

    def _take(self, number: int, row: Subsequence) -> list[Slot]:
        """Give a row the best of its answers, whose scores are known; of a row that is written note "no value" alone."""
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
        """Add to each row with a script its next token, once the clock has reached its time."""
        made = list[Slot]()
        for number, row in enumerate(self.subsequences, start=1):
            if (
                row.script
                and not row.ended
                and row.start + len(row.tokens) < self.time
                and not self._waits
            ):
                token = row.script[len(row.tokens)]
                row.tokens.append(token)
                row.ended = len(row.tokens) == len(row.script)
                made.append(Slot(number, self.time, token))
        return made

    def _take_planned(self, answers: Sequence[int]) -> tuple[Slot, ...]:
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
        """The start of the next subsequence; None if it is not known yet, or there is none."""
        method, rows = self.method, self.subsequences
        if method.openings and rows:
            ends = (self.subsequences[number].end for number in self._opening)
            return min(
                (*self._due().values(), *(end for end in ends if end is not None)),
                default=None,
            )
        if len(rows) == method.limits.sub_max or self.stopped_on_repeat:
            return None
        if not rows:
            return 0
        if rows[-1].empty and (method.empty_rows == "stop" or not self.live):
            return None
        return method.schedule.next_start(rows)


def replay(
    lengths: Sequence[int], schedule: Schedule, limits: Limits | None = None
) -> Grid:
    """The grid of a known text, whose subsequences have m_i ≥ 1 tokens, <bos> and <eos> not counted.

    `Whole` takes the text as one subsequence. The limits are the paper's by default.
    """
    word, bos, eos = 2, 0, 1
    wanted = [sum(lengths)] if isinstance(schedule, Whole) else lengths
    grid = Method(schedule, bos, eos, limits or Limits()).new_grid()
    while planned := grid.plan():
        rows = [
            (slot.subsequence, grid.subsequences[slot.subsequence - 1])
            for slot in planned
        ]
        left = [
            number <= len(wanted) and len(row.tokens) < wanted[number - 1]
            for number, row in rows
        ]
        grid.commit([word if more else eos for more in left])
    return grid


def openings_of(
    method: Method, rows: Sequence[tuple[int, Sequence[int]]]
) -> Sequence[Opening]:
    """The openings of the rows of a finished grid, given by start and tokens; those of the first rows if it is inconsistent."""
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
