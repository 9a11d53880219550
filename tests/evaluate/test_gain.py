"""Speed over another decoder's, and where it comes from."""

import pytest

from pipedec_cli.evaluate.gain import gain, gains_over
from pipedec_cli.evaluate.timing import Lap, Output, Timing


def timing(totals, encoder, calls, name="a", size=1):
    laps = tuple(Lap(total, encoder, None) for total in totals)
    return Timing(name, size, laps, calls, (Output((1,), 1),) * 2)


def test_decoding_gain_is_fewer_calls_times_faster_calls():
    slow = timing([10.0, 11.0, 12.0], 1.0, calls=100)
    fast = timing([3.0, 3.5, 3.0], 1.0, calls=20)
    found = gain(fast, slow)
    assert found.speedup == pytest.approx(11 / 3)
    assert found.decoding == pytest.approx(10 / 2)
    assert found.fewer_calls == 5.0
    assert found.faster_calls == pytest.approx(1.0)
    assert found.decoding == pytest.approx(found.fewer_calls * found.faster_calls)


def test_calls_that_cost_more_show_as_such():
    found = gain(timing([5.0], 1.0, calls=20), timing([9.0], 1.0, calls=80))
    assert found.fewer_calls == 4.0
    assert found.faster_calls == pytest.approx(0.5)


def test_range_is_that_of_passes_of_the_same_repeat():
    found = gain(timing([1.0, 2.0], None, 1), timing([4.0, 4.0], None, 1))
    assert (found.low, found.high) == (2.0, 4.0)
    assert found.speedup == pytest.approx(4.0 / 1.5)


def test_parts_not_told_apart_leave_the_decoding_gain_open():
    found = gain(timing([1.0], None, 10), timing([2.0], 0.5, 10))
    assert (found.decoding, found.faster_calls) == (None, None)
    assert found.fewer_calls == 1.0
    assert found.as_json()["speedup"] == 2.0


def test_gains_are_taken_where_both_were_timed():
    mine = {1: timing([1.0], 0.1, 1), 4: timing([1.0], 0.1, 1)}
    assert list(gains_over(mine, {1: timing([2.0], 0.1, 1)})) == [1]
