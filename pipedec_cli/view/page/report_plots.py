"""The plots of a report, of a bench and of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pipedec_cli.evaluate.advice import SAME_TEXT, TOLERANCE
from pipedec_cli.evaluate.estimate import WORTHWHILE
from pipedec_cli.evaluate.comparison import MANY
from pipedec_cli.evaluate.scoring import LABELS
from pipedec_cli.view.page.plots import Interval, Plot, Series, bars, cloud, lines
from pipedec_cli.view.sheets.shared import time_parts

if TYPE_CHECKING:
    from pipedec_cli.evaluate.comparison import Report
    from pipedec_cli.evaluate.entry import Entry

#: By model, the points of a training's losses and scores, as its training.json has them.
Curves = Mapping[str, Sequence[Mapping[str, float]]]


def report_plots(report: Report) -> Iterator[Plot]:
    """Every plot of a report, in order."""
    for size in report.batch_sizes:
        yield _trade(report, size)
    for size in report.batch_sizes:
        yield time_plot(report, size)
    if any(report.by_subsequences.values()):
        yield from _by_subsequences(report)
    if len({entry.delay for entry in report.pipelined if entry.delay}) > 1:
        yield from _by_delay(report)
    sure = {
        entry.name: found
        for entry in report.pipelined
        if entry.quality.scored and (found := entry.quality.scored.reliability)
    }
    if sure:
        made = [Series("as sure as right", 0, [(0, 0.0), (100, 100.0)], "--")]
        for place, (name, found) in enumerate(sure.items(), start=1):
            made.append(Series(name, place, [(one.confidence, one.right) for one in found.bins]))
        note = (
            "Values by tenths of their confidence. Below the grey line they are less often right than sure."
        )
        yield lines("Confidence and truth", note, "mean confidence, %", "right values, %", made)


def _trade(report: Report, size: int) -> Plot:
    """Speed against quality."""
    first, points = report.first, dict[str, tuple[Interval, Interval]]()
    scored = bool(first.quality.scored and not first.quality.scored.is_unscored)
    base, least = (0.0, -TOLERANCE) if scored else (100.0, SAME_TEXT)
    for entry in report.entries:
        like = next((one for one in report.entries if one.name == entry.like), entry)
        gain, difference = entry.gains.get(size), like.quality.differences.get(report.metric)
        if entry is not first and gain is None:
            continue
        agreement, quality = like.quality.agreement, Interval(base)  # a peer writes the baseline's texts
        if scored and difference:
            quality = Interval(difference.value, difference.low, difference.high)
        elif not scored and agreement and agreement.rouge_l is not None:
            quality = Interval(agreement.rouge_l)
        speed = Interval(gain.speedup, gain.low, gain.high) if gain else Interval(1.0)
        points[entry.name] = (speed, quality)
    advice = report.advice
    chosen = advice.entry if advice.verdict == "take" else None
    label, bars_mean = "ROUGE-L with the baseline's texts", "Across: the range of the repeats"
    if scored:
        label = f"{LABELS[report.metric]} over the baseline, points"
        bars_mean = "Upwards: 95 % intervals; across: the range of the repeats"
    shaded = f"as good as the baseline (down to {least:g}) and at least {WORTHWHILE:g} times as fast"
    return cloud(
        f"Speed against quality, batch size {size}",
        f"Shaded: {shaded}. {bars_mean}.",
        "times as fast as the baseline",
        label,
        points,
        good=(WORTHWHILE, least),
        chosen=chosen if chosen in points else None,
    )


def time_plot(comparison: Report, size: int) -> Plot:
    """The parts of an example's time, for each decoder that was timed at a batch size."""
    timed = {entry.name: entry.timings[size] for entry in comparison.entries if size in entry.timings}
    before = "reading the prompt" if comparison.conditions.prompted else "encoder and source keys"
    known = time_parts(comparison)
    parts: dict[str, list[float]] = {name: [] for name in (*known, "not measured apart")}
    for timing in timed.values():
        for name, attribute in known.items():
            parts[name].append(1000 * (timing.seconds_per_example(attribute) or 0.0))
        whole = timing.seconds_per_example() if timing.decoding_seconds is None else None
        parts["not measured apart"].append(1000 * (whole or 0.0))
    return bars(
        f"Time by part, batch size {size}",
        f"Medians of the repeats; all time outside {before} is decoding.",
        "milliseconds per example",
        list(timed),
        {name: values for name, values in parts.items() if any(values)},
    )


