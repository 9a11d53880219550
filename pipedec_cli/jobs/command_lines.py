"""Commands of pipedec as text that can be pasted into a shell."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.resumable import SEGMENTATION_FILE, Artifact
from pipedec_cli.data.trained import start_of
from pipedec_cli.data.workspace import Workspace, segmented_with
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.settings import Setting, Settings, settings_of
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.model.text import SOURCE, usual_prompt
from pipedec_cli.training.hyperparameters import usual_tuning

#: What a sequential model is trained with as the pipelined one was.
_SAME: Final = (
    "data",
    "model",
    "lora",
    "bf16",
    "limit",
    "chat",
    "max_steps",
    "epochs",
)


def command_line(command: str, settings: Settings) -> str:
    """A command with the settings that differ from the defaults: arguments, options, ``--set``.

    The command line reads the same settings from it.
    """
    arguments: list[str] = []
    options: list[str] = []
    for setting in settings_of(type(settings)):
        value = getattr(settings, setting.name)
        if value in (None, setting.default):
            continue
        if setting.role == "argument":
            arguments += setting.typed(value)
        else:
            options += _option(setting, value)
    words = [*arguments, *options]
    if any(re.match("-.", text) for text in arguments):  # it looks like an option
        words = [*options, "--", *arguments]
    return " ".join(map(quoted, ["pipedec", *command.split(), *words]))


def _option(setting: Setting, value: Any) -> list[str]:
    """The words to type for the value of an option or a key."""
    if setting.role == "key":
        pairs = [f"{setting.name}={text}" for text in setting.typed(value)]
        return [word for pair in pairs for word in ("--set", pair)]
    on, _, off = setting.option.partition("/")
    if setting.is_flag:
        return [on if value else off]
    return [word for text in setting.typed(value) for word in (on, text)]


def sequential_training(model: str, workspace: Path | None) -> str:
    """The command that trains a sequential model to compare with: as this model, on the same start, prompt and data."""
    made = Artifact.training(Path(model)).settings
    made |= made.get("training") or {}
    if made.get("data") == str(Workspace.find(workspace).data):
        del made["data"]
    if made.get("family"):  # as it was once named apart
        made["model"] = f"{made['model']}-{made['family']}"
    start = start_of(made.get("model") or "", adapters=bool(made.get("lora")))
    usual = usual_tuning(start, fields=made.get("delay") == "together")
    same: dict[str, Any] = {name: made.get(name) or None for name in _SAME}
    for name, value in usual.items():
        if made.get(name, value) != value:
            same[name] = made[name]
    settings = TrainSettings(
        decoder="sequential",
        prompt_template=_template(made),
        workspace=workspace,
        **same,
    )
    return command_line("train", settings)


def _template(made: Mapping[str, Any]) -> str | None:
    """The prompt template that a model was trained with; None if it is the usual one."""
    template: str | None = made.get("prompt")
    if template == usual_prompt(chat=bool(made.get("chat"))):
        template = None
    if template is None and made.get("source_prefix"):
        return f"{made['source_prefix']}{SOURCE}"
    return template


def all_sources(data: Path, model: str | None, workspace: Path | None) -> str | None:
    """The command that generates from all sources that were segmented into a folder; None if they were not one file."""
    path = data / SEGMENTATION_FILE
    given = segmented_with(path, "data")
    if given is None or not Path(given).is_file():
        return None
    field = segmented_with(path, "source_field") or "source"
    settings = GenerateSettings(
        data=given, source_field=field, model=model, workspace=workspace
    )
    return command_line("generate", settings)


def quoted(word: str) -> str:
    """A word as a shell reads it, on one line, with all that is no letter on a screen as bash and zsh write it."""
    if word.isprintable():
        return shlex.quote(word)
    escapes = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    written = ""
    for letter in word:
        # A control character, a mark, or a byte that is no UTF-8 has no picture: its
        # bytes stand for it.
        errors = (
            "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
        )
        codes = "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", errors))
        written += escapes.get(letter) or (letter if letter.isprintable() else codes)
    return f"$'{written}'"
