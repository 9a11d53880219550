"""`pipedec shard run` and `pipedec shard merge`: a large corpus in parts."""

from __future__ import annotations

from msgspec import to_builtins

from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs import shard as job
from pipedec_cli.jobs.generate_settings import MergeSettings, ShardSettings
from pipedec_cli.view.console import write_stdout
from pipedec_cli.view.progress import Terminal

RUN_EXAMPLES = """
pipedec shard run corpus/ --out made/ --part 3/16  # a sixteenth, on this machine
pipedec shard run corpus/ --out made/ --ray        # all parts, by Ray
"""
MERGE_EXAMPLES = """
pipedec shard merge made/                          # when all parts are there
pipedec shard merge made/ --out - | gzip > all.jsonl.gz
"""


def run(settings: ShardSettings) -> None:
    """Generate from one part of the records, or from all parts with Ray.

    Each part is a file in the folder --out. It goes on after a stop, and is left as it is when it is whole. Invalid records are skipped.
    """
    result = job.run(settings, Terminal(quiet=settings.quiet).notify)
    if settings.as_json:
        write_stdout(to_json(to_builtins(result)) + "\n")


def merge(settings: MergeSettings) -> None:
    """Put the parts of a job together, in order, when all are there."""
    emit = lambda line: write_stdout(to_json(line) + "\n")  # noqa: E731
    result = job.merge(settings, Terminal(quiet=settings.quiet).notify, emit)
    if result is not None and settings.as_json:
        write_stdout(to_json(to_builtins(result)) + "\n")
