"""Plots of a page: SVG whose text is text and whose colours are variables of the page, in its light and its dark mode.

One decoder has the same colour and marker in every plot. Colour is never the only sign:
there are markers, hatches and dashes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pipedec_cli.compare.advice import SAME_TEXT, TOLERANCE
from pipedec_cli.compare.comparison import MANY
from pipedec_cli.compare.expected_calls import WORTHWHILE
from pipedec_cli.metrics.differences import Difference
from pipedec_cli.metrics.scoring import LABELS
from pipedec_cli.view.console import fit, one_line
from pipedec_cli.view.results import time_parts

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipedec_cli.compare.comparison import Report
    from pipedec_cli.compare.entry import Entry


_STYLE: Final = Path(__file__).with_suffix(".mplstyle")
_MARKERS: Final = "osD^vPX*"
_HATCHES: Final = ("", "///", "\\\\\\", "xxx", "--", "||", "++", "/")
#: Variables of page.css, in the order of their stand-ins: #00f000, #00f001, ...
_VARIABLES: Final = (
    *("ink", "faint", "line", "ground", "good", "accent"),
    *(f"series-{number}" for number in range(8)),
)
_COLOURS: Final = {name: f"#00f0{n:02x}" for n, name in enumerate(_VARIABLES)}
# Inches of 72 units; a narrow screen is as wide.
_WIDTH: Final = 4.6
_HEIGHT: Final = 3.3
#: What is replaced in Matplotlib's SVG: its frame, its fonts, and digits beyond a
#: hundredth.
_CLEANING: Final = (
    (r"^.*?<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", r"\1>"),
    (
        r"<metadata>.*?</metadata>|<style .*?</style>|<!--.*?-->|(?<=<g) id=\"[^\"]*\"",
        "",
    ),
    (r"font: ([\d.]+px)[^;\"]*", r"font-size: \1"),
    (r"; font-family: [^;\"]*", ""),
    (r"(\.\d\d)\d+", r"\1"),
    (r"\s+", " "),
)
#: Of an axis that does not begin at 0, so that a tenth of a point does not look like a
#: cliff.
_LEAST_SPAN: Final = 2.0
#: A legend has at most so many names a line, and fewer if they are long: a sign and a
#: letter take so many units.
_NAMES_PER_LINE, _SIGN, _LETTER = 3, 50, 6.6


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with its title, and a note for the reader."""

    title: str
    note: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together, with a line through them."""

    name: str
    number: int  # chooses the colour and the marker
    points: Sequence[tuple[float, float | None]] = ()  # a y of None is left out
    #: The line: ``:`` is one height, drawn across the plot.
    style: Literal["-", "--", ":"] = "-"

    @property
    def known(self) -> list[tuple[float, float]]:
        """The points with a y."""
        return [(x, y) for x, y in self.points if y is not None]

    @property
    def look(self) -> dict[str, Any]:
        """Colour, marker and name."""
        number = self.number % len(_MARKERS)
        return {
            "color": _COLOURS[f"series-{number}"],
            "marker": _MARKERS[number],
            "label": _label(self.name),
        }


def lines(
    title: str,
    note: str,
    x: str,
    y: str,
    series: Sequence[Series],
    *,
    beside: Sequence[Series] = (),
    scores: bool = False,
) -> Iterator[Plot]:
    """A plot of lines through points; none if no series has a point.

    Args:
        title: of the plot.
        note: for the reader, below it.
        x: what is on the horizontal axis.
        y: what is on the vertical axis.
        series: the lines.
        beside: more lines, which say nothing alone.
        scores: y are points of 100. Their axis need not begin at 0, and there is no plot
            if all are 100.
    """
    series = [each for each in series if each.known]
    perfect = all(y >= 99.99 for each in series for _, y in each.known)
    if not series or (scores and perfect):
        return
    drawn = [*beside, *series]

    def paint(axes: Axes) -> None:
        for each in drawn:
            xs, ys = zip(*each.known, strict=True)
            if each.style == ":":
                axes.axhline(ys[0], **each.look | {"marker": ""}, linestyle=":")
            else:
                sparse = max(1, len(xs) // 10)  # about ten markers
                axes.plot(
                    xs, ys, **each.look, ls=each.style, markevery=sparse, clip_on=False
                )
        axes.locator_params(axis="x", integer=True, min_n_ticks=1)
        bottom, top = axes.get_ylim()
        # What the axis lacks of its least span, half of it at either end.
        more = max(0.0, _LEAST_SPAN - (top - bottom)) / 2
        if scores:
            axes.set_ylim(max(0.0, bottom - more), top + more)
        else:
            axes.set_ylim(bottom=0)

    yield _drawn(title, note, (x, y), paint, [each.name for each in drawn])


def bars(
    title: str,
    note: str,
    x: str,
    names: Sequence[str],
    parts: Mapping[str, Sequence[float]],
) -> Plot:
    """A plot of a horizontal bar for each name, made of parts side by side, with its total at the end.

    `parts` have a length for each name, by what the part is called; `x` says what
    lengths are.
    """
    rows = range(len(names))

    def paint(axes: Axes) -> None:
        totals = [0.0] * len(names)
        for number, (part, values) in enumerate(parts.items()):
            axes.barh(
                rows,
                values,
                left=totals,
                height=0.7,
                label=_label(part),
                color=_COLOURS[f"series-{1 + number % 7}"],
                hatch=_HATCHES[number % len(_HATCHES)],
                edgecolor=_COLOURS["ground"],
                linewidth=0,
            )
            totals = [sum(both) for both in zip(totals, values, strict=True)]
        for row, total in zip(rows, totals, strict=True):
            text = f"{total:,.0f}" if total >= 100 else f"{total:.3g}"
            axes.annotate(
                text, (total, row), (3, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(rows, [_label(name) for name in names])
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.grid(axis="y", visible=False)

    legend = list(parts) if len(parts) > 1 else []
    height = max(_HEIGHT, 1.2 + 0.3 * len(names))
    return _drawn(title, note, (x, ""), paint, legend, height=height)


def cloud(
    title: str,
    note: str,
    x: str,
    y: str,
    points: Mapping[str, tuple[Difference, Difference]],
    *,
    good: tuple[float, float],
    chosen: str | None,
) -> Plot:
    """A plot of a point for each name, with its intervals.

    Args:
        title: of the plot.
        note: for the reader, below it.
        x: what is on the horizontal axis.
        y: what is on the vertical axis.
        points: x and y of each point, with their bounds.
        good: x and y from which on the area is shaded.
        chosen: the name whose point has a ring; None: no point has.
    """

    def paint(axes: Axes) -> None:
        for number, (name, (across, up)) in enumerate(points.items()):
            errors = (_errors(up), _errors(across))
            look = Series(name, number).look
            axes.errorbar(across.value, up.value, *errors, **look, capsize=3, ls="none")
        if chosen is not None:
            across, up = points[chosen]
            ring = {"marker": "o", "ms": 15, "fillstyle": "none", "linestyle": "none"}
            colour = _COLOURS["accent"]
            axes.plot(across.value, up.value, color=colour, label="advised", **ring)  # type: ignore[arg-type]
        axes.set_xlim(left=0)
        axes.margins(0.12)
        right = max(axes.get_xlim()[1], good[0] + 0.2)
        top = max(axes.get_ylim()[1], good[1] + 1)
        ground = {"color": _COLOURS["good"], "linewidth": 0, "zorder": 0}
        axes.fill_between([good[0], right], good[1], top, **ground)  # type: ignore[arg-type]
        axes.set(xlim=(0, right), ylim=(None, top))

    legend = list(points)
    if chosen is not None:
        legend.append("advised")
    return _drawn(title, note, (x, y), paint, legend)


def _errors(figure: Difference) -> list[list[float]]:
    """The distances to the bounds, as Matplotlib takes them."""
    low = figure.value if figure.low is None else figure.low
    high = figure.value if figure.high is None else figure.high
    return [[max(0.0, figure.value - low)], [max(0.0, high - figure.value)]]


def _label(text: str) -> str:
    """A name in a drawing: on one line, and not too long."""
    return fit(one_line(text), 40)


def _drawn(
    title: str,
    note: str,
    labels: tuple[str, str],
    paint: Callable[[Axes], None],
    names: Sequence[str],
    *,
    height: float = _HEIGHT,
) -> Plot:
    """The plot of what `paint` draws on axes.

    `labels` are those of the horizontal and the vertical axis, `names` those of the
    legend, which is left out without any; `height` is in inches, without the legend.
    """
    from markupsafe import Markup
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    longest = max((len(_label(name)) for name in names), default=0)
    fitting = int(_WIDTH * 72 / (_SIGN + _LETTER * longest))
    columns = min(_NAMES_PER_LINE, max(1, fitting))
    rows = -(-len(names) // columns)
    svg = StringIO()
    with rc_context(fname=_STYLE), warnings.catch_warnings():
        # Characters that Matplotlib's font lacks; the browser has more fonts.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(_WIDTH, height + 0.25 * rows), layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        if names:
            _add_legend(figure, axes, columns)
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=metadata)
    drawing = svg.getvalue()
    for pattern, replacement in _CLEANING:
        drawing = re.sub(pattern, replacement, drawing, flags=re.DOTALL)
    for variable, colour in _COLOURS.items():
        drawing = drawing.replace(colour, f"var(--{variable})")
    opening = '<svg class="plot" role="img" aria-label="{}" '
    escaped = Markup(opening).format(one_line(title))  # noqa: S704
    return Plot(title, note, escaped + Markup(drawing))  # noqa: S704  # Matplotlib escapes the texts that it draws


def _add_legend(figure: Figure, axes: Axes, columns: int) -> None:
    """Add a legend with so many columns, in the order in which people read it: line by line.

    Matplotlib fills it column by column.
    """
    entries = list(zip(*axes.get_legend_handles_labels(), strict=True))
    by_column = chain.from_iterable(
        entries[column::columns] for column in range(columns)
    )
    handles, texts = zip(*by_column, strict=True)
    figure.legend(handles, texts, loc="outside upper left", ncols=columns, fontsize=12)


#: By model, the points of a training's losses and scores, as its training.json has
#: them.
Curves = Mapping[str, Sequence[Mapping[str, float]]]


def report_plots(report: Report) -> Iterator[Plot]:
    """Every plot of a report, in order."""
    for size in report.batch_sizes:
        yield _trade(report, size)
    for size in report.batch_sizes:
        yield _times(report, size)
    if any(report.by_subsequences.values()):
        yield from _by_subsequences(report)
    if len({entry.delay for entry in report.pipelined if entry.delay}) > 1:
        yield from _by_delay(report)
    yield from _confidence(report)


def _trade(report: Report, size: int) -> Plot:
    """Speed against quality; without right answers, against the agreement with the baseline's texts."""
    scored = report.first.quality.scored
    if scored and not scored.is_unscored:
        least = -TOLERANCE
        label = f"{LABELS[report.metric]} above baseline, points"
        bounds = "Upwards: 95 % intervals; across: the range of the repeats"
        base = Difference(0.0, None, None)
        qualities = {
            e.name: e.quality.differences.get(report.metric) for e in report.entries
        }
    else:
        least = SAME_TEXT
        label = "ROUGE-L with the baseline's texts"
        bounds = "Across: the range of the repeats"
        base = Difference(100.0, None, None)
        qualities = {}
        for entry in report.entries:
            agreement = entry.quality.agreement
            if agreement and agreement.rouge_l is not None:
                qualities[entry.name] = Difference(agreement.rouge_l, None, None)
    points = {report.first.name: (Difference(1.0, None, None), base)}
    for entry in report.entries[1:]:
        gain = entry.gains.get(size)
        if gain:
            speed = Difference(gain.speedup, gain.low, gain.high)
            # A peer writes the baseline's texts.
            points[entry.name] = (speed, qualities.get(entry.name) or base)
    advice = report.advice
    chosen = None
    if advice.verdict == "take" and advice.entry in points:
        chosen = advice.entry
    shaded = f"as good as the baseline (down to {least:g}) and at least {WORTHWHILE:g} times as fast"
    return cloud(
        f"Speed against quality, batch size {size}",
        f"Shaded: {shaded}. {bounds}.",
        "times as fast as the baseline",
        label,
        points,
        good=(WORTHWHILE, least),
        chosen=chosen,
    )


