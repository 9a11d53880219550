"""How a process ends that is told to stop while nothing has begun, or when all is done."""

import os

# The module `signal` imports others, and a signal may come by then.
from _signal import SIGINT, SIGTERM  # type: ignore[import-not-found]

#: What is said of each signal.
SAID = {SIGINT: b"error: interrupted\n", SIGTERM: b"error: terminated\n"}


def leave(number: int, frame: object = None) -> None:  # noqa: ARG001  # a handler gets a frame
    """End this process at once: nothing has begun, or all is done."""
    try:  # noqa: SIM105  # `contextlib` takes its time
        os.write(2, SAID[number])
    except OSError:  # standard error is closed
        pass
    os._exit(128 + number)