def _by_subsequences(report: Report) -> Iterator[Plot]:
    """The paper's Figures 4 and 5."""
    places = {entry.name: place for place, entry in enumerate(report.entries)}
    tables = {
        name: rows for name, rows in report.by_subsequences.items() if any(row.examples for row in rows)
    }
    across = f"{report.part}s of the target ({MANY}: or more)"

    def series(attribute: str) -> list[Series]:
        return _known(
            Series(name, places[name], [(row.subsequences, getattr(row, attribute)) for row in rows])
            for name, rows in tables.items()
        )

    baseline = Series(report.first.name, 0, [(0, 1.0)], ":")
    curve = report.paper.curve if report.paper else None
    paper = [Series("the paper", 7, [(2, curve.at_2), (9, curve.at_9)], "--")] if curve else []
    steps_note = "Decoder steps of the baseline over those of each decoder, all targets."
    for title, attribute, note, more in (
        ("Fewer steps", "fewer_steps", steps_note, [baseline]),
        ("Speedup", "speedup", "The timed targets, one at a time.", [baseline, *paper]),
    ):
        if found := series(attribute):
            yield lines(f"{title} by number of {report.part}s", note, across, "times", [*more, *found])
    metric, rows = LABELS[report.metric], next(iter(tables.values()), ())
    usual = Series(report.first.name, 0, [(row.subsequences, row.baseline_quality) for row in rows])
    if found := [*_known([usual]), *series("quality")]:
        title = f"{metric} by number of {report.part}s"
        yield lines(title, "All targets.", across, metric, found, from_zero=False)


def _by_delay(report: Report) -> Iterator[Plot]:
    """The paper's Table 5: quality, speed and steps by Δt, a line for each rule of decoding."""
    size, metric = report.batch_sizes[0], LABELS[report.metric]

    def quality(entry: Entry) -> float | None:
        return entry.quality.scored.scores.values.get(report.metric) if entry.quality.scored else None

    def speed(entry: Entry) -> float | None:
        return entry.timings[size].examples_per_second if size in entry.timings else None

    def steps(entry: Entry) -> float | None:
        return entry.totals.steps_per_example if entry.totals else None

    rules: dict[str, list[Entry]] = {}
    for entry in report.pipelined:
        if entry.delay:
            rules.setdefault(entry.name.partition(", ")[2] or "pipelined", []).append(entry)
    plots: list[tuple[str, str, Callable[[Entry], float | None]]] = [
        (metric, metric, quality),
        ("Speed", f"examples per second, batch size {size}", speed),
        ("Decoder steps", "steps per example", steps),
    ]
    for name, label, value in plots:
        series = [Series(report.first.name, 0, [(0, value(report.first))], ":")]
        for place, (rule, entries) in enumerate(rules.items(), start=1):
            series.append(Series(rule, place, [(float(entry.delay or 0), value(entry)) for entry in entries]))
        if found := _known(series):
            zero = name != metric
            yield lines(f"{name} by Δt", "Dotted: the baseline.", "Δt", label, found, from_zero=zero)


def training_plots(curves: Curves) -> Iterator[Plot]:
    """Losses and dev scores of each model by its updates."""

    def series(key: str, suffix: str = "", style: Literal["-", "--"] = "-") -> list[Series]:
        return _known(
            Series(f"{model}{suffix}", place, [(point["update"], point.get(key)) for point in curve], style)
            for place, (model, curve) in enumerate(curves.items(), start=len(curves) == 1)  # 0 is grey
        )

    loss_note = "Per token, each model against its own targets: right answers, or the texts of its teacher."
    score_note = "On some dev examples, against the same targets: ROUGE-L, or the F1 of fields."
    if losses := [*series("loss"), *series("dev_loss", ", dev", "--")]:
        yield lines("Loss in training", loss_note, "updates", "loss", losses)
    if scores := series("dev_score"):
        yield lines("Dev score in training", score_note, "updates", "dev score", scores)


def _known(series: Iterable[Series]) -> list[Series]:
    """The series that have any point."""
    return [one for one in series if one.known]
