"""The predictions that a report scores: those that are there and match, the others generated as `pipedec generate` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipedec_cli.data.workspace import Workspace
from pipedec_cli.evaluate.items import ScoringItem, Task
from pipedec_cli.evaluate.measure import Measure
from pipedec_cli.evaluate.runs import ScoredRun
from pipedec_cli.evaluate.scoring import make_protocol, task_of_protocol
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.predicting import Predictions, load_decoder, read_inputs
from pipedec_cli.terminal.runs.report_lineup import Planned, ReportRequest
from pipedec_cli.terminal.runs.scoring import LoadedRun, guess_task, load_runs, score_run


@dataclass(frozen=True, slots=True)
class ScoredPredictions:
    """One decoder's predictions and what they are worth."""

    loaded: LoadedRun
    scored: ScoredRun
    items: Sequence[ScoringItem]


def predict(planned: Sequence[Planned], place: Workspace, talk: Talk) -> list[Path]:
    """Generate what is missing of each decoder; returns the files. Data are read once, and each checkpoint loaded once."""
    loaded: dict[tuple[str | None, str | None], Decoder] = {}
    files = []
    inputs = None
    for entry in planned:
        settings = replace(entry.generation, workspace=place.root)
        inputs = inputs or read_inputs(settings, talk)
        wanted = (settings.model, settings.decoder)
        if wanted not in loaded:
            loaded[wanted] = load_decoder(settings, talk)
        files.append(Predictions(settings, loaded[wanted], inputs, talk).complete(entry.name))
    return files


def score_all(
    files: Sequence[Path], request: ReportRequest, place: Workspace, talk: Talk
) -> list[ScoredPredictions]:
    """Score each decoder's predictions by one protocol."""
    loaded = load_runs(files, None, None)
    measure = _measure(request, loaded[0], place, talk)
    return [ScoredPredictions(run, *score_run(run, measure, talk)) for run in loaded]


def _measure(request: ReportRequest, run: LoadedRun, place: Workspace, talk: Talk) -> Measure:
    task: Task
    if request.task is not None:
        task = request.task
    elif request.protocol is not None:
        task = task_of_protocol(request.protocol)
    else:
        task, why = guess_task(run, place)
        talk.say(f"task: {task}, since {why}; --task overrides it")
    return make_protocol(task, request.protocol)
