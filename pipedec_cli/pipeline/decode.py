"""The decoding loop: admit, plan, run, commit. It yields events; it prints nothing and reads no clock."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pipedec_cli.pipeline.grid import Grid, Method, Odds, Slot, Step, split_opener


class Row(NamedTuple):
    """A token of a decoder call: its sequence and its slot. A NamedTuple for the reason that `Slot` gives."""

    sequence: int
    slot: Slot


class StepModel(Protocol):
    """What the loop needs of a model. A sequence is the place of one example in flight: a number from 0 on."""

    def admit(
        self, newcomers: Sequence[tuple[int, Sequence[int]]]
    ) -> Sequence[int] | None:
        """Encode sources, given as (sequence, token ids). Those sequences are free until now.

        May return how many tokens of each source were known from before.
        """

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        """One decoder call: add the rows' tokens to their sequences, and give each row's most probable next token.

        Rows come by sequence, subsequence and time. If a slot has `allowed` tokens, the
        answer is one of them. Answers to rows whose slot does not answer have no
        meaning.
        """

    def step_with_odds(
        self, rows: Sequence[Row], top: int = 0
    ) -> tuple[Sequence[int], Sequence[Odds]]:
        """The same, and the probability of each of those tokens and of each slot's `end`, and the `top` tokens."""

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence: no later row sees them."""

    def release(self, sequence: int) -> None:
        """Forget an example: its sequence is free for another one."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """An example is about to be encoded. Decoding fills this grid from now on."""

    example: int
    grid: Grid


@dataclass(frozen=True, slots=True)
class Stepped:
    """An example took part in a decoder call."""

    example: int
    step: Step


@dataclass(frozen=True, slots=True)
class Finished:
    """An example has ended, with this grid."""

    example: int
    grid: Grid

    @property
    def texts(self) -> list[list[int]]:
        """The token ids of each subsequence without <bos> and <eos>, empty ones dropped."""
        return [tokens for row in self.grid.subsequences if (tokens := row.text_tokens)]


Event = Admitted | Stepped | Finished
#: An example that is decoded, and its grid.
InFlight = tuple[int, Grid]
#: A free sequence, the example that takes it, and the token ids of its source.
Newcomer = tuple[int, int, Sequence[int]]


def decode(
    model: StepModel,
    sources: Iterable[tuple[int, Sequence[int]] | None],
    method: Method | Callable[[int], Method],
    sequences: int = 1,
    gone: Callable[[int], bool] = lambda _: False,
) -> Iterator[Event]:
    """Decode sources greedily (Algorithm 1), at most `sequences` at a time, each with its own grid.

    When an example ends, the next one takes its place; a source is drawn only when
    there is a place for it. Each example gives one `Admitted`, its `Stepped` in order,
    and one `Finished`; the events of different examples are mixed.

    Args:
        model: What computes the tokens.
        sources: Examples as (index, token ids). An iterator that is fed while decoding
            runs gives None when no example is waiting, and is asked again before the
            next call; decoding ends if then nothing runs.
        method: How to decode, or a function that says it for an example's index.
        sequences: The most examples in flight.
        gone: Whether nobody wants the example of an index any more. It then ends before
            the next call.
    """
    if sequences < 1:
        raise ValueError(f"decoding needs at least 1 sequence, not {sequences}")
    method_of = method if callable(method) else lambda _: method
    waiting = iter(sources)
    running: dict[int, InFlight] = {}
    try:
        while True:
            free = [number for number in range(sequences) if number not in running]
            newcomers = list(_newcomers(free, waiting))
            entering: dict[int, InFlight] = {}
            for number, example, source in newcomers:
                grid = method_of(example).new_grid(example, source)
                entering[number] = example, grid
                yield Admitted(example, grid)
            if newcomers:
                _admit(model, newcomers, entering)
                running |= entering
            if not running:
                return
            planned = {number: running[number][1].plan() for number in sorted(running)}
            ended = _ended(running, planned, gone)
            for number in ended:
                model.release(number)
                yield Finished(*running.pop(number))
            # Where some have ended, the next sources take their places before the call;
            # planning again changes nothing.
            if not ended:
                yield from _call(model, running, planned)
    finally:  # the reader may stop early, or the model fail: the next one finds every sequence free
        for number in running:
            model.release(number)


def _newcomers(
    free: Sequence[int], waiting: Iterator[tuple[int, Sequence[int]] | None]
) -> Iterator[Newcomer]:
    """The sources that take the `free` sequences, until no source is waiting. None is drawn without a sequence for it."""
    for sequence in free:
        newcomer = next(waiting, None)
        if newcomer is None:
            return
        yield sequence, *newcomer


def _admit(
    model: StepModel,
    newcomers: Sequence[Newcomer],
    entering: Mapping[int, InFlight],
) -> None:
    """Have a model encode sources, and note in each grid how many tokens of its source the model knew from before.

    The opener, a last token of the source that is not encoded but opens the grid's row,
    is left out. `entering` has the example and the grid of each newcomer's sequence.
    """
    sources = []
    for number, _, source in newcomers:
        bos = entering[number][1].method.bos
        sources.append((number, split_opener(bos, source)[0]))
    known = model.admit(sources) or ()
    for (number, *_), tokens in zip(newcomers, known, strict=False):
        entering[number][1].cached = tokens


def _ended(
    running: Mapping[int, InFlight],
    planned: Mapping[int, Sequence[Slot]],
    gone: Callable[[int], bool],
) -> list[int]:
    """The sequences whose example has planned no slots for the next call, or is `gone` (nobody wants it any more)."""
    ended = []
    for number, slots in planned.items():
        example, _ = running[number]
        if not slots or gone(example):
            ended.append(number)
    return ended


def _call(
    model: StepModel,
    running: Mapping[int, InFlight],
    planned: Mapping[int, Sequence[Slot]],
) -> Iterator[Stepped]:
    """Run one decoder call for all examples, and commit to each grid the answers to its slots.

    `running` and `planned` have the grid and the planned slots of each sequence. The
    model forgets what a grid takes back.
    """
    rows = []
    for number, slots in planned.items():
        rows.extend([Row(number, slot) for slot in slots])
    odds: Sequence[Odds] = ()
    if any(grid.wants_odds for _, grid in running.values()):
        top = max(grid.method.top for _, grid in running.values())
        answers, odds = model.step_with_odds(rows, top)
    else:
        answers = model.step(rows)
    first = 0
    for number, slots in planned.items():
        example, grid = running[number]
        end = first + len(slots)
        step = grid.commit(answers[first:end], odds[first:end])
        first = end
        if forgotten := len(step.taken_back) + step.tried:
            model.take_back(number, forgotten)
        yield Stepped(example, step)
