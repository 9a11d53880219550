"""A report as tables of words, the same for the terminal and for report.md. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from rich.console import Console
from rich.text import Text

from pipedec_cli.data.paper import NOT_AVAILABLE, DecoderFigures
from pipedec_cli.evaluate.competitor import Competitor
from pipedec_cli.evaluate.report import MANY, Comparison, Report
from pipedec_cli.evaluate.scoring import LABELS
from pipedec_cli.evaluate.timing import Timing
from pipedec_cli.terminal.console import visible
from pipedec_cli.terminal.tables import (
    NONE,
    Row,
    Section,
    Sheet,
    as_markdown,
    bar,
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


class _Published(NamedTuple):
    """A decoder of the paper, and its speedup."""

    figures: DecoderFigures
    speedup: float


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes rows: a label, a cell for each decoder, and one for each of the paper's."""

    entries: Sequence[Competitor]
    papers: Mapping[str, _Published]

    def row(
        self,
        name: str,
        show: Callable[[Competitor], str],
        published: Callable[[_Published], str] | None = None,
    ) -> Row:
        """One line."""
        theirs = ["" if published is None else published(paper) for paper in self.papers.values()]
        return (name, *map(show, self.entries), *theirs)

    def timed(
        self,
        name: str,
        size: int,
        show: Callable[[Timing], str],
        published: Callable[[_Published], str] | None = None,
    ) -> Row:
        """Nothing is known of who was not timed at a batch size."""
        return self.row(name, lambda one: show(one.timings[size]) if size in one.timings else NONE, published)

    def gained(self, name: str, size: int, part: str) -> Row:
        """A ratio over the baseline, which has none."""
        return self.row(name, lambda one: times(getattr(one.gains[size], part)) if size in one.gains else "")


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
    where = f"{report.dtype} on {report.device}; {report.machine.line}"
    return [*made, settings_sheet("What was compared", report, (where, report.versions_line, *report.notes))]


def side_by_side(report: Report) -> Sheet:
    """Quality, speed, where the speed comes from, memory, and what goes wrong; the paper's figures beside them."""
    papers: dict[str, _Published] = {}
    if report.paper is not None:
        row = report.paper.row
        papers["paper: sequential"] = _Published(row.sequential, 1.0)
        papers[f"paper: Δt = {PAPER_DELAY}"] = _Published(row.pipelined, row.speedup)
    rows, first, size = Rows(report.entries, papers), report.first, report.batch_sizes[0]

    def total(name: str, what: str) -> Row:
        return rows.row(name, lambda one: f"{one.totals.as_json()[what]:.1f}" if one.totals else NONE)

    def failing(name: str, what: str) -> Row:
        return rows.row(name, lambda one: NONE if one.role == "peer" else rate(getattr(one.rates, what)))

    def weighed(one: Competitor, what: str) -> str:
        return megabytes(getattr(one.memory, what) if one.memory else None)

    metrics = first.scored.scores.measure.headline if first.scored else ()
    sections = {
        f"quality, {first.totals.examples if first.totals else 0:,} examples": [
            row for metric in metrics for row in _quality(rows, metric)
        ],
        "decoder steps, the same examples": [
            total("steps an example", "steps_per_example"),
            total("tokens an example", "tokens_per_example"),
            total("tokens a step", "tokens_per_step"),
        ],
        **{f"speed, batch size {size}": _speed(rows, size) for size in report.batch_sizes},
        f"decoder calls, batch size {size}": [
            rows.timed("calls an example", size, lambda t: f"{t.decoder_calls / t.examples:.1f}"),
            rows.timed("ms a call", size, lambda t: milliseconds(t.seconds_per_call)),
            rows.gained("fewer calls (schedule)", size, "fewer_calls"),
            rows.gained("cheaper calls (kernels)", size, "faster_calls"),
            rows.gained("decoding, both together", size, "decoding"),
        ],
        f"memory, batch size {size}": [
            rows.row(
                "peak, MB",
                partial(weighed, what="peak_bytes"),
                lambda paper: f"{paper.figures.memory_mb:,}" if paper.figures.memory_mb else NOT_AVAILABLE,
            ),
            rows.row("  of it before decoding", partial(weighed, what="ready_bytes")),
        ],
        "what goes wrong": [
            failing("duplicated subsequences", "duplicated"),
            failing("dropped subsequences", "dropped"),
            failing("truncated predictions", "truncated"),
            failing("sub_max used up", "used_up"),
        ],
    }
    return Sheet(
        "Decoders side by side",
        (*(one.name for one in report.entries), *papers),
        tuple(Section(heading, tuple(lines)) for heading, lines in sections.items()),
        kept=1,
        notes=tuple(_notes(report)),
    )


def _quality(rows: Rows, metric: str) -> list[Row]:
    def difference(one: Competitor) -> str:
        return f"{one.differences[metric].value:+.1f}" if metric in one.differences else ""

    def interval(one: Competitor) -> str:
        found = one.differences.get(metric)
        if found is None or found.low is None or found.high is None:
            return ""
        return f"{found.low:+.1f} to {found.high:+.1f}"

    return [
        rows.row(
            LABELS[metric],
            lambda one: points(one.scored.scores.values[metric]) if one.scored else NONE,
            lambda paper: points(paper.figures.quality.get(metric)),
        ),
        rows.row("  over the baseline", difference),
        rows.row("  95 % interval", interval),
    ]


def _speed(rows: Rows, size: int) -> list[Row]:
    def speedup(one: Competitor) -> str:
        return times(
            1.0 if one.role == "baseline" else one.gains[size].speedup if size in one.gains else None
        )

    def spread(one: Competitor) -> str:
        return f"{one.gains[size].low:.1f} to {one.gains[size].high:.1f}" if size in one.gains else ""

    def agreement(one: Competitor) -> str:
        return f"{one.agreement.equal} of {one.agreement.of}" if one.agreement else ""

    alone = size == 1  # the paper measured one example at a time
    made = [
        rows.timed(
            "examples/s",
            size,
            lambda t: figure(t.examples_per_second),
            (lambda paper: f"{paper.figures.throughput:.1f}") if alone else None,
        ),
        rows.row("speedup", speedup, (lambda paper: times(paper.speedup)) if alone else None),
        rows.row("  its range", spread),
        rows.timed("encoder, ms", size, lambda t: milliseconds(t.encoder_seconds, t.examples)),
        rows.timed("source keys, ms", size, lambda t: milliseconds(t.setup_seconds, t.examples)),
        rows.timed("decoding, ms", size, lambda t: milliseconds(t.decoding_seconds, t.examples)),
    ]
    agreed = alone and any(one.agreement for one in rows.entries)
    return [*made, rows.row("same tokens", agreement)] if agreed else made


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


def settings_sheet(title: str, comparison: Comparison, notes: Row) -> Sheet:
    """Version and settings of each decoder."""
    rows = [
        (one.name, ", ".join(f"{name} {value}" for name, value in one.settings.items()))
        for one in comparison.entries
    ]
    return Sheet(title, ("settings",), (Section("", tuple(rows)),), notes=notes)
