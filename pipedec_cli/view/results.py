"""The tables of results: of scores; of a report, for the terminal, report.md and the page; and of a bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from pipedec_cli.compare.comparison import MANY, Report
from pipedec_cli.compare.entry import Entry, Quality
from pipedec_cli.data.errors import many
from pipedec_cli.data.paper import METRIC_TITLES, NOT_AVAILABLE, DelayResult
from pipedec_cli.metrics.reliability import PRECISION, kept
from pipedec_cli.metrics.scoring import LABELS
from pipedec_cli.view.console import make_console
from pipedec_cli.view.tables import (
    NONE,
    Label,
    Line,
    Row,
    Sheet,
    cells,
    count,
    escaped,
    figure,
    first_rows,
    grouped,
    interval,
    markdown,
    megabytes,
    milliseconds,
    number,
    one_section,
    points,
    rate,
    show_lines,
    show_sheet,
    side_by_side,
    times,
    with_section,
)

if TYPE_CHECKING:
    from pipedec_cli.compare.comparison import Bench, Comparison
    from pipedec_cli.metrics.differences import Difference
    from pipedec_cli.metrics.failures import Failures
    from pipedec_cli.metrics.measure import Measure
    from pipedec_cli.metrics.scoring import Scored


def show_scores(
    runs: Sequence[Scored],
    differences: Mapping[str, Difference],
    pair: Mapping[str, Any],
) -> None:
    """Print the scores, what went wrong, and the signature that makes the scores comparable."""
    measure, names = runs[0].scores.measure, tuple(run.run.name for run in runs)
    notes = [f"signature: {measure.signature}", "; ".join(map(_rows, runs))]
    rows = list[Row]()
    if len(runs) == 1:  # with precision and recall where the metric has them
        columns: Row = ("score", "P", "R") if measure.precision_recall else ("score",)
        for metric, name in measure.headline.items():
            parts = (metric, *measure.precision_recall.get(metric, ()))
            values = [_score(runs[0].scores.values[part]) for part in parts]
            rows.append((name, *values, *[""] * (len(columns) - len(values))))
        scores = Sheet(names[0], columns, one_section(rows), spare=(2,))
    else:
        for metric, name in measure.headline.items():
            difference = differences.get(metric)
            bounds = interval(difference, "{:+z.2f}")
            if difference is not None and difference.low is None:
                bounds = "needs two examples"
            values = [_score(run.scores.values[metric]) for run in runs]
            change = number("{:+z.2f}", difference.value if difference else None)
            rows.append((name, *values, change, bounds))
        scores = Sheet(
            "", (*names, "difference", "95 % interval"), one_section(rows), spare=(2,)
        )
        same, examples = pair["identical_predictions"], len(runs[0].items)
        notes.append(f"difference: first minus second; {pair['method']}")
        notes.append(f"the same prediction in both: {same:,} of {examples:,}")
    repeats = any(run.failures.stopped_on_repeat for run in runs)
    rates = [
        failure_cells(run.failures, measure.part, repeats=repeats, unknown="unknown")
        for run in runs
    ]
    columns = names if len(runs) > 1 else ("rate",)
    sheets = [
        scores,
        Sheet(
            "", columns, side_by_side([with_section("", column) for column in rates])
        ),
    ]
    if any(run.parts for run in runs):
        sheets.append(_parts(runs, names, measure))
    sheets += filter(
        None, (reliability_sheet(run.run.name, [("", run)]) for run in runs)
    )
    console = make_console(stderr=False)
    for sheet in sheets:
        show_sheet(console, sheet)
    show_lines(console, notes)


def _parts(runs: Sequence[Scored], names: Row, measure: Measure) -> Sheet:
    """The scores of each key of the objects; of two runs the first metric alone."""
    columns: Row = ("F1", "P", "R", "exact")
    by_run, right = [run.parts for run in runs], measure.counted[-1]
    metrics = [
        measure.primary,
        *measure.precision_recall[measure.primary],
        *[*measure.headline][1:],
    ]
    if len(runs) > 1:
        columns, metrics = names, metrics[:1]
    rows = []
    for key in dict.fromkeys(chain(*by_run)):
        scores = [
            _score(parts[key][metric]) if key in parts else NONE
            for parts in by_run
            for metric in metrics
        ]
        total = next(parts[key][right] for parts in by_run if key in parts)
        rows.append((key, *scores, f"{total:,.0f}"))
    sections, notes = first_rows(rows)
    return Sheet(
        "", (*columns, right.replace("_", " ")), sections, notes=notes, corner="key"
    )


def _rows(run: Scored) -> str:
    """The number of scored rows, the number that the run was to make, and the other counts."""
    (_, examples), *others = run.scores.counts.items()
    of = f" of {run.expected}" if run.expected is not None else ""
    counts = [f"{examples}{of} {'row' if examples == 1 and not of else 'rows'}"]
    counts += [f"{count} {name.replace('_', ' ')}" for name, count in others if count]
    return f"{run.run.name}: {', '.join(counts)}"


def _score(value: float | None) -> str:
    return "not scorable" if value is None else f"{value:.2f}"


def failure_cells(
    failures: Failures | None, part: str, *, repeats: bool, unknown: str = NONE
) -> list[tuple[str, str]]:
    """The rates of what goes wrong with a decoder, and the lengths of its texts in `part`: subsequences or fields.

    With `repeats`, texts that stopped because they repeated themselves have a row. An
    `unknown` rate is shown so.
    """
    lengths = NONE
    if (
        failures is not None and failures.compared
    ):  # else no reference's subsequences are known
        predicted = failures.subsequences / max(1, failures.examples)
        lengths = f"{predicted:.1f} of {failures.expected / failures.compared:.1f}"
    rates = {
        f"duplicated {part}s": "duplicated_rate",
        f"dropped {part}s": "dropped_rate",
        "truncated predictions": "truncated_rate",
        **({"stopped on repeat": "stopped_on_repeat_rate"} if repeats else {}),
        "alike predictions": "alike_rate",
    }
    values = {
        name: getattr(failures, attribute, None) for name, attribute in rates.items()
    }
    shown = {
        name: unknown if value is None else rate(value)
        for name, value in values.items()
    }
    return [(f"{part}s per text", lengths), *shown.items()]


def reliability_sheet(name: str, runs: Sequence[tuple[str, Scored]]) -> Sheet | None:
    """How often values of each confidence are right, in the last of the `runs`; None without confidences.

    Each run has the name of its split beside it. The threshold is fitted on the first
    run.
    """
    (first, fitted), (split, run) = (runs[0][0], runs[0][1].reliability), runs[-1]
    if run.reliability is None:
        return None
    rows = []
    for band in run.reliability.bins:
        cells = (count(band.values), points(band.confidence), points(band.right))
        rows.append((f"{band.least:.1f} to {band.least + 0.1:.1f}", *cells))
    pairs = "of a right and a wrong value, the right one is surer so often"
    notes = [
        f"area under the ROC curve: {number('{:.3f}', run.reliability.auc)} ({pairs})"
    ]
    if run.unforced is not None:
        notes.append(f"the same of 1 - forced: {number('{:.3f}', run.unforced.auc)}")
    if fitted is None or fitted.threshold is None:
        notes.append(f"no threshold keeps {PRECISION:g} % right values{first}")
    else:
        sure = kept(run.judged, fitted.threshold)
        share = f"{sure.values:,} of {len(run.judged):,} values, {sure.right:.1f} % right{split}"
        notes.append(
            f"at least {sure.least:.4g} sure, which keeps {PRECISION:g} % right{first}: {share}"
        )
    columns = ("values", "mean confidence, %", "right, %")
    return Sheet(
        f"How sure, {name}",
        columns,
        one_section(rows),
        notes=tuple(notes),
        corner="confidence",
    )


def time_parts(comparison: Comparison) -> dict[str, str]:
    """The parts of an example's time: row names, and the attributes of a `Timing`."""
    if comparison.conditions.prompted:
        return {"reading the prompt": "encoder_seconds", "decoding": "decoding_seconds"}
    return {
        "encoder": "encoder_seconds",
        "source keys": "setup_seconds",
        "decoding": "decoding_seconds",
    }


