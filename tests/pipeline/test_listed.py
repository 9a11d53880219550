"""Lists whose items have several rows: the grid and the loop against the oracle, and where items stand."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipedec_cli.pipeline.decode import decode
from pipedec_cli.pipeline.grid import ItemRows, Limits, Method, Opening, openings_of
from pipedec_cli.pipeline.schedule import Fixed, Listed, Waiting
from tests.fakes import BOS, EOS, HashedModel, ScriptedModel, hashed_next_logits
from tests.oracle import OracleSchedule, oracle_listed
from tests.pipeline.test_together import assert_oracles, limits, outcome, tokens

#: Three leaves: a field, and a list of two.
LISTS = (None, 0, 0)


def keys(leaf, item):
    """What is known of a leaf in an item: its own token, and as many others as the item has digits."""
    return [2 + leaf, *[3 + item % 7] * len(str(item))]


def method(lists=LISTS, between=None, limit=None, item_max=20):
    def opening(leaf, item):
        return Opening(tuple(keys(leaf, item)), place=(str(leaf), item))

    names = dict.fromkeys(of for of in lists if of is not None)
    places = [tuple(leaf for leaf, of in enumerate(lists) if of == name) for name in names]
    rows = (
        ItemRows(at, lambda items, at=at: tuple(opening(leaf, len(items) + 1) for leaf in at))
        for at in places
    )
    first = tuple(opening(leaf, 1) for leaf in range(len(lists)))
    schedule = Listed(between or Fixed(1), item_max)
    return Method(schedule, BOS, EOS, limit or Limits(), openings=first, lists=tuple(rows))


def by_hand(script, **given):
    """The grid of rows that say what a script has for them, in the order in which they are established."""
    events = list(decode(ScriptedModel([script]), [(0, [0])], method(**given)))
    return outcome(events)


def test_item_two_stands_one_delay_after_item_one_and_an_empty_item_closes_the_list():
    """A field of 3 tokens, items of 2 + 1 and 0 + 1 tokens, then nothing."""
    grid, steps = by_hand([[2] * 3, [3, 3], [4], [], [5], [], []], between=Fixed(2))
    assert [row.start for row in grid.subsequences] == [0, 0, 0, 2, 2, 4, 4]
    assert [opening.place for opening in grid.openings] == [
        *(("0", 1), ("1", 1), ("2", 1), ("1", 2), ("2", 2), ("1", 3), ("2", 3))
    ]
    assert [slot.time for slot in steps[2].fed if slot.subsequence == 4] == [0, 1, 2], (
        "its keys stand before it"
    )
    assert (grid.steps, grid.tokens, grid.truncated) == (5, 7, None)


def test_the_next_item_may_wait_for_the_end_of_the_last_row():
    grid, _ = by_hand([[], [3, 3], [4], [5], [6, 6, 6], [], []], between=Waiting())
    assert [row.start for row in grid.subsequences] == [0, 0, 0, 3, 3, 7, 7]


def test_a_pause_between_two_items_takes_no_call():
    grid, steps = by_hand([[], [3], [4], [], []], between=Fixed(9))
    assert [step.time for step in steps] == [1, 2, 10]
    assert (grid.steps, grid.truncated) == (3, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"item_max": 2}, "item_max"),
        ({"item_max": 3}, None),
        ({"limit": Limits(2)}, "time_max"),
        ({"limit": Limits(50, None, 3)}, "max_tokens"),
        ({"limit": Limits(4), "between": Fixed(6)}, "time_max"),
    ],
)
def test_a_list_that_is_cut_is_marked(given, told):
    grid, _ = by_hand([[], [3], [4], [5], [], [], []], **given)
    assert grid.truncated == told


@pytest.mark.parametrize("sequences", [1, 3])
@given(
    sources=st.lists(st.lists(tokens, max_size=3), min_size=1, max_size=4),
    lists=st.lists(st.sampled_from([None, 0, 1]), min_size=1, max_size=5),
    delay=st.sampled_from([1, 2, 3, None]),
    limit=limits,
    item_max=st.integers(1, 5),
)
@example(sources=[[2]], lists=[0, None, 1, 0], delay=2, limit=Limits(40), item_max=5)
def test_the_grid_equals_the_oracle(sequences, sources, lists, delay, limit, item_max):
    """Every token changes what the others' answers are, under any limits; and the rows of a grid tell whose they are."""
    between, schedule = (
        (Fixed(delay), OracleSchedule("fixed", delay)) if delay else (Waiting(), OracleSchedule("wait"))
    )
    how = method(lists, between, limit, item_max)
    events = list(decode(HashedModel(), enumerate(sources), how, sequences))
    bounds = {
        "bos": BOS,
        "eos": EOS,
        "time_max": limit.time_max,
        "max_tokens": limit.max_tokens,
        "item_max": item_max,
    }
    for number, source in enumerate(sources):
        told = oracle_listed(hashed_next_logits(source), keys, lists, schedule, **bounds)
        assert_oracles(events, number, told)
        grid, _ = outcome(events, number)
        rows = [(row.start, row.tokens) for row in grid.subsequences]
        assert [one.place for one in openings_of(how, rows)] == [one.place for one in grid.openings]


def test_a_grid_that_is_damaged_has_the_openings_of_its_first_rows():
    how = method()
    assert openings_of(how, [(0, [2, EOS])]) == how.openings
