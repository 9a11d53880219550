"""The decoding loop: admit, plan, run, commit. It yields events and neither prints nor looks at a clock.

The live view, the file writer and the timing all consume the same stream. A model joins through `StepModel`,
which a scripted fake satisfies as well as T5 does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pipedec_cli.pipeline.grid import Explore, Grid, Limits, Slot, Step, Subsequence, Truncated
from pipedec_cli.pipeline.schedule import Schedule


class Row(NamedTuple):
    """A token that goes into a decoder call: whose it is, and where it stands."""

    lane: int
    slot: Slot


class StepModel(Protocol):
    """What the loop asks of a model. A lane is a place for one example: its encoded source and its grid's cache."""

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Encode sources and make their lanes ready, empty of tokens.

        Args:
            newcomers: (lane, source token ids), lanes that are free.
        """

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        """One decoder call: add the rows' tokens to their lanes and give the most probable next token of each.

        Args:
            rows: ordered by lane and, within one, by subsequence.

        Returns:
            A token id a row; of no meaning for rows that do not answer.
        """

    def release(self, lane: int) -> None:
        """Forget what is in a lane."""


@dataclass(frozen=True, slots=True)
class Method:
    """How to decode: everything but the model and the sources.

    Attributes:
        schedule: when subsequences start.
        limits: what bounds each example.
        explore: the exploration rule.
        bos: the model's decoder_start_token.
        eos: the model's eos_token.
    """

    schedule: Schedule
    bos: int
    eos: int
    limits: Limits = field(default_factory=Limits)
    explore: Explore = "retry"

    def new_grid(self) -> Grid:
        """An empty grid under this method."""
        return Grid(self.schedule, self.limits, self.explore, bos=self.bos, eos=self.eos)


@dataclass(frozen=True, slots=True)
class Admitted:
    """An example is about to be encoded; its clock starts."""

    example: int


@dataclass(frozen=True, slots=True)
class Stepped:
    """An example took part in a decoder call."""

    example: int
    step: Step


@dataclass(frozen=True, slots=True)
class Finished:
    """An example has left.

    Attributes:
        example: the index that it came with.
        subsequences: every one that was established, empty explorations included.
        steps: decoder calls that it took part in.
        tokens: tokens made, <eos> not counted.
        truncated: what cut it short, if anything.
        used_up: whether empty explorations had taken up places of sub_max when another subsequence was due.
    """

    example: int
    subsequences: tuple[Subsequence, ...]
    steps: int
    tokens: int
    truncated: Truncated | None
    used_up: bool = False

    @property
    def texts(self) -> list[list[int]]:
        """The token ids of each subsequence without <bos> and <eos>, empty ones dropped."""
        return [tokens for subsequence in self.subsequences if (tokens := subsequence.text_tokens)]


Event = Admitted | Stepped | Finished


def decode(
    model: StepModel, sources: Iterable[tuple[int, Sequence[int]]], method: Method, lanes: int = 1
) -> Iterator[Event]:
    """Decode examples greedily, several at a time, each with a grid of its own (Algorithm 1).

    An example that ends leaves its lane and the next one enters, so that the slowest does not hold the others.
    Sources are drawn from the iterable only when a lane is free: memory is bounded by what is in flight.

    Args:
        model: the model.
        sources: (index, source token ids).
        method: how to decode.
        lanes: how many examples are in flight at once.

    Yields:
        Each example's `Admitted`, its `Stepped` in order, and its `Finished`; those of different examples mixed.

    Raises:
        ValueError: there are no lanes, or the model gives another number of answers than it was given rows.
    """
    if lanes < 1:
        raise ValueError(f"decoding needs at least 1 lane, not {lanes}")
    waiting = iter(sources)
    running: dict[int, tuple[int, Grid]] = {}
    try:
        while True:
            newcomers = _newcomers(waiting, [lane for lane in range(lanes) if lane not in running])
            if newcomers:
                yield from (Admitted(example) for _, example, _ in newcomers)
                model.admit([(lane, source) for lane, _, source in newcomers])
                running |= {lane: (example, method.new_grid()) for lane, example, _ in newcomers}
            if not running:
                return
            planned = {lane: grid.plan() for lane, (_, grid) in sorted(running.items())}
            ended = [lane for lane, slots in planned.items() if not slots]
            for lane in ended:
                example, grid = running.pop(lane)
                model.release(lane)
                yield Finished(
                    example, tuple(grid.subsequences), grid.steps, grid.tokens, grid.truncated, grid.used_up
                )
            if ended:
                continue  # whoever waits takes the free lanes before the next call; planning again changes nothing
            rows = [Row(lane, slot) for lane, slots in planned.items() for slot in slots]
            answers = model.step(rows)
            if len(answers) != len(rows):
                raise ValueError(f"{len(answers)} answers to {len(rows)} rows")
            following = iter(answers)
            for lane, slots in planned.items():
                example, grid = running[lane]
                yield Stepped(example, grid.commit([next(following) for _ in slots]))
    except GeneratorExit:  # the reader has had enough: the next one finds every lane free
        for lane in running:
            model.release(lane)
        raise


def _newcomers(
    waiting: Iterator[tuple[int, Sequence[int]]], free: Iterable[int]
) -> list[tuple[int, int, Sequence[int]]]:
    """A lane, an example and its source for each example that can enter now."""
    # The free lanes come first: zip stops there, before it draws a source that has no place yet.
    return [(lane, example, source) for lane, (example, source) in zip(free, waiting, strict=False)]
