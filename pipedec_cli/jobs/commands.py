"""Commands of pipedec as text that can be pasted into a shell."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from pipedec_cli.data.artifact import Artifact
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.jobs.settings import Declaration, Settings, WorkflowSettings
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.model.text import usual_prompt


def command_line(command: str, settings: Settings, base: Settings | None = None) -> str:
    """A command with the settings that differ from those of `base`, or from the defaults: arguments, options, ``--set``."""
    shared, words = {one.name for one in fields(WorkflowSettings)}, ["pipedec", *command.split()]
    for one in sorted(fields(settings), key=lambda one: one.name in shared):
        value, usual = getattr(settings, one.name), getattr(base, one.name) if base else one.default
        if "declaration" in one.metadata and value not in (None, usual):
            words += _typed(one.name, value, one.metadata["declaration"])
    return " ".join(map(quoted, words))


def sequential_training(model: str, workspace: Path | None) -> str:
    """The command that trains a sequential model to compare with: on the start, prompt, data and length of this model."""
    of = Artifact.training(Path(model)).settings
    of |= of.get("training") or {}
    if of.get("prompt") == usual_prompt(chat=bool(of.get("chat"))):
        del of["prompt"]
    if of.get("data") == str(Workspace.find(workspace).data):
        del of["data"]
    start = ("data", "model", "family", "lora", "bf16", "limit")
    training = ("source_prefix", "chat", "max_steps", "epochs")
    same: dict[str, Any] = {name: of.get(name) or None for name in (*start, *training)}
    same["workspace"] = workspace
    return command_line(
        "train", TrainSettings(decoder="sequential", prompt_template=of.get("prompt"), **same)
    )


def _typed(name: str, value: Any, declaration: Declaration) -> list[str]:
    """One setting as it is typed."""
    option = _option(name, declaration)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, tuple):
        text = (":" if declaration.metavar == "FILE:N" else ",").join(map(str, value))
    if declaration.role == "argument":
        return [text]
    if declaration.role == "key":
        return ["--set", f"{name}={text.lower() if isinstance(value, bool) else text}"]
    if isinstance(value, bool):
        on, _, off = option.partition("/")
        return [on if value else off]
    return [option, text]


def quoted(word: str) -> str:
    """A word as a shell reads it, on one line, with all that is no letter on a screen as bash and zsh write it."""
    if word.isprintable():
        return shlex.quote(word)
    escapes = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return f"$'{''.join(escapes.get(letter) or _bytes(letter) for letter in word)}'"


def _bytes(letter: str) -> str:
    """The letter, or the bytes of one that has no picture: a control character, a mark, a byte that is no UTF-8."""
    if letter.isprintable():
        return letter
    errors = "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", errors))


def spelled(name: str, settings: Any) -> str:
    """How a setting is typed: ``--source-field``, or ``--set keep=…`` for a key. What is no setting keeps its name."""
    found = settings.__dataclass_fields__.get(name)
    declaration = found and found.metadata.get("declaration")
    if declaration is None or declaration.role == "argument":
        return name
    return f"--set {name}=…" if declaration.role == "key" else _option(name, declaration)


def _option(name: str, declaration: Declaration) -> str:
    """The name of an option: the first that is declared, else the name of its field."""
    return declaration.names[0] if declaration.names else f"--{name.replace('_', '-')}"
