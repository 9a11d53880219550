"""`pipedec generate`: text from sources, with a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pipedec_cli.data.records import Generated
from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs import generate as job
from pipedec_cli.jobs.generate import GenerateSettings
from pipedec_cli.view.console import visible, write_stdout
from pipedec_cli.view.terminal import Terminal

EXAMPLES = """
pipedec generate                                  # the test set with the workspace's model
pipedec generate --delay 2 --resume               # go on after a stop
pipedec generate --text "name[The Mill], food[Chinese]" --live
pipedec generate --exact my-model --draft source  # the same text in fewer calls, no training
pipedec generate articles.csv --source-field body --model my-model --out summaries.jsonl
cat questions.jsonl | pipedec generate - --out - --quiet | jq -r .prediction
"""


def generate(settings: GenerateSettings) -> None:
    """Generate a text from each source, several subsequences of it at the same time.

    Each line of the output is a JSON object: id, prediction, segments, steps (decoder calls), tokens, truncated, seconds, for objects fields, and every field of the input. Lines come in input order. Decoding is greedy: there are no beams and there is no sampling.
    """

    def show(generated: Generated | None, line: Mapping[str, Any]) -> None:
        if generated is None or settings.out or settings.as_json:
            write_stdout(to_json(line) + "\n")
        else:
            write_stdout((visible(generated.text) if sys.stdout.isatty() else generated.text) + "\n")

    done = job.generate(settings, Terminal(quiet=settings.quiet).notify, show)
    if done is not None and settings.as_json:
        write_stdout(to_json(done) + "\n")