def _times(report: Report, size: int) -> Plot:
    """The time of each decoder by its parts."""
    timings = {
        entry.name: entry.timings[size]
        for entry in report.entries
        if size in entry.timings
    }
    parts = {}
    for name, attribute in time_parts(report).items():
        parts[name] = [
            t.seconds_per_example(attribute) or 0.0 for t in timings.values()
        ]
    parts["not measured apart"] = [
        0.0 if timing.decoding_seconds is not None else timing.seconds / timing.examples
        for timing in timings.values()
    ]
    prompted = report.conditions.prompted
    before = "reading the prompt" if prompted else "encoder and source keys"
    return bars(
        f"Time by part, batch size {size}",
        f"Medians of the repeats; all time outside {before} is decoding.",
        "milliseconds per example",
        list(timings),
        {
            name: [1000 * seconds for seconds in values]
            for name, values in parts.items()
            if any(values)
        },
    )


def _by_subsequences(report: Report) -> Iterator[Plot]:
    """The paper's Figures 4 and 5: steps, speedup and quality by the number of subsequences in the target."""
    steps = []
    speedups = []
    qualities: list[Series] = []
    for number, entry in enumerate(report.entries):
        rows = report.by_subsequences.get(entry.name, ())
        if not any(row.examples for row in rows):
            continue
        if not qualities:
            usual = [(row.subsequences, row.baseline_quality) for row in rows]
            qualities.append(Series(report.first.name, 0, usual))
        fewer = [(row.subsequences, row.fewer_steps) for row in rows]
        faster = [(row.subsequences, row.speedup) for row in rows]
        quality = [(row.subsequences, row.quality) for row in rows]
        steps.append(Series(entry.name, number, fewer))
        speedups.append(Series(entry.name, number, faster))
        qualities.append(Series(entry.name, number, quality))
    metric = LABELS[report.metric]
    by = f"by number of {report.part}s"
    across = f"{report.part}s in the target ({MANY}: {MANY} or more)"
    baseline = [Series(report.first.name, 0, [(0, 1.0)], ":")]
    paper = []
    if report.paper and report.paper.curve:
        curve = report.paper.curve
        paper = [Series("the paper", 7, [(2, curve.at_2), (9, curve.at_9)], "--")]
    note = "Decoder steps of the baseline over those of each decoder, all targets."
    up = "times fewer decoder steps"
    yield from lines(f"Fewer steps {by}", note, across, up, steps, beside=baseline)
    note = "The timed targets, one at a time."
    beside = [*baseline, *paper]
    yield from lines(
        f"Speedup {by}", note, across, "times as fast", speedups, beside=beside
    )
    up = f"{metric}, points of 100"
    yield from lines(
        f"{metric} {by}", "All targets.", across, up, qualities, scores=True
    )


