"""Start times: the schedules one by one, and those drawn at random for training."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.pipeline.schedule import Drawn, Fixed, Schedule, Waiting, Whole, draw_schedules, place
from tests.pipeline.driving import NEVER, drive

lengths = st.lists(st.integers(1, 6), max_size=8)
seeds = st.integers(0, 2**32)


@pytest.mark.parametrize(
    ("schedule", "lengths", "starts"),
    [
        *((Fixed(delay), [9, 1, 4, 0], [0, delay, 2 * delay, 3 * delay]) for delay in (1, 2, 3, 6)),
        (Waiting(), [3, 1, 2, 0], [0, 4, 6, 9]),  # m = 3: <eos> at 4, where the next <bos> stands
        # 0, then 2 later; then when <eos> stands (2 + 3 + 1); then 10 later would be after the end (6 + 1 + 1).
        (Drawn((2, NEVER, 10, 1)), [5, 3, 1, 4, 0], [0, 2, 6, 8, 9]),
        (Drawn((3, 2)), [9, 9, 9, 9], [0, 3, 5, 7]),  # keeps to its last distance
    ],
)
def test_a_schedule_places_subsequences_of_known_lengths(
    schedule: Schedule, lengths: list[int], starts: list[int]
) -> None:
    assert place(schedule, lengths) == starts


def test_what_has_no_place_is_refused() -> None:
    assert place(Whole(), [7]) == [0]
    with pytest.raises(ValueError, match="subsequence 2"):
        place(Whole(), [7, 0])
    with pytest.raises(ValueError, match="at least 1"):
        Fixed(0)


def kind_of(batch: list[Schedule]) -> str:
    return "drawn" if isinstance(batch[0], Drawn) else batch[0].name


def test_random_schedules_come_with_the_probabilities_of_the_method() -> None:
    draws = 16_000
    rng = random.Random(7)
    kinds = Counter(kind_of(draw_schedules(rng, examples=1, subsequences=4)) for _ in range(draws))
    assert set(kinds) == {"wait", "delay1", "delay2", "delay3", "drawn"}
    for kind in ("wait", "delay1", "delay2", "delay3"):
        assert kinds[kind] / draws == pytest.approx(1 / 8, abs=0.015)
    assert kinds["drawn"] / draws == pytest.approx(1 / 2, abs=0.02)


def test_drawn_distances_come_with_the_probabilities_of_the_method() -> None:
    rng = random.Random(11)
    distances: Counter[float] = Counter()
    while distances.total() < 18_000:
        for schedule in draw_schedules(rng, examples=3, subsequences=5):
            if isinstance(schedule, Drawn):
                distances.update(schedule.distances)
    expected = {1: 2 / 9} | dict.fromkeys((2, 3, 4, 6, 8, 10, math.inf), 1 / 9)
    assert set(distances) == set(expected)
    for value, probability in expected.items():
        assert distances[value] / distances.total() == pytest.approx(probability, abs=0.012)


@given(seeds, st.integers(1, 6), st.integers(1, 9))
def test_a_batch_is_of_one_kind_and_has_a_schedule_for_each_example(
    seed: int, examples: int, subsequences: int
) -> None:
    batch = draw_schedules(random.Random(seed), examples, subsequences)
    assert len(batch) == examples
    assert len({kind_of([schedule]) for schedule in batch}) == 1
    if kind_of(batch) != "drawn":
        assert len(set(batch)) == 1


def test_every_start_of_every_example_of_a_drawn_batch_is_drawn_on_its_own() -> None:
    for seed in range(50):
        batch = draw_schedules(random.Random(seed), examples=8, subsequences=20)
        drawn = [schedule.distances for schedule in batch if isinstance(schedule, Drawn)]
        assert len(set(drawn)) != 1
        assert all(len(distances) >= 19 and len(set(distances)) > 2 for distances in drawn)


@given(seeds, lengths)
def test_starts_never_decrease_and_are_never_later_than_the_end_before(seed: int, lengths: list[int]) -> None:
    (schedule,) = draw_schedules(random.Random(seed), examples=1, subsequences=len(lengths) + 1)
    starts = place(schedule, [*lengths, 0])
    assert starts[0] == 0
    for (before, after), length in zip(pairwise(starts), lengths, strict=True):
        # A fixed delay lets the clock run on past a short subsequence.
        assert before <= after and (isinstance(schedule, Fixed) or after <= before + length + 1)


@given(seeds, lengths)
def test_training_and_decoding_place_the_same_text_alike(seed: int, lengths: list[int]) -> None:
    (schedule,) = draw_schedules(random.Random(seed), examples=1, subsequences=len(lengths) + 1)
    grid, _ = drive([[5] * m for m in lengths], schedule)
    # Algorithm 1 may explore again after the closing subsequence; what a target holds stands in the same places.
    assert [row.start for row in grid.subsequences][: len(lengths) + 1] == place(schedule, [*lengths, 0])
