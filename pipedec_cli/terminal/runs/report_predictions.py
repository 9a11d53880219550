"""The predictions that a report scores: those that are there and match, the others generated as `pipedec generate` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import GenerationFiles
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import read_json
from pipedec_cli.evaluate.items import ScoringItem, Task
from pipedec_cli.evaluate.measure import Measure
from pipedec_cli.evaluate.runs import ScoredRun
from pipedec_cli.evaluate.scoring import make_protocol, task_of_protocol
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.runs.generation import Run
from pipedec_cli.terminal.runs.generation_inputs import read_data
from pipedec_cli.terminal.runs.generation_request import GenerateRequest
from pipedec_cli.terminal.runs.generation_setup import set_up
from pipedec_cli.terminal.runs.report_lineup import Planned, ReportRequest
from pipedec_cli.terminal.runs.scoring import LoadedRun, guess_task, load_runs, score_run


@dataclass(frozen=True, slots=True)
class ScoredPredictions:
    """One decoder's predictions and what they are worth."""

    loaded: LoadedRun
    scored: ScoredRun
    items: Sequence[ScoringItem]


def predict(planned: Sequence[Planned], place: Workspace, talk: Talk) -> list[Path]:
    """Generate what is missing of each decoder; returns the files."""
    return [_generate(entry.name, entry.generation, place, talk) for entry in planned]


def score_all(
    files: Sequence[Path], request: ReportRequest, place: Workspace, talk: Talk
) -> list[ScoredPredictions]:
    """Score each decoder's predictions by one protocol."""
    loaded = load_runs(files, None, None)
    measure = _measure(request, loaded[0], place, talk)
    return [ScoredPredictions(run, *score_run(run, measure, talk)) for run in loaded]


def _generate(name: str, request: GenerateRequest, place: Workspace, talk: Talk) -> Path:
    """Make sure that the file of a run is whole, and of these settings and data."""
    inputs, location = read_data(request, place, talk)
    setup = set_up(request, inputs, location, place, talk, live=False)
    files = GenerationFiles(place.generations(setup.name))
    trace = _has_grids(files)
    if trace:  # lines that hold more than is needed serve as well
        settings = {**setup.manifest["settings"], "trace": True}
        setup = replace(setup, manifest={**setup.manifest, "settings": settings})
    resume = False
    if files.begun:
        try:
            done = files.done(setup.manifest, inputs.read())
        except UserError as error:
            talk.say(f"{name}: {files.lines} is of another run and is generated anew ({error.what})")
        else:
            if done == inputs.count:
                talk.say(f"{name}: all {done:,} predictions are in {files.lines}")
                return files.lines
            resume = True
    Run(setup, inputs, talk, trace=trace, live=False).write(files.lines, resume=resume)
    return files.lines


def _has_grids(files: GenerationFiles) -> bool:
    if not files.manifest.is_file():
        return False
    content = read_json(files.manifest)
    settings = content.get("settings") if isinstance(content, dict) else None
    return isinstance(settings, dict) and settings.get("trace") is True


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
