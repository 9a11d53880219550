"""What a report measured, drawn. Nothing is computed here but differences of what stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pipedec_cli.evaluate.advice import SAME_TEXT, TOLERANCE
from pipedec_cli.evaluate.breakdown import MANY
from pipedec_cli.evaluate.estimate import WORTHWHILE
from pipedec_cli.evaluate.scoring import LABELS
from pipedec_cli.view.page.plots import Interval, Plot, Series, bars, cloud, lines
from pipedec_cli.view.sheet import time_parts

if TYPE_CHECKING:
    from pipedec_cli.evaluate.breakdown import SizeRow
    from pipedec_cli.evaluate.comparison import Comparison, Entry

#: By model, what its training.json keeps of how its losses and scores went, a point each.
Curves = Mapping[str, Sequence[Mapping[str, float]]]


def report_plots(report: Comparison) -> Iterator[Plot]:
    """Every plot of a report, in order."""
    for size in report.batch_sizes:
        yield _trade(report, size)
    for size in report.batch_sizes:
        yield time_plot(report, size)
    if any(report.by_subsequences.values()):
        yield from _by_subsequences(report)
    if len({one.delay for one in report.pipelined if one.delay}) > 1:
        yield from _by_delay(report)


def _trade(report: Comparison, size: int) -> Plot:
    """Speed against quality: which to take, at a glance."""
    first, points = report.first, dict[str, tuple[Interval, Interval]]()
    scored = bool(first.quality.scored and not first.quality.scored.is_unscored)
    base, least = (0.0, -TOLERANCE) if scored else (100.0, SAME_TEXT)
    for one in report.entries:
        gain, found = one.gains.get(size), one.quality.differences.get(report.metric)
        if one is not first and gain is None:
            continue
        quality = Interval(base)  # a peer's texts are the baseline's
        if scored and found:
            quality = Interval(found.value, found.low, found.high)
        elif not scored and one.quality.agreement and one.quality.agreement.rouge_l is not None:
            quality = Interval(one.quality.agreement.rouge_l)
        points[one.name] = Interval(gain.speedup, gain.low, gain.high) if gain else Interval(1.0), quality
    advice = report.advice
    chosen = advice.entry if advice is not None and advice.verdict == "take" else None
    label = (
        f"{LABELS[report.metric]} over the baseline, points"
        if scored
        else "ROUGE-L with the baseline's texts"
    )
    what = f"as good as the baseline (down to {least:g}) and at least {WORTHWHILE:g} times as fast"
    bands = "95 % intervals upwards, and the range of the repeats across"
    return cloud(
        f"Speed against quality, batch size {size}",
        f"Shaded: {what}. {bands if scored else 'Across: the range of the repeats'}.",
        "times as fast as the baseline",
        label,
        points,
        good=(WORTHWHILE, least),
        chosen=chosen if chosen in points else None,
    )


def time_plot(comparison: Comparison, size: int) -> Plot:
    """Where the time of an example goes, for everyone who was timed at a batch size."""
    timed = [(one.name, timing) for one in comparison.entries if (timing := one.timings.get(size))]
    before = "reading the prompt" if comparison.conditions.prompted else "encoder and source keys"
    known = time_parts(comparison)
    parts: dict[str, list[float]] = {name: [] for name in (*known, "not measured apart")}
    for _, timing in timed:
        for name, attribute in known.items():
            parts[name].append(1000 * (timing.seconds_per_example(attribute) or 0.0))
        whole = timing.seconds_per_example() if timing.decoding_seconds is None else None
        parts["not measured apart"].append(1000 * (whole or 0.0))
    return bars(
        f"Where the time goes, batch size {size}",
        f"Medians of the repeats; whatever is outside {before} is decoding.",
        "milliseconds an example",
        [name for name, _ in timed],
        {label: values for label, values in parts.items() if any(values)},
    )


def _by_subsequences(report: Comparison) -> Iterator[Plot]:
    """The paper's Figures 4 and 5."""
    places = {one.name: place for place, one in enumerate(report.entries)}
    rows = {
        name: found for name, found in report.by_subsequences.items() if any(row.examples for row in found)
    }
    title, across = f"{{}} by number of {report.part}s", f"{report.part}s of the target ({MANY}: or more)"

    def series(attribute: str) -> list[Series]:
        return [
            Series(name, places[name], [(row.subsequences, getattr(row, attribute)) for row in found])
            for name, found in rows.items()
        ]

    baseline = Series(report.first.name, 0, [(0, 1.0)], ":")
    curve = report.paper.curve if report.paper else None
    paper = [Series("the paper", 7, [(2, curve.at_2), (9, curve.at_9)], "--")] if curve else []
    for name, attribute, note, more in (
        (
            "Fewer steps",
            "fewer_steps",
            "Decoder steps of the baseline over those of each, all targets.",
            [baseline],
        ),
        ("Speedup", "speedup", "The timed targets, one at a time.", [baseline, *paper]),
    ):
        if found := _known(series(attribute)):
            yield lines(title.format(name), note, across, "times", [*more, *found])
    metric = LABELS[report.metric]
    firsts: Sequence[SizeRow] = next(iter(rows.values()), ())
    usual = Series(report.first.name, 0, [(row.subsequences, row.baseline_quality) for row in firsts])
    if found := _known([usual, *series("quality")]):
        yield lines(title.format(metric), "All targets.", across, metric, found, from_zero=False)


