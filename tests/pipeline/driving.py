"""Drives a grid from a script, and puts the same question to the oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    steps = []
    while rows := grid.plan():
        steps.append(grid.commit([_answer(grid, texts, slot) for slot in rows]))
    assert grid.plan() == (), "a grid that has ended starts again"
    return grid, steps


def _answer(grid: Grid, texts: Texts, slot: Slot) -> int:
    if not slot.answers:
        return GARBAGE
    start = grid.subsequences[slot.subsequence - 1].start
    return scripted_token(texts, slot.subsequence, slot.time - start + 1)


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


def oracle_schedule(schedule: Schedule) -> OracleSchedule:
    """A schedule in the oracle's own words."""
    match schedule:
        case Fixed(delay):
            return OracleSchedule("fixed", delay=delay)
        case Waiting():
            return OracleSchedule("wait")
        case Drawn(distances):
            return OracleSchedule("drawn", distances=distances)
        case Whole():
            return OracleSchedule("whole")
    raise TypeError(f"no such schedule: {schedule!r}")


def ask_oracle(
    next_logits: NextLogits, schedule: Schedule, limits: Limits | None = None, explore: Explore = "retry"
) -> OracleResult:
    """`oracle_decode` under the settings of a grid."""
    limits = limits or Limits()
    bounds = {"time_max": limits.time_max, "sub_max": limits.sub_max, "max_tokens": limits.max_tokens}
    return oracle_decode(next_logits, oracle_schedule(schedule), bos=BOS, eos=EOS, explore=explore, **bounds)


def rows_of(grid: Grid) -> list[tuple[int, list[int]]]:
    """(start, tokens) of every subsequence of a grid, <eos> kept."""
    return [(row.start, row.tokens) for row in grid.subsequences]


def fed_and_made(steps: Sequence[Step]) -> list[tuple[int, list[Placed], list[Placed]]]:
    """What went into every decoder call and what came out, with its time."""
    return [(step.time, _places(step.fed), _places(step.made)) for step in steps]


def _places(slots: Sequence[Slot]) -> list[Placed]:
    return [Placed(slot.subsequence, slot.time, slot.token) for slot in slots]


#: A distance that waits for the end.
NEVER = math.inf
