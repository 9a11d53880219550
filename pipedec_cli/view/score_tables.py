"""Scores as tables: of one run or two, of each key, what went wrong, and how often confident values are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pipedec_cli.evaluate.metrics.fields import PRECISION, kept
from pipedec_cli.view.console import make_console
from pipedec_cli.view.tables import (
    NONE,
    Format,
    Line,
    Row,
    Sheet,
    cells,
    count,
    first_rows,
    interval,
    number,
    one_section,
    points,
    show_lines,
    show_sheet,
    side_by_side,
    with_section,
)

if TYPE_CHECKING:
    from pipedec_cli.evaluate.failures import Failures
    from pipedec_cli.evaluate.metrics.measure import Measure
    from pipedec_cli.evaluate.scoring import Difference, ScoredRun


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
    columns = names if len(runs) > 1 else ("rate",)
    sheets = [scores, Sheet("", columns, side_by_side([with_section("", column) for column in wrong]))]
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
        parts = (metric, *measure.precision_recall.get(metric, ()))
        scores = [_score(run.scores.values[part]) for part in parts]
        rows.append((name, *scores, *[""] * (len(columns) - len(scores))))
    return Sheet(run.run.name, columns, one_section(rows), spare=(2,))


def _pair(
    runs: Sequence[ScoredRun], names: Row, measure: Measure, differences: Mapping[str, Difference]
) -> Sheet:
    """The scores of two runs with their difference."""
    rows = []
    for metric, name in measure.headline.items():
        difference = differences.get(metric)
        bounds = interval(difference, "{:+z.2f}")
        if difference is not None and difference.low is None:
            bounds = "needs two examples"
        scores = (_score(run.scores.values[metric]) for run in runs)
        rows.append((name, *scores, number("{:+z.2f}", difference.value if difference else None), bounds))
    columns = (*names, "difference", "95 % interval")
    return Sheet("", columns, one_section(rows), spare=(2,))


def _parts(runs: Sequence[ScoredRun], names: Row, measure: Measure) -> Sheet:
    """The scores of each key of the objects; of two runs the first metric alone."""
    columns: Row = ("F1", "P", "R", "exact")
    by_run, right = [run.parts for run in runs], measure.counted[-1]
    metrics = [measure.primary, *measure.precision_recall[measure.primary], *[*measure.headline][1:]]
    if len(runs) > 1:
        columns, metrics = names, metrics[:1]
    rows = []
    for key in dict.fromkeys(chain(*by_run)):
        scores = [
            _score(parts[key][metric]) if key in parts else NONE for parts in by_run for metric in metrics
        ]
        total = next(parts[key][right] for parts in by_run if key in parts)
        rows.append((key, *scores, f"{total:,.0f}"))
    sections, notes = first_rows(rows)
    return Sheet("", (*columns, right.replace("_", " ")), sections, notes=notes, corner="key")


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


def failure_cells(
    failures: Failures | None, part: str, form: Format, *, repeats: bool
) -> list[tuple[str, str]]:
    """The rates of what goes wrong with a decoder, and the lengths of its texts in `part`: subsequences or fields.

    With `repeats`, texts that stopped because they repeated themselves have a row.
    """
    lengths = NONE
    if failures is not None and failures.expected_per_text is not None:
        lengths = f"{failures.subsequences_per_text:.1f} of {failures.expected_per_text:.1f}"
    rates: list[Line] = [
        (f"duplicated {part}s", "duplicated_rate", form),
        (f"dropped {part}s", "dropped_rate", form),
        ("truncated predictions", "truncated_rate", form),
        *([("stopped on repeat", "stopped_on_repeat_rate", form)] if repeats else []),
        ("alike predictions", "alike_rate", form),
    ]
    return [(f"{part}s per text", lengths), *cells(failures, rates)]


def reliability_sheet(name: str, runs: Sequence[tuple[str, ScoredRun]]) -> Sheet | None:
    """How often values of each confidence are right, in the last of the `runs`; None without confidences.

    Each run has the name of its split beside it. The threshold is fitted on the first run.
    """
    (first, fitted), (split, run) = (runs[0][0], runs[0][1].reliability), runs[-1]
    if run.reliability is None:
        return None
    rows = []
    for band in run.reliability.bins:
        cells = (count(band.values), points(band.confidence), points(band.right))
        rows.append((f"{band.least:.1f} to {band.least + 0.1:.1f}", *cells))
    pairs = "of a right and a wrong value, the right one is surer so often"
    notes = [f"area under the ROC curve: {number('{:.3f}', run.reliability.auc)} ({pairs})"]
    if fitted is None or fitted.threshold is None:
        notes.append(f"no threshold keeps {PRECISION:g} % right values{first}")
    else:
        sure = kept(run.judged, fitted.threshold)
        share = f"{sure.values:,} of {len(run.judged):,} values, {sure.right:.1f} % right{split}"
        notes.append(f"at least {sure.least:.4g} sure, which keeps {PRECISION:g} % right{first}: {share}")
    columns = ("values", "mean confidence, %", "right, %")
    return Sheet(f"How sure, {name}", columns, one_section(rows), notes=tuple(notes), corner="confidence")
