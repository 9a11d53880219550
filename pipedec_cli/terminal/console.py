"""Where things are shown: data goes to stdout, talk, tables of progress and warnings to stderr."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text


def make_console(*, stderr: bool) -> Console:
    """A console that neither colours nor animates off a terminal or under NO_COLOR.

    Markup and emoji codes are off: whatever stands in a user's text is data, and styled text is made as `Text`.
    """
    no_color = bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, no_color=no_color)


@dataclass(slots=True)
class Talk:
    """What a command says to the person who runs it: all of it on stderr, none of it under ``--quiet``."""

    quiet: bool = False
    console: Console = field(default_factory=lambda: make_console(stderr=True))

    @property
    def animated(self) -> bool:
        """Whether bars and live views may move: on a terminal, with colour allowed, and not under ``--quiet``."""
        return self.console.is_terminal and not self.console.no_color and not self.quiet

    def say(self, message: str) -> None:
        """One line of progress, unless quiet."""
        if not self.quiet:
            self.console.print(Text(visible(message)), soft_wrap=True)

    def warn(self, message: str) -> None:
        """One line that is shown even when quiet."""
        self.console.print(Text.assemble(("warning: ", "yellow"), visible(message)), soft_wrap=True)


def visible(text: str) -> str:
    """The text with control characters, escapes among them, as visible symbols, so that no data can drive the terminal."""
    return text.translate(_CONTROL_PICTURES)


_CONTROL_PICTURES = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
_CONTROL_PICTURES |= {0x7F: "␡"} | dict.fromkeys(range(128, 160), "�")


def many(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def write_stdout(text: str) -> None:
    """Data for a program or a pipe: the text as it is, with no styling and no wrapping."""
    sys.stdout.write(text)
    sys.stdout.flush()
