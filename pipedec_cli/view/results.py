"""The tables of results: of scores; of a report, for the terminal, report.md and the page; and of a bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from pipedec_cli.compare.comparison import MANY, Report
from pipedec_cli.compare.entry import Entry, Quality
from pipedec_cli.data.errors import many
from pipedec_cli.data.paper import (
    METRIC_TITLES,
    NOT_AVAILABLE,
    DecoderFigures,
    DelayResult,
)
from pipedec_cli.metrics.reliability import PRECISION, kept
from pipedec_cli.metrics.scoring import LABELS
from pipedec_cli.view.console import make_console
from pipedec_cli.view.tables import (
    NONE,
    Cell,
    Label,
    Labelled,
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
    from pipedec_cli.compare.comparison import Bench, Comparison, SizeRow
    from pipedec_cli.compare.entry import TextAgreement
    from pipedec_cli.metrics.differences import Difference
    from pipedec_cli.metrics.failures import Failures
    from pipedec_cli.metrics.scoring import Scored


def show_scores(
    runs: Sequence[Scored],
    differences: Mapping[str, Difference],
    pair: Mapping[str, Any],
) -> None:
    """Print the scores of one run, or of two and their differences; what went wrong; and what makes scores comparable.

    `pair` are the plain values of a comparison of two runs; nothing of it is read for
    one.
    """
    measure = runs[0].scores.measure
    notes = [f"signature: {measure.signature}", "; ".join(map(_rows, runs))]
    if len(runs) == 1:
        sheets = [_score_sheet(runs[0])]
    else:
        sheets = [_difference_sheet(runs, differences)]
        same = pair["identical_predictions"]
        notes.append(f"difference: first minus second; {pair['method']}")
        notes.append(f"the same prediction in both: {same:,} of {len(runs[0].items):,}")
    sheets.append(_failure_sheet(runs))
    if any(run.parts for run in runs):
        sheets.append(_key_sheet(runs, _names(runs)))
    for run in runs:
        sheets += reliability_sheets(run.run.name, [("", run)])
    console = make_console(stderr=False)
    for sheet in sheets:
        show_sheet(console, sheet)
    show_lines(console, notes)


def _score_sheet(run: Scored) -> Sheet:
    """The scores of one run, with precision and recall where the metric has them."""
    measure = run.scores.measure
    columns: Row = ("score", "P", "R") if measure.precision_recall else ("score",)
    rows = []
    for metric, name in measure.headline.items():
        names = (metric, *measure.precision_recall.get(metric, ()))
        values = [_score(run.scores.values[column]) for column in names]
        blanks = [""] * (len(columns) - len(values))
        rows.append((name, *values, *blanks))
    return Sheet(run.run.name, columns, one_section(rows), spare=(2,))


def _difference_sheet(
    runs: Sequence[Scored], differences: Mapping[str, Difference]
) -> Sheet:
    """The scores of two runs and their `differences` by metric, with intervals."""
    rows = []
    for metric, name in runs[0].scores.measure.headline.items():
        values = [_score(run.scores.values[metric]) for run in runs]
        difference = differences.get(metric)
        if difference is None:
            rows.append((name, *values, NONE, NONE))
            continue
        change = number("{:+z.2f}", difference.value)
        bounds = interval(difference, "{:+z.2f}")
        if difference.low is None:
            bounds = "needs two examples"
        rows.append((name, *values, change, bounds))
    columns = (*_names(runs), "difference", "95 % interval")
    return Sheet("", columns, one_section(rows), spare=(2,))


def _failure_sheet(runs: Sequence[Scored]) -> Sheet:
    """What went wrong in each run."""
    part = runs[0].scores.measure.part
    repeats = any(run.failures.stopped_on_repeat for run in runs)
    columns = []
    for run in runs:
        cells = failure_cells(run.failures, part, repeats=repeats, unknown="unknown")
        columns.append(with_section("", cells))
    headings = _names(runs) if len(runs) > 1 else ("rate",)
    return Sheet("", headings, side_by_side(columns))


def _key_sheet(runs: Sequence[Scored], names: Row, title: str = "") -> Sheet:
    """The scores of each key of the objects; of several runs, which have `names`, the first metric alone."""
    measure = runs[0].scores.measure
    right = measure.counted[-1]
    if len(runs) > 1:
        columns = names
        metrics = [measure.primary]
    else:
        columns = ("F1", "P", "R", "exact")
        others = list(measure.headline)[1:]
        metrics = [measure.primary, *measure.precision_recall[measure.primary], *others]
    totals: dict[str, float] = {}
    for run in runs:
        for key, values in run.parts.items():
            totals.setdefault(key, values[right])
    rows = []
    for key, total in totals.items():
        row = [key]
        for run, metric in product(runs, metrics):
            row.append(_score(run.parts[key][metric]) if key in run.parts else NONE)
        rows.append((*row, f"{total:,.0f}"))
    sections, notes = first_rows(rows)
    headings = (*columns, right.replace("_", " "))
    return Sheet(title, headings, sections, notes=notes, corner="key")


def _by_key(report: Report) -> list[Sheet]:
    """The table of each decoder's scores by key of the objects; [] for texts."""
    runs = {}
    for entry in report.entries:
        if entry.quality.scored and entry.quality.scored.parts:
            runs[entry.name] = entry.quality.scored
    if len(runs) < 2:
        return []
    title = f"{LABELS[report.metric]} by key"
    return [_key_sheet([*runs.values()], tuple(runs), title)]


