"""The decoding loop: its events, its sequences, and that batching changes nothing."""

from collections import defaultdict
from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipedec_cli.pipeline.decode import Admitted, Finished, Stepped, decode
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Limits, Method
from pipedec_cli.pipeline.schedule import Fixed, RandomStarts, Waiting
from tests.fakes import (
    BOS,
    EOS,
    NEVER,
    HashedModel,
    ScriptedModel,
    ask_oracle,
    fed_and_made,
    hashed_next_logits,
    outcome_of,
)

A, B, C, D, E = range(2, 7)

# Examples that take 2 to 13 steps at Δt = 1, in no order.
FOUR = [[token] * 5 for token in (A, B, C, D)]
SCRIPTS = [[[A] * 3, [B]], [], [[A] * 12], [[C], [D]], FOUR, [[E]], [[A] * 8, [], [B]]]


def method(schedule=None, limits=None, empty_rows="retry", stop_on_repeat=False):
    return Method(
        schedule or Fixed(1), BOS, EOS, limits or Limits(), empty_rows, stop_on_repeat
    )


def numbered(scripts):
    """Sources for a `ScriptedModel`: each is the number of its script."""
    return [(number, [number]) for number in range(len(scripts))]


def test_a_freed_place_is_taken_by_the_next_example_before_the_next_call():
    model = ScriptedModel([[[A] * 12], [], [[B] * 3], [[C]]])
    events = list(decode(model, numbered([()] * 4), method(), sequences=2))
    texts = {
        event.example: event.texts for event in events if isinstance(event, Finished)
    }
    assert texts == {
        0: [[A] * 12],
        1: [],
        2: [[B] * 3],
        3: [[C]],
    }  # without <bos>, <eos> and empty ones
    assert [source for _, source in model.admissions] == [(0,), (1,), (2,), (3,)]
    assert (
        model.releases.count(1) == 3
    )  # the second served three examples while the first was busy
    assert all(len({row.sequence for row in call}) == 2 for call in model.calls[:7])


@pytest.mark.parametrize("sequences", [1, 2, 3])
def test_sources_are_drawn_only_when_a_sequence_is_free(sequences):
    drawn = []

    def sources():
        for number in range(len(SCRIPTS)):
            drawn.append(number)
            yield number, [number]

    done = 0
    for event in decode(ScriptedModel(SCRIPTS), sources(), method(), sequences):
        # A loop that has just freed one has not drawn for it yet.
        assert len(drawn) - done <= sequences
        done += isinstance(event, Finished)
    assert drawn == list(range(len(SCRIPTS)))


def test_events_come_as_soon_as_they_are_known():
    model = ScriptedModel(SCRIPTS)
    events = decode(model, numbered(SCRIPTS), method(), sequences=1)
    first = next(events)
    assert isinstance(first, Admitted) and first.example == 0
    assert model.calls == []  # "about to be encoded": nothing has been computed for it
    first = next(events)
    assert isinstance(first, Stepped)
    assert (first.example, first.step.number, len(model.calls)) == (0, 1, 1)


@pytest.mark.parametrize("count", [1, 2, 4, 9, 25])
def test_a_reader_that_stops_early_leaves_every_sequence_free(count):
    model = ScriptedModel(SCRIPTS)
    events = decode(model, numbered(SCRIPTS), method(), sequences=3)
    assert isinstance(events, Generator)
    for _ in range(count):
        next(events)
    events.close()
    assert model.sources == {}
    assert list(decode(model, numbered(SCRIPTS), method(), sequences=3)) == list(
        decode(ScriptedModel(SCRIPTS), numbered(SCRIPTS), method(), sequences=3)
    )