def precision_cells(entry: Entry, comparison: Comparison) -> list[tuple[str, str]]:
    """The dtype and the number of threads of a decoder."""
    threads = entry.runner.settings.get(
        "threads", str(comparison.conditions.machine.threads)
    )
    return [("dtype", entry.runner.settings["dtype"]), ("threads", threads)]


def settings_sheet(
    title: str, comparison: Comparison, measured: str, notes: Row
) -> Sheet:
    """Version and settings of each decoder, and the machine that it was `measured` on."""
    rows = [
        (one.name, ", ".join(map(" ".join, one.runner.settings.items())))
        for one in comparison.entries
    ]
    where = comparison.conditions
    versions = (
        f"{name} {version or 'not installed'}"
        for name, version in where.versions.items()
    )
    notes = (
        f"{measured} on {where.device}; {where.machine.line}",
        ", ".join(versions),
        *notes,
    )
    return Sheet(title, ("settings",), one_section(rows), notes=notes)


#: Δt of the paper's main tables.
PAPER_DELAY: Final = 1
# Row names, attributes and formats: of `Difference`, `TextAgreement`, `Totals`,
# `Timing`, `Gain` and `Memory`.
_DIFFERENCE: Final[list[Line]] = [
    ("  over the baseline", "value", partial(number, "{:+z.1f}"))
]
_AGREEMENT: Final[list[Line]] = [("ROUGE-L", "rouge_l", points)]
_TOTALS: Final[list[Line]] = [
    ("steps per example", "steps_per_example", points),
    ("tokens per example", "tokens_per_example", points),
    ("tokens per step", "tokens_per_step", points),
]
_KEYS: Final[list[Line]] = [("keys per step", "keys_per_step", points)]
_EXACT: Final[list[Line]] = [
    ("steps that draft", "draft_steps_per_example", points),
    ("steps that check", "checks_per_example", points),
    ("tokens per check", "tokens_per_check", points),
]
_CALLS: Final[list[Line]] = [
    ("calls per example", "calls_per_example", points),
    ("tokens per call", "tokens_per_step", points),
    ("ms per call", "seconds_per_call", milliseconds),
]
_GAINS: Final[list[Line]] = [
    ("fewer calls (schedule)", "fewer_calls", times),
    ("cheaper calls (kernels)", "faster_calls", times),
    ("decoding, both together", "decoding", times),
]
_MEMORY: Final[list[Line]] = [
    ("peak, MB", "peak_bytes", megabytes),
    ("  of it before decoding", "ready_bytes", megabytes),
]


