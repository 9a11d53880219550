"""Who sees whom, at what distance: against drawings and against the Manhattan distance of every pair."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.pipeline.attention import distance, position, visible
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Waiting, place

# A line is a token that looks, a column one that is looked at, in the same order. Figure 3b of the paper has "A B C",
# "D E" and the empty subsequence that closes the target, at Δt = 1.
DRAWINGS: dict[str, tuple[Schedule, list[int], str]] = {
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
    "the same text at Δt = 2": (
        Fixed(2),
        [3, 2, 0],
        """
        <bos>  #.... .... ..
        A      ##... .... ..
        B      ###.. .... ..
        C      ####. .... ..
        <eos>  ##### .... ..

        <bos>  ###.. #... ..
        D      ####. ##.. ..
        E      ##### ###. ..
        <eos>  ##### #### ..

        <bos>  ##### ###. #.
        <eos>  ##### #### ##
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


def coordinates(schedule: Schedule, lengths: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """(subsequence, time) of every token of a text, <bos> and <eos> included, subsequence by subsequence."""
    starts = place(schedule, lengths)
    places = [
        (i, start + j)
        for i, (start, m) in enumerate(zip(starts, lengths, strict=True), 1)
        for j in range(m + 2)
    ]
    subsequence, time = zip(*places, strict=True)
    return torch.tensor(subsequence), torch.tensor(time)


def parsed(drawing: str) -> list[list[bool]]:
    lines = [line.split(maxsplit=1)[1].replace(" ", "") for line in drawing.splitlines() if line.strip()]
    return [[mark == "#" for mark in line] for line in lines]


@pytest.mark.parametrize("name", DRAWINGS)
def test_visible_equals_the_drawing(name: str) -> None:
    schedule, lengths, drawing = DRAWINGS[name]
    tokens = coordinates(schedule, lengths)

    assert visible(tokens, tokens).tolist() == parsed(drawing)


def test_visible_takes_batches_and_other_queries_than_keys() -> None:
    subsequence, time = coordinates(Fixed(1), [3, 2, 0])
    keys = (torch.stack([subsequence, subsequence]), torch.stack([time, time + 5]))
    queries = (keys[0][:, 5:7], keys[1][:, 5:7])

    seen = visible(queries, keys)

    expected = visible((subsequence, time), (subsequence, time))[5:7]
    assert seen.shape == (2, 2, len(time))
    assert seen[0].equal(expected)
    assert seen[1].equal(expected)


tokens = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 600)), min_size=1, max_size=30)


@given(tokens)
def test_distance_is_manhattan_for_all_visible_pairs(places: list[tuple[int, int]]) -> None:
    subsequence, time = (torch.tensor(values) for values in zip(*places, strict=True))
    positions = position(subsequence, time)

    distances = distance(positions, positions)
    seen = visible((subsequence, time), (subsequence, time))

    for q, (i1, t1) in enumerate(places):
        for k, (i2, t2) in enumerate(places):
            assert bool(seen[q, k]) == (i2 <= i1 and t2 <= t1)
            if seen[q, k]:
                assert distances[q, k] == abs(t1 - t2) + abs(i1 - i2)


def test_position_counts_a_subsequence_down_as_much_as_a_time_step_across() -> None:
    subsequence, time = coordinates(Fixed(1), [3, 2, 0])

    # <bos> A B C <eos> at p = 1…5; the next subsequence starts one time-step later and stands one row lower.
    assert position(subsequence, time).tolist() == [1, 2, 3, 4, 5, 3, 4, 5, 6, 5, 6]


def test_distance_takes_batches() -> None:
    queries, keys = torch.tensor([[7], [9]]), torch.tensor([[1, 2, 3], [1, 2, 3]])

    assert distance(queries, keys).tolist() == [[[6, 5, 4]], [[8, 7, 6]]]
