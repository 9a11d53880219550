"""Start times, drawn at random for training too; and who then sees whom, at which distance."""

import math
import random
from collections import Counter
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.pipeline.attention import behind, visible
from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.pipeline.schedule import (
    Fixed,
    RandomStarts,
    Waiting,
    Whole,
    draw_schedule,
    place,
)
from tests.fakes import NEVER, drive

lengths = st.lists(st.integers(1, 6), max_size=8)
seeds = st.integers(0, 2**32)


@pytest.mark.parametrize(
    ("schedule", "lengths", "starts"),
    [
        *(
            (Fixed(delay), [9, 1, 4, 0], [0, delay, 2 * delay, 3 * delay])
            for delay in (1, 2, 3, 6)
        ),
        (
            Waiting(),
            [3, 1, 2, 0],
            [0, 4, 6, 9],
        ),  # m = 3: <eos> at 4, where the next <bos> stands
        # 0, then 2 later; then when <eos> stands (2 + 3 + 1); then 10 later would be
        # after the end (6 + 1 + 1).
        (RandomStarts((2, NEVER, 10, 1)), [5, 3, 1, 4, 0], [0, 2, 6, 8, 9]),
        # The second has ended at 3, and the first is live until 10.
        (RandomStarts((1, 5, NEVER)), [9, 1, 2, 0], [0, 1, 6, 10]),
        (RandomStarts((1, 12)), [9, 1, 0], [0, 1, 10]),
        (
            RandomStarts((3, 2)),
            [9, 9, 9, 9],
            [0, 3, 5, 7],
        ),  # keeps to its last distance
    ],
)
def test_a_schedule_places_subsequences_of_known_lengths(schedule, lengths, starts):
    assert place(schedule, lengths) == starts


def test_what_has_no_place_is_refused():
    assert place(Whole(), [7]) == [0]
    with pytest.raises(ValueError, match="subsequence 2"):
        place(Whole(), [7, 0])
    with pytest.raises(ValueError, match="at least 1"):
        Fixed(0)


def kind_of(schedule):
    return "drawn" if isinstance(schedule, RandomStarts) else schedule.name


def draw(seed, subsequences, example=0):
    """The schedule of one example of the batch of that seed."""
    return draw_schedule(
        random.Random(seed), random.Random(f"{seed} {example}"), subsequences
    )


def test_random_schedules_and_distances_come_with_the_probabilities_of_the_method():
    rng, draws = random.Random(7), 16_000
    drawn = [draw_schedule(rng, rng, 4) for _ in range(draws)]
    kinds = Counter(map(kind_of, drawn))
    distances = Counter(
        one for made in drawn if kind_of(made) == "drawn" for one in made.distances
    )
    usual = dict.fromkeys(("wait", "delay1", "delay2", "delay3"), 1 / 8) | {
        "drawn": 1 / 2
    }
    twice = dict.fromkeys(range(1, 13), 1 / 16) | dict.fromkeys(
        (1, 2, math.inf), 2 / 16
    )
    for found, expected, most in ((kinds, usual, 0.015), (distances, twice, 0.012)):
        assert set(found) == set(expected)
        for value, probability in expected.items():
            assert found[value] / found.total() == pytest.approx(probability, abs=most)


@given(seeds, st.integers(1, 6), st.integers(1, 9))
def test_a_batch_is_of_one_kind(seed, examples, subsequences):
    batch = [draw(seed, subsequences, example) for example in range(examples)]
    assert len({*map(kind_of, batch)}) == 1
    if kind_of(batch[0]) != "drawn":
        assert len(set(batch)) == 1


def test_every_start_of_every_example_of_a_drawn_batch_is_drawn_on_its_own():
    for seed in range(50):
        batch = [draw(seed, 20, example) for example in range(8)]
        drawn = [
            schedule.distances
            for schedule in batch
            if isinstance(schedule, RandomStarts)
        ]
        assert len(set(drawn)) != 1
        assert all(
            len(distances) >= 19 and len(set(distances)) > 2 for distances in drawn
        )


