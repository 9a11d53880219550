"""`pipedec generate`: text from sources, with a checkpoint."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from pipedec_cli.data.errors import log
from pipedec_cli.data.records import Generated
from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs import generate as job
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.view.console import visible, write_stdout
from pipedec_cli.view.progress import Terminal

EXAMPLES = """
pipedec generate --delay 2 --resume               # the test set; go on after a stop
pipedec generate --exact my-model --draft source  # the same text in fewer calls, no training
pipedec generate docs.jsonl --model my-chat-model --schema person.json  # objects, no training
"""


def generate(settings: GenerateSettings) -> None:
    """Generate a text from each source, several subsequences at a time: greedy, no sampling."""
    gives_text = bool(settings.text) or settings.plain
    if settings.as_json or settings.confidence or settings.spans:
        gives_text = False

    def show(generated: Generated, line: Mapping[str, Any]) -> None:
        shown = generated.text if gives_text else to_json(line)
        if gives_text and sys.stdout.isatty():
            shown = visible(shown)
        write_stdout(shown + "\n")

    result = job.generate(settings, Terminal(quiet=settings.quiet), show)
    if isinstance(result, str):
        write_stdout(result + "\n")
    if result is None or isinstance(result, str):
        return
    if not (settings.part or settings.ray) and (
        then := job.next_commands(settings, Path(result.out))
    ):
        log.info(f"next: {then}")
    if settings.as_json:
        write_stdout(to_json(to_builtins(result)) + "\n")
