"""`pipedec report`: decoders side by side, and which one to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipedec_cli.data.errors import log
from pipedec_cli.data.writing import to_json, write_together
from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.view.console import make_console, write_stdout
from pipedec_cli.view.progress import Terminal

if TYPE_CHECKING:
    from pipedec_cli.jobs.report import Compared

EXAMPLES = """
pipedec report                                    # at the model's own delay
pipedec report --delays 1,2,3 --set empty_rows=retry,stop
pipedec report --compare transformers,ctranslate2
pipedec report --compare exact                    # the sequential model's text in fewer calls
pipedec report --batch-sizes 1,4,16 --dtype bfloat16 --limit 200
"""


def report(settings: ReportSettings) -> None:
    """Compare decoders on your data and this machine: quality, speed, decoder steps, memory, and what goes wrong.

    Generates what is missing, scores all of it, and times a sample, the decoders in
    turn in one process. The baseline is the model's teacher, else the workspace's
    sequential model, else the waiting schedule of the same model. The report ends in
    advice: which delay to take, or that the method does not help here.
    """
    show_report(settings)


def show_report(settings: ReportSettings) -> Compared:
    """Make a report, save it and show it."""
    # Late, so that `pipedec --help` does not wait for numpy.
    from pipedec_cli.jobs import report as job
    from pipedec_cli.page.report import report_page
    from pipedec_cli.view import results

    made = job.report(settings, Terminal(quiet=settings.quiet))
    content = to_json(made.content, indent=2) + "\n"
    saved = made.folder / "report.json"
    texts = {
        saved: [content],
        made.folder / "report.md": [results.report_markdown(made.report)],
        made.folder / "report.html": [report_page(made.report, made.curves)],
    }
    write_together(texts, last=saved)
    if settings.as_json:
        write_stdout(content)
    else:
        results.show_report(make_console(stderr=False), made.report)
    log.info(f"saved {saved}, report.md and report.html, to be looked at in a browser")
    return made
