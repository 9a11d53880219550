"""Commands of pipedec as text that can be pasted into a shell."""

import shlex
from pathlib import Path
from typing import Any

from pipedec_cli.data.artifact import Artifact
from pipedec_cli.data.trained import start_of
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.jobs.settings import Setting, Settings, settings_of
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.model.text import usual_prompt
from pipedec_cli.model.training.hyperparameters import usual_tuning


def command_line(command: str, settings: Settings) -> str:
    """A command with the settings that differ from the defaults: arguments, options, ``--set``."""
    words = ["pipedec", *command.split()]
    for one in settings_of(type(settings)):
        value = getattr(settings, one.name)
        if value not in (None, one.default):
            words += _typed(one, value)
    return " ".join(map(quoted, words))


def sequential_training(model: str, workspace: Path | None) -> str:
    """The command that trains a sequential model to compare with: as this model, on the same start, prompt and data."""
    of = Artifact.training(Path(model)).settings
    of |= of.get("training") or {}
    if of.get("prompt") == usual_prompt(chat=bool(of.get("chat"))):
        del of["prompt"]
    if of.get("data") == str(Workspace.find(workspace).data):
        del of["data"]
    start = start_of(of.get("model") or "", adapters=bool(of.get("lora")))
    usual = usual_tuning(start, fields=of.get("delay") == "together")
    names = [
        "data",
        "model",
        "family",
        "lora",
        "bf16",
        "limit",
        "source_prefix",
        "chat",
        "max_steps",
        "epochs",
    ]
    same: dict[str, Any] = {name: of.get(name) or None for name in names}
    same |= {name: of[name] for name in usual if of.get(name, usual[name]) != usual[name]}
    same["workspace"] = workspace
    settings = TrainSettings(decoder="sequential", prompt_template=of.get("prompt"), **same)
    return command_line("train", settings)


def _typed(setting: Setting, value: Any) -> list[str]:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, tuple):
        text = (":" if setting.metavar == "FILE:N" else ",").join(map(str, value))
    if setting.role == "argument":
        return [text]
    if setting.role == "key":
        return ["--set", f"{setting.name}={text.lower() if isinstance(value, bool) else text}"]
    if isinstance(value, bool):
        on, _, off = setting.option.partition("/")
        return [on if value else off]
    return [setting.option, text]


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
