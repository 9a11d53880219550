"""Ctrl-C and SIGTERM: both end a command by an exception, with one line and an exit code of their own."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from pipedec_cli.leaving import leave

INTERRUPTED: Final = 130
TERMINATED: Final = 143
#: Seconds after which a signal comes again that came within an import.
LATER: Final = 0.05
#: Seconds after which SIGTERM comes again, if a library swallowed its exception.
AGAIN = 5.0

#: SIGTERM has come.
terminated = threading.Event()
#: A signal that came within an import was put off: it is to come again, and nobody has
#: been told of it yet.
_put_off = threading.Event()
#: The signal that comes next was sent by this process itself, and not from outside.
_is_own = threading.Event()
#: The handlers that there were before, and are again when a command has ended.
_before = dict[int, object]()


class StoppedError(KeyboardInterrupt):
    """Ctrl-C, or SIGTERM, which ends a run alike. Python notes an exact KeyboardInterrupt, and then ends as by SIGINT."""


@contextmanager
def handled() -> Iterator[None]:
    """Let both signals end what runs by a `StoppedError`; a SIGINT that is ignored stays so."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        _before[number] = before[number]
    try:
        if before[signal.SIGINT] is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruption() -> tuple[str, int]:
    """What ended the command, in a word, and its exit code."""
    if terminated.is_set():
        return "terminated", TERMINATED
    return "interrupted", INTERRUPTED


def is_pending(code: object) -> bool:
    """Whether a command that exits with this code was ended by a signal of which nothing has been said."""
    # Typer ends in silence where SIGTERM comes outside a command.
    in_silence = code == INTERRUPTED and terminated.is_set()
    return in_silence or _put_off.is_set()


def stop(number: int, frame: FrameType | None) -> None:
    """The handler of both signals: end the command by a `StoppedError`.

    Where a module is being imported, the exception may be swallowed, or be taken for a
    fault of the module. So a signal that comes there is put off: this process sends it
    to itself again, a moment later, until it comes outside of imports. If one comes from
    outside while another is put off, the process ends at once: what is imported may be
    a file of the user's, which takes its time.
    """
    is_own = _is_own.is_set()
    _is_own.clear()
    if number == signal.SIGTERM:
        terminated.set()
    if _is_importing(frame):
        if _put_off.is_set() and not is_own:
            leave(number)
        _put_off.set()
        _send_later(number, LATER)
        return
    _put_off.clear()
    if number == signal.SIGTERM:  # a library may swallow the exception
        _send_later(number, AGAIN)
    raise StoppedError


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported where the signal came."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _send_later(number: int, seconds: float) -> None:
    """Send a signal to this process again, in so many seconds, unless its command has ended by then.

    To a server's own handlers only a signal is sent that was put off.
    """

    def send() -> None:
        handler = signal.getsignal(number)
        # The command runs with our handler, or with a server's own. Once it has ended,
        # the handler is the one from before.
        is_servers = _put_off.is_set() and handler is not _before.get(number)
        if handler is stop or is_servers:
            _is_own.set()
            os.kill(os.getpid(), number)

    later = threading.Timer(seconds, send)
    later.daemon = True
    later.start()
