"""The predictions that a report scores: those that are there and match, the others generated as `pipedec generate` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipedec_cli.data.workspace import Workspace
from pipedec_cli.evaluate.scoring import ScoredRun, load_runs
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.predicting import Predictions, load_decoder, read_inputs
from pipedec_cli.terminal.runs.report_lineup import Planned, ReportRequest
from pipedec_cli.terminal.score import ScoreSettings, score_runs


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


def score_all(files: Sequence[Path], request: ReportRequest, place: Workspace, talk: Talk) -> list[ScoredRun]:
    """Score each decoder's predictions by one protocol."""
    settings = ScoreSettings(task=request.task, protocol=request.protocol)
    return score_runs(settings, load_runs(files), place, talk)
