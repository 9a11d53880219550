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
    """The text to type for a command, such as "shard merge", with the settings that differ from their defaults.

    They are arguments, options, and ``--set`` for keys. The command line reads the same
    settings from it.
    """
    arguments = []
    options = []
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
    """The command that trains a sequential model to compare a pipelined one with: on the same start, prompt and data.

    `model` is the pipelined one's folder; its training.json says how it was trained.
    """
    trained_with = Artifact.training(Path(model)).settings
    trained_with |= trained_with.get("training") or {}
    if trained_with.get("data") == str(Workspace.find(workspace).data):
        del trained_with["data"]
    if trained_with.get("family"):  # as it was once named apart
        trained_with["model"] = f"{trained_with['model']}-{trained_with['family']}"
    adapters = bool(trained_with.get("lora"))
    start = start_of(trained_with.get("model") or "", adapters=adapters)
    usual = usual_tuning(start, fields=trained_with.get("delay") == "together")
    same: dict[str, Any] = {name: trained_with.get(name) or None for name in _SAME}
    for name, value in usual.items():
        if trained_with.get(name, value) != value:
            same[name] = trained_with[name]
    settings = TrainSettings(
        decoder="sequential",
        prompt_template=_template(trained_with),
        workspace=workspace,
        **same,
    )
    return command_line("train", settings)


def _template(trained_with: Mapping[str, Any]) -> str | None:
    """The prompt template among the settings that a model was trained with; None if it is the usual one.

    The prefix of an encoder's sources is a template, too.
    """
    template: str | None = trained_with.get("prompt")
    if template == usual_prompt(chat=bool(trained_with.get("chat"))):
        template = None
    if template is None and trained_with.get("source_prefix"):
        return f"{trained_with['source_prefix']}{SOURCE}"
    return template


def all_sources(data: Path, model: str | None, workspace: Path | None) -> str | None:
    """The command that generates, with a model, from all sources that were segmented into the folder `data`.

    None if they did not come from one file that is still there.
    """
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
