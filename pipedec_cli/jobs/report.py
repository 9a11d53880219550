"""`pipedec report`: decoders side by side, and which one to take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipedec_cli.data.reading import require_place
from pipedec_cli.data.writing import manifest
from pipedec_cli.evaluate.comparison import Report
from pipedec_cli.evaluate.scoring import settle_metrics
from pipedec_cli.jobs.compare import compare, training_curves
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.measuring import parse_compared
from pipedec_cli.jobs.report_entries import check_comparable
from pipedec_cli.jobs.report_settings import ReportSettings


@dataclass(frozen=True)
class Compared:
    """A report: the comparison, its plain values with a manifest, the models' training curves, and the folder to save it in."""

    report: Report
    content: dict[str, Any]
    curves: dict[str, list[dict[str, float]]]
    folder: Path


def report(settings: ReportSettings, notify: Notify) -> Compared:
    """Compare decoders: generate what is missing, score everything, and time a sample."""
    require_place(settings.out, folder=True)
    task, protocol = settle_metrics(settings.task, settings.protocol, settings.typed)
    settings = replace(settings, task=task, protocol=protocol)
    peers, drafts = parse_compared(settings)
    check_comparable(settings, [*(f"exact-{draft}" for draft in drafts), *peers])
    files, made = compare(settings, peers, drafts, notify)
    resolved = {"peers": peers, "exact": drafts, **settings.recorded}
    content = made.values() | {"manifest": manifest(resolved, inputs=files)}
    return Compared(made, content, training_curves(made), settings.out or settings.place.report)
