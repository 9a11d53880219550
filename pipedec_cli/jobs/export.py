"""The job of `pipedec export`: a model in the format of another program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipedec_cli.data.reading import keep_apart, require_place
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.loading import find_model
from pipedec_cli.jobs.settings import Settings, option, quiet_option, workspace_option


@dataclass(frozen=True, kw_only=True)
class ExportSettings(Settings):
    """The settings of `pipedec export`."""

    model: str | None = option(
        "sequential", "A sequential model: a folder, hub name, GGUF file, or the workspace's `sequential`."
    )
    to: Literal["gguf"] = option("gguf", "The format: gguf is llama.cpp's.")
    dtype: Literal["float32", "bfloat16", "float16", "int8"] = option(
        "float32", "The type of the matrices in the file; int8 is llama.cpp's Q8_0."
    )
    out: Path | None = option(None, "The file to write [default: MODEL.gguf in this folder].")
    workspace: Path | None = workspace_option()
    quiet: bool = quiet_option()


@dataclass(frozen=True)
class Exported:
    """A written file, and the text around a source that the model was trained with."""

    path: Path
    prompt: str | None


def export(settings: ExportSettings, notify: Notify) -> Exported:
    """Write the model; a `UserError` if the other program cannot run it."""
    name = find_model(settings.model, Workspace.find(settings.workspace))
    path = settings.out or Path(f"{Path(name.replace(':', '/')).stem}.gguf")
    require_place(path)
    keep_apart([name], [path])
    notify.say(f"loading {name} …")
    from pipedec_cli.model.checkpoint import load_checkpoint
    from pipedec_cli.model.gguf.writing import write_gguf
    from pipedec_cli.model.text import prompt_text

    checkpoint = load_checkpoint(name)
    write_gguf(checkpoint, path, settings.dtype)
    if (trained := checkpoint.settings) is None:
        return Exported(path, None)
    return Exported(path, prompt_text(checkpoint.tokenizer, trained.prompt, chat=trained.chat))
