"""Run a program that came with a model, such as its chat template, in a child process with limits of memory and time."""

from __future__ import annotations

import gc
import json
import multiprocessing
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

import psutil

from pipedec_cli.data.errors import first_line

#: What the child may take: bytes of memory beyond those of this process, seconds of a processor, and characters of its text.
BYTES, SECONDS, CHARACTERS = 1 << 29, 10, 1 << 20
_PATIENCE: Final = 300.0  # seconds by the clock, since a busy machine gives a process few of its own
_TOO_MUCH: Final = "it takes too much memory"


def confined(make: Callable[[], str]) -> str:
    """The text that a function makes in a child process; a ValueError, in one line, if it fails or reaches a limit.

    The child is a fork, because another start of Python and its libraries would take seconds. A system without limits of
    memory, such as macOS, has the limits of seconds alone.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(make, sender), daemon=True)
    with warnings.catch_warnings(), receiver:
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold no lock that the child needs
        child.start()
        sender.close()
        try:
            if not receiver.poll(_PATIENCE):
                raise ValueError(f"it takes more than {_PATIENCE:g} seconds")
            text, error = json.loads(receiver.recv_bytes())
        except EOFError:
            child.join()
            is_slow = child.exitcode == -signal.SIGXCPU
            raise ValueError(f"it takes more than {SECONDS} seconds" if is_slow else _TOO_MUCH) from None
        finally:
            child.kill()
            child.join()
    if error:
        raise ValueError(error)
    return str(text)


def _answer(make: Callable[[], str], sender: Connection) -> None:
    """Send the text, or what is wrong with it. This is the child."""
    gc.disable()  # it must not end what belongs to the parent
    text, error = "", None
    try:
        with suppress(ImportError, OSError, ValueError):  # the system knows no such limit, or has a lower one
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
            most = psutil.Process().memory_info().vms + BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        text = make()
        if len(text) > CHARACTERS:
            text, error = "", f"it writes more than {CHARACTERS:,} characters"
    except MemoryError:
        error = _TOO_MUCH
    except BaseException as raised:  # whatever a template raises, and Ctrl-C, which the parent gets as well
        error = first_line(raised)[:400]
    sender.send_bytes(json.dumps((text, error)).encode())  # no pickle: the parent trusts nothing
