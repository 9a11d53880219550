"""The decoding loop: admit, plan, run, commit. It yields events and neither prints nor looks at a clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pipedec_cli.pipeline.grid import EmptyRows, Grid, Limits, Opening, Slot, Step, Truncated
from pipedec_cli.pipeline.schedule import Schedule, Subsequence
from pipedec_cli.pipeline.verify import Verification, Verify


class Row(NamedTuple):
    """A token that goes into a decoder call: whose it is, and where it stands."""

    sequence: int
    slot: Slot


class StepModel(Protocol):
    """What the loop asks of a model. A sequence is one example in flight, told by its number from 0 on."""

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Encode sources, given as (sequence, token ids), and keep them in those sequences, which are free."""

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        """One decoder call: add the rows' tokens to their sequences and give the most probable next token of each.

        Rows come by sequence, subsequence and time. A slot that names the tokens `allowed` is answered with one of them.
        What is said of those that do not answer has no meaning.
        """

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[Sequence[int], Sequence[float]]:
        """The same, and the probability of each of those tokens."""

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence: nothing later sees them."""

    def release(self, sequence: int) -> None:
        """Forget an example: its number is free for another one."""


@dataclass(frozen=True, slots=True)
class Method:
    """How to decode: everything but the model and the sources; `bos` opens a subsequence, `eos` ends it.

    Without a `bos` the source's last token opens the one there is, as a decoder-only model goes on behind its prompt.
    `min_start_prob` is the least probability with which a subsequence may start early, and `openings` are the rows that are
    known to come; see `Grid`.
    """

    schedule: Schedule
    bos: int | None
    eos: int
    limits: Limits = field(default_factory=Limits)
    empty_rows: EmptyRows = "retry"
    stop_on_repeat: bool = False
    min_start_prob: float = 0.0
    openings: tuple[Opening, ...] = ()

    def new_grid(self, example: int = 0, source: Sequence[int] = ()) -> Grid:
        """An empty grid under this method."""
        ids: dict[str, Any] = {"bos": opened(self.bos, source)[1], "eos": self.eos, "openings": self.openings}
        how: Any = {"stop_on_repeat": self.stop_on_repeat, "min_start_prob": self.min_start_prob}
        return Grid(self.schedule, self.limits, self.empty_rows, **how, **ids)


def opened(bos: int | None, source: Sequence[int]) -> tuple[Sequence[int], int]:
    """What of a source stands before the grid, and the token that opens a subsequence; see `Method`."""
    return (source[:-1], source[-1]) if bos is None else (source, bos)


@dataclass(frozen=True, slots=True)
class Admitted:
    """An example is about to be encoded; its clock starts. The grid is the one that decoding fills from now on."""

    example: int
    grid: Grid | Verification


@dataclass(frozen=True, slots=True)
class Stepped:
    """An example took part in a decoder call."""

    example: int
    step: Step


@dataclass(frozen=True, slots=True)
class Finished:
    """An example has left, with the grid as it then stood."""

    example: int
    grid: Grid | Verification

    @property
    def subsequences(self) -> list[Subsequence]:
        """Every one that was established, empty explorations included."""
        return self.grid.subsequences

    @property
    def steps(self) -> int:
        """Decoder calls that the example took part in."""
        return self.grid.steps

    @property
    def tokens(self) -> int:
        """Tokens made, <eos> not counted."""
        return self.grid.tokens

    @property
    def truncated(self) -> Truncated | None:
        """What cut it short, if anything."""
        return self.grid.truncated

    @property
    def row_budget_exhausted(self) -> bool:
        """Whether empty explorations had taken up places of sub_max when another subsequence was due."""
        return self.grid.row_budget_exhausted

    @property
    def texts(self) -> list[list[int]]:
        """The token ids of each subsequence without <bos> and <eos>, empty ones dropped."""
        return [tokens for subsequence in self.subsequences if (tokens := subsequence.text_tokens)]


Event = Admitted | Stepped | Finished


def decode(
    model: StepModel,
    sources: Iterable[tuple[int, Sequence[int]]],
    method: Method | Verify,
    sequences: int = 1,
) -> Iterator[Event]:
    """Decode sources, (index, token ids), greedily, so many `sequences` at a time, each with its own grid (Algorithm 1).

    An example that ends makes room for the next one; sources are drawn only when there is room. Each example gives its
    `Admitted`, its `Stepped` in order, and its `Finished`; those of different examples are mixed.
    """
    if sequences < 1:
        raise ValueError(f"decoding needs at least 1 sequence, not {sequences}")
    waiting = iter(sources)
    running: dict[int, tuple[int, Grid | Verification]] = {}
    try:
        while True:
            free = [number for number in range(sequences) if number not in running]
            # The free numbers come first: zip stops there, before it draws a source that has no place yet.
            newcomers = list(zip(free, waiting, strict=False))
            if newcomers:
                entering = {
                    number: (example, method.new_grid(example, source))
                    for number, (example, source) in newcomers
                }
                yield from (Admitted(*entered) for entered in entering.values())
                model.admit([(number, opened(method.bos, source)[0]) for number, (_, source) in newcomers])
                running |= entering
            if not running:
                return
            planned = {number: grid.plan() for number, (_, grid) in sorted(running.items())}
            ended = [number for number, slots in planned.items() if not slots]
            for number in ended:
                model.release(number)
                yield Finished(*running.pop(number))
            if ended:
                continue  # whoever waits takes their places before the next call; planning again changes nothing
            rows = [Row(number, slot) for number, slots in planned.items() for slot in slots]
            answers, certainty = _ask(model, rows, certainty=method.min_start_prob > 0)
            done = 0
            for number, slots in planned.items():
                example, grid = running[number]
                own = slice(done, done := done + len(slots))
                step = grid.commit(answers[own], certainty[own])
                if step.taken_back:
                    model.take_back(number, len(step.taken_back))
                yield Stepped(example, step)
    except GeneratorExit:  # the reader has had enough: the next one finds every sequence free
        for number in running:
            model.release(number)
        raise


def _ask(model: StepModel, rows: Sequence[Row], *, certainty: bool) -> tuple[Sequence[int], Sequence[float]]:
    """One decoder call: a token for each row and, if asked for, its probability."""
    answers, probabilities = model.step_with_probabilities(rows) if certainty else (model.step(rows), ())
    if len(answers) != len(rows):
        raise ValueError(f"{len(answers)} answers to {len(rows)} rows")
    return answers, probabilities
