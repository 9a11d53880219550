"""``pipedec``, and ``python -m pipedec_cli``. Ctrl-C and SIGTERM are heeded before anything else is imported, which takes a while."""

import os

# The module `signal` imports others, and a signal may come by then.
from _signal import SIG_IGN, SIGINT, SIGTERM, getsignal, signal  # type: ignore[import-not-found]

_SAID = {SIGINT: b"error: interrupted\n", SIGTERM: b"error: terminated\n"}


def leave(number: int, frame: object = None) -> None:  # noqa: ARG001  # a handler gets a frame
    """End this process at once: nothing has begun, or all is done."""
    try:  # noqa: SIM105  # `contextlib` takes its time
        os.write(2, _SAID[number])
    except OSError:  # standard error is closed
        pass
    os._exit(128 + number)


def main() -> None:
    """Run the app."""
    for number in _SAID:
        if (
            getsignal(number) is not SIG_IGN
        ):  # as a shell has it for what runs in the background
            signal(number, leave)
    from pipedec_cli.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
