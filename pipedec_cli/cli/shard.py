"""`pipedec shard merge`: the parts of a large corpus as one file."""

from msgspec import to_builtins

from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs import shard as job
from pipedec_cli.jobs.generate_settings import MergeSettings
from pipedec_cli.view.console import write_stdout
from pipedec_cli.view.progress import Terminal

EXAMPLES = """
pipedec generate corpus/ --out made/ --part 3/16   # a sixteenth, on this machine
pipedec generate corpus/ --out made/ --ray         # all parts, by Ray
pipedec shard merge made/                          # when all parts are there
pipedec shard merge made/ --out - | gzip > all.jsonl.gz
"""


def merge(settings: MergeSettings) -> None:
    """Put the parts of a job together, in order, when all are there."""
    emit = lambda line: write_stdout(to_json(line) + "\n")  # noqa: E731
    result = job.merge(settings, Terminal(quiet=settings.quiet), emit)
    if result is not None and settings.as_json:
        write_stdout(to_json(to_builtins(result)) + "\n")
