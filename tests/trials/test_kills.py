"""Some kills of each command, for CI; the script makes many."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trials.kills import TRIALS, compare


@pytest.mark.slow
def test_killed_commands_lose_nothing_and_end_as_undisturbed_ones():
    """In a process of its own, since it forks."""
    program = [sys.executable, "-m", "tests.trials.kills", "--each", "1"]
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        program, capture_output=True, text=True, check=False, cwd=root
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert all(f"| {name} | 1 | 0 |" in ended.stdout for name in TRIALS)


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
