"""Drives a grid from a script, and puts the same question to the oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from pipedec_cli.pipeline.grid import Explore, Grid, Limits, Slot, Step
from pipedec_cli.pipeline.schedule import Drawn, Fixed, Schedule, Waiting, Whole
from tests.fakes import BOS, EOS, VOCABULARY, Texts, scripted_token
from tests.oracle import NextLogits, OracleResult, OracleSchedule, Placed, oracle_decode

#: What a row that does not answer is told; it must not turn up anywhere.
GARBAGE = 99


def drive(
    texts: Texts, schedule: Schedule, limits: Limits | None = None, explore: Explore = "retry"
) -> tuple[Grid, list[Step]]:
    """Decode one example whose i-th established subsequence is texts[i - 1]; beyond the last one, nothing follows."""
    grid = Grid(schedule, limits or Limits(), explore, bos=BOS, eos=EOS)

    def answer(slot: Slot) -> int:
        start = grid.subsequences[slot.subsequence - 1].start
        return scripted_token(texts, slot.subsequence, slot.time - start + 1) if slot.answers else GARBAGE

    steps = []
    while rows := grid.plan():
        steps.append(grid.commit(list(map(answer, rows))))
    assert grid.plan() == (), "a grid that has ended starts again"
    return grid, steps


def scripted_next_logits(texts: Texts) -> NextLogits:
    """The same script for the oracle, which counts the tokens of a subsequence itself."""

    def next_logits(grid: list[Placed], wanted: list[int]) -> list[list[float]]:
        rows = []
        for k in wanted:
            following = sum(placed.subsequence == grid[k].subsequence for placed in grid)
            token = scripted_token(texts, grid[k].subsequence, following)
            rows.append([float(token == candidate) for candidate in range(VOCABULARY)])
        return rows

    return next_logits


#: The oracle's words for the schedules.
KINDS: Final[dict[type, Any]] = {Fixed: "fixed", Waiting: "wait", Drawn: "drawn", Whole: "whole"}


def ask_oracle(
    next_logits: NextLogits, schedule: Schedule, limits: Limits | None = None, explore: Explore = "retry"
) -> OracleResult:
    """`oracle_decode` under the settings of a grid."""
    shape: Any = schedule
    given = OracleSchedule(KINDS[type(shape)], **asdict(shape))
    return oracle_decode(next_logits, given, bos=BOS, eos=EOS, explore=explore, **asdict(limits or Limits()))


def rows_of(grid: Grid) -> list[tuple[int, list[int]]]:
    """(start, tokens) of every subsequence of a grid, <eos> kept."""
    return [(row.start, row.tokens) for row in grid.subsequences]


def fed_and_made(steps: Sequence[Step]) -> list[tuple[int, list[Placed], list[Placed]]]:
    """What went into every decoder call and what came out, with its time."""

    def places(slots: Sequence[Slot]) -> list[Placed]:
        return [Placed(slot.subsequence, slot.time, slot.token) for slot in slots]

    return [(step.time, places(step.fed), places(step.made)) for step in steps]


#: A distance that waits for the end.
NEVER = math.inf
