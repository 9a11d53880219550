"""A report as tables of words, the same for the terminal and for report.md. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from pipedec_cli.data.paper import NOT_AVAILABLE, DecoderFigures
from pipedec_cli.evaluate.competitor import Competitor
from pipedec_cli.evaluate.report import MANY, Comparison, Report
from pipedec_cli.evaluate.scoring import LABELS
from pipedec_cli.terminal.console import visible
from pipedec_cli.terminal.tables import (
    NONE,
    Label,
    Row,
    Section,
    Sheet,
    as_markdown,
    bar,
    columns_side_by_side,
    figure,
    megabytes,
    milliseconds,
    plain,
    points,
    rate,
    show_sheet,
    times,
)

#: Δt of the paper's main tables.
PAPER_DELAY: Final = 1


def show_report(console: Console, report: Report) -> None:
    """Print every table, and the advice at the end."""
    for sheet in report_sheets(report):
        show_sheet(console, sheet)
    console.print(Text(visible(report.advice.text), style="bold"))
    for caution in report.advice.cautions:
        console.print(Text(visible(caution)))


def markdown(report: Report) -> str:
    """The whole report as Markdown: the advice first, then every table with its notes."""
    lines = ["# Decoders compared", "", f"**{plain(report.advice.text)}**", ""]
    lines += [f"- {plain(caution)}" for caution in report.advice.cautions]
    for sheet in report_sheets(report):
        lines += ["", *as_markdown(sheet)]
    return "\n".join(lines).strip() + "\n"


def report_sheets(report: Report) -> list[Sheet]:
    """Every table of a report, in order."""
    made = [side_by_side(report)]
    if len(report.pipelined) > 1:
        made.append(by_delay(report))
    if any(report.sizes.values()):
        made.append(by_subsequences(report))
    return [*made, settings_sheet("What was compared", report, report.dtype, report.notes)]


def side_by_side(report: Report) -> Sheet:
    """Quality, speed, where the speed comes from, memory, and what goes wrong; the paper's figures beside them."""
    papers = _published(report)
    return Sheet(
        "Decoders side by side",
        (*(one.name for one in report.entries), *papers),
        columns_side_by_side([_column(one, report) for one in report.entries], list(papers.values())),
        kept=1,
        notes=tuple(_notes(report)),
    )


def _published(report: Report) -> dict[str, dict[Label, str]]:
    """The paper's two columns, as far as it fills them; {} where the data set is none of its."""
    if report.paper is None:
        return {}
    row, size = report.paper.row, report.batch_sizes[0]
    quality, peak = _quality(report), (f"memory, batch size {size}", "peak, MB")
    speed = "speed, batch size 1"  # the paper measured one example at a time

    def column(figures: DecoderFigures, speedup: float) -> dict[Label, str]:
        return {
            **{
                (quality, LABELS[metric]): points(value)
                for metric, value in figures.quality.items()
                if metric in LABELS
            },
            (speed, "examples/s"): f"{figures.throughput:.1f}",
            (speed, "speedup"): times(speedup),
            peak: f"{figures.memory_mb:,}" if figures.memory_mb else NOT_AVAILABLE,
        }

    return {
        "paper: sequential": column(row.sequential, 1.0),
        f"paper: Δt = {PAPER_DELAY}": column(row.pipelined, row.speedup),
    }


def _quality(report: Report) -> str:
    return f"quality, {report.first.totals.examples if report.first.totals else 0:,} examples"


def _column(one: Competitor, report: Report) -> Iterator[tuple[Label, str]]:
    """All cells of a decoder, each with its section and label."""
    first, size = report.first, report.batch_sizes[0]
    heading = _quality(report)
    for metric in first.scored.scores.measure.headline if first.scored else ():
        found = one.differences.get(metric)
        known = found is not None and found.low is not None
        yield (heading, LABELS[metric]), points(one.scored.scores.values[metric] if one.scored else None)
        yield (heading, "  over the baseline"), "" if found is None else f"{found.value:+.1f}"
        yield (
            (heading, "  95 % interval"),
            f"{found.low:+.1f} to {found.high:+.1f}" if found and known else "",
        )
    heading, totals = "decoder steps, the same examples", one.totals.as_json() if one.totals else {}
    yield (heading, "steps an example"), points(totals.get("steps_per_example"))
    yield (heading, "tokens an example"), points(totals.get("tokens_per_example"))
    yield (heading, "tokens a step"), points(totals.get("tokens_per_step"))
    for batch in report.batch_sizes:
        yield from _speed(one, batch, agreed=batch == 1 and any(each.agreement for each in report.entries))
    heading, timing, gain = f"decoder calls, batch size {size}", one.timings.get(size), one.gains.get(size)
    calls = timing.decoder_calls / timing.examples if timing else None
    yield (heading, "calls an example"), points(calls)
    yield (heading, "ms a call"), milliseconds(timing.seconds_per_call if timing else None)
    yield (heading, "fewer calls (schedule)"), times(gain.fewer_calls) if gain else ""
    yield (heading, "cheaper calls (kernels)"), times(gain.faster_calls) if gain else ""
    yield (heading, "decoding, both together"), times(gain.decoding) if gain else ""
    heading = f"memory, batch size {size}"
    yield (heading, "peak, MB"), megabytes(one.memory.peak_bytes if one.memory else None)
    yield (heading, "  of it before decoding"), megabytes(one.memory.ready_bytes if one.memory else None)
    heading, failures = "what goes wrong", one.scored.failures if one.scored else None
    yield (heading, "duplicated subsequences"), rate(failures.duplicated_rate if failures else None)
    yield (heading, "dropped subsequences"), rate(failures.dropped_rate if failures else None)
    yield (heading, "truncated predictions"), rate(failures.truncated_rate if failures else None)
    yield (heading, "sub_max used up"), rate(one.used_up)