@given(seeds, lengths)
def test_starts_never_decrease_and_are_never_later_than_all_ends_before(seed, lengths):
    schedule = draw(seed, len(lengths) + 1)
    starts = place(schedule, [*lengths, 0])
    ends = accumulate(
        (start + length + 1 for start, length in zip(starts, lengths, strict=False)),
        max,
    )
    assert starts[0] == 0
    for (before, after), end in zip(pairwise(starts), ends, strict=True):
        # A fixed delay lets the clock run on past a short subsequence.
        assert before <= after and (isinstance(schedule, Fixed) or after <= end)


@given(seeds, lengths)
def test_training_and_decoding_place_the_same_text_alike(seed, lengths):
    schedule = draw(seed, len(lengths) + 1)
    grid, _ = drive(
        [[5] * m for m in lengths], schedule, Limits(time_max=200)
    )  # none is cut
    # Algorithm 1 may explore again after the closing subsequence; what a target holds
    # stands in the same places.
    assert [row.start for row in grid.subsequences][: len(lengths) + 1] == place(
        schedule, [*lengths, 0]
    )


# A line is a token that looks, a column one that is looked at, in the same order.
# Figure 3b of the paper has "A B C", "D E" and the empty subsequence that closes the
# target, at Δt = 1.
DRAWINGS = {
    "figure 3b": (
        Fixed(1),
        [3, 2, 0],
        """
        <bos>  #.... .... ..
        A      ##... .... ..
        B      ###.. .... ..
        C      ####. .... ..
        <eos>  ##### .... ..

        <bos>  ##... #... ..
        D      ###.. ##.. ..
        E      ####. ###. ..
        <eos>  ##### #### ..

        <bos>  ###.. ##.. #.
        <eos>  ####. ###. ##
        """,
    ),
    "a pause at Δt = 3: the first has ended before the second starts": (
        Fixed(3),
        [1, 1],
        """
        <bos>  #.. ...
        A      ##. ...
        <eos>  ### ...

        <bos>  ### #..
        B      ### ##.
        <eos>  ### ###
        """,
    ),
    "one after the other: every token sees all before it": (
        Waiting(),
        [2, 1, 0],
        """
        <bos>  #... ... ..
        A      ##.. ... ..
        B      ###. ... ..
        <eos>  #### ... ..

        <bos>  #### #.. ..
        C      #### ##. ..
        <eos>  #### ### ..

        <bos>  #### ### #.
        <eos>  #### ### ##
        """,
    ),
}


def coordinates(schedule, lengths):
    """(subsequence, time) of every token of a text, <bos> and <eos> included, subsequence by subsequence."""
    numbered = enumerate(zip(place(schedule, lengths), lengths, strict=True), 1)
    places = [(i, start + j) for i, (start, m) in numbered for j in range(m + 2)]
    subsequence, time = zip(*places, strict=True)
    return torch.tensor(subsequence), torch.tensor(time)


@pytest.mark.parametrize("name", DRAWINGS)
def test_visible_equals_the_drawing(name):
    schedule, lengths, drawing = DRAWINGS[name]
    tokens = coordinates(schedule, lengths)
    lines = [
        line.split(maxsplit=1)[1].replace(" ", "")
        for line in drawing.splitlines()
        if line.strip()
    ]
    assert visible(tokens, tokens).tolist() == [
        [mark == "#" for mark in line] for line in lines
    ]


tokens = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 600)), min_size=1, max_size=30
)


@given(tokens)
def test_distance_is_manhattan_for_all_visible_pairs(places):
    subsequence, time = (torch.tensor(values) for values in zip(*places, strict=True))
    positions, (first, second) = (
        behind(subsequence, time, 7),
        (subsequence[None], time[None]),
    )
    distances = positions[:, None] - positions
    seen = visible((first, second), (first, second))[0]
    assert visible((first[:, 1:], second[:, 1:]), (first, second))[0].equal(seen[1:])
    for q, (i1, t1) in enumerate(places):
        for k, (i2, t2) in enumerate(places):
            assert bool(seen[q, k]) == (i2 <= i1 and t2 <= t1)
            if seen[q, k]:
                assert distances[q, k] == abs(t1 - t2) + abs(i1 - i2)
