"""`pipedec import`: published data sets as JSON lines that `segment` takes."""

from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs import import_ as job
from pipedec_cli.jobs.import_ import ImportSettings
from pipedec_cli.view.console import write_stdout
from pipedec_cli.view.progress import Terminal
from pipedec_cli.view.segment_tables import import_sheet
from pipedec_cli.view.tables import show_sheet

EXAMPLES = """
pipedec import msqa MultiSpanQA_data              # its folder: msqa/train.jsonl, …
pipedec import kp20k kp20k_testing.json --out test.jsonl
pipedec import cnn_dailymail abisee/cnn_dailymail:3.0.0 --split test --limit 1000
pipedec import parallel train_src.txt --targets train_trg.txt
"""


def import_data(settings: ImportSettings) -> None:
    """Turn a published data set into JSON lines: id, source, and target as text or as a list of segments.

    A file in another layout is refused with the first place where it differs. No
    program of a data set is run.
    """
    terminal = Terminal(quiet=settings.quiet)
    made = job.import_data(settings, terminal, write_stdout)
    if not settings.quiet:
        show_sheet(terminal.talk.console, import_sheet(made.files, made.dataset))
    if settings.as_json:
        write_stdout(to_json(made.content, indent=2) + "\n")
