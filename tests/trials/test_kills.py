"""Some kills of each command, for CI; the script makes many."""

import pytest

from tests.running import extra, run_trial
from tests.trials.kills import TRIALS, compare


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        [name for name in TRIALS if name != "train-lora"],
        extra("peft", ["train-lora"]),
    ],
)
def test_killed_commands_lose_nothing_and_end_as_undisturbed_ones(names):
    only = [word for name in names for word in ("--only", name)]
    table = run_trial("kills", "--each", "1", *only)
    assert all(f"| {name} | 1 | 0 |" in table for name in names)


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
