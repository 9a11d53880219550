"""Empty explorations take places of sub_max: it is told when one was missed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipedec_cli.pipeline.grid import Explore, Grid, Limits
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Waiting, Whole

BOS, EOS = 0, 1
LONG, SHORT, EMPTY = (5,) * 9, (5,), ()


def decoded(
    texts: Sequence[Sequence[int]], sub_max: int | None, schedule: Schedule, explore: Explore = "retry"
) -> Grid:
    """A grid whose subsequences had these texts, and none after them."""
    grid = Grid(schedule, Limits(50, sub_max), explore, bos=BOS, eos=EOS)
    while slots := grid.plan():
        answers = []
        for slot in slots:
            text = texts[slot.subsequence - 1] if slot.subsequence <= len(texts) else ()
            made = len(grid.subsequences[slot.subsequence - 1].tokens)
            answers.append(text[made] if made < len(text) else EOS)
        grid.commit(answers)
    return grid


@pytest.mark.parametrize(
    ("texts", "sub_max", "expected"),
    [
        ((LONG, EMPTY, EMPTY), 3, True),  # the first is still being written when a fourth is due
        ((LONG, EMPTY, LONG), 3, True),
        ((LONG, LONG, LONG), 3, False),  # full, but with texts
        ((LONG, EMPTY), 20, False),  # places were left
        ((SHORT, SHORT, EMPTY), 3, False),  # all had ended before another was due
        ((LONG, EMPTY, EMPTY), None, False),
    ],
)
def test_places_are_used_up_when_another_subsequence_was_due(
    texts: Sequence[Sequence[int]], sub_max: int | None, expected: bool
) -> None:
    assert decoded(texts, sub_max, Fixed(1)).used_up is expected


def test_places_cannot_be_used_up_without_retrying_or_without_overlap() -> None:
    cut = (LONG, EMPTY, EMPTY)

    assert not decoded(cut, 2, Fixed(1), "once").used_up
    assert not decoded(cut, 2, Waiting()).used_up
    assert not decoded(cut, 1, Whole()).used_up
