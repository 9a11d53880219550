"""Rows that are known to come, with keys, and lists of them: against the oracle, and where each token stands."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipedec_cli.pipeline.decode import Finished, Stepped, decode
from pipedec_cli.pipeline.grid import (
    ItemRows,
    Limits,
    Method,
    Odds,
    Opening,
    any_token,
    mask_of,
    openings_of,
)
from pipedec_cli.pipeline.schedule import Fixed, Listed, Together, Waiting, place
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
from tests.oracle import OracleSchedule, Placed, oracle_listed, oracle_together

NAME, FOOD, COLON = [8, 10], [9, 10], 10

tokens = st.integers(2, VOCABULARY - 1)
keys = st.lists(st.lists(tokens, max_size=4), min_size=1, max_size=5)
limits = st.builds(
    Limits, st.integers(1, 9), st.just(2), st.one_of(st.none(), st.integers(1, 12))
)


def method(known, limit=None, allowed=None):
    choices = allowed or [any_token] * len(known)
    openings = tuple(
        Opening(tuple(key), choice) for key, choice in zip(known, choices, strict=True)
    )
    return Method(Together(), BOS, EOS, limit or Limits(), openings=openings)


def assert_oracles(events, index, oracle):
    grid, steps = outcome(events, index)
    assert outcome_of(grid) == outcome_of(oracle)
    assert fed_and_made(steps) == [
        (call.time, call.fed, call.made) for call in oracle.calls
    ]


def outcome(events, index=0):
    """What became of an example: its grid and its steps."""
    own = [event for event in events if event.example == index]
    (grid,) = [event.grid for event in own if isinstance(event, Finished)]
    return grid, [event.step for event in own if isinstance(event, Stepped)]


def test_a_key_stands_before_the_start_and_goes_in_with_bos_in_one_call():
    events = list(
        decode(ScriptedModel([[[2, 3], []]]), [(0, [0])], method([NAME, [9, 5, 10]]))
    )
    grid, (first, second, third) = outcome(events)
    # The last token of a key answers, and of an ended row none.
    answers = [
        [
            (slot.token, slot.answers)
            for slot in step.fed
            if slot.answers or not slot.time
        ]
        for step in (first, second)
    ]
    assert answers == [[(COLON, True), (COLON, True)], [(2, True)]]
    assert [len(step.made) for step in (first, second, third)] == [2, 1, 1]
    # as many steps as the longest value has tokens, and its <eos>; nothing is explored,
    # and nothing closes the text
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
    bounds = {
        "bos": BOS,
        "eos": EOS,
        "time_max": limit.time_max,
        "max_tokens": limit.max_tokens,
    }
    assert_oracles(
        events, 0, oracle_together(scripted_next_logits(texts, known), known, **bounds)
    )


@pytest.mark.parametrize("sequences", [1, 3])
@given(
    sources=st.lists(st.lists(tokens, max_size=3), min_size=1, max_size=4),
    known=keys,
    data=st.data(),
)
def test_a_model_that_sees_the_keys_says_what_the_oracle_says(
    sequences, sources, known, data
):
    """Every token changes what the others' answers are, and some choices are narrowed."""
    narrow = st.lists(st.integers(1, VOCABULARY - 1), max_size=4, unique=True).map(
        sorted
    )
    choices = [data.draw(st.lists(narrow, min_size=1, max_size=3)) for _ in known]

    def allowed(row, made):
        return choices[row][len(made) % len(choices[row])]

    each = [
        lambda made, row=row: mask_of(allowed(row, made)) for row in range(len(known))
    ]
    how, model = method(known, Limits(8), each), HashedModel()
    events = list(decode(model, enumerate(sources), how, sequences))
    for number, source in enumerate(sources):
        bounds = {"bos": BOS, "eos": EOS, "allowed": allowed, "time_max": 8}
        assert_oracles(
            events, number, oracle_together(hashed_next_logits(source), known, **bounds)
        )


