"""The grids of known texts."""

from __future__ import annotations

from collections.abc import Sequence

from pipedec_cli.pipeline.grid import EmptyRows, Grid, Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Schedule, Whole


def replay(
    lengths: Sequence[int], schedule: Schedule, limits: Limits | None = None, empty_rows: EmptyRows = "retry"
) -> Grid:
    """The grid of a known text, whose subsequences have m_i ≥ 1 tokens, <bos> and <eos> not counted.

    `Whole` takes the text as one subsequence. The limits are the paper's by default.
    """
    word, bos, eos = 2, 0, 1
    wanted = [sum(lengths)] if isinstance(schedule, Whole) else lengths
    grid = Method(schedule, bos, eos, limits or Limits(), empty_rows).new_grid()
    while planned := grid.plan():
        rows = [(slot.subsequence, grid.subsequences[slot.subsequence - 1]) for slot in planned]
        left = [number <= len(wanted) and len(row.tokens) < wanted[number - 1] for number, row in rows]
        grid.commit([word if more else eos for more in left])
    return grid


def openings_of(method: Method, rows: Sequence[tuple[int, Sequence[int]]]) -> Sequence[Opening]:
    """The openings of the rows of a finished grid, given by start and tokens; those of the first rows if it is inconsistent."""
    if not method.lists:
        return method.openings
    grid = Grid(method, 0)
    try:
        while planned := grid.plan():
            at = [
                (slot.subsequence - 1, len(grid.subsequences[slot.subsequence - 1].tokens))
                for slot in planned
            ]
            grid.commit(
                [rows[n][1][done] if slot.answers else 0 for slot, (n, done) in zip(planned, at, strict=True)]
            )
    except IndexError:
        return method.openings
    return grid.openings