def _names(runs: Sequence[Scored]) -> Row:
    return tuple(run.run.name for run in runs)


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
) -> list[Cell]:
    """The rates of what goes wrong with a decoder, and the lengths of its texts.

    Args:
        failures: the rates; None if none are known.
        part: what the rows of a text are called: subsequence or field.
        repeats: texts that stopped because they repeated themselves have a row.
        unknown: what is shown for a rate that is not known.
    """
    lengths = NONE
    if failures and failures.compared:  # else no reference's subsequences are known
        predicted = failures.subsequences / max(1, failures.examples)
        lengths = f"{predicted:.1f} of {failures.expected / failures.compared:.1f}"
    rates = {
        f"duplicated {part}s": "duplicated_rate",
        f"dropped {part}s": "dropped_rate",
        "truncated predictions": "truncated_rate",
        "stopped on repeat": "stopped_on_repeat_rate",
        "alike predictions": "alike_rate",
    }
    if not repeats:
        del rates["stopped on repeat"]
    rows = [(f"{part}s per text", lengths)]
    for name, attribute in rates.items():
        value = getattr(failures, attribute, None)
        rows.append((name, unknown if value is None else rate(value)))
    return rows


def reliability_sheets(name: str, runs: Sequence[tuple[str, Scored]]) -> list[Sheet]:
    """The table of how often values of each confidence are right, of the decoder `name`; [] without confidences.

    `runs` are its scored runs on several splits, each with words for its split before
    it. The table is of the last one, its threshold is fitted on the first.
    """
    first, fitted = runs[0]
    split, run = runs[-1]
    reliability = run.reliability
    if reliability is None:
        return []
    rows = []
    for band in reliability.bins:
        bounds = f"{band.least:.1f} to {band.least + 0.1:.1f}"
        means = (points(band.confidence), points(band.right))
        rows.append((bounds, count(band.values), *means))
    pairs = "of a right and a wrong value, the right one is surer so often"
    area = number("{:.3f}", reliability.auc)
    notes = [f"area under the ROC curve: {area} ({pairs})"]
    if run.unforced is not None:
        notes.append(f"the same of 1 - forced: {number('{:.3f}', run.unforced.auc)}")
    if fitted.reliability is None or fitted.reliability.threshold is None:
        notes.append(f"no threshold keeps {PRECISION:g} % right values{first}")
    else:
        sure = kept(run.judged, fitted.reliability.threshold)
        share = f"{sure.values:,} of {len(run.judged):,} values"
        threshold = (
            f"at least {sure.least:.4g} sure, which keeps {PRECISION:g} % right{first}"
        )
        notes.append(f"{threshold}: {share}, {sure.right:.1f} % right{split}")
    title = f"How sure, {name}"
    columns = ("values", "mean confidence, %", "right, %")
    sheet = Sheet(
        title, columns, one_section(rows), notes=tuple(notes), corner="confidence"
    )
    return [sheet, *_choice_sheets(name, run)]


def _choice_sheets(name: str, run: Scored) -> list[Sheet]:
    """How good the choices of each key are; no sheet without any."""
    rows = []
    for key, scores in run.choices.items():
        shares = (scores.accuracy, scores.macro_f1, scores.ece)
        figures = [points(share) for share in shares]
        brier = number("{:.3f}", scores.brier)
        rows.append((key, count(scores.values), *figures, brier))
    if not rows:
        return []
    columns = ("values", "right, %", "macro F1", "calibration error, %", "Brier")
    return [Sheet(f"Choices, {name}", columns, one_section(rows), corner="key")]


