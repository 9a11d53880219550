"""The two streams: data goes to stdout; messages, progress and warnings go to stderr."""

import logging
import os
import re
import sys
import warnings
from dataclasses import dataclass, field
from itertools import chain
from textwrap import wrap
from typing import Final

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
        """Print a message, broken to the width of the console; its first characters, so many as `yellow`, are yellow."""
        width = width_of(self.console)
        lines = [broken(line, width) for line in message.split("\n")]
        text = Text("\n".join(lines))
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


#: Control characters that are left as they are.
_KEPT: Final = "\t\n"
#: Ranges of characters that are invisible or act on a terminal.
_HIDDEN: Final = (
    range(0x80, 0xA0),
    range(0x2028, 0x202F),
    range(0x2060, 0x2070),
    range(0xD800, 0xE000),
    range(0xFFF9, 0xFFFC),
    (0x61C, 0x200B, 0x200E, 0x200F, 0xFEFF),
)
_PICTURES: Final = {
    **dict.fromkeys(chain.from_iterable(_HIDDEN), "�"),
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in _KEPT},
    0x7F: "␡",
}


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
    """The text in lines of at most `width` cells, broken between words, never within a word or at the sign in ``Δt = 2``.

    A command in backticks goes on behind a backslash, and is not broken within quotes:
    a shell takes it as it stands.
    """
    text = visible(text)
    if cell_len(text) <= width:
        return text
    text = text.replace(" = ", "\xa0=\xa0")
    text = re.sub(r"`[^`]*`", _with_whole_strings, text)
    if "`" in text:
        width -= len(" \\")
    lines = wrap(text, max(1, width), break_long_words=False, break_on_hyphens=False)
    in_command = False
    for number, line in enumerate(lines[:-1]):
        in_command ^= line.count("`") % 2 == 1
        if in_command:
            lines[number] = f"{line} \\"
    return "\n".join(lines).replace("\xa0", " ")


def _with_whole_strings(command: re.Match[str]) -> str:
    """A command whose strings in quotes have no blank to break them at."""
    return re.sub(r"'[^']*'", lambda string: string[0].replace(" ", "\xa0"), command[0])


def fit(text: str, width: int) -> str:
    """The text in at most `width` terminal cells, with an ellipsis where it was cut."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return set_cell_size(text, 1)
    return set_cell_size(text, width - 1).rstrip() + "…"


def _bounded(text: str, most: int = 400) -> str:
    """The text on one line of at most so many characters. Of a longer one the start stays, and the end, where the remedy stands."""
    line = one_line(text)
    if len(line) <= most:
        return line
    start = most * 5 // 8
    end = most - start - len(" … ")
    return f"{line[:start]} … {line[-end:]}"


def write_stdout(text: str) -> None:
    """Write data for a program or a pipe, without styles and without line breaks of our own."""
    # `main` opens the null device where standard output is closed.
    if getattr(sys.stdout, "name", "") == os.devnull:
        todo = "open it, or name a file with --out"
        raise UserError("standard output is closed", todo=todo)
    sys.stdout.write(text)
    sys.stdout.flush()