def test_the_most_probable_end_of_a_row_is_chosen_and_of_equals_the_longest():
    how = Method(
        Together(),
        BOS,
        EOS,
        Limits(4),
        openings=(Opening((8,), end=EOS), Opening((9,))),
    )
    grid = how.new_grid()
    for answers, odds in (
        ((3, 3), Odds(0.5, 0.0, 0.5)),  # no end is allowed
        ((4, EOS), Odds(0.5, 0.25, 0.5)),
        ((5, 0), Odds(1.0, 0.5, 1.0)),
        ((6, 0), Odds(1.0, 0.5, 1.0)),
    ):
        planned = grid.plan()
        places = iter(answers)
        chosen = [next(places) if slot.answers else 0 for slot in planned]
        grid.commit(
            chosen,
            [odds._replace(end=odds.end * (slot.end == EOS)) for slot in planned],
        )
    first, second = grid.subsequences
    assert (first.best, first.value_tokens, first.value_confidence) == (
        (0.03125, 3),
        [3, 4, 5],
        0.03125,
    )
    assert (second.best, second.value_tokens, second.value_confidence) == (
        (0.0, -1),
        [3],
        0.25,
    )
    assert (first.confidence, first.probability, first.ended) == (0.25, 0.0625, False)


@pytest.mark.parametrize(("blind", "tokens"), [(True, [3, 4, EOS]), (False, [3, 4, 5])])
def test_a_blind_row_ends_where_no_later_end_can_be_more_probable(blind, tokens):
    """A row that is not blind goes on: other rows see its tokens."""
    how = Method(
        Together(), BOS, EOS, Limits(4), openings=(Opening((8,), end=EOS),), blind=blind
    )
    grid = how.new_grid()
    for token, odds in ((3, Odds(1.0)), (4, Odds(0.5, 0.5)), (5, Odds(0.9, 0.1))):
        count = len(grid.plan())
        grid.commit([token] * count, [odds] * count)
    (row,) = grid.subsequences
    assert (row.tokens, row.value_tokens, row.value_confidence) == (tokens, [3], 0.5)
    assert bool(grid.plan()) is not blind


def test_the_oracle_sees_the_keys_of_all_rows_above():
    seen = []

    def next_logits(grid, wanted):
        seen.append(grid)
        return [[float(token == EOS) for token in range(VOCABULARY)] for _ in wanted]

    oracle_together(next_logits, [NAME, [9]], bos=BOS, eos=EOS)
    first = [Placed(1, -2, BOS), Placed(1, -1, 8), Placed(1, 0, 10)]
    assert seen == [[*first, Placed(2, -1, BOS), Placed(2, 0, 9)]]


# --- Lists whose items have several rows

#: Three leaves: a field, and a list of two.
LISTS = (None, 0, 0)


def keys(leaf, item):
    """What is known of a leaf in an item: its own token, and as many others as the item has digits."""
    return [2 + leaf, *[3 + item % 7] * len(str(item))]


def listed(lists=LISTS, between=None, limit=None, item_max=20):
    def opening(leaf, item):
        return Opening(tuple(keys(leaf, item)), place=(str(leaf), item))

    names = dict.fromkeys(of for of in lists if of is not None)
    places = [
        tuple(leaf for leaf, of in enumerate(lists) if of == name) for name in names
    ]
    rows = (
        ItemRows(at, lambda item, at=at: tuple(opening(leaf, item) for leaf in at))
        for at in places
    )
    first = tuple(opening(leaf, 1) for leaf in range(len(lists)))
    schedule = Listed(between or Fixed(1), item_max)
    return Method(
        schedule, BOS, EOS, limit or Limits(), openings=first, lists=tuple(rows)
    )


def by_hand(script, **given):
    """The grid of rows that say what a script has for them, in the order in which they are established."""
    events = list(decode(ScriptedModel([script]), [(0, [0])], listed(**given)))
    return outcome(events)