def time_parts(comparison: Comparison) -> dict[str, str]:
    """The parts of an example's time: the name of each in tables, and its attribute of a `Timing`."""
    if comparison.conditions.prompted:
        return {"reading the prompt": "encoder_seconds", "decoding": "decoding_seconds"}
    return {
        "encoder": "encoder_seconds",
        "source keys": "setup_seconds",
        "decoding": "decoding_seconds",
    }


def precision_cells(entry: Entry, comparison: Comparison) -> list[Cell]:
    """The dtype and the number of threads of a decoder."""
    threads = entry.runner.settings.get(
        "threads", str(comparison.conditions.machine.threads)
    )
    return [("dtype", entry.runner.settings["dtype"]), ("threads", threads)]


def settings_sheet(
    title: str, comparison: Comparison, measured: str, notes: Row
) -> Sheet:
    """Version and settings of each decoder; below them the machine, behind the words `measured`, versions and `notes`."""
    rows = []
    for entry in comparison.entries:
        settings = [f"{name} {value}" for name, value in entry.runner.settings.items()]
        rows.append((entry.name, ", ".join(settings)))
    conditions = comparison.conditions
    versions = [
        f"{name} {version or 'not installed'}"
        for name, version in conditions.versions.items()
    ]
    machine = f"{measured} on {conditions.device}; {conditions.machine.line}"
    notes = (machine, ", ".join(versions), *notes)
    return Sheet(title, ("settings",), one_section(rows), notes=notes)


