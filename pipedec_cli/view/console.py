"""The two streams: data goes to stdout; messages, progress and warnings go to stderr."""

import logging
import os
import re
import sys
import warnings
from dataclasses import dataclass, field
from itertools import chain, starmap
from textwrap import wrap

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from pipedec_cli.data.errors import UserError, log


def make_console(*, stderr: bool) -> Console:
    """A console that shows a user's text as data. It has no colour off a terminal or under NO_COLOR."""
    no_color = bool(os.environ.get("NO_COLOR"))
    return Console(
        stderr=stderr, markup=False, emoji=False, highlight=False, no_color=no_color
    )


@dataclass(slots=True)
class Talk:
    """Messages to the person who runs a command, on stderr. Under ``--quiet`` only warnings and errors are shown."""

    quiet: bool = False
    console: Console = field(default_factory=lambda: make_console(stderr=True))

    @property
    def animated(self) -> bool:
        """Whether bars and live views may move: on a terminal, with colour, and not under ``--quiet``."""
        return self.console.is_terminal and not self.console.no_color and not self.quiet

    def say(self, message: str) -> None:
        """Print one line of progress, unless quiet."""
        if not self.quiet:
            self._print(message)

    def warn(self, message: str) -> None:
        """Print one warning, even if quiet."""
        self._print(f"warning: {_bounded(message)}", yellow=len("warning: "))

    def error(self, message: str) -> None:
        """Print the error that ends a command."""
        self._print(f"error: {_bounded(message)}")

    def _print(self, message: str, yellow: int = 0) -> None:
        """Print a message whose first characters are `yellow`."""
        text = Text(
            "\n".join(
                broken(line, width_of(self.console)) for line in message.split("\n")
            )
        )
        text.stylize("yellow", 0, yellow)
        self.console.print(text, soft_wrap=True)


class _Logged(logging.LogRecord):
    def getMessage(self) -> str:  # noqa: N802
        text = super().getMessage()
        return text if self.name == log.name else _bounded(text)


def tame_libraries() -> None:
    """Show the warnings and log lines of libraries as our own."""
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # each retry would be a line
    warnings.showwarning = lambda message, *_, **__: Talk().warn(str(message))
    logging.setLogRecordFactory(_Logged)


def visible(text: str) -> str:
    """The text with a visible symbol for each character that acts on a terminal or is invisible in it.

    These are control characters, direction marks, line and paragraph separators, blanks
    without width (except the joiners of emoji and scripts), and halves of surrogate
    pairs. Line feeds and tabs stay.
    """
    return text.translate(_PICTURES)


def one_line(text: str) -> str:
    """The text made `visible` on one line: line feeds and tabs have symbols as well."""
    return visible(text).replace("\n", "␊").replace("\t", "␉")


def width_of(console: Console) -> int:
    """The width of a terminal. A pipe or a file has no bound, whatever COLUMNS says."""
    return console.width if console.file.isatty() else sys.maxsize


def broken(text: str, width: int) -> str:
    """The text in lines that are broken between words, never within a word or at the sign in ``Δt = 2``.

    A command in backticks goes on behind a backslash, and is not broken within quotes:
    a shell takes it as it stands.
    """

    def joined(found: re.Match[str]) -> str:
        return found[0].replace(" ", "\xa0")

    text = visible(text)
    if cell_len(text) <= width:
        return text
    text = text.replace(" = ", "\xa0=\xa0")
    text = re.sub(
        r"`[^`]*`", lambda command: re.sub(r"'[^']*'", joined, command[0]), text
    )
    lines = wrap(
        text, width - 2 * ("`" in text), break_long_words=False, break_on_hyphens=False
    )
    for number, line in enumerate(lines[:-1]):
        within = "".join(lines[: number + 1]).count("`") % 2
        lines[number] = line + " \\" * within
    return "\n".join(lines).replace("\xa0", " ")


def fit(text: str, width: int) -> str:
    """The text in at most `width` terminal cells, with an ellipsis where it was cut."""
    if cell_len(text) <= width:
        return text
    return (
        set_cell_size(text, width - 1).rstrip() + "…"
        if width > 1
        else set_cell_size(text, 1)
    )


def _bounded(text: str, most: int = 400) -> str:
    """The text on one line. Of a long message the start and the end stay, where the remedy stands."""
    line = one_line(text)
    return (
        line
        if len(line) <= most
        else f"{line[: most * 5 // 8]} … {line[3 - most * 3 // 8 :]}"
    )


_PICTURES = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)} | {
    0x7F: "␡"
}
_HIDDEN = (
    (0x80, 0xA0),
    (0x2028, 0x202F),
    (0x2060, 0x2070),
    (0xD800, 0xE000),
    (0xFFF9, 0xFFFC),
)
_PICTURES |= dict.fromkeys(
    (*chain(*starmap(range, _HIDDEN)), 0x61C, 0x200B, 0x200E, 0x200F, 0xFEFF), "�"
)


def write_stdout(text: str) -> None:
    """Write data for a program or a pipe, without styles and without line breaks of our own."""
    if (
        getattr(sys.stdout, "name", "") == os.devnull
    ):  # `main` opens it where standard output is closed
        raise UserError(
            "standard output is closed", todo="open it, or name a file with --out"
        )
    sys.stdout.write(text)
    sys.stdout.flush()
