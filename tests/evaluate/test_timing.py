"""The timing loop, with a clock that only the decoders move."""

import pytest

from pipedec_cli.evaluate.timing import Contestant, Lap, Timing, device_clock, time_decoders
from tests.evaluate.decoders import FakeClock, FakeDecoder

SOURCES = [[5, 6, 7, 1], [8, 1], [9, 9, 9, 9, 9, 1]]


def contest(decoders):
    return [Contestant(decoder, SOURCES) for decoder in decoders]


def time_them(decoders, clock, **options):
    return time_decoders(contest(decoders), clock=clock, rest=lambda: None, **options)


def test_first_pass_does_not_count_and_the_median_does():
    clock = FakeClock()
    # Three runs a pass, one for each source; the seconds of a call pass by pass: 50 (warming up), 1, 9, 2.
    steps = [seconds for seconds in (50.0, 1.0, 9.0, 2.0) for _ in SOURCES]
    timing = time_them([FakeDecoder("a", clock, steps)], clock, repeats=3)["a"]
    assert [lap.total for lap in timing.laps] == [12.0, 108.0, 24.0]
    assert timing.seconds == 24.0
    assert timing.throughput == 3 / 24
    assert timing.example_seconds == (8.0, 4.0, 12.0)


def test_decoders_take_turns_and_each_round_begins_with_another():
    clock = FakeClock()
    order: list[str] = []
    decoders = [FakeDecoder(name, clock) for name in "abc"]
    time_them(decoders, clock, repeats=3, on_pass=order.append)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"


def test_rests_before_every_pass_that_counts_and_no_rest_is_timed():
    clock = FakeClock()
    rests = []

    def rest():
        rests.append(clock())
        clock.pass_by(1000.0)

    decoders = [FakeDecoder("a", clock), FakeDecoder("b", clock)]
    timings = time_decoders(contest(decoders), repeats=2, clock=clock, rest=rest)
    assert len(rests) == 4
    assert all(lap.total == 12.0 for timing in timings.values() for lap in timing.laps)


def test_encoder_setup_and_decoding_are_told_apart():
    clock = FakeClock()
    timing = time_them([FakeDecoder("a", clock, encode=0.5, setup=0.25)], clock, repeats=1)["a"]
    assert (timing.encoder_seconds, timing.setup_seconds) == (1.5, 0.75)
    assert timing.decoding_seconds == 12.0
    assert timing.seconds_per_call == 1.0


def test_decoder_that_does_not_tell_its_parts_apart_has_none():
    clock = FakeClock()
    timing = time_them([FakeDecoder("a", clock, encode=None)], clock, repeats=2)["a"]
    assert timing.encoder_seconds is None
    assert timing.decoding_seconds is None
    assert timing.seconds_per_call is None
    assert timing.seconds == 12.0


def test_one_at_a_time_hands_over_one_source_after_the_other():
    clock = FakeClock()
    decoder = FakeDecoder("a", clock)
    time_them([decoder], clock, repeats=1)
    assert decoder.seen == [([source], 1) for _ in range(2) for source in SOURCES]


def test_batches_are_handed_over_longest_first_and_outputs_come_back_in_order():
    clock = FakeClock()
    decoder = FakeDecoder("a", clock)
    timing = time_them([decoder], clock, batch_size=4, repeats=1)["a"]
    assert [len(source) for source in decoder.seen[0][0]] == [6, 4, 2]
    assert [list(output.tokens) for output in timing.outputs] == SOURCES
    assert timing.example_seconds == ()
    assert timing.calls == 6


def test_decoder_that_cannot_have_so_many_in_flight_is_left_out():
    clock = FakeClock()
    decoders = [FakeDecoder("a", clock), FakeDecoder("one", clock, largest_batch=1)]
    assert list(time_them(decoders, clock, batch_size=2)) == ["a"]
    assert list(time_them(decoders, clock, batch_size=1)) == ["a", "one"]


def test_nobody_to_time_is_nothing():
    assert time_them([], FakeClock()) == {}


def test_steps_and_tokens_are_those_of_the_examples():
    clock = FakeClock()
    timing = time_them([FakeDecoder("a", clock, per_call=2)], clock, repeats=1)["a"]
    assert timing.tokens == 12
    assert timing.calls == 6
    assert timing.steps_per_example == 2.0
    assert timing.tokens_per_step == 2.0


def test_json_holds_each_repeat():
    clock = FakeClock()
    content = time_them([FakeDecoder("a", clock)], clock, repeats=2)["a"].as_json()
    assert content["repeats"] == [12.0, 12.0]
    assert content["examples_per_second"] == pytest.approx(0.25)
    assert content["decoder_calls"] == 12


def test_parts_that_some_repeats_lack_are_not_known():
    laps = (Lap(3.0, 1.0, None), Lap(3.0, None, None))
    assert Timing("a", 1, laps, 1, ()).encoder_seconds is None


def test_clock_of_a_cpu_is_monotonic():
    clock = device_clock("cpu")
    assert clock() <= clock()
