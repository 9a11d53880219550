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
    numbered = enumerate(zip(place(schedule, lengths), lengths, strict=True), 1)
    places = [(i, start + j) for i, (start, m) in numbered for j in range(m + 2)]
    subsequence, time = zip(*places, strict=True)
    return torch.tensor(subsequence), torch.tensor(time)


@pytest.mark.parametrize("name", DRAWINGS)
def test_visible_equals_the_drawing(name: str) -> None:
    schedule, lengths, drawing = DRAWINGS[name]
    tokens = coordinates(schedule, lengths)
    lines = [line.split(maxsplit=1)[1].replace(" ", "") for line in drawing.splitlines() if line.strip()]
    assert visible(tokens, tokens).tolist() == [[mark == "#" for mark in line] for line in lines]


tokens = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 600)), min_size=1, max_size=30)


@given(tokens)
def test_distance_is_manhattan_for_all_visible_pairs(places: list[tuple[int, int]]) -> None:
    subsequence, time = (torch.tensor(values) for values in zip(*places, strict=True))
    positions = position(subsequence, time)
    twice, (first, second) = torch.stack([positions, positions + 7]), (subsequence[None], time[None])
    distances = distance(twice, twice)[1]  # batches are taken too, and queries that are not the keys
    seen = visible((first, second), (first, second))[0]
    assert visible((first[:, 1:], second[:, 1:]), (first, second))[0].equal(seen[1:])
    for q, (i1, t1) in enumerate(places):
        for k, (i2, t2) in enumerate(places):
            assert bool(seen[q, k]) == (i2 <= i1 and t2 <= t1)
            if seen[q, k]:
                assert distances[q, k] == abs(t1 - t2) + abs(i1 - i2)
