"""Rows that are known to come, each with a key: the grid and the loop against the oracle, and where each token stands."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipedec_cli.pipeline.decode import Finished, Stepped, decode
from pipedec_cli.pipeline.grid import Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Together, place
from tests.fakes import (
    BOS,
    EOS,
    VOCABULARY,
    HashedModel,
    ScriptedModel,
    fed_and_made,
    hashed_next_logits,
    outcome_of,
    scripted_next_logits,
)
from tests.oracle import Placed, oracle_together

NAME, FOOD, COLON = [8, 10], [9, 10], 10

tokens = st.integers(2, VOCABULARY - 1)
keys = st.lists(st.lists(tokens, max_size=4), min_size=1, max_size=5)
limits = st.builds(Limits, st.integers(1, 9), st.just(2), st.one_of(st.none(), st.integers(1, 12)))


def method(known, limit=None, allowed=None):
    choices = allowed or [lambda made: ()] * len(known)
    openings = tuple(Opening(tuple(key), choice) for key, choice in zip(known, choices, strict=True))
    return Method(Together(), BOS, EOS, limit or Limits(), openings=openings)


def assert_oracles(events, index, oracle):
    grid, steps = outcome(events, index)
    assert outcome_of(grid) == outcome_of(oracle)
    assert fed_and_made(steps) == [(call.time, call.fed, call.made) for call in oracle.calls]


def outcome(events, index=0):
    """What became of an example: its grid and its steps."""
    own = [event for event in events if event.example == index]
    (grid,) = [event.grid for event in own if isinstance(event, Finished)]
    return grid, [event.step for event in own if isinstance(event, Stepped)]


def test_a_key_stands_before_the_start_and_goes_in_with_bos_in_one_call():
    events = list(decode(ScriptedModel([[[2, 3], []]]), [(0, [0])], method([NAME, [9, 5, 10]])))
    grid, (first, second, third) = outcome(events)
    fed = [
        (1, -2, BOS, False),
        (1, -1, 8, False),
        (1, 0, COLON, True),
        *[(2, -3, BOS, False), (2, -2, 9, False), (2, -1, 5, False), (2, 0, COLON, True)],
    ]
    assert [(slot.subsequence, slot.time, slot.token, slot.answers) for slot in first.fed] == fed
    assert [slot.token for slot in first.made] == [2, EOS]
    assert [slot.time for slot in first.made] == [1, 1]
    assert [(slot.token, slot.answers) for slot in second.fed] == [(2, True), (EOS, False)]
    assert [slot.token for slot in third.made] == [EOS]
    # as many steps as the longest value has tokens, and its <eos>; nothing is explored, and nothing closes the text
    assert (grid.steps, grid.tokens, grid.empty, grid.truncated) == (3, 2, 0, None)
    assert not grid.row_budget_exhausted
    assert place(Together(), [2, 0, 7]) == [0, 0, 0]


@given(st.lists(st.lists(tokens, max_size=6), max_size=6), keys, limits)
@example([[2] * 9], [NAME], Limits(3))
@example([[2] * 9, [3]], [NAME, FOOD], Limits(9, 2, 4))
@example([[2]] * 5, [NAME] * 5, Limits(1))
def test_the_grid_equals_the_oracle(texts, known, limit):
    """Any values, any keys, under limits of time and tokens; sub_max has no say."""
    events = list(decode(ScriptedModel([texts]), [(0, [0])], method(known, limit)))
    bounds = {"bos": BOS, "eos": EOS, "time_max": limit.time_max, "max_tokens": limit.max_tokens}
    assert_oracles(events, 0, oracle_together(scripted_next_logits(texts, known), known, **bounds))


@pytest.mark.parametrize("sequences", [1, 3])
@given(sources=st.lists(st.lists(tokens, max_size=3), min_size=1, max_size=4), known=keys, data=st.data())
def test_a_model_that_sees_the_keys_says_what_the_oracle_says(sequences, sources, known, data):
    """Every token changes what the others' answers are, and some choices are narrowed."""
    narrow = st.lists(st.integers(1, VOCABULARY - 1), max_size=4, unique=True).map(sorted)
    choices = [data.draw(st.lists(narrow, min_size=1, max_size=3)) for _ in known]

    def allowed(row, made):
        return choices[row][len(made) % len(choices[row])]

    each = [lambda made, row=row: allowed(row, made) for row in range(len(known))]
    how, model = method(known, Limits(8), each), HashedModel()
    events = list(decode(model, enumerate(sources), how, sequences))
    for number, source in enumerate(sources):
        bounds = {"bos": BOS, "eos": EOS, "allowed": allowed, "time_max": 8}
        assert_oracles(events, number, oracle_together(hashed_next_logits(source), known, **bounds))


def test_the_oracle_sees_the_keys_of_all_rows_above():
    seen = []

    def next_logits(grid, wanted):
        seen.append(grid)
        return [[float(token == EOS) for token in range(VOCABULARY)] for _ in wanted]

    oracle_together(next_logits, [NAME, [9]], bos=BOS, eos=EOS)
    assert seen == [
        [Placed(1, -2, BOS), Placed(1, -1, 8), Placed(1, 0, 10), Placed(2, -1, BOS), Placed(2, 0, 9)]
    ]
