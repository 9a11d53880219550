"""Some signals to each command, for CI; the script sends many."""

import signal

import pytest

from tests.running import run_trial
from tests.trials.signals import Ended, is_early, wrong_with

INTERRUPT, TERMINATE = signal.SIGINT, signal.SIGTERM
TRACE = 'Traceback (most recent call last):\n  File "{}"\nKeyboardInterrupt\n'


@pytest.mark.extra("uvicorn")
@pytest.mark.slow
def test_a_command_that_is_stopped_in_its_first_second_ends_in_one_line():
    run_trial("signals", "--each", "5")


def test_an_end_is_told_from_one_that_came_before_pipedec():
    good = Ended(130, "error: interrupted\n", 0.1)
    assert wrong_with(good, INTERRUPT) == []
    assert wrong_with(good, TERMINATE)
    for early in (
        Ended(-TERMINATE, "", 0.0),
        Ended(1, TRACE.format("<frozen site>"), 0.0),
        Ended(1, TRACE.format("lib/pipedec_cli/__main__.py"), 0.0),
    ):
        number = TERMINATE if early.code < 0 else INTERRUPT
        assert wrong_with(early, number)
        assert is_early(early, number)
    late = Ended(1, TRACE.format("lib/pipedec_cli/cli/app.py"), 0.0)
    assert wrong_with(late, INTERRUPT)
    assert not is_early(late, INTERRUPT)
