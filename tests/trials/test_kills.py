"""Some kills of each command, for CI; the script makes many."""

import pytest

from tests.running import run_trial
from tests.trials.kills import TRIALS, compare


@pytest.mark.slow
def test_killed_commands_lose_nothing_and_end_as_undisturbed_ones():
    table = run_trial("kills", "--each", "1")
    assert all(f"| {name} | 1 | 0 |" in table for name in TRIALS)


def test_what_was_lost_or_doubled_or_is_otherwise_is_counted():
    def lines(*ids):
        return {"out.jsonl": b"".join(b'{"id": %d}\n' % one for one in ids)}

    assert not +compare(lines(1, 2, 3), lines(1, 2, 3))
    assert compare(lines(1, 3, 3), lines(1, 2, 3)) == {
        "unequal": 1,
        "lost": 1,
        "doubled": 1,
    }
    assert compare({}, {"model.safetensors": b"x"}) == {"unequal": 1}
