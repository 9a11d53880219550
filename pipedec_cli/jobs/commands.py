"""Commands of pipedec as text that can be pasted into a shell."""

from __future__ import annotations

import shlex
from typing import Any


def command_line(command: str, data: object = None, /, **options: object) -> str:
    """A command with its DATA and those of its options that have a value."""
    given = (
        (f"--{name}",) if value is True else (f"--{name}", value) for name, value in options.items() if value
    )
    words = [word for option in given for word in option]
    return f"`pipedec {' '.join(quoted(str(word)) for word in (command, data, *words) if word)}`"


def quoted(word: str) -> str:
    """A word as a shell reads it, on one line, with line breaks and tabs as bash and zsh write them."""
    if not {*word} & {*"\n\r\t"}:
        return shlex.quote(word)
    escapes = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return f"$'{''.join(escapes.get(letter, letter) for letter in word)}'"


def spelled(name: str, settings: Any) -> str:
    """How a setting is written on the command line: ``--source-field``, or ``--set keep=…`` for a key."""
    declaration = type(settings).__dataclass_fields__[name].metadata["declaration"]
    if declaration.role == "key":
        return f"--set {name}=…"
    return declaration.names[0] if declaration.names else f"--{name.replace('_', '-')}"
