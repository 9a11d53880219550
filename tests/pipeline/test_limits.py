"""What cuts a text short: the clock, the number of subsequences, the number of tokens."""

from __future__ import annotations

import pytest

from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Waiting, Whole
from tests.fakes import EOS
from tests.pipeline.driving import drive, rows_of

A, B, C, D, E = range(2, 7)
ABC, DE, LONG = [A, B, C], [D, E], [A] * 6


@pytest.mark.parametrize(
    ("delay", "lengths", "truncated"),
    [
        (1, [5], None),  # 0 + 5 + 1 = 6
        (1, [6], "time_max"),
        (2, [1, 3], None),  # 2 + 3 + 1 = 6
        (2, [1, 4], "time_max"),
        (3, [5, 2], None),  # 3 + 2 + 1 = 6
        (3, [5, 3], "time_max"),
        (3, [6, 2], "time_max"),
    ],
)
def test_a_subsequence_fits_if_its_eos_stands_at_time_max_or_before(
    delay: int, lengths: list[int], truncated: str | None
) -> None:
    grid, steps = drive([[A] * m for m in lengths], Fixed(delay), Limits(time_max=6))

    assert grid.truncated == truncated
    assert max(step.time for step in steps) <= 6
    fits = [start + m + 1 <= 6 for start, m in zip(range(0, 6, delay), lengths, strict=False)]
    assert [row.ended for row in grid.subsequences][: len(lengths)] == fits


def test_time_max_keeps_the_tokens_made_so_far() -> None:
    grid, steps = drive([LONG, DE], Fixed(1), Limits(time_max=3))

    assert rows_of(grid) == [(0, [A, A, A]), (1, [D, E]), (2, [EOS])]
    assert (len(steps), grid.tokens, grid.truncated) == (3, 5, "time_max")


def test_no_subsequence_is_established_that_could_not_have_a_token() -> None:
    grid, _ = drive([LONG, DE, DE], Fixed(3), Limits(time_max=3))

    assert [row.start for row in grid.subsequences] == [0]


def test_sub_max_is_reported_if_the_last_established_was_not_empty() -> None:
    grid, _ = drive([ABC, DE, [A]], Fixed(1), Limits(sub_max=2))

    assert rows_of(grid) == [(0, [*ABC, EOS]), (1, [*DE, EOS])]
    assert (grid.steps, grid.truncated) == (4, "sub_max")


def test_sub_max_is_not_reported_if_the_last_established_was_empty() -> None:
    grid, _ = drive([ABC, DE], Fixed(1), Limits(sub_max=3))

    assert rows_of(grid) == [(0, [*ABC, EOS]), (1, [*DE, EOS]), (2, [EOS])]
    assert grid.truncated is None


def test_time_max_is_reported_rather_than_sub_max_if_a_subsequence_was_still_live() -> None:
    grid, _ = drive([LONG, DE], Fixed(1), Limits(time_max=5, sub_max=2))

    assert grid.truncated == "time_max"


def test_the_plain_sequential_decoder_is_not_cut_by_sub_max() -> None:
    grid, _ = drive([ABC], Whole(), Limits(sub_max=1))

    assert (grid.tokens, grid.truncated) == (3, None)


@pytest.mark.parametrize("schedule", [Whole(), Waiting()])
def test_max_tokens_cuts_the_sequential_decoders(schedule: Schedule) -> None:
    grid, steps = drive([LONG], schedule, Limits(time_max=None, sub_max=None, max_tokens=4))

    assert rows_of(grid) == [(0, [A, A, A, A])]
    assert (len(steps), grid.tokens, grid.truncated) == (4, 4, "max_tokens")


def test_max_tokens_leaves_out_eos_and_counts_over_all_subsequences() -> None:
    limits = Limits(time_max=None, sub_max=None, max_tokens=4)

    grid, _ = drive([[A], [B], [C, C, C]], Waiting(), limits)

    assert rows_of(grid) == [(0, [A, EOS]), (2, [B, EOS]), (4, [C, C])]
    assert grid.truncated == "max_tokens"
    grid, _ = drive([[A], [B], [C]], Waiting(), limits)
    assert (grid.tokens, grid.truncated) == (3, None)


@pytest.mark.parametrize("name", ["time_max", "sub_max", "max_tokens"])
def test_a_bound_below_1_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        Limits(**{name: 0})


def test_decoding_without_any_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a bound"):
        Limits(time_max=None)