def show_report(console: Console, report: Report) -> None:
    """Print the advice, every table, and the advice again, which has scrolled out of sight by then."""
    _show_advice(console, report)
    for sheet in report_sheets(report):
        show_sheet(console, sheet)
    _show_advice(console, report)


def _show_advice(console: Console, report: Report) -> None:
    show_lines(
        console,
        [report.advice.text],
        "bold yellow" if report.advice.is_missing else "bold",
    )
    show_lines(console, [*report.advice.cautions, ""])


def report_markdown(report: Report) -> str:
    """The whole report as Markdown: the advice first, then every table with its notes."""
    lines = ["# Decoders compared", "", f"**{escaped(report.advice.text)}**", ""]
    lines += [f"- {escaped(caution)}" for caution in report.advice.cautions]
    for sheet in report_sheets(report):
        lines += ["", markdown(sheet)]
    return "\n".join(lines).strip() + "\n"


def report_sheets(report: Report) -> list[Sheet]:
    """Every table of a report, in order."""
    papers = _paper_columns(
        report
    )  # beside quality, speed and its causes, memory, and what goes wrong
    decoders = Sheet(
        "Decoders side by side",
        (*(entry.name for entry in report.entries), *papers),
        side_by_side(
            [_column(entry, report) for entry in report.entries], list(papers.values())
        ),
        notes=tuple(_notes(report)),
    )
    sheets = [decoders]
    if len(report.pipelined) > 1:
        sheets.append(_by_delay(report))
    if any(report.by_subsequences.values()):
        sheets.append(_by_subsequences(report))
    for entry in report.pipelined:
        qualities = report.qualities(entry).items()
        scored = [
            (f" on {split}" if split else "", one.scored)
            for split, one in qualities
            if one.scored
        ]
        sheets += filter(
            None, [reliability_sheet(entry.name, scored) if scored else None]
        )
    return [
        *sheets,
        settings_sheet("What was compared", report, report.dtype, report.notes),
    ]


