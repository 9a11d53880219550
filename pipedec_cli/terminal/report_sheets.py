"""A report as tables of words, the same for the terminal and for report.md. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rich.console import Console
from rich.text import Text

from pipedec_cli.data.paper import METRIC_TITLES, NOT_AVAILABLE, DecoderFigures
from pipedec_cli.evaluate.competitor import Competitor
from pipedec_cli.evaluate.report import MANY, Report
from pipedec_cli.evaluate.scoring import LABELS
from pipedec_cli.evaluate.timing import Timing
from pipedec_cli.terminal.console import visible
from pipedec_cli.terminal.tables import (
    NONE,
    Row,
    Section,
    Sheet,
    bar,
    figure,
    megabytes,
    milliseconds,
    plain,
    points,
    rate,
    settings_sheet,
    sheet_markdown,
    show_sheet,
    times,
)

#: Δt of the paper's main tables.
PAPER_DELAY: Final = 1


def show(console: Console, report: Report) -> None:
    """Print every table, and the advice at the end."""
    for sheet in sheets(report):
        show_sheet(console, sheet)
    console.print(Text(visible(report.advice.text), style="bold"))
    for caution in report.advice.cautions:
        console.print(Text(visible(caution)))


def markdown(report: Report) -> str:
    """The whole report as Markdown: the advice first, then every table with its notes."""
    lines = ["# Decoders compared", "", f"**{plain(report.advice.text)}**", ""]
    lines += [f"- {plain(caution)}" for caution in report.advice.cautions]
    for sheet in sheets(report):
        lines += ["", *sheet_markdown(sheet)]
    return "\n".join(lines).strip() + "\n"


def label(metric: str) -> str:
    """What a metric is called."""
    return LABELS.get(metric, METRIC_TITLES.get(metric, metric))


def sheets(report: Report) -> list[Sheet]:
    """Every table of a report, in order."""
    made = [side_by_side(report)]
    if len(report.pipelined) > 1:
        made.append(by_delay(report))
    if any(report.sizes.values()):
        made.append(by_subsequences(report))
    where = f"{report.dtype} on {report.device}; {report.machine.line}"
    notes = (where, report.versions_line, *report.notes)
    return [*made, settings_sheet("What was compared", report.entries, notes)]


class _Published(NamedTuple):
    """A decoder of the paper, and its speedup."""

    figures: DecoderFigures
    speedup: float


#: Makes a row: its label, a cell for each decoder, and one for each of the paper's.
RowOf = Callable[..., Row]


def side_by_side(report: Report) -> Sheet:
    """Quality, speed, where the speed comes from, memory, and what goes wrong; the paper's figures beside them."""
    papers: dict[str, _Published] = {}
    if report.paper is not None:
        row = report.paper.row
        papers["paper: sequential"] = _Published(row.sequential, 1.0)
        papers[f"paper: Δt = {PAPER_DELAY}"] = _Published(row.pipelined, row.speedup)

    def row_of(
        name: str, show: Callable[[Competitor], str], published: Callable[[_Published], str] | None = None
    ) -> Row:
        theirs = ["" if published is None else published(paper) for paper in papers.values()]
        return (name, *map(show, report.entries), *theirs)

    first, size = report.first, report.batch_sizes[0]
    quality: list[Row] = []
    for metric in first.scored.scores.measure.headline if first.scored else ():
        quality += _quality(metric, row_of)

    def total(name: str) -> Callable[[Competitor], str]:
        return lambda one: f"{one.totals.as_json()[name]:.1f}" if one.totals else NONE

    def failing(name: str) -> Callable[[Competitor], str]:
        return lambda one: NONE if one.role == "peer" else rate(getattr(one.rates, name))

    sections = [
        Section(f"quality, {first.totals.examples if first.totals else 0:,} examples", tuple(quality)),
        Section(
            "decoder steps, the same examples",
            (
                row_of("steps an example", total("steps_per_example")),
                row_of("tokens an example", total("tokens_per_example")),
                row_of("tokens a step", total("tokens_per_step")),
            ),
        ),
        *(
            Section(f"speed, batch size {size}", tuple(_speed(report, size, row_of)))
            for size in report.batch_sizes
        ),
        Section(f"decoder calls, batch size {size}", tuple(_origins(size, row_of))),
        Section(
            f"memory, batch size {size}",
            (
                row_of(
                    "peak, MB",
                    lambda one: megabytes(one.memory.peak_bytes if one.memory else None),
                    lambda paper: (
                        f"{paper.figures.memory_mb:,}" if paper.figures.memory_mb else NOT_AVAILABLE
                    ),
                ),
                row_of(
                    "  of it before decoding",
                    lambda one: megabytes(one.memory.ready_bytes if one.memory else None),
                ),
            ),
        ),
        Section(
            "what goes wrong",
            (
                row_of("duplicated subsequences", failing("duplicated")),
                row_of("dropped subsequences", failing("dropped")),
                row_of("truncated predictions", failing("truncated")),
                row_of("sub_max used up", failing("used_up")),
            ),
        ),
    ]
    columns = (*(one.name for one in report.entries), *papers)
    return Sheet("Decoders side by side", columns, tuple(sections), kept=1, notes=tuple(_notes(report)))


