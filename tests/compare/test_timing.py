"""The timing loop, with a clock that only the decoders move, and speed over another decoder's."""

import time

import pytest

from pipedec_cli.compare.timing import (
    Output,
    Pass,
    Timing,
    device_clock,
    gain,
    time_together,
)
from tests.compare.decoders import FakeClock, FakeDecoder, timing

SOURCES = [[5, 6, 7, 1], [8, 1], [9, 9, 9, 9, 9, 1]]


@pytest.fixture
def clock():
    return FakeClock()


def time_them(clock, rest=lambda: None, **decoders):
    options = {
        name: decoders.pop(name)
        for name in ("batch_size", "repeats", "on_pass")
        if name in decoders
    }
    contest = {name: (decoder, SOURCES) for name, decoder in decoders.items()}
    return time_together(contest, clock=clock, rest=rest, **options)


def test_first_pass_does_not_count_the_median_does_and_json_holds_each_repeat(clock):
    # Three runs a pass, one for each source; the seconds of a call pass by pass: 50
    # (warming up), 1, 9, 2.
    steps = [seconds for seconds in (50.0, 1.0, 9.0, 2.0) for _ in SOURCES]
    found = time_them(clock, a=FakeDecoder(clock, steps), repeats=3)["a"]
    assert found.repeats == (12.0, 108.0, 24.0)
    assert (found.seconds, found.examples_per_second) == (24.0, 3 / 24)
    assert found.example_seconds == (8.0, 4.0, 12.0)
    # Other work on the machine slows one source down in each pass: the whole is still
    # the sum of its parts.
    steps = [50.0, 50.0, 50.0, 90.0, 1.0, 1.0, 1.0, 90.0, 1.0, 1.0, 1.0, 90.0]
    found = time_them(clock, a=FakeDecoder(clock, steps, setup=0.5), repeats=3)["a"]
    assert (
        found.seconds
        == sum(found.example_seconds)
        == found.decoding_seconds + 1.5 + 0.0
    )
    assert (found.seconds, found.setup_seconds) == (12.0 + 1.5, 1.5)
    assert (
        gain(found, found).low <= gain(found, found).speedup <= gain(found, found).high
    )
    content = time_them(clock, a=FakeDecoder(clock, per_call=2), repeats=2)["a"]
    assert content.repeats == (6.0, 6.0)
    assert content.examples_per_second == pytest.approx(0.5)
    assert (content.decoder_calls, content.tokens) == (6, 12)
    assert content.steps_per_example == content.tokens_per_step == 2.0


def test_decoders_take_turns_each_round_begins_with_another_and_rests_are_not_timed(
    clock,
):
    order: list[str] = []
    time_them(
        clock,
        **{name: FakeDecoder(clock) for name in "abc"},
        repeats=3,
        on_pass=order.append,
    )
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    # a rest before every pass that counts, and no rest is timed
    rests = []

    def rest():
        rests.append(clock())
        clock.pass_by(1000.0)

    timings = time_them(
        clock, rest, a=FakeDecoder(clock), b=FakeDecoder(clock), repeats=2
    )
    assert len(rests) == 4
    assert [found.repeats for found in timings.values()] == [(12.0, 12.0)] * 2
    assert device_clock("cpu") is time.perf_counter  # which waits for nothing


def test_encoder_setup_and_decoding_are_told_apart_where_they_are_told(clock):
    found = time_them(clock, a=FakeDecoder(clock, encode=0.5, setup=0.25), repeats=1)[
        "a"
    ]
    assert (found.encoder_seconds, found.setup_seconds) == (1.5, 0.75)
    assert (found.decoding_seconds, found.seconds_per_call) == (12.0, 1.0)
    found = time_them(clock, a=FakeDecoder(clock, encode=None), repeats=2)["a"]
    assert (
        found.encoder_seconds
        is found.decoding_seconds
        is found.seconds_per_call
        is None
    )
    assert found.seconds == 12.0
    passes = [
        Pass([Output((5,), 1)], 1, encoder, None, (3.0,)) for encoder in (1.0, None)
    ]
    assert Timing.of(1, passes).encoder_seconds is None  # one repeat lacks it


def test_sources_are_handed_over_one_by_one_or_longest_first_and_outputs_come_back_in_order(
    clock,
):
    alone, decoder = FakeDecoder(clock), FakeDecoder(clock)
    time_them(clock, a=alone, repeats=1)
    assert alone.seen == [([source], 1) for _ in range(2) for source in SOURCES]
    found = time_them(clock, a=decoder, batch_size=4, repeats=1)["a"]
    assert [len(source) for source in decoder.seen[0][0]] == [6, 4, 2]
    assert [list(output.tokens) for output in found.outputs] == SOURCES
    assert (found.example_seconds, found.decoder_calls) == ((), 6)


def test_decoder_that_cannot_have_so_many_in_flight_is_left_out(clock):
    decoders = {"a": FakeDecoder(clock), "one": FakeDecoder(clock, largest_batch=1)}
    assert list(time_them(clock, **decoders, batch_size=2)) == ["a"]
    assert list(time_them(clock, **decoders, batch_size=1)) == ["a", "one"]
    assert time_them(clock) == {}


def test_decoding_gain_is_fewer_calls_times_faster_calls_and_its_range_that_of_the_same_repeat():
    found = gain(timing([3.0, 3.5, 3.0], 20, 1.0), timing([10.0, 11.0, 12.0], 100, 1.0))
    assert (found.speedup, found.decoding) == (
        pytest.approx(11 / 3),
        pytest.approx(10 / 2),
    )
    assert (found.fewer_calls, found.faster_calls) == (5.0, pytest.approx(1.0))
    assert found.decoding == pytest.approx(found.fewer_calls * found.faster_calls)
    dearer = gain(timing([5.0], 20, 1.0), timing([9.0], 80, 1.0))
    assert (dearer.fewer_calls, dearer.faster_calls) == (4.0, pytest.approx(0.5))
    found = gain(timing([1.0, 2.0], 1, None), timing([4.0, 4.0], 1, None))
    assert (found.low, found.high, found.speedup) == (
        2.0,
        4.0,
        pytest.approx(4.0 / 1.5),
    )
    found = gain(timing([1.0], 10, None), timing([2.0], 10, 0.5))
    assert (found.decoding, found.faster_calls, found.fewer_calls) == (None, None, 1.0)
