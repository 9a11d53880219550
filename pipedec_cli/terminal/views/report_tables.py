"""A report as tables of words, the same for the terminal and for report.md. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence

from pipedec_cli.evaluate.breakdown import MANY, SizeRow
from pipedec_cli.evaluate.comparison import Entry, Report
from pipedec_cli.terminal.views.report_decoders import side_by_side
from pipedec_cli.terminal.views.report_sheet import NONE, Section, Sheet, bar, figure, label, points, times


def sheets(report: Report) -> list[Sheet]:
    """Every table of a report, in order."""
    made = [side_by_side(report)]
    if len(report.pipelined) > 1:
        made.append(by_delay(report))
    if any(report.sizes.values()):
        made.append(by_subsequences(report))
    made.append(what_was_compared(report))
    return made


def by_delay(report: Report) -> Sheet:
    """The paper's Table 5: quality and throughput at each delay, with the paper's own where there are any."""
    size = report.batch_sizes[0]
    scored = report.first.scored
    metrics = scored.scores.measure.headline if scored else ()
    published = {row.delay: row for row in report.paper.delays} if report.paper else {}
    columns = [*map(label, metrics), "examples/s", "speedup", "decoder steps"]
    if published:
        columns += ["paper: Rouge-L", "paper: examples/s"]
    rows = []
    for entry in report.pipelined:
        cells = [points(entry.scored.scores.values[metric]) if entry.scored else NONE for metric in metrics]
        cells += [
            figure(entry.timings[size].throughput),
            times(entry.gains[size].speedup),
            f"{entry.totals.steps_per_example:.1f}" if entry.totals else NONE,
        ]
        if published:
            row = published.get(entry.delay or 0)
            cells += [f"{row.quality['rougeL']:.1f}", f"{row.throughput:.1f}"] if row else [NONE, NONE]
        rows.append((entry.name, *cells))
    return Sheet("By delay, as in the paper's Table 5", tuple(columns), (Section("", tuple(rows)),))


def by_subsequences(report: Report) -> Sheet:
    """The paper's Figures 4 and 5: speedup and quality by number of target subsequences."""
    metric = label(report.metric)
    names = [name for name, rows in report.sizes.items() if rows]
    drawn = _drawn(report, names)
    columns = ["targets", "timed", f"{metric}, {report.first.name}"]
    for name in names:
        columns += [f"fewer steps, {name}", f"speedup, {name}", f"{metric}, {name}"]
    rows = []
    for place, first in enumerate(report.sizes[names[0]]):
        cells = [f"{first.examples:,}", str(first.timed), points(first.baseline_quality)]
        for row in (report.sizes[name][place] for name in names):
            cells += [times(row.fewer_steps), times(row.speedup), points(row.quality)]
        rows.append((_count(first), *cells, bar(report.sizes[drawn][place].speedup)))
    notes = ["steps and quality: all targets; speedup: the timed ones, one at a time"]
    if report.paper and report.paper.curve:
        curve = report.paper.curve
        notes.append(f"paper, {curve.figure}: {curve.at_2} times at 2 subsequences, {curve.at_9} times at 9")
    return Sheet(
        "By number of target subsequences, as in the paper's Figures 4 and 5",
        (*columns, f"speedup, {drawn}, drawn"),
        (Section("", tuple(rows)),),
        kept=3,
        notes=tuple(notes),
        corner="subsequences",
    )


def what_was_compared(report: Report) -> Sheet:
    """Version and settings of each decoder, the machine, and the versions of everything."""
    rows = tuple((entry.name, _settings(entry)) for entry in report.entries)
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in report.versions.items())
    return Sheet(
        "What was compared",
        ("settings",),
        (Section("", rows),),
        notes=(f"{report.dtype} on {report.device}; {report.machine.line}", versions, *report.notes),
    )


def _settings(entry: Entry) -> str:
    return ", ".join(f"{name} {value}" for name, value in entry.settings.items())


def _drawn(report: Report, names: Sequence[str]) -> str:
    """The decoder whose bars are drawn: the advised one, else the first."""
    advised = [entry.name for entry in report.pipelined if entry.options == report.advice.options]
    return advised[0] if advised and advised[0] in names else names[0]


def _count(row: SizeRow) -> str:
    return f"{MANY} or more" if row.subsequences == MANY else str(row.subsequences)
