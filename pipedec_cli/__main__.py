"""``pipedec``, and ``python -m pipedec_cli``. Ctrl-C and SIGTERM are heeded before anything else is imported, which takes a while."""

# The module `signal` imports others, and a signal may come by then.
from _signal import SIG_IGN, getsignal, signal  # type: ignore[import-not-found]

from pipedec_cli.leaving import SAID, leave


def main() -> None:
    """Run the app."""
    for number in SAID:
        # A shell lets what runs in the background ignore Ctrl-C, which stays so.
        if getsignal(number) is not SIG_IGN:
            signal(number, leave)
    from pipedec_cli.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
