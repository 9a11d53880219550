"""`pipedec export`: a model for another program."""

from __future__ import annotations

from pipedec_cli.jobs import export as job
from pipedec_cli.jobs.export import ExportSettings
from pipedec_cli.view.terminal import Terminal

EXAMPLES = """
pipedec export --to gguf                                  # the workspace's: sequential.gguf
pipedec export --to gguf --model ./my-model --dtype int8  # llama.cpp's Q8_0
"""


def export(settings: ExportSettings) -> None:
    """Write a sequential model as a file for another program: a GGUF file for llama.cpp.

    Llama, Qwen2, Qwen2.5 and Qwen3 with a byte-level BPE tokenizer can be written.
    """
    terminal = Terminal(quiet=settings.quiet)
    made = job.export(settings, terminal.notify)
    terminal.notify.say(f"{made.path}: {made.path.stat().st_size / 1e6:,.0f} MB")
    if made.prompt is not None:
        terminal.notify.say(f"give llama.cpp this prompt, with the source in its place: {made.prompt!r}")