def _by_delay(report: Report) -> Iterator[Plot]:
    """The paper's Table 5: quality, speed and steps by Δt, a line for each rule of decoding."""
    size = report.batch_sizes[0]
    metric = LABELS[report.metric]
    rules: dict[str, list[Entry]] = {report.first.name: [report.first]}
    for entry in report.pipelined:
        if entry.delay:
            rule = entry.name.partition(", ")[2] or "pipelined"
            rules.setdefault(rule, []).append(entry)

    def series(value: Callable[[Entry], float | None]) -> Iterator[Series]:
        for number, (rule, entries) in enumerate(rules.items()):
            points = [(float(entry.delay or 0), value(entry)) for entry in entries]
            yield Series(rule, number, points, "-" if number else ":")

    def quality(entry: Entry) -> float | None:
        scored = entry.quality.scored
        return scored.scores.values.get(report.metric) if scored else None

    def speed(entry: Entry) -> float | None:
        timing = entry.timings.get(size)
        return timing.examples_per_second if timing else None

    def steps(entry: Entry) -> float | None:
        return entry.totals.steps_per_example if entry.totals else None

    x = "delay Δt between rows, in time-steps"
    note = "Dotted: the baseline."
    y = f"{metric}, points of 100"
    yield from lines(f"{metric} by Δt", note, x, y, [*series(quality)], scores=True)
    timed = f"{note} Batch size {size}."
    yield from lines("Speed by Δt", timed, x, "examples per second", [*series(speed)])
    y = "decoder steps per example"
    yield from lines("Decoder steps by Δt", note, x, y, [*series(steps)])


