"""A report as tables of words, the same for the terminal and for report.md. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from rich.console import Console

from pipedec_cli.data.paper import METRIC_TITLES, NOT_AVAILABLE, DelayResult
from pipedec_cli.evaluate.breakdown import MANY
from pipedec_cli.evaluate.comparison import Comparison, Entry, Quality
from pipedec_cli.evaluate.scoring import LABELS
from pipedec_cli.view import tables
from pipedec_cli.view.tables import Label, Section, Sheet, points, rate, times, told, under

#: Δt of the paper's main tables.
PAPER_DELAY: Final = 1
# Labels, and what stands behind them: of `Totals`, `Timing`, `Gain`, `Memory` and `Failures`.
_TOTALS: Final = {
    "steps an example": "steps_per_example",
    "tokens an example": "tokens_per_example",
    "tokens a step": "tokens_per_step",
}
_EXACT: Final = {
    "steps that draft": "draft_steps_per_example",
    "steps that check": "checks_per_example",
    "tokens a check": "tokens_per_check",
}
_GAINS: Final = {
    "fewer calls (schedule)": "fewer_calls",
    "cheaper calls (kernels)": "faster_calls",
    "decoding, both together": "decoding",
}
_MEMORY: Final = {"peak, MB": "peak_bytes", "  of it before decoding": "ready_bytes"}


def show_report(console: Console, report: Comparison) -> None:
    """Print every table, and the advice at the end."""
    for sheet in report_sheets(report):
        tables.show_sheet(console, sheet)
    assert report.advice is not None
    tables.show_lines(console, [report.advice.text], "bold")
    tables.show_lines(console, report.advice.cautions)


def markdown(report: Comparison) -> str:
    """The whole report as Markdown: the advice first, then every table with its notes."""
    assert report.advice is not None
    lines = ["# Decoders compared", "", f"**{tables.plain(report.advice.text)}**", ""]
    lines += [f"- {tables.plain(caution)}" for caution in report.advice.cautions]
    for sheet in report_sheets(report):
        lines += ["", *tables.as_markdown(sheet)]
    return "\n".join(lines).strip() + "\n"


def report_sheets(report: Comparison) -> list[Sheet]:
    """Every table of a report, in order."""
    made = [_side_by_side(report)]
    if len(report.pipelined) > 1:
        made.append(_by_delay(report))
    if any(report.by_subsequences.values()):
        made.append(_by_subsequences(report))
    return [*made, tables.settings_sheet("What was compared", report, report.dtype, report.notes)]


def _side_by_side(report: Comparison) -> Sheet:
    """Quality, speed, where the speed comes from, memory, and what goes wrong; the paper's figures beside them."""
    papers: dict[str, dict[Label, str]] = {}
    if report.paper is not None:
        row, speed = report.paper.row, "speed, batch size 1"  # the paper measured one example at a time
        peak = (f"memory, batch size {report.batch_sizes[0]}", "peak, MB")
        both = ((row.sequential, "sequential", 1.0), (row.pipelined, f"Δt = {PAPER_DELAY}", row.speedup))
        for figures, name, speedup in both:
            published = {"train": {}, "dev": figures.dev_quality}
            papers[f"paper: {name}"] = {
                **{
                    (f"quality{on}", LABELS[metric]): points(value)
                    for on, split, _ in _qualities(report.first, report)
                    for metric, value in published.get(split or "", figures.quality).items()
                    if metric in LABELS
                },
                (speed, "examples/s"): f"{figures.throughput:.1f}",
                (speed, "speedup"): times(speedup),
                peak: f"{figures.memory_mb:,}" if figures.memory_mb else NOT_AVAILABLE,
            }
    return Sheet(
        "Decoders side by side",
        (*(one.name for one in report.entries), *papers),
        tables.columns_side_by_side([_column(one, report) for one in report.entries], list(papers.values())),
        notes=tuple(_notes(report)),
    )


def _qualities(one: Entry, report: Comparison) -> Iterator[tuple[str, str | None, Quality]]:
    """The quality on each split, the one that all else is measured on last, with its heading's end and the split's name."""
    first, mine = map(report.qualities, (report.first, one))
    for split, quality in first.items():
        named, scored = f", {split}" if len(first) > 1 else "", quality.scored
        on = f"{named}, {len(scored.items) if scored else 0:,} examples"
        yield on, split, mine.get(split, Quality())