def _paper_columns(report: Report) -> dict[str, dict[Label, str]]:
    """The paper's figures of both decoders, by the heading of the column."""
    if report.paper is None:
        return {}
    columns = {}
    row, speed = (
        report.paper.row,
        "speed, batch size 1",
    )  # the paper measured one example at a time
    peak = (f"memory, batch size {report.batch_sizes[0]}", "peak, MB")
    for name, figures, speedup in (
        ("paper: sequential", row.sequential, 1.0),
        (f"paper: Δt = {PAPER_DELAY}", row.pipelined, row.speedup),
    ):
        column = {
            (speed, "examples/s"): points(figures.throughput),
            (speed, "speedup"): times(speedup),
            peak: count(figures.memory_mb) if figures.memory_mb else NOT_AVAILABLE,
        }
        other_splits: dict[str | None, Mapping[str, float]] = {
            "train": {},
            "dev": figures.dev_quality,
        }
        for heading, split, _ in _qualities(report.first, report):
            for metric, value in other_splits.get(split, figures.quality).items():
                if metric in LABELS:
                    column[heading, LABELS[metric]] = points(value)
        columns[name] = column
    return columns


def _qualities(
    entry: Entry, report: Report
) -> Iterator[tuple[str, str | None, Quality]]:
    """The heading, the split and the quality on it, for each split of the baseline."""
    qualities, mine = report.qualities(report.first), report.qualities(entry)
    for split, quality in qualities.items():
        named, scored = f", {split}" if len(qualities) > 1 else "", quality.scored
        examples = len(scored.items) if scored else 0
        yield (
            f"quality{named}, {examples:,} examples",
            split,
            mine.get(split, Quality()),
        )


def _column(entry: Entry, report: Report) -> Iterator[tuple[Label, str]]:
    """All cells of a decoder, each with its section and row name."""
    yield from with_section("", precision_cells(entry, report))
    for heading, _, quality in _qualities(entry, report):
        scores = quality.scored.scores.values if quality.scored else {}
        for metric in report.metrics:
            difference = quality.differences.get(metric)
            yield (heading, LABELS[metric]), points(scores.get(metric))
            yield from with_section(heading, cells(difference, _DIFFERENCE))
            yield (heading, "  95 % interval"), interval(difference, "{:+z.1f}")
        if any(each.quality.agreement for each in report.entries):
            agreement = quality.agreement
            section = f"agreement with the baseline{heading.removeprefix('quality')}"
            yield from with_section(section, cells(agreement, _AGREEMENT))
            yield (
                (section, "equal texts"),
                f"{agreement.equal:,} of {agreement.of:,}" if agreement else NONE,
            )
    exact = _EXACT if any(each.role == "exact" for each in report.entries) else []
    is_object = (
        report.part == "field"
    )  # whose tokens say little: most rows may be empty, a key costs nothing
    totals = _TOTALS[:1] + _KEYS if is_object else _TOTALS
    yield from with_section(
        "decoder steps, the same examples", cells(entry.totals, totals + exact)
    )
    for size in report.batch_sizes:
        heading, timing, gain = (
            f"speed, batch size {size}",
            entry.timings.get(size),
            entry.gains.get(size),
        )
        yield (
            (heading, "examples/s"),
            figure(timing.examples_per_second if timing else None),
        )
        speedup = (
            "1.0 ×"
            if entry.role == "baseline"
            else times(gain.speedup if gain else None)
        )
        yield (heading, "speedup"), speedup
        yield (heading, "  its range"), interval(gain)
        for name, attribute in time_parts(report).items():
            spent = milliseconds(
                timing.seconds_per_example(attribute) if timing else None
            )
            yield (heading, f"{name}, ms"), spent
        if size == 1 and any(each.agreement for each in report.entries):
            same = (
                f"{entry.agreement.equal} of {entry.agreement.of}"
                if entry.agreement
                else NONE
            )
            yield (heading, "same tokens"), same
    size = report.batch_sizes[0]
    heading = f"decoder calls of the {report.sample.timed} timed, batch size {size}"
    yield from with_section(
        heading, cells(entry.timings.get(size), _CALLS[:: 2 if is_object else 1])
    )
    yield from with_section(heading, cells(entry.gains.get(size), _GAINS))
    if report.paper or any(each.memory for each in report.entries):
        yield from with_section(
            f"memory, batch size {size}", cells(entry.memory, _MEMORY)
        )
    failures = entry.quality.scored.failures if entry.quality.scored else None
    wrong = failure_cells(failures, report.part, repeats=report.stopped_on_repeat)
    if report.explored:
        wrong.append(("empty rows hit sub_max", rate(entry.row_budget_exhausted)))
    yield from with_section("what goes wrong", wrong)