def _confidence(report: Report) -> Iterator[Plot]:
    """How often values are right, by how sure the decoder was of them."""
    series: list[Series] = []
    for entry in report.pipelined:
        scored = entry.quality.scored
        if scored and scored.reliability:
            points = [(each.confidence, each.right) for each in scored.reliability.bins]
            series.append(Series(entry.name, len(series) + 1, points))
    yield from lines(
        "Confidence and truth",
        "Values by tenths of their confidence. Below the grey line they are right less often than sure.",
        "mean confidence, %",
        "right values, %",
        series,
        beside=[Series("as sure as right", 0, [(0, 0.0), (100, 100.0)], "--")],
        scores=True,
    )


def training_plots(curves: Curves) -> Iterator[Plot]:
    """Losses and dev scores of each model by its updates. The losses on train and on dev have a colour each."""
    trains = []
    devs = []
    scores = []
    first = 1 if len(curves) == 1 else 0  # 0 is grey
    for number, (model, curve) in enumerate(curves.items(), start=first):
        later = number + len(curves)
        trains.append(Series(f"{model}, train", number, _course(curve, "loss")))
        devs.append(Series(f"{model}, dev", later, _course(curve, "dev_loss"), "--"))
        scores.append(Series(model, number, _course(curve, "dev_score")))
    x = "updates of the weights"
    note = "Per token, each model against its own targets: right answers, or the texts of its teacher."
    yield from lines("Loss in training", note, x, "loss per token", [*trains, *devs])
    note = (
        "On some dev examples, against the same targets: ROUGE-L, or the F1 of fields."
    )
    y = "dev score, points of 100"
    yield from lines("Dev score in training", note, x, y, scores, scores=True)


def _course(
    curve: Sequence[Mapping[str, float]], key: str
) -> list[tuple[float, float | None]]:
    return [(point["update"], point.get(key)) for point in curve]
