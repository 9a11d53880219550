"""Commands of pipedec as text that can be pasted into a shell."""

import re
import shlex
from pathlib import Path
from typing import Any

from pipedec_cli.data.artifact import SEGMENTATION_FILE, Artifact
from pipedec_cli.data.trained import start_of
from pipedec_cli.data.workspace import Workspace, segmented_with
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.settings import Settings, settings_of
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.model.text import SOURCE, usual_prompt
from pipedec_cli.training.hyperparameters import usual_tuning


def command_line(command: str, settings: Settings) -> str:
    """A command with the settings that differ from the defaults: arguments, options, ``--set``.

    The command line reads the same settings from it.
    """
    arguments, options = list[str](), list[str]()
    for one in settings_of(type(settings)):
        value = getattr(settings, one.name)
        if value in (None, one.default):
            continue
        if isinstance(value, bool) and one.role == "option":
            on, _, off = one.option.partition("/")
            options.append(on if value else off)
            continue
        for text in one.typed(value):
            if one.role == "argument":
                arguments.append(text)
            elif one.role == "key":
                options += ["--set", f"{one.name}={text}"]
            else:
                options += [one.option, text]
    words = [*arguments, *options]
    if any(re.match("-.", text) for text in arguments):  # it looks like an option
        words = [*options, "--", *arguments]
    return " ".join(map(quoted, ["pipedec", *command.split(), *words]))


def sequential_training(model: str, workspace: Path | None) -> str:
    """The command that trains a sequential model to compare with: as this model, on the same start, prompt and data."""
    of = Artifact.training(Path(model)).settings
    of |= of.get("training") or {}
    template = of.get("prompt")
    if template == usual_prompt(chat=bool(of.get("chat"))):
        template = None
    if template is None and of.get("source_prefix"):
        template = of["source_prefix"] + SOURCE
    if of.get("family"):  # as it was once named apart
        of["model"] = f"{of['model']}-{of['family']}"
    if of.get("data") == str(Workspace.find(workspace).data):
        del of["data"]
    start = start_of(of.get("model") or "", adapters=bool(of.get("lora")))
    usual = usual_tuning(start, fields=of.get("delay") == "together")
    names = ["data", "model", "lora", "bf16", "limit", "chat", "max_steps", "epochs"]
    same: dict[str, Any] = {name: of.get(name) or None for name in names}
    same |= {
        name: of[name] for name in usual if of.get(name, usual[name]) != usual[name]
    }
    same["workspace"] = workspace
    settings = TrainSettings(decoder="sequential", prompt_template=template, **same)
    return command_line("train", settings)


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