def _notes(report: Report) -> Iterator[str]:
    yield f"baseline: {report.baseline}"
    yield "times are for one example; a call is a decoder call, which serves a whole batch"
    if report.subsequences_per_target is not None:
        yield f"{report.part}s per text: the second number is for the targets"
    scored = report.first.quality.scored
    different = (
        ""
        if scored is not None and scored.is_unscored
        else " with different right answers"
    )
    yield f"alike predictions: the same text for different sources{different}"
    if report.stopped_on_repeat:
        yield "stopped on repeat: texts that end because they began to repeat themselves (stop_on_repeat)"
    if report.explored:
        yield "empty rows hit sub_max: texts that lost sentences because empty rows used up the limit of rows"
    if any(entry.role == "exact" for entry in report.entries):
        yield "exact mode: steps at the --batch-size of the predictions; in a batch rows cost more, so fewer are guessed"
    if any(entry.agreement for entry in report.entries):
        yield f"same tokens: timed examples with exactly the tokens of {report.first.name}"
    if any(entry.quality.agreement for entry in report.entries):
        yield "agreement: scores with the baseline's texts as right answers; white space does not count"
    if report.measure:
        yield f"signature: {report.measure.signature}"
    yield from (f"intervals: {report.significance}", f"speed: {report.sample.line}")
    if report.first.other_splits:
        yield f"quality is also on {', '.join(report.first.other_splits)}; all else is on {report.split}"
    if report.paper:
        table, backbone = report.paper.row.table, report.paper.row.backbone
        trained = "one example at a time on one RTX 4090, trained on its own data"
        yield f"paper: {table}, {backbone}, Δt = {PAPER_DELAY}, {trained}"
    yield from report.conditions.remarks


def _by_delay(report: Report) -> Sheet:
    """The paper's Table 5: quality and throughput at each delay, with the paper's own if it has them."""
    size = report.batch_sizes[0]
    metrics = [] if report.split in report.unscored_splits else report.metrics
    paper = (
        report.paper if report.split in (None, "test") else None
    )  # Table 5 is on test sets
    published: dict[object, DelayResult] = (
        {row.delay: row for row in paper.delays} if paper else {}
    )
    columns = [
        *(LABELS[metric] for metric in metrics),
        "examples/s",
        "speedup",
        "decoder steps",
    ]
    in_paper = (
        [metric for metric in metrics if metric in METRIC_TITLES] if published else []
    )
    columns += [f"paper: {METRIC_TITLES[metric]}" for metric in in_paper]
    columns += ["paper: examples/s"] if published else []
    rows = []
    for entry in report.pipelined:
        scored, row = entry.quality.scored, published.get(entry.delay)
        scores = scored.scores.values if scored else {}
        line = [entry.name, *(points(scores.get(metric)) for metric in metrics)]
        line += [
            figure(entry.timings[size].examples_per_second),
            times(entry.gains[size].speedup),
        ]
        line.append(points(entry.totals.steps_per_example if entry.totals else None))
        if published:
            line += [
                points(row.quality.get(metric) if row else None) for metric in in_paper
            ]
            line.append(points(row.throughput if row else None))
        rows.append(tuple(line))
    return Sheet(
        "By delay, as in the paper's Table 5", tuple(columns), one_section(rows)
    )


