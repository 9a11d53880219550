"""What `segment`, `train` and `bench` found, each as a page of plots and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pipedec_cli.view.page.page import render
from pipedec_cli.view.page.plots import Series, bars, lines
from pipedec_cli.view.page.report_page import figure_sections
from pipedec_cli.view.page.report_plots import time_plot, training_plots

if TYPE_CHECKING:
    from pipedec_cli.data.preparation import TargetStatistics
    from pipedec_cli.evaluate.comparison import Comparison
    from pipedec_cli.evaluate.estimate import Estimate
    from pipedec_cli.view.sheet import Sheet


def segment_page(
    train: TargetStatistics, estimates: Sequence[Estimate], unit: str, sheets: Sequence[Sheet]
) -> str:
    """The data: how many subsequences targets have, and the steps that the grid promises."""
    spread = [(str(length), float(times)) for length, times in train.histogram.items()]
    steps = [(one.name, one.pipelined_steps) for one in estimates]
    steps = [("sequential", one.sequential_steps) for one in estimates[:1]] + steps
    plots = [
        bars(title, note, across, [name for name, _ in rows], {across: [value for _, value in rows]})
        for title, note, across, rows in (
            ("Subsequences a target", "The targets of train.", "targets", spread),
            (
                "Decoder steps a target",
                f"Counted in {unit}, if just the targets were written.",
                "steps",
                steps,
            ),
        )
        if rows
    ]
    return render("Segmented data", figure_sections(plots, sheets))


def training_page(model: str, curve: Sequence[Mapping[str, float]], sheets: Sequence[Sheet]) -> str:
    """A training: how it went, and with what."""
    return render(f"How {model} was trained", figure_sections([*training_plots({model: curve})], sheets))


def bench_page(bench: Comparison, sheets: Sequence[Sheet]) -> str:
    """A bench: where the time goes, and single steps beside their limit."""
    plots = [time_plot(bench, size) for size in bench.batch_sizes]
    steps: list[Series] = []
    for place, dtype in enumerate(dict.fromkeys(step.dtype for step in bench.steps)):
        ours = sorted((step for step in bench.steps if step.dtype == dtype), key=lambda step: step.rows)
        steps.append(Series(dtype, place, [(step.rows, 1000 * step.seconds) for step in ours]))
        limit = [(step.rows, 1000 * step.limit_seconds) for step in ours]
        steps.append(Series(f"{dtype}, limit", place, limit, "--"))
    if steps:
        note = "Dashed: what reading weights, keys and values alone takes."
        plots.append(lines("One decoder step", note, "rows", "milliseconds", steps))
    return render(f"Speed of {bench.model}", figure_sections(plots, sheets))