#: Δt of the paper's main tables.
PAPER_DELAY: Final = 1
# Row names, attributes and formats: of `Difference`, `Totals`,
# `Timing`, `Gain` and `Memory`.
_DIFFERENCE: Final[list[Line]] = [
    ("  over the baseline", "value", partial(number, "{:+z.1f}"))
]
_STEPS: Final[list[Line]] = [
    ("steps per example", "steps_per_example", points),
    ("tokens per example", "tokens_per_example", points),
    ("tokens per step", "tokens_per_step", points),
]
_STEPS_OF_OBJECTS: Final[list[Line]] = [
    ("steps per example", "steps_per_example", points),
    ("keys per step", "keys_per_step", points),
]
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
_CALLS_OF_OBJECTS: Final[list[Line]] = [
    ("calls per example", "calls_per_example", points),
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
    advice = report.advice
    style = "bold yellow" if advice.is_missing else "bold"
    show_lines(console, [advice.text], style)
    show_lines(console, [*advice.cautions, ""])


def report_markdown(report: Report) -> str:
    """The whole report as Markdown: the advice first, then every table with its notes."""
    lines = ["# Decoders compared", "", f"**{escaped(report.advice.text)}**", ""]
    lines += [f"- {escaped(caution)}" for caution in report.advice.cautions]
    for sheet in report_sheets(report):
        lines += ["", markdown(sheet)]
    return "\n".join(lines).strip() + "\n"


def report_sheets(report: Report) -> list[Sheet]:
    """Every table of a report, in order."""
    sheets = [_main_sheet(report)]
    if len(report.pipelined) > 1:
        sheets.append(_by_delay(report))
    if any(report.by_subsequences.values()):
        sheets.append(_by_subsequences(report))
    sheets += _by_key(report)
    for entry in report.pipelined:
        runs = []
        for split, quality in report.qualities(entry).items():
            if quality.scored:
                runs.append((f" on {split}" if split else "", quality.scored))
        if runs:
            sheets += reliability_sheets(entry.name, runs)
    settings = settings_sheet("What was compared", report, report.dtype, report.notes)
    return [*sheets, settings]


def _main_sheet(report: Report) -> Sheet:
    """Quality, speed and its causes, memory, and what goes wrong, beside the paper's figures."""
    papers = _paper_columns(report)
    columns = [_column(entry, report) for entry in report.entries]
    return Sheet(
        "Decoders side by side",
        (*(entry.name for entry in report.entries), *papers),
        side_by_side(columns, list(papers.values())),
        notes=tuple(_notes(report)),
    )


def _paper_columns(report: Report) -> dict[str, dict[Label, str]]:
    """The paper's figures of both decoders, by the heading of the column."""
    if report.paper is None:
        return {}
    row = report.paper.row
    return {
        "paper: sequential": _paper_column(report, row.sequential, 1.0),
        f"paper: Δt = {PAPER_DELAY}": _paper_column(report, row.pipelined, row.speedup),
    }


def _paper_column(
    report: Report, figures: DecoderFigures, speedup: float
) -> dict[Label, str]:
    """The paper's figures of one decoder, as far as the report's main table has rows for them."""
    speed = "speed, batch size 1"  # the paper measured one example at a time
    memory = f"memory, batch size {report.batch_sizes[0]}"
    peak = count(figures.memory_mb) if figures.memory_mb else NOT_AVAILABLE
    column = {
        (speed, "examples/s"): points(figures.throughput),
        (speed, "speedup"): times(speedup),
        (memory, "peak, MB"): peak,
    }
    for heading, split, _ in _qualities(report.first, report):
        scores = figures.quality
        if split == "train":
            scores = {}
        elif split == "dev":
            scores = figures.dev_quality
        for metric, value in scores.items():
            if metric in LABELS:
                column[heading, LABELS[metric]] = points(value)
    return column


def _qualities(
    entry: Entry, report: Report
) -> Iterator[tuple[str, str | None, Quality]]:
    """For each split on which the baseline was scored: the heading of its rows, the split, and an entry's quality there."""
    usual = report.qualities(report.first)
    qualities = report.qualities(entry)
    for split, quality in usual.items():
        where = f", {split}" if len(usual) > 1 else ""
        examples = len(quality.scored.items) if quality.scored else 0
        heading = f"quality{where}, {examples:,} examples"
        yield heading, split, qualities.get(split, Quality())


def _column(entry: Entry, report: Report) -> Iterator[Labelled]:
    """All cells of a decoder, each with its section and row name."""
    yield from with_section("", precision_cells(entry, report))
    for heading, _, quality in _qualities(entry, report):
        yield from with_section(heading, _quality_cells(quality, report))
        if any(each.quality.agreement for each in report.entries):
            examples = heading.removeprefix("quality")
            section = f"agreement with the baseline{examples}"
            yield from with_section(section, _agreement_cells(quality.agreement))
    steps = _step_lines(report)
    yield from with_section(
        "decoder steps, the same examples", cells(entry.totals, steps)
    )
    for size in report.batch_sizes:
        heading = f"speed, batch size {size}"
        yield from with_section(heading, _speed_cells(entry, report, size))
    size = report.batch_sizes[0]
    heading = f"decoder calls of the {report.sample.timed} timed, batch size {size}"
    calls = _CALLS_OF_OBJECTS if report.part == "field" else _CALLS
    yield from with_section(heading, cells(entry.timings.get(size), calls))
    yield from with_section(heading, cells(entry.gains.get(size), _GAINS))
    if report.paper or any(each.memory for each in report.entries):
        memory = f"memory, batch size {size}"
        yield from with_section(memory, cells(entry.memory, _MEMORY))
    yield from with_section("what goes wrong", _wrong_cells(entry, report))


def _quality_cells(quality: Quality, report: Report) -> Iterator[Cell]:
    """The scores on a split by each metric, each with its difference to the baseline and the interval."""
    scores = quality.scored.scores.values if quality.scored else {}
    for metric in report.metrics:
        difference = quality.differences.get(metric)
        yield LABELS[metric], points(scores.get(metric))
        yield from cells(difference, _DIFFERENCE)
        yield "  95 % interval", interval(difference, "{:+z.1f}")


def _agreement_cells(agreement: TextAgreement | None) -> Iterator[Cell]:
    yield "ROUGE-L", points(agreement.rouge_l if agreement else None)
    equal = f"{agreement.equal:,} of {agreement.of:,}" if agreement else NONE
    yield "equal texts", equal


def _step_lines(report: Report) -> list[Line]:
    """The rows of steps. Of an object tokens say little: most rows may be empty, and a key costs nothing."""
    lines = _STEPS_OF_OBJECTS if report.part == "field" else _STEPS
    if any(entry.role == "exact" for entry in report.entries):
        return lines + _EXACT
    return lines


def _speed_cells(entry: Entry, report: Report, size: int) -> Iterator[Cell]:
    """The speed of an entry at a batch size, how much faster it is than the baseline, and the parts of its time."""
    timing = entry.timings.get(size)
    gain = entry.gains.get(size)
    yield "examples/s", figure(timing.examples_per_second if timing else None)
    if entry.role == "baseline":
        yield "speedup", times(1.0)
    else:
        yield "speedup", times(gain.speedup if gain else None)
    yield "  its range", interval(gain)
    for name, attribute in time_parts(report).items():
        seconds = timing.seconds_per_example(attribute) if timing else None
        yield f"{name}, ms", milliseconds(seconds)
    if size == 1 and any(each.agreement for each in report.entries):
        agreement = entry.agreement
        same = f"{agreement.equal} of {agreement.of}" if agreement else NONE
        yield "same tokens", same


def _wrong_cells(entry: Entry, report: Report) -> Iterator[Cell]:
    """The rates of what goes wrong in an entry's texts."""
    scored = entry.quality.scored
    failures = scored.failures if scored else None
    repeats = report.stopped_on_repeat
    yield from failure_cells(failures, report.part, repeats=repeats)
    if report.explored:
        yield "empty rows hit sub_max", rate(entry.row_budget_exhausted)


def _notes(report: Report) -> Iterator[str]:
    """The notes below the main table: what its rows mean, as far as it has them."""
    entries = report.entries
    yield f"baseline: {report.baseline}"
    yield "times are for one example; a call is a decoder call, which serves a whole batch"
    if report.subsequences_per_target is not None:
        yield f"{report.part}s per text: the second number is for the targets"
    scored = report.first.quality.scored
    unscored = scored is not None and scored.is_unscored
    different = "" if unscored else " with a different right answer"
    yield f"alike predictions: repeat the text of an earlier source{different}"
    if report.stopped_on_repeat:
        yield "stopped on repeat: texts that end because they began to repeat themselves (stop_on_repeat)"
    if report.explored:
        yield "empty rows hit sub_max: texts that lost sentences because empty rows used up the limit of rows"
    if any(entry.role == "exact" for entry in entries):
        yield "exact mode: steps at the --batch-size of the predictions; in a batch rows cost more, so fewer are guessed"
    if any(entry.agreement for entry in entries):
        yield f"same tokens: timed examples with exactly the tokens of {report.first.name}"
    if any(entry.quality.agreement for entry in entries):
        yield "agreement: scores with the baseline's texts as right answers; white space does not count"
    yield from _method_notes(report)


def _method_notes(report: Report) -> Iterator[str]:
    """Notes on how quality and speed were measured, and on the paper's figures."""
    if report.measure:
        yield f"signature: {report.measure.signature}"
    yield f"intervals: {report.significance}"
    yield f"speed: {report.sample.line}"
    if report.first.other_splits:
        splits = ", ".join(report.first.other_splits)
        yield f"quality is also on {splits}; all else is on {report.split}"
    if report.paper:
        row = report.paper.row
        trained = "one example at a time on one RTX 4090, trained on its own data"
        yield f"paper: {row.table}, {row.backbone}, Δt = {PAPER_DELAY}, {trained}"
    yield from report.conditions.remarks


def _by_delay(report: Report) -> Sheet:
    """The paper's Table 5: quality and throughput at each delay, with the paper's own if it has them."""
    size = report.batch_sizes[0]
    entries = report.pipelined
    metrics = [] if report.split in report.unscored_splits else report.metrics
    columns = {}
    for metric in metrics:
        scores = [_score_of(entry, metric) for entry in entries]
        columns[LABELS[metric]] = list(map(points, scores))
    timings = [entry.timings[size] for entry in entries]
    columns["examples/s"] = [figure(timing.examples_per_second) for timing in timings]
    columns["speedup"] = [times(entry.gains[size].speedup) for entry in entries]
    totals = [entry.totals for entry in entries]
    columns["decoder steps"] = [
        points(total.steps_per_example if total else None) for total in totals
    ]
    columns |= _published_delays(report, metrics)
    names = [entry.name for entry in entries]
    rows = zip(names, *columns.values(), strict=True)
    title = "By delay, as in the paper's Table 5"
    return Sheet(title, tuple(columns), one_section(rows))


def _score_of(entry: Entry, metric: str) -> float | None:
    scored = entry.quality.scored
    return scored.scores.values.get(metric) if scored else None


def _published_delays(report: Report, metrics: Sequence[str]) -> dict[str, list[str]]:
    """The columns of the paper's Table 5, by heading; {} if it has none for this data set, or not for this split.

    The paper's are on test sets.
    """
    is_test = report.split in (None, "test")
    if not is_test or not report.paper or not report.paper.delays:
        return {}
    published: dict[object, DelayResult] = {
        row.delay: row for row in report.paper.delays
    }
    rows = [published.get(entry.delay) for entry in report.pipelined]
    columns = {}
    for metric in metrics:
        if metric in METRIC_TITLES:
            columns[f"paper: {METRIC_TITLES[metric]}"] = [
                points(row.quality.get(metric) if row else None) for row in rows
            ]
    columns["paper: examples/s"] = [
        points(row.throughput if row else None) for row in rows
    ]
    return columns


def _by_subsequences(report: Report) -> Sheet:
    """The paper's Figures 4 and 5: speedup and quality by number of target subsequences."""
    tables = {name: rows for name, rows in report.by_subsequences.items() if rows}
    sizes = next(iter(tables.values()))
    columns = _size_columns(report, tables)
    # On a narrow terminal first the steps give way, then the qualities from the right.
    width = len(columns)
    spare = (*range(3, width, 3), *range(width - 1, 3, -3))
    timed_all = report.sample.timed == report.sample.of
    more = "" if timed_all else "; timing_examples=all times every target"
    notes = [
        f"steps and quality: all targets; speedup: the timed ones, one at a time{more}"
    ]
    curve = report.paper.curve if report.paper else None
    if curve:
        ends = {2: times(curve.at_2), 9: times(curve.at_9)}
        columns["paper: speedup"] = [ends.get(row.subsequences, "") for row in sizes]
        span = f"{curve.at_2} times at 2 subsequences, {curve.at_9} times at 9"
        notes.append(f"paper, {curve.figure}: {span}")
        if curve.quality:
            notes.append(f"paper, {curve.quality}")
    rows = []
    for size, *line in zip(sizes, *columns.values(), strict=True):
        if size.examples or curve:  # others are for the paper's figures alone
            rows.append((_size_name(size), *line))
    figures = "" if report.part == "field" else ", as in the paper's Figures 4 and 5"
    return Sheet(
        f"By number of target {report.part}s{figures}",
        tuple(columns),
        one_section(rows),
        spare=spare,
        notes=tuple(notes),
        corner=f"{report.part}s",
    )


def _size_columns(
    report: Report, tables: Mapping[str, Sequence[SizeRow]]
) -> dict[str, list[str]]:
    """The columns of the targets and the baseline, then three of each decoder."""
    metric = LABELS[report.metric]
    sizes = next(iter(tables.values()))
    usual = [points(row.baseline_quality) for row in sizes]
    columns = {
        "targets": [count(row.examples) for row in sizes],
        "timed": [str(row.timed) for row in sizes],
        f"{metric}, {report.first.name}": usual,
    }
    for name, rows in tables.items():
        columns[f"fewer steps, {name}"] = [times(row.fewer_steps) for row in rows]
        columns[f"speedup, {name}"] = [times(row.speedup) for row in rows]
        columns[f"{metric}, {name}"] = [points(row.quality) for row in rows]
    return columns


def _size_name(row: SizeRow) -> str:
    return f"{MANY} or more" if row.subsequences == MANY else str(row.subsequences)


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
    conditions = bench.conditions
    notes = [
        f"one process, the decoders in turn; {passes}",
        *conditions.remarks,
        conditions.stopped,
        conditions.disturbed,
    ]
    given = tuple(note for note in notes if note)
    measured = settings_sheet("What was measured", bench, f"{bench.model};", given)
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


def _bench_column(entry: Entry, bench: Bench) -> Iterator[Labelled]:
    """All cells of a decoder in the table of a bench, each with its section and row name."""
    yield from with_section("", precision_cells(entry, bench))
    lines: list[Line] = [("end to end, ms", "seconds", milliseconds)]
    for name, attribute in time_parts(bench).items():
        lines.append((f"  {name}", attribute, milliseconds))
    lines += _TIMING
    for size in bench.batch_sizes:
        timing = entry.timings.get(size)
        yield from with_section(f"batch size {size}", cells(timing, lines))
    if any(each.memory for each in bench.entries):
        yield from with_section("memory", cells(entry.memory, _PEAK))


def _ratios(bench: Bench) -> Sheet:
    """How many times as fast each of our decoders is, and the causes."""
    rows = []
    for entry, other, size, gain in bench.ratios:
        unsure = " ?" if gain.low <= 1 <= gain.high else ""
        causes = (gain.decoding, gain.fewer_calls, gain.faster_calls)
        row = (
            f"over {other.name}",
            times(gain.speedup) + unsure,
            interval(gain),
            *map(times, causes),
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
