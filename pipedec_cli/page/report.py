"""report.html and training.html: a report and a training as pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipedec_cli.metrics.scoring import LABELS
from pipedec_cli.page.examples import examples
from pipedec_cli.page.page import Section, render, template
from pipedec_cli.page.plots import Curves, report_plots, training_plots
from pipedec_cli.page.replay import replay
from pipedec_cli.view.results import report_sheets

if TYPE_CHECKING:
    from pipedec_cli.compare.comparison import Report
    from pipedec_cli.page.plots import Plot
    from pipedec_cli.view.tables import Sheet


def report_page(report: Report, curves: Curves) -> str:
    """The page: the advice, the plots with those of the training `curves`, every table, the replay, and the examples."""
    notes = (
        f"baseline: {report.baseline}",
        f"{report.dtype} on {report.conditions.device}; {report.conditions.machine.line}",
        report.sample.line,
        "report.json and report.md beside this file have the same figures",
    )
    body = template("advice.html", report=report, labels=LABELS, notes=notes)
    advice = Section("advice", "Which to take", body)
    plots = [*report_plots(report), *training_plots(curves)]
    browsed = filter(None, (replay(report), examples(report)))
    figures = _figures(plots, report_sheets(report), folded=report.advice.is_missing)
    return render("Decoders compared", [advice, *figures, *browsed])


def training_page(name: str, result: Mapping[str, Any], sheets: Sequence[Sheet]) -> str:
    """The page of a training: the plots of the curve in its `result`, and its tables."""
    plots = [*training_plots({name: result.get("curve", ())})]
    return render(f"How {name} was trained", _figures(plots, sheets))


def _figures(
    plots: Sequence[Plot], sheets: Sequence[Sheet], *, folded: bool = False
) -> list[Section]:
    """The sections of plots, if there are any, and of tables. The plots may be `folded` away."""
    drawn = Section(
        "plots", "At a glance", template("plots.html", plots=plots, folded=folded)
    )
    tables = Section("tables", "In figures", template("tables.html", sheets=sheets))
    return [drawn, tables] if plots else [tables]