sources = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=5
)
bounds = st.one_of(
    st.builds(Limits, time_max=st.integers(1, 12), sub_max=st.integers(1, 5)),
    st.builds(
        Limits, st.none(), st.one_of(st.none(), st.integers(1, 5)), st.integers(1, 30)
    ),
)
distances = st.lists(st.sampled_from([1, 2, 4, NEVER]), min_size=1, max_size=4).map(
    tuple
)
schedules = st.one_of(
    st.builds(Fixed, st.integers(1, 4)),
    st.just(Waiting()),
    st.builds(RandomStarts, distances),
)
#: A schedule, the rule for empty rows, and stop_on_repeat.
ways = st.tuples(schedules, st.sampled_from(["retry", "stop"]), st.booleans())


@settings(max_examples=100)
@given(sources, ways, bounds, st.integers(1, 6))
def test_a_cached_model_in_any_batch_answers_as_the_oracle_that_recomputes_everything(
    sources, way, limits, sequences
):
    model, (schedule, *rule) = HashedModel(), way
    numbered = {70 - index: source for index, source in enumerate(sources)}
    events = defaultdict(list)
    how = method(schedule, limits, *rule)
    for event in decode(model, numbered.items(), how, sequences):
        events[event.example].append(event)
    calls = 0
    for number, source in numbered.items():
        first, *between, end = events[number]
        assert isinstance(first, Admitted)
        assert isinstance(end, Finished)
        steps = [event.step for event in between]
        assert [step.number for step in steps] == list(range(1, len(between) + 1))
        oracle = ask_oracle(hashed_next_logits(source), schedule, limits, *rule)
        assert outcome_of(end.grid) == outcome_of(oracle)
        assert fed_and_made(steps) == [tuple(call) for call in oracle.calls]
        calls += end.grid.steps
    # A call counts as one of each example that took part.
    assert calls == sum(len({row.sequence for row in call}) for call in model.calls)
    assert_free(model)
    assert set(model.releases) <= set(range(sequences))


def assert_free(model):
    """Every sequence was released in the end."""
    assert model.sources == {}
    admitted = sorted(sequence for sequence, _ in model.admissions)
    assert sorted(model.releases) == admitted


@settings(max_examples=60)
@given(
    st.lists(st.tuples(sources, ways, bounds), min_size=1, max_size=4),
    st.integers(1, 4),
    st.data(),
)
def test_newcomers_of_a_live_source_join_with_methods_of_their_own_and_leave_no_trace(
    groups, sequences, data
):
    """A live source has nothing now and then, and waits itself where nothing runs. Some examples are given up."""
    asked = [
        (source, way, limits) for sources, way, limits in groups for source in sources
    ]
    hows = [method(schedule, limits, *rule) for _, (schedule, *rule), limits in asked]
    model, running, gone = HashedModel(), set(), {}

    def live():
        for number, (source, *_) in enumerate(asked):
            for _ in range(data.draw(st.integers(0, 3))):
                if running:
                    yield None
            running.add(number)
            yield number, source

    ends = {}
    for event in decode(model, live(), hows.__getitem__, sequences, gone.__contains__):
        if isinstance(event, Stepped) and data.draw(
            st.sampled_from([*[False] * 9, True])
        ):
            gone.setdefault(event.example, event.step.number)
        if isinstance(event, Finished):
            running.remove(event.example)
            ends[event.example] = event.grid
    assert [*sorted(ends)] == [*range(len(asked))]
    for number, (source, (schedule, *rule), limits) in enumerate(asked):
        oracle = ask_oracle(hashed_next_logits(source), schedule, limits, *rule)
        if number in gone:
            assert ends[number].steps == gone[number] <= oracle.steps
        else:
            assert outcome_of(ends[number]) == outcome_of(oracle)
    assert_free(model)


def test_a_method_is_the_papers_unless_told_otherwise_and_needs_a_sequence():
    how = Method(Fixed(1), bos=BOS, eos=EOS)
    assert (how.limits, how.empty_rows) == (
        Limits(time_max=50, sub_max=20, max_tokens=None),
        "retry",
    )
    assert Limits(time_max=None, sub_max=None, max_tokens=512) == SEQUENTIAL_LIMITS
    with pytest.raises(ValueError, match="at least 1 sequence"):
        list(decode(ScriptedModel(SCRIPTS), numbered(SCRIPTS), how, sequences=0))
