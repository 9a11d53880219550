"""`pipedec segment`: the data that the other commands work on, and what the method can save on them."""

from msgspec import to_builtins

from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs import segment as job
from pipedec_cli.jobs.segment import SegmentSettings
from pipedec_cli.view.console import write_stdout
from pipedec_cli.view.progress import Terminal
from pipedec_cli.view.segment_tables import segment_sheets
from pipedec_cli.view.tables import show_sheet

EXAMPLES = """
pipedec segment data.jsonl --level sentence       # lines of {"source": "…", "target": "…"}
pipedec segment train.csv --dev dev.csv --source-field article --target-field highlights
pipedec segment keyphrases.jsonl --level phrase   # targets are lists, or "a; b; c"
pipedec segment facts.jsonl --level field         # targets are objects
pipedec segment inputs.jsonl --sources-only       # for train --teacher
"""


def segment(settings: SegmentSettings) -> None:
    """Cut every target into subsequences, and the data into train, dev and test.

    A pipelined decoder writes the subsequences of a text at the same time. This command
    shows, before anything is trained, how many decoder steps that saves on your data at
    Δt = 1, 2 and 3.
    """
    terminal = Terminal(quiet=settings.quiet)
    made = job.segment(settings, terminal)
    if made.statistics and not settings.quiet and not settings.as_json:
        for sheet in segment_sheets(
            made.statistics, made.estimates, made.unit, made.segmentation.fields
        ):
            show_sheet(terminal.talk.console, sheet)
    if settings.as_json:
        content = {
            "out": str(made.out),
            **to_builtins(made.segmentation),
            **made.details,
        }
        write_stdout(to_json(content, indent=2) + "\n")