def _column(one: Entry, report: Comparison) -> Iterator[tuple[Label, str]]:
    """All cells of a decoder, each with its section and label."""
    yield from under("", tables.computed(one, report))
    for on, _, quality in _qualities(one, report):
        scored, agreement = quality.scored, quality.agreement
        for metric in _metrics(report):
            found = quality.differences.get(metric)
            over = f"{found.value:+.1f}" if found else ""
            interval = f"{found.low:+.1f} to {found.high:+.1f}" if found and found.low is not None else ""
            value = points(scored.scores.values[metric] if scored else None)
            cells = [(LABELS[metric], value), ("  over the baseline", over), ("  95 % interval", interval)]
            yield from under(f"quality{on}", cells)
        if any(each.quality.agreement for each in report.entries):
            none = "" if one.role == "baseline" else tables.NONE
            rouge = points(agreement.rouge_l) if agreement else none
            equal = f"{agreement.equal:,} of {agreement.of:,}" if agreement else none
            cells = [("ROUGE-L", rouge), ("equal texts", equal)]
            yield from under(f"agreement with the baseline{on}", cells)
    exact = _EXACT if any(each.role == "exact" for each in report.entries) else {}
    yield from under("decoder steps, the same examples", told(one.totals, points, _TOTALS | exact))
    for size in report.batch_sizes:
        agreed = size == 1 and any(each.agreement for each in report.entries)
        yield from under(f"speed, batch size {size}", _speed(one, size, report, agreed=agreed))
    timing, gain = one.timings.get(size := report.batch_sizes[0]), one.gains.get(size)
    cells = [("calls an example", points(timing.decoder_calls / timing.examples if timing else None))]
    cells += told(timing, points, {"tokens a call": "tokens_per_step"})
    cells += told(timing, tables.milliseconds, {"ms a call": "seconds_per_call"})
    cells += told(gain, times if gain else lambda _: "", _GAINS)
    yield from under(f"decoder calls of the {report.sample.timed} timed, batch size {size}", cells)
    if report.paper or any(each.memory for each in report.entries):
        yield from under(f"memory, batch size {size}", told(one.memory, tables.megabytes, _MEMORY))
    failures = one.quality.scored.failures if one.quality.scored else None
    cells = tables.what_goes_wrong(failures, report.part, rate, repeats=report.stopped_on_repeat)
    cells += [("sub_max used up", rate(one.row_budget_exhausted))] if report.explored else []
    yield from under("what goes wrong", cells)


def _metrics(report: Comparison) -> Iterable[str]:
    """Those that there are scores of, on any split."""
    return report.measure.headline if report.measure else ()


def _speed(one: Entry, size: int, report: Comparison, *, agreed: bool) -> Iterator[tuple[str, str]]:
    parts = {f"{label}, ms": name for label, name in tables.parts(report).items()}
    timing, gain = one.timings.get(size), one.gains.get(size)
    yield from told(timing, tables.figure, {"examples/s": "examples_per_second"})
    yield "speedup", times(1.0 if one.role == "baseline" else gain.speedup if gain else None)
    yield "  its range", f"{gain.low:.1f} to {gain.high:.1f}" if gain else ""
    yield from told(timing, partial(tables.milliseconds, count=timing.examples if timing else 1), parts)
    if agreed:
        yield "same tokens", f"{one.agreement.equal} of {one.agreement.of}" if one.agreement else ""


def _notes(report: Comparison) -> Iterator[str]:
    yield f"baseline: {report.baseline}"
    yield "times are those of an example; a call is one of the decoder, which serves a whole batch"
    if report.subsequences_per_target is not None:
        yield f"{report.part}s a text: of how many in its target"
    scored = report.first.quality.scored
    unscored = scored is not None and scored.is_unscored
    yield f"alike predictions: the same text for different sources{'' if unscored else ' with different right answers'}"
    if report.stopped_on_repeat:
        yield "stopped on repeat: texts that end where they began to repeat themselves, by --stop-on-repeat"
    if report.explored:
        yield "sub_max used up: examples in which failed explorations took up places of later subsequences"
    if any(one.role == "exact" for one in report.entries):
        yield "exact mode: steps at the --batch-size of the predictions; in a batch more rows cost more, and less is guessed"
    if any(one.agreement for one in report.entries):
        yield f"same tokens: timed examples with the very tokens of {report.first.name}"
    if any(one.quality.agreement for one in report.entries):
        yield "agreement: the baseline's texts taken for the right ones, as `rouge` scores; white space does not count"
    if report.measure:
        yield f"signature: {report.measure.signature}"
    yield from (f"intervals: {report.significance}", f"speed: {report.sample.line}")
    if report.first.other_splits:
        yield f"quality on {', '.join(report.first.other_splits)} as well; all else is that of {report.split}"
    if report.paper:
        table, backbone = report.paper.row.table, report.paper.row.backbone
        trained = "one example at a time on one RTX 4090, trained on its own data"
        yield f"paper: {table}, {backbone}, Δt = {PAPER_DELAY}, {trained}"
    yield from report.conditions.absences