def _quality(metric: str, row_of: RowOf) -> list[Row]:
    def interval(one: Competitor) -> str:
        found = one.differences.get(metric)
        if found is None or found.low is None or found.high is None:
            return ""
        return f"{found.low:+.1f} to {found.high:+.1f}"

    return [
        row_of(
            label(metric),
            lambda one: points(one.scored.scores.values[metric]) if one.scored else NONE,
            lambda paper: points(paper.figures.quality.get(metric)),
        ),
        row_of(
            "  over the baseline",
            lambda one: f"{one.differences[metric].value:+.1f}" if metric in one.differences else "",
        ),
        row_of("  95 % interval", interval),
    ]


def _speed(report: Report, size: int, row_of: RowOf) -> list[Row]:
    def timed(show: Callable[[Timing], str]) -> Callable[[Competitor], str]:
        return lambda one: show(one.timings[size]) if size in one.timings else NONE

    def speedup(one: Competitor) -> str:
        if one.role == "baseline":
            return times(1.0)
        return times(one.gains[size].speedup) if size in one.gains else NONE

    def spread(one: Competitor) -> str:
        """From repeat to repeat."""
        return f"{one.gains[size].low:.1f} to {one.gains[size].high:.1f}" if size in one.gains else ""

    def agreement(one: Competitor) -> str:
        return f"{one.agreement.equal} of {one.agreement.of}" if one.agreement else ""

    alone = size == 1  # the paper measured one example at a time
    rows = [
        row_of(
            "examples/s",
            timed(lambda t: figure(t.examples_per_second)),
            (lambda paper: f"{paper.figures.throughput:.1f}") if alone else None,
        ),
        row_of("speedup", speedup, (lambda paper: times(paper.speedup)) if alone else None),
        row_of("  its range", spread),
        row_of("encoder, ms", timed(lambda t: milliseconds(t.encoder_seconds, t.examples))),
        row_of("source keys, ms", timed(lambda t: milliseconds(t.setup_seconds, t.examples))),
        row_of("decoding, ms", timed(lambda t: milliseconds(t.decoding_seconds, t.examples))),
    ]
    if alone and any(one.agreement for one in report.entries):
        rows.append(row_of("same tokens", agreement))
    return rows


def _origins(size: int, row_of: RowOf) -> list[Row]:
    """Decoder calls saved, by the schedule, and time per call, by the kernels: two gains that multiply."""

    def timed(show: Callable[[Timing], str]) -> Callable[[Competitor], str]:
        return lambda one: show(one.timings[size]) if size in one.timings else NONE

    def gained(name: str) -> Callable[[Competitor], str]:
        return lambda one: times(getattr(one.gains[size], name)) if size in one.gains else ""

    return [
        row_of("calls an example", timed(lambda t: f"{t.decoder_calls / t.examples:.1f}")),
        row_of("ms a call", timed(lambda t: milliseconds(t.seconds_per_call))),
        row_of("fewer calls (schedule)", gained("fewer_calls")),
        row_of("cheaper calls (kernels)", gained("faster_calls")),
        row_of("decoding, both together", gained("decoding")),
    ]


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
    return [*notes, *(f"{peer.name} is absent: {peer.why}" for peer in report.absent)]


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
    metric = label(report.metric)
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