def test_item_two_stands_one_delay_after_item_one_and_an_empty_item_closes_the_list():
    """A field of 3 tokens, items of 2 + 1 and 0 + 1 tokens, then nothing."""
    grid, steps = by_hand([[2] * 3, [3, 3], [4], [], [5], [], []], between=Fixed(2))
    assert [row.start for row in grid.subsequences] == [0, 0, 0, 2, 2, 4, 4]
    assert [opening.place for opening in grid.openings] == [
        *(("0", 1), ("1", 1), ("2", 1), ("1", 2), ("2", 2), ("1", 3), ("2", 3))
    ]
    assert [slot.time for slot in steps[2].fed if slot.subsequence == 4] == [0, 1, 2], (
        "its keys stand before"
    )
    assert (grid.steps, grid.tokens, grid.truncated) == (5, 7, None)


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
def test_a_grid_with_lists_equals_the_oracle(
    sequences, sources, lists, delay, limit, item_max
):
    """Every token changes what the others' answers are, under any limits; and the rows of a grid tell whose they are."""
    between, schedule = (
        (Fixed(delay), OracleSchedule("fixed", delay))
        if delay
        else (Waiting(), OracleSchedule("wait"))
    )
    how = listed(lists, between, limit, item_max)
    events = list(decode(HashedModel(), enumerate(sources), how, sequences))
    bounds = {
        "time_max": limit.time_max,
        "max_tokens": limit.max_tokens,
        "item_max": item_max,
    }
    for number, source in enumerate(sources):
        told = oracle_listed(
            hashed_next_logits(source),
            keys,
            lists,
            schedule,
            bos=BOS,
            eos=EOS,
            **bounds,
        )
        assert_oracles(events, number, told)
        grid, _ = outcome(events, number)
        rows = [(row.start, row.tokens) for row in grid.subsequences]
        assert [one.place for one in openings_of(how, rows)] == [
            one.place for one in grid.openings
        ]


def test_a_grid_that_is_damaged_has_the_openings_of_its_first_rows():
    how = listed()
    assert openings_of(how, [(0, [2, EOS])]) == how.openings


# --- Rows that open others

#: A row of so many tokens, and the rows that it opens.
nested = st.recursive(st.tuples(st.integers(0, 4), st.just(())), lambda inner: st.tuples(st.integers(0, 4), st.lists(inner, max_size=3).map(tuple)), max_leaves=12)  # fmt: skip


def opening_of(tree):
    _, inner = tree
    opens = (lambda opening, row: tuple(map(opening_of, inner))) if inner else None
    return Opening((5,), place=tree, opens=opens)


def decoded(rows, limits):
    """The grid of rows as long as they are said to be."""
    grid = Method(
        Together(), BOS, EOS, limits, openings=tuple(map(opening_of, rows)), blind=True
    ).new_grid()
    while planned := grid.plan():
        told = [
            (
                grid.openings[slot.subsequence - 1].place[0],
                grid.subsequences[slot.subsequence - 1],
            )
            for slot in planned
        ]
        grid.commit([EOS if len(row.tokens) == length else 3 for length, row in told])
    return grid


def laid(rows, start=0):
    """The start and the length of each row, by the plain rule: a row opens others where it ends."""
    for length, inner in rows:
        yield start, length
        yield from laid(inner, start + length + 1)


@given(st.lists(nested, min_size=1, max_size=4))
def test_a_row_opens_others_when_it_has_ended(rows):
    grid = decoded(rows, Limits(999, None))
    wanted = sorted(laid(rows))
    assert (
        sorted((row.start, len(row.tokens) - 1) for row in grid.subsequences) == wanted
    )
    assert grid.steps == max(start + length + 1 for start, length in wanted)
    assert grid.truncated is None


@given(st.lists(nested, min_size=1, max_size=4), st.integers(1, 9))
def test_no_more_rows_are_opened_than_sub_max_and_the_text_is_marked(rows, most):
    wanted, grid = len([*laid(rows)]), decoded(rows, Limits(999, most))
    assert len(grid.subsequences) == min(wanted, max(most, len(rows)))
    assert grid.truncated == ("sub_max" if len(grid.subsequences) < wanted else None)
