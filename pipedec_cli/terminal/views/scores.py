"""How scores look: tables for a person, and a bar while they are computed."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipedec_cli.evaluate.runs import ScoredPair, ScoredRun
from pipedec_cli.evaluate.significance import Difference
from pipedec_cli.terminal.console import visible

#: What the metrics are called in tables.
LABELS: Mapping[str, str] = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "rougeLsum": "ROUGE-Lsum",
    "present_f1@5": "present F1@5",
    "present_f1@M": "present F1@M",
    "absent_f1@5": "absent F1@5",
    "absent_f1@M": "absent F1@M",
    "em_f1": "exact match F1",
    "pm_f1": "partial match F1",
}
NOT_SCORABLE = "not scorable"


def show(console: Console, result: ScoredRun | ScoredPair) -> None:
    """Print scores: the table, what went wrong in particular, and the signature that makes the scores comparable."""
    runs = (result,) if isinstance(result, ScoredRun) else (result.first, result.second)
    scores = runs[0].scores
    console.print(run_table(result) if isinstance(result, ScoredRun) else pair_table(result))
    console.print()
    console.print(failure_table(*runs))
    console.print()
    lines = [f"signature: {scores.signature}", "; ".join(rows(run) for run in runs)]
    if isinstance(result, ScoredPair):
        lines.append(f"difference: first minus second; {result.method}")
        lines.append(f"the same prediction in both: {result.identical:,} of {scores.counts['examples']:,}")
    for line in lines:
        console.print(Text(visible(line)), soft_wrap=True)


def rows(run: ScoredRun) -> str:
    """How many rows were scored, of how many the run set out to make, and what else was counted."""
    counts = run.scores.counts
    of = f" of {run.expected}" if run.expected is not None else ""
    others = [
        f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if name != "examples" and count
    ]
    return f"{run.name}: " + ", ".join(
        [f"{counts['examples']}{of} {'row' if counts['examples'] == 1 and not of else 'rows'}", *others]
    )


def run_table(run: ScoredRun) -> Table:
    """One run's scores: its headline metrics, with precision and recall where the protocol has them."""
    measure, values = run.scores.measure, run.scores.values
    table = _table(visible(run.name))
    detailed = bool(measure.precision_recall)
    for heading in ("score", *(("P", "R") if detailed else ())):
        table.add_column(heading, justify="right")
    for metric in measure.headline:
        cells = [values[metric]]
        if detailed:
            cells += [values[part] for part in measure.precision_recall[metric]]
        table.add_row(LABELS.get(metric, metric), *map(number, cells))
    return table


def pair_table(pair: ScoredPair) -> Table:
    """Two runs' scores side by side, and the first minus the second with its interval."""
    table = _table("")
    for heading in (visible(pair.first.name), visible(pair.second.name), "difference", "95 % interval"):
        table.add_column(heading, justify="right")
    for metric in pair.first.scores.measure.headline:
        difference = pair.differences.get(metric)
        table.add_row(
            LABELS.get(metric, metric),
            number(pair.first.scores.values[metric]),
            number(pair.second.scores.values[metric]),
            "" if difference is None else f"{difference.value:+.2f}",
            interval(difference),
        )
    return table


def failure_table(*runs: ScoredRun) -> Table:
    """Repeats, omissions and cuts, a column for each run."""
    table = _table("")
    for run in runs:
        table.add_column(visible(run.name) if len(runs) > 1 else "rate", justify="right")
    rates = [
        (run.failures.duplicated_rate, run.failures.dropped_rate, run.failures.truncated_rate) for run in runs
    ]
    labels = ("duplicated subsequences", "dropped subsequences", "truncated predictions")
    for label, cells in zip(labels, zip(*rates, strict=True), strict=True):
        table.add_row(label, *("unknown" if rate is None else f"{rate:.1%}" for rate in cells))
    return table


def number(value: float | None) -> str:
    """A score in per cent to two places."""
    return NOT_SCORABLE if value is None else f"{value:.2f}"


def interval(difference: Difference | None) -> Text:
    """The interval of a difference, in bold where it excludes zero."""
    if difference is None:
        return Text()
    if difference.low is None or difference.high is None:
        return Text("needs two examples")
    ends = f"{difference.low:+.2f} to {difference.high:+.2f}"
    return Text(ends, style="bold" if difference.excludes_zero else "")


def _table(title: str) -> Table:
    table = Table(title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    return table