def _by_delay(report: Comparison) -> Sheet:
    """The paper's Table 5: quality and throughput at each delay, with the paper's own where there are any."""
    size, metrics = (
        report.batch_sizes[0],
        () if report.split in report.unscored_splits else tuple(_metrics(report)),
    )
    paper = report.paper if report.split in (None, "test") else None  # as its Table 5 is
    published: dict[object, DelayResult] = {row.delay: row for row in paper.delays} if paper else {}
    columns = [*(LABELS[metric] for metric in metrics), "examples/s", "speedup", "decoder steps"]
    shown = [metric for metric in metrics if metric in METRIC_TITLES] if published else []
    columns += [f"paper: {METRIC_TITLES[metric]}" for metric in shown]
    columns += ["paper: examples/s"] if published else []
    rows = []
    for one in report.pipelined:
        scored, row = one.quality.scored, published.get(one.delay)
        values = scored.scores.values if scored else {}
        cells = [one.name, *(points(values.get(metric)) for metric in metrics)]
        cells += [tables.figure(one.timings[size].examples_per_second), times(one.gains[size].speedup)]
        cells.append(points(one.totals.steps_per_example if one.totals else None))
        if published:
            cells += [points(row.quality.get(metric) if row else None) for metric in shown]
            cells.append(points(row.throughput if row else None))
        rows.append(tuple(cells))
    return Sheet("By delay, as in the paper's Table 5", tuple(columns), (Section("", tuple(rows)),))


def _by_subsequences(report: Comparison) -> Sheet:
    """The paper's Figures 4 and 5: speedup and quality by number of target subsequences."""
    metric = LABELS[report.metric]
    names = [name for name, rows in report.by_subsequences.items() if rows]
    drawn = report.advised if report.advised in names else names[0]
    columns = ["targets", "timed", f"{metric}, {report.first.name}"]
    for name in names:
        columns += [f"fewer steps, {name}", f"speedup, {name}", f"{metric}, {name}"]
    curve = report.paper.curve if report.paper else None
    ends, last = ({2: curve.at_2, 9: curve.at_9}, ["paper: speedup"]) if curve else ({}, [])
    # the steps are left out first, then the bars, then the qualities from the right
    spare = [*range(3, len(columns), 3), len(columns) + len(last), *range(len(columns) - 1, 3, -3)]
    longest = max((row.speedup for row in report.by_subsequences[drawn] if row.speedup), default=1)
    rows = []
    for place, first in enumerate(report.by_subsequences[names[0]]):
        if not (first.examples or curve):  # its row is for the paper's figures alone
            continue
        count = f"{MANY} or more" if first.subsequences == MANY else str(first.subsequences)
        cells = [count, f"{first.examples:,}", str(first.timed), points(first.baseline_quality)]
        for row in (report.by_subsequences[name][place] for name in names):
            cells += [times(row.fewer_steps), times(row.speedup), points(row.quality)]
        cells += [times(end) if (end := ends.get(first.subsequences)) else ""] if curve else []
        rows.append((*cells, tables.bar(report.by_subsequences[drawn][place].speedup, longest)))
    more = "" if report.sample.timed == report.sample.of else "; timing_examples=all times every target"
    notes = [f"steps and quality: all targets; speedup: the timed ones, one at a time{more}"]
    if curve:
        notes.append(f"paper, {curve.figure}: {curve.at_2} times at 2 subsequences, {curve.at_9} times at 9")
        notes += [f"paper, {curve.quality}"] if curve.quality else []
    return Sheet(
        f"By number of target {report.part}s, as in the paper's Figures 4 and 5",
        (*columns, *last, f"speedup, {drawn}, drawn"),
        (Section("", tuple(rows)),),
        spare=tuple(spare),
        notes=tuple(notes),
        corner=f"{report.part}s",
    )