def _by_subsequences(report: Report) -> Sheet:
    """The paper's Figures 4 and 5: speedup and quality by number of target subsequences."""
    metric, tables = LABELS[report.metric], report.by_subsequences
    names = [name for name, rows in tables.items() if rows]
    columns = ["targets", "timed", f"{metric}, {report.first.name}"]
    for name in names:
        columns += [f"fewer steps, {name}", f"speedup, {name}", f"{metric}, {name}"]
    curve = report.paper.curve if report.paper else None
    ends = {2: curve.at_2, 9: curve.at_9} if curve else {}
    # On a narrow terminal first the steps give way, then the qualities from the right.
    spare = [*range(3, len(columns), 3), *range(len(columns) - 1, 3, -3)]
    rows = []
    for place, first in enumerate(tables[names[0]]):
        if not (first.examples or curve):  # such a row is for the paper's figures alone
            continue
        size = (
            f"{MANY} or more" if first.subsequences == MANY else str(first.subsequences)
        )
        line = [
            size,
            count(first.examples),
            str(first.timed),
            points(first.baseline_quality),
        ]
        for row in (tables[name][place] for name in names):
            line += [times(row.fewer_steps), times(row.speedup), points(row.quality)]
        if curve:
            end = ends.get(first.subsequences)
            line.append(times(end) if end else "")
        rows.append(tuple(line))
    more = (
        ""
        if report.sample.timed == report.sample.of
        else "; timing_examples=all times every target"
    )
    notes = [
        f"steps and quality: all targets; speedup: the timed ones, one at a time{more}"
    ]
    if curve:
        notes.append(
            f"paper, {curve.figure}: {curve.at_2} times at 2 subsequences, {curve.at_9} times at 9"
        )
        notes += [f"paper, {curve.quality}"] if curve.quality else []
    figures = ", as in the paper's Figures 4 and 5" if report.part != "field" else ""
    return Sheet(
        f"By number of target {report.part}s{figures}",
        (*columns, *(["paper: speedup"] if curve else [])),
        one_section(rows),
        spare=tuple(spare),
        notes=tuple(notes),
        corner=f"{report.part}s",
    )


# Row names, attributes and formats of `Timing` and `Memory`.
_TIMING: Final[list[Line]] = [
    ("decoder calls", "decoder_calls", count),
    ("decoding, ms per call", "seconds_per_call", milliseconds),
    ("tokens per step", "tokens_per_step", figure),
    ("examples/s", "examples_per_second", figure),
]
_PEAK: Final[list[Line]] = [("peak, MB", "peak_bytes", megabytes)]


def bench_sheets(bench: Bench) -> list[Sheet]:
    """Every table of a bench, in order."""
    passes = f"one pass to warm up, medians of {many(bench.sample.repeats, 'repeat')}"
    how = f"one process, the decoders in turn; {passes}"
    where = bench.conditions
    notes = (how, *where.remarks, *filter(None, [where.stopped, where.disturbed]))
    measured = settings_sheet("What was measured", bench, f"{bench.model};", notes)
    forced = Sheet(
        f"Forced lengths: {bench.lengths.line}",
        tuple(entry.name for entry in bench.entries),
        side_by_side([_bench_column(entry, bench) for entry in bench.entries]),
        notes=(
            "times are in milliseconds for all examples in flight together, medians of the repeats",
            "the lengths are forced: the model computes every step, but the texts mean nothing",
        ),
    )
    return [forced, _ratios(bench), measured]


def _bench_column(entry: Entry, bench: Bench) -> Iterator[tuple[Label, str]]:
    yield from with_section("", precision_cells(entry, bench))
    parts = [
        (f"  {name}", attribute, milliseconds)
        for name, attribute in time_parts(bench).items()
    ]
    lines: list[Line] = [("end to end, ms", "seconds", milliseconds), *parts, *_TIMING]
    for size in bench.batch_sizes:
        yield from with_section(
            f"batch size {size}", cells(entry.timings.get(size), lines)
        )
    if any(each.memory for each in bench.entries):
        yield from with_section("memory", cells(entry.memory, _PEAK))


def _ratios(bench: Bench) -> Sheet:
    """How many times as fast each of our decoders is, and the causes."""
    rows = []
    for entry, other, size, gain in bench.ratios:
        unsure = gain.low <= 1 <= gain.high
        parts = map(times, (gain.decoding, gain.fewer_calls, gain.faster_calls))
        row = (
            f"over {other.name}",
            times(gain.speedup) + (" ?" if unsure else ""),
            interval(gain),
            *parts,
        )
        rows.append((f"{entry.name}, batch size {size}", row))
    return Sheet(
        "Times as fast",
        ("end to end", "by repeats", "decoding", "fewer calls", "faster calls"),
        grouped(rows),
        notes=(
            "decoding = fewer calls (the schedule) × faster calls (the kernels, and the cost of more rows in a call)",
            "?: faster in some repeats and slower in others, so do not rely on it",
        ),
    )
