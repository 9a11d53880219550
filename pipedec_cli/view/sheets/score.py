"""Scores as sheets: the table, what went wrong, and the signature that makes the scores comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pipedec_cli.view import tables
from pipedec_cli.view.console import make_console
from pipedec_cli.view.tables import Row, Section, Sheet, show_lines, show_sheet, under

if TYPE_CHECKING:
    from pipedec_cli.evaluate.metrics.measure import Measure
    from pipedec_cli.evaluate.scoring import ScoredRun
    from pipedec_cli.evaluate.significance import Difference


def show_scores(
    runs: Sequence[ScoredRun], differences: Mapping[str, Difference], pair: Mapping[str, Any]
) -> None:
    """Print scores: the table, what went wrong in particular, and the signature that makes the scores comparable."""
    measure, values = runs[0].scores.measure, [run.scores.values for run in runs]
    names = tuple(run.run.name for run in runs)
    notes = [f"signature: {measure.signature}", "; ".join(map(_rows, runs))]
    title, rows = names[0], []
    columns: Row = ("score", "P", "R") if measure.precision_recall else ("score",)
    if len(runs) > 1:
        title, columns = "", (*names, "difference", "95 % interval")
        notes.append(f"difference: first minus second; {pair['method']}")
        same, examples = pair["identical_predictions"], len(runs[0].items)
        notes.append(f"the same prediction in both: {same:,} of {examples:,}")
    for metric, name in measure.headline.items():
        if len(runs) > 1:
            cells = [*(_number(each[metric]) for each in values), *_difference(differences.get(metric))]
        else:
            parts = (metric, *measure.precision_recall.get(metric, ()))
            cells = [_number(values[0][part]) for part in parts]
        rows.append((name, *cells, *[""] * (len(columns) - len(cells))))
    repeats = any(run.failures.stopped_on_repeat for run in runs)
    wrong = [tables.what_goes_wrong(run.failures, measure.part, _rate, repeats=repeats) for run in runs]
    console, heading = make_console(stderr=False), names if len(runs) > 1 else ("rate",)
    show_sheet(console, Sheet(title, columns, (Section("", tuple(rows)),), spare=(2,)))
    show_sheet(
        console, Sheet("", heading, tables.columns_side_by_side([under("", cells) for cells in wrong]))
    )
    if any(found := [run.parts for run in runs]):
        show_sheet(console, _parts(names, measure, found))
    show_lines(console, notes)


def _parts(names: Row, measure: Measure, found: Sequence[Mapping[str, Mapping[str, float]]]) -> Sheet:
    """The scores of the parts of answers, an object's keys, for several runs the first metric alone."""
    columns: Row = ("F1", "P", "R", "exact")
    right = measure.counted[-1]
    metrics = [measure.primary, *measure.precision_recall[measure.primary], *[*measure.headline][1:]]
    if len(names) > 1:
        columns, metrics = names, metrics[:1]
    rows = []
    for part in dict.fromkeys(chain(*found)):
        cells = [_number(each[part][metric]) if part in each else "–" for each in found for metric in metrics]
        counted = next(each[part][right] for each in found if part in each)
        rows.append((part, *cells, f"{counted:,.0f}"))
    shown, notes = tables.first_rows(rows)
    columns = (*columns, right.replace("_", " "))
    return Sheet("", columns, (Section("", shown),), notes=notes, corner="key")


def _rows(run: ScoredRun) -> str:
    """How many rows were scored, of how many the run set out to make, and what else was counted."""
    (_, examples), *others = run.scores.counts.items()
    of = f" of {run.expected}" if run.expected is not None else ""
    told = [f"{examples}{of} {'row' if examples == 1 and not of else 'rows'}"]
    told += [f"{count} {name.replace('_', ' ')}" for name, count in others if count]
    return f"{run.run.name}: {', '.join(told)}"


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "not scorable" if value is None else f"{value:.2f}"


def _difference(difference: Difference | None) -> Row:
    if difference is None:
        return "", ""
    value, low, high = f"{difference.value:+.2f}", difference.low, difference.high
    return value, "needs two examples" if low is None else f"{low:+.2f} to {high:+.2f}"
