"""Scores as sheets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pipedec_cli.view.console import make_console
from pipedec_cli.view.formats import NONE, interval, number
from pipedec_cli.view.printing import show_lines, show_sheet
from pipedec_cli.view.sheet import Row, Section, Sheet, first_rows, side_by_side, with_section
from pipedec_cli.view.sheets.shared import failure_cells, reliability_sheet

if TYPE_CHECKING:
    from pipedec_cli.evaluate.metrics.measure import Measure
    from pipedec_cli.evaluate.scoring import ScoredRun
    from pipedec_cli.evaluate.significance import Difference


def show_scores(
    runs: Sequence[ScoredRun], differences: Mapping[str, Difference], pair: Mapping[str, Any]
) -> None:
    """Print the scores, what went wrong, and the signature that makes the scores comparable."""
    measure, names = runs[0].scores.measure, tuple(run.run.name for run in runs)
    notes = [f"signature: {measure.signature}", "; ".join(map(_rows, runs))]
    if len(runs) == 1:
        scores = _single(runs[0], measure)
    else:
        scores = _pair(runs, names, measure, differences)
        same, examples = pair["identical_predictions"], len(runs[0].items)
        notes.append(f"difference: first minus second; {pair['method']}")
        notes.append(f"the same prediction in both: {same:,} of {examples:,}")
    repeats = any(run.failures.stopped_on_repeat for run in runs)
    wrong = [failure_cells(run.failures, measure.part, _rate, repeats=repeats) for run in runs]
    sheets = [
        scores,
        Sheet(
            "",
            names if len(runs) > 1 else ("rate",),
            side_by_side([with_section("", column) for column in wrong]),
        ),
    ]
    if any(run.parts for run in runs):
        sheets.append(_parts(runs, names, measure))
    sheets += filter(None, (reliability_sheet(run.run.name, [("", run)]) for run in runs))
    console = make_console(stderr=False)
    for sheet in sheets:
        show_sheet(console, sheet)
    show_lines(console, notes)


def _single(run: ScoredRun, measure: Measure) -> Sheet:
    """The scores of one run, with precision and recall where the metric has them."""
    columns = ("score", "P", "R") if measure.precision_recall else ("score",)
    rows = []
    for metric, name in measure.headline.items():
        values = [
            _score(run.scores.values[part]) for part in (metric, *measure.precision_recall.get(metric, ()))
        ]
        rows.append((name, *values, *[""] * (len(columns) - len(values))))
    return Sheet(run.run.name, columns, (Section("", tuple(rows)),), spare=(2,))


def _pair(
    runs: Sequence[ScoredRun], names: Row, measure: Measure, differences: Mapping[str, Difference]
) -> Sheet:
    """The scores of two runs with their difference."""
    rows = []
    for metric, name in measure.headline.items():
        found = differences.get(metric)
        bounds = interval(found, "{:+z.2f}")
        if found is not None and found.low is None:
            bounds = "needs two examples"
        values = (_score(run.scores.values[metric]) for run in runs)
        rows.append((name, *values, number("{:+z.2f}", found.value if found else None), bounds))
    columns = (*names, "difference", "95 % interval")
    return Sheet("", columns, (Section("", tuple(rows)),), spare=(2,))


def _parts(runs: Sequence[ScoredRun], names: Row, measure: Measure) -> Sheet:
    """The scores of each key of the objects; of two runs the first metric alone."""
    columns: Row = ("F1", "P", "R", "exact")
    found, right = [run.parts for run in runs], measure.counted[-1]
    metrics = [measure.primary, *measure.precision_recall[measure.primary], *[*measure.headline][1:]]
    if len(runs) > 1:
        columns, metrics = names, metrics[:1]
    rows = []
    for part in dict.fromkeys(chain(*found)):
        values = [
            _score(each[part][metric]) if part in each else NONE for each in found for metric in metrics
        ]
        total = next(each[part][right] for each in found if part in each)
        rows.append((part, *values, f"{total:,.0f}"))
    section, notes = first_rows(rows)
    return Sheet("", (*columns, right.replace("_", " ")), (section,), notes=notes, corner="key")


def _rows(run: ScoredRun) -> str:
    """The number of scored rows, the number that the run was to make, and the other counts."""
    (_, examples), *others = run.scores.counts.items()
    of = f" of {run.expected}" if run.expected is not None else ""
    counts = [f"{examples}{of} {'row' if examples == 1 and not of else 'rows'}"]
    counts += [f"{count} {name.replace('_', ' ')}" for name, count in others if count]
    return f"{run.run.name}: {', '.join(counts)}"


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def _score(value: float | None) -> str:
    return "not scorable" if value is None else f"{value:.2f}"
