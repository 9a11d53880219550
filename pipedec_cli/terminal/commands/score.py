"""`pipedec score`: how good predictions are, by the protocols that papers report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import to_json
from pipedec_cli.terminal.console import Talk, make_console, write_stdout
from pipedec_cli.terminal.settings import (
    ConfigOption,
    JsonOption,
    QuietOption,
    RecipeOption,
    WorkspaceOption,
    typed,
)

EXAMPLES = """
[bold]Examples[/bold]

  pipedec score  [dim]# the predictions that were generated last[/dim]

  pipedec score ours.jsonl theirs.jsonl  [dim]# and the difference[/dim]

  pipedec score kp.jsonl --task keyphrases --protocol meng2017

  pipedec score answers.json --gold valid.json  [dim]# MultiSpanQA's files[/dim]

  pipedec score --recipe kptimes                [dim]# by the metrics that the paper reports[/dim]

  pipedec score kp.txt --gold test_trg.txt --sources test_src.txt
"""


class TaskName(StrEnum):
    """The tasks that there are metrics for."""

    summarization = "summarization"
    keyphrases = "keyphrases"
    multispan = "multispan"


class ProtocolName(StrEnum):
    """The protocols, whatever their task."""

    rouge = "rouge"
    chan2019 = "chan2019"
    meng2017 = "meng2017"
    multispanqa = "multispanqa"


_INPUT = "Input"
_SETTINGS = "Protocol"


def score(
    context: typer.Context,
    predictions: Annotated[
        Path | None,
        typer.Argument(
            help="JSON lines as `pipedec generate` writes them, MultiSpanQA's {id: \\[answers]}, or lines of phrases "
            "with ';' between them \\[default: the workspace's newest].",
            show_default=False,
        ),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Argument(help="Predictions for the same examples, to compare with.", show_default=False),
    ] = None,
    *,
    task: Annotated[
        TaskName | None,
        typer.Option(
            help="What is scored \\[default: what the data's segmentation suggests].", show_default=False
        ),
    ] = None,
    protocol: Annotated[
        ProtocolName | None,
        typer.Option(
            help="How: rouge; chan2019 or meng2017; multispanqa \\[default: the first of the task].",
            show_default=False,
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help="The right answers, where the predictions do not hold them: JSON lines, MultiSpanQA's data file, or "
            "lines of phrases.",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    sources: Annotated[
        Path | None,
        typer.Option(
            help="The sources of a --gold of lines, a document a line.",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    stemmer: Annotated[
        bool | None,
        typer.Option(
            "--stemmer/--no-stemmer",
            help="rouge: compare Porter stems \\[default: --stemmer].",
            show_default=False,
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    pretokenized: Annotated[
        bool | None,
        typer.Option(
            "--pretokenized",
            help="keyphrases: cut text, targets and predictions at white space alone.",
            show_default=False,
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    hard: Annotated[
        bool | None,
        typer.Option(
            "--hard",
            help="meng2017: precision at 5 divides by 5 even where fewer were predicted.",
            show_default=False,
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    autojunk: Annotated[
        bool | None,
        typer.Option(
            "--autojunk/--no-autojunk",
            help="multispanqa: difflib's heuristic for long predictions, on in the published script \\[default: --autojunk].",
            show_default=False,
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    resamples: Annotated[
        int,
        typer.Option(
            help="Bootstrap draws for the interval of a difference.", min=99, rich_help_panel=_SETTINGS
        ),
    ] = 9999,
    seed: Annotated[int, typer.Option(help="Of these draws.", min=0, rich_help_panel=_SETTINGS)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Save the scores in this file, each example's own beside it \\[default: scores/ in the workspace].",
            show_default=False,
            rich_help_panel="General",
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    config: ConfigOption = None,  # read by its callback
    recipe: RecipeOption = None,  # likewise
) -> None:
    """Score predictions: ROUGE, keyphrases at 5 and at M, or multi-span answers, each score with its signature.

    With a second file, the difference between the two too, with a 95 % interval from a paired bootstrap.
    """
    # Late, so that `pipedec --help` does not wait for numpy.
    from pipedec_cli.evaluate.scoring import make_protocol
    from pipedec_cli.terminal.runs import scoring
    from pipedec_cli.terminal.views import scores

    talk, place = Talk(quiet=quiet), Workspace.find(workspace)
    if predictions is None:
        predictions = scoring.newest_predictions(place)
        talk.say(f"scoring {predictions}, the newest of the workspace")
    paths = [predictions] if other is None else [predictions, other]
    runs = scoring.load_runs(paths, gold, sources)
    task, protocol = settle_metrics(context, task, protocol)
    if task is None:
        guessed, why = scoring.guess_task(runs[0], place)
        task = TaskName(guessed)
        talk.say(f"task: {task}, since {why}; --task overrides it")
    settings = {"stemmer": stemmer, "pretokenized": pretokenized, "hard": hard, "autojunk": autojunk}
    measure = make_protocol(task.value, protocol.value if protocol else None, **settings)

    scored = [scoring.score_run(run, measure, talk) for run in runs]
    pair = scoring.compare_runs(*scored, resamples=resamples, seed=seed) if len(scored) == 2 else None
    result = scored[0][0] if pair is None else pair
    inputs = [path for path in (*paths, gold, sources) if path is not None]
    resolved = {
        "recipe": recipe,
        "task": task.value,
        "protocol": measure.name,
        **{name: value for name, value in settings.items() if value is not None},
        "gold": gold,
        "sources": sources,
        "resamples": resamples,
        "seed": seed,
    }
    for path in scoring.save(result, out, place, inputs=inputs, settings=resolved):
        talk.say(f"saved {path}")
    if as_json:
        write_stdout(to_json(result.as_json(), indent=2) + "\n")
    else:
        scores.show(make_console(stderr=False), result)


def settle_metrics(
    context: typer.Context, task: TaskName | None, protocol: ProtocolName | None
) -> tuple[TaskName | None, ProtocolName | None]:
    """Task and protocol as they go together: a protocol tells its task, and what was typed wins over a recipe.

    Where both were typed, or neither, they stay as they are: that they do not fit is for `make_protocol` to say.

    Args:
        context: of the command, whose options are called ``task`` and ``protocol``.
        task: the task; None if nothing names it.
        protocol: the protocol; None for the task's usual one.
    """
    from pipedec_cli.evaluate.scoring import task_of_protocol

    if protocol is None:
        return task, None
    implied = TaskName(task_of_protocol(protocol.value))
    if task is None or task == implied:
        return implied, protocol
    match typed(context, "task"), typed(context, "protocol"):
        case True, False:
            return task, None
        case False, True:
            return implied, protocol
        case _:
            return task, protocol
