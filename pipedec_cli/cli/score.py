"""`pipedec score`: how good predictions are, by the protocols that papers report."""

from pipedec_cli.jobs import score as job
from pipedec_cli.jobs.score import ScoreSettings
from pipedec_cli.view.console import write_stdout
from pipedec_cli.view.progress import Terminal

EXAMPLES = """
pipedec score                                     # the predictions that were generated last
pipedec score ours.jsonl theirs.jsonl             # and the difference
pipedec score kp.jsonl --task keyphrases --protocol meng2017
pipedec score answers.json --gold valid.json      # the files of MultiSpanQA
"""


def score(settings: ScoreSettings) -> None:
    """Score predictions: ROUGE, keyphrases at 5 and at M, multi-span answers, or the fields of objects.

    With a second file, the difference between the two as well, with a 95 % interval
    from a paired bootstrap.
    """
    from pipedec_cli.data.writing import to_json
    from pipedec_cli.view.results import show_scores

    made = job.score(settings, Terminal(quiet=settings.quiet))
    if settings.as_json:
        write_stdout(to_json(made.content, indent=2) + "\n")
    else:
        show_scores(made.runs, made.differences, made.content)