def _speed(one: Competitor, size: int, *, agreed: bool) -> Iterator[tuple[Label, str]]:
    heading, timing, gain = f"speed, batch size {size}", one.timings.get(size), one.gains.get(size)

    def each(seconds: float | None) -> str:
        return milliseconds(seconds, timing.examples if timing else 1)

    yield (heading, "examples/s"), figure(timing.examples_per_second) if timing else NONE
    speedup = 1.0 if one.role == "baseline" else gain.speedup if gain else None
    yield (heading, "speedup"), times(speedup)
    yield (heading, "  its range"), f"{gain.low:.1f} to {gain.high:.1f}" if gain else ""
    yield (heading, "encoder, ms"), each(timing.encoder_seconds if timing else None)
    yield (heading, "source keys, ms"), each(timing.setup_seconds if timing else None)
    yield (heading, "decoding, ms"), each(timing.decoding_seconds if timing else None)
    if agreed:
        yield (
            (heading, "same tokens"),
            f"{one.agreement.equal} of {one.agreement.of}" if one.agreement else "",
        )


def _notes(report: Report) -> list[str]:
    notes = [
        f"baseline: {report.baseline}",
        "times are those of an example; a call is one of the decoder, which serves a whole batch",
        "sub_max used up: examples in which failed explorations took up places of later subsequences",
    ]
    if any(one.agreement for one in report.entries):
        notes.append(f"same tokens: timed examples with the very tokens of {report.first.name}")
    if report.first.scored:
        notes.append(f"signature: {report.first.scored.scores.measure.signature}")
    notes += [f"intervals: {report.significance}", f"speed: {report.sample.line}"]
    if report.paper:
        row = report.paper.row
        notes.append(
            f"paper: {row.table}, {row.backbone}, Δt = {PAPER_DELAY}, one example at a time on one RTX 4090, trained on "
            "its own data"
        )
    return [*notes, *report.absences]


def by_delay(report: Report) -> Sheet:
    """The paper's Table 5: quality and throughput at each delay, with the paper's own where there are any."""
    size, scored = report.batch_sizes[0], report.first.scored
    metrics = scored.scores.measure.headline if scored else ()
    published = {row.delay: row for row in report.paper.delays} if report.paper else {}
    columns = [*(LABELS[metric] for metric in metrics), "examples/s", "speedup", "decoder steps"]
    if published:
        columns += ["paper: Rouge-L", "paper: examples/s"]
    rows = []
    for one in report.pipelined:
        cells = [points(one.scored.scores.values[metric]) if one.scored else NONE for metric in metrics]
        cells += [
            figure(one.timings[size].examples_per_second),
            times(one.gains[size].speedup),
            f"{one.totals.as_json()['steps_per_example']:.1f}" if one.totals else NONE,
        ]
        if published:
            row = published.get(one.delay or 0)
            cells += [f"{row.quality['rougeL']:.1f}", f"{row.throughput:.1f}"] if row else [NONE, NONE]
        rows.append((one.name, *cells))
    return Sheet("By delay, as in the paper's Table 5", tuple(columns), (Section("", tuple(rows)),))


def by_subsequences(report: Report) -> Sheet:
    """The paper's Figures 4 and 5: speedup and quality by number of target subsequences."""
    metric = LABELS[report.metric]
    names = [name for name, rows in report.sizes.items() if rows]
    advised = [one.name for one in report.pipelined if one.options == report.advice.options]
    drawn = advised[0] if advised and advised[0] in names else names[0]
    columns = ["targets", "timed", f"{metric}, {report.first.name}"]
    for name in names:
        columns += [f"fewer steps, {name}", f"speedup, {name}", f"{metric}, {name}"]
    rows = []
    for place, first in enumerate(report.sizes[names[0]]):
        cells = [f"{first.examples:,}", str(first.timed), points(first.baseline_quality)]
        for row in (report.sizes[name][place] for name in names):
            cells += [times(row.fewer_steps), times(row.speedup), points(row.quality)]
        count = f"{MANY} or more" if first.subsequences == MANY else str(first.subsequences)
        rows.append((count, *cells, bar(report.sizes[drawn][place].speedup)))
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


def settings_sheet(title: str, comparison: Comparison, what: str, notes: Row) -> Sheet:
    """Version and settings of each decoder, and where `what` was measured."""
    rows = [
        (one.name, ", ".join(f"{name} {value}" for name, value in one.settings.items()))
        for one in comparison.entries
    ]
    where = f"{what} on {comparison.device}; {comparison.machine.line}"
    versions = (f"{name} {version or 'not installed'}" for name, version in comparison.versions.items())
    return Sheet(
        title, ("settings",), (Section("", tuple(rows)),), notes=(where, ", ".join(versions), *notes)
    )