def _by_delay(report: Comparison) -> Iterator[Plot]:
    """The paper's Table 5: quality, speed and steps by Δt, a line for each rule that was tried."""
    size = report.batch_sizes[0]

    def quality(one: Entry) -> float | None:
        return one.quality.scored.scores.values.get(report.metric) if one.quality.scored else None

    def speed(one: Entry) -> float | None:
        return one.timings[size].examples_per_second if size in one.timings else None

    def steps(one: Entry) -> float | None:
        return one.totals.steps_per_example if one.totals else None

    ways: dict[str, list[Entry]] = {}
    for one in report.pipelined:
        if one.delay:
            ways.setdefault(one.name.partition(", ")[2] or "pipelined", []).append(one)
    metric = LABELS[report.metric]
    kinds: list[tuple[str, str, Any]] = [
        (metric, metric, quality),
        ("Speed", f"examples a second, batch size {size}", speed),
        ("Decoder steps", "steps an example", steps),
    ]
    for name, label, value in kinds:
        tried = [
            Series(way, 1 + place, [(float(one.delay or 0), value(one)) for one in members])
            for place, (way, members) in enumerate(ways.items())
        ]
        found = _known([Series(report.first.name, 0, [(0, value(report.first))], ":"), *tried])
        if found:
            yield lines(
                f"{name} by Δt", "Dotted: the baseline.", "Δt", label, found, from_zero=name != metric
            )


def training_plots(curves: Curves) -> Iterator[Plot]:
    """How losses and dev scores went, each model by its updates."""

    def series(key: str, name: str, style: Literal["-", "--"] = "-") -> list[Series]:
        return [
            Series(f"{model}{name}", place, [(one["update"], one.get(key)) for one in curve], style)
            for place, (model, curve) in enumerate(curves.items())
        ]

    losses = _known([*series("loss", ""), *series("dev_loss", ", dev", "--")])
    note = "A token's, each model against what it learns: right answers, or its teacher's texts."
    if losses:
        yield lines("Loss in training", note, "updates", "loss", losses)
    if scores := _known(series("dev_score", "")):
        yield lines(
            "Dev score in training",
            "Of some dev examples, against the same: ROUGE-L, or the F1 of objects' fields.",
            "updates",
            "dev score",
            scores,
        )


def _known(series: Sequence[Series]) -> list[Series]:
    """Those that have any figure."""
    return [one for one in series if any(value is not None for _, value in one.points)]
