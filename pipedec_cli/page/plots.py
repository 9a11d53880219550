"""Plots of a page: SVG whose text is text and whose colours are variables of the page, in its light and its dark mode.

One decoder has the same colour and marker in every plot. Colour is never the only sign:
there are markers, hatches and dashes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from pipedec_cli.compare.advice import SAME_TEXT, TOLERANCE
from pipedec_cli.compare.comparison import MANY
from pipedec_cli.compare.expected_calls import WORTHWHILE
from pipedec_cli.metrics.scoring import LABELS
from pipedec_cli.view.console import fit, one_line
from pipedec_cli.view.results import time_parts

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

    from pipedec_cli.compare.comparison import Report
    from pipedec_cli.compare.entry import Entry


MARKERS: Final = "osD^vPX*"
_HATCHES: Final = ("", "///", "\\\\\\", "xxx", "--", "||", "++", "/")
#: Colours for Matplotlib, each of which becomes a variable of page.css.
_INK, _FAINT, _LINE, _GROUND, _GOOD, _ACCENT = (f"#00f0e{place}" for place in range(6))
_SERIES: Final = tuple(f"#00f0f{place}" for place in range(8))
_VARIABLES: Final = {
    _INK: "ink",
    _FAINT: "faint",
    _LINE: "line",
    _GROUND: "ground",
    _GOOD: "good",
    _ACCENT: "accent",
    **{colour: f"series-{place}" for place, colour in enumerate(_SERIES)},
}
_WIDTH, _HEIGHT = 4.6, 3.3  # inches of 72 units; a narrow screen is as wide
_TEXT: Final = 12  # units; a drawing is shown at its size or larger
_THEME: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pipedec",  # the same file each time
    "text.parse_math": False,  # a $ in a name is a $
    "font.size": _TEXT,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    **{f"axes.spines.{side}": False for side in ("top", "right", "left")},
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.6,
    "lines.linewidth": 2,
    "text.color": _INK,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "ytick.major.size": 0,
    "legend.frameon": False,
}
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
    """Points that belong together. A y of None is left out. A ``:`` series is one height, drawn across the plot.

    `place` chooses the colour and the marker.
    """

    name: str
    place: int
    points: Sequence[tuple[float, float | None]] = ()
    style: Literal["-", "--", ":"] = "-"

    @property
    def known(self) -> list[tuple[float, float]]:
        """The points with a y."""
        return [(x, y) for x, y in self.points if y is not None]

    @property
    def look(self) -> dict[str, Any]:
        """Colour, marker and name."""
        place = self.place % len(MARKERS)
        return {
            "color": _SERIES[place],
            "marker": MARKERS[place],
            "label": _label(self.name),
        }


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its bounds, None where they are not known."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def errors(self) -> list[list[float]]:
        """The distances to the bounds, as Matplotlib takes them."""
        low, high = (
            self.value if bound is None else bound for bound in (self.low, self.high)
        )
        return [[max(0.0, self.value - low)], [max(0.0, high - self.value)]]


def lines(
    title: str,
    note: str,
    x: str,
    y: str,
    series: Sequence[Series],
    *,
    from_zero: bool = True,
) -> Plot:
    """Lines through points."""

    def paint(axes: Axes) -> None:
        for one in series:
            xs, ys = zip(*one.known, strict=True)
            if one.style == ":":
                axes.axhline(ys[0], **one.look | {"marker": ""}, linestyle=":")
            else:
                axes.plot(
                    xs,
                    ys,
                    **one.look,
                    ls=one.style,
                    markevery=max(1, len(xs) // 10),
                    clip_on=False,
                )
        if from_zero:
            axes.set_ylim(bottom=0)
        else:
            bottom, top = axes.get_ylim()
            more = max(0.0, _LEAST_SPAN - (top - bottom)) / 2
            axes.set_ylim(bottom - more, top + more)
        axes.locator_params(axis="x", integer=True, min_n_ticks=1)

    return _drawn(title, note, (x, y), paint, [one.name for one in series])


def bars(
    title: str,
    note: str,
    x: str,
    names: Sequence[str],
    parts: Mapping[str, Sequence[float]],
) -> Plot:
    """A horizontal bar for each name, made of parts side by side, with its total at the end."""

    def paint(axes: Axes) -> None:
        left, places = [0.0] * len(names), range(len(names))
        for place, (label, values) in enumerate(parts.items()):
            look = {
                "color": _SERIES[1 + place % 7],
                "hatch": _HATCHES[place % 8],
                "edgecolor": _GROUND,
            }
            axes.barh(
                places,
                values,
                left=left,
                height=0.7,
                label=_label(label),
                linewidth=0,
                **look,  # type: ignore[arg-type]
            )
            left = [so_far + value for so_far, value in zip(left, values, strict=True)]
        for place, total in enumerate(left):
            written = f"{total:,.0f}" if total >= 100 else f"{total:.3g}"
            axes.annotate(
                written, (total, place), (3, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(places, [*map(_label, names)])
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.grid(axis="y", visible=False)

    shown = [*parts] if len(parts) > 1 else []
    return _drawn(
        title, note, (x, ""), paint, shown, height=max(_HEIGHT, 1.2 + 0.3 * len(names))
    )


def cloud(
    title: str,
    note: str,
    x: str,
    y: str,
    points: Mapping[str, tuple[Interval, Interval]],
    *,
    good: tuple[float, float],
    chosen: str | None,
) -> Plot:
    """A point with its intervals for each name. The `chosen` name has a ring; the area above and right of `good` is shaded."""

    def paint(axes: Axes) -> None:
        for place, (name, (across, up)) in enumerate(points.items()):
            look = Series(name, place).look
            axes.errorbar(
                across.value,
                up.value,
                up.errors,
                across.errors,
                **look,
                capsize=3,
                ls="none",
            )
            if name == chosen:
                ring: dict[str, Any] = {
                    "marker": "o",
                    "ms": 15,
                    "fillstyle": "none",
                    "color": _ACCENT,
                }
                axes.plot(
                    across.value, up.value, linestyle="none", label="advised", **ring
                )
        axes.set_xlim(left=0)
        axes.margins(0.12)
        right, top = (
            max(axes.get_xlim()[1], good[0] + 0.2),
            max(axes.get_ylim()[1], good[1] + 1),
        )
        axes.fill_between(
            [good[0], right], good[1], top, color=_GOOD, linewidth=0, zorder=0
        )
        axes.set(xlim=(0, right), ylim=(None, top))

    return _drawn(
        title, note, (x, y), paint, [*points, *(["advised"] if chosen else [])]
    )


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
    """What `paint` draws on axes with two `labels`, and a legend if there are any `names`."""
    from markupsafe import Markup
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    svg = StringIO()
    with rc_context(_THEME), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # characters that Matplotlib's font lacks; the browser has more fonts
        longest = max((len(_label(name)) for name in names), default=0)
        across = min(
            _NAMES_PER_LINE, max(1, int(_WIDTH * 72 / (_SIGN + _LETTER * longest)))
        )
        rows = -(-len(names) // across)
        figure = Figure(figsize=(_WIDTH, height + 0.25 * rows), layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        if rows:
            named = [*zip(*axes.get_legend_handles_labels(), strict=True)]
            # Matplotlib fills a legend column by column; people read it line by line.
            columns = (named[column::across] for column in range(across))
            handles, texts = zip(*chain.from_iterable(columns), strict=True)
            figure.legend(
                handles, texts, loc="outside upper left", ncols=across, fontsize=_TEXT
            )
        figure.savefig(
            svg,
            format="svg",
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    drawing = svg.getvalue()
    for pattern, replacement in _CLEANING:
        drawing = re.sub(pattern, replacement, drawing, flags=re.DOTALL)
    for colour, variable in _VARIABLES.items():
        drawing = drawing.replace(colour, f"var(--{variable})")
    opening = Markup('<svg class="plot" role="img" aria-label="{}" ').format(
        one_line(title)
    )
    return Plot(title, note, opening + Markup(drawing))  # noqa: S704  # Matplotlib escapes the texts that it draws


#: By model, the points of a training's losses and scores, as its training.json has
#: them.
Curves = Mapping[str, Sequence[Mapping[str, float]]]


def report_plots(report: Report) -> Iterator[Plot]:
    """Every plot of a report, in order."""
    for size in report.batch_sizes:
        yield _trade(report, size)
    for size in report.batch_sizes:
        timed = {
            entry.name: entry.timings[size]
            for entry in report.entries
            if size in entry.timings
        }
        before = (
            "reading the prompt"
            if report.conditions.prompted
            else "encoder and source keys"
        )
        known = time_parts(report)
        parts: dict[str, list[float]] = {
            name: [] for name in (*known, "not measured apart")
        }
        for timing in timed.values():
            for name, attribute in known.items():
                parts[name].append(
                    1000 * (timing.seconds_per_example(attribute) or 0.0)
                )
            whole = (
                timing.seconds_per_example()
                if timing.decoding_seconds is None
                else None
            )
            parts["not measured apart"].append(1000 * (whole or 0.0))
        yield bars(
            f"Time by part, batch size {size}",
            f"Medians of the repeats; all time outside {before} is decoding.",
            "milliseconds per example",
            list(timed),
            {name: values for name, values in parts.items() if any(values)},
        )
    if any(report.by_subsequences.values()):
        yield from _by_subsequences(report)
    if len({entry.delay for entry in report.pipelined if entry.delay}) > 1:
        yield from _by_delay(report)
    made = list[Series]()
    for entry in report.pipelined:
        if entry.quality.scored and (found := entry.quality.scored.reliability):
            points = [(one.confidence, one.right) for one in found.bins]
            made.append(Series(entry.name, len(made) + 1, points))
    if not _perfect(made):
        sure = Series("as sure as right", 0, [(0, 0.0), (100, 100.0)], "--")
        below = "Below the grey line they are right less often than sure."
        note = f"Values by tenths of their confidence. {below}"
        yield lines(
            "Confidence and truth",
            note,
            "mean confidence, %",
            "right values, %",
            [sure, *made],
        )


def _trade(report: Report, size: int) -> Plot:
    first, points = report.first, dict[str, tuple[Interval, Interval]]()
    scored = bool(first.quality.scored and not first.quality.scored.is_unscored)
    base, least = (0.0, -TOLERANCE) if scored else (100.0, SAME_TEXT)
    for entry in report.entries:
        gain, difference = (
            entry.gains.get(size),
            entry.quality.differences.get(report.metric),
        )
        if entry is not first and gain is None:
            continue
        agreement, quality = (
            entry.quality.agreement,
            Interval(base),
        )  # a peer writes the baseline's texts
        if scored and difference:
            quality = Interval(difference.value, difference.low, difference.high)
        elif not scored and agreement and agreement.rouge_l is not None:
            quality = Interval(agreement.rouge_l)
        speed = Interval(gain.speedup, gain.low, gain.high) if gain else Interval(1.0)
        points[entry.name] = (speed, quality)
    advice = report.advice
    chosen = advice.entry if advice.verdict == "take" else None
    label, bars_mean = (
        "ROUGE-L with the baseline's texts",
        "Across: the range of the repeats",
    )
    if scored:
        label = f"{LABELS[report.metric]} above baseline, points"
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


def _by_subsequences(report: Report) -> Iterator[Plot]:
    """The paper's Figures 4 and 5."""
    places = {entry.name: place for place, entry in enumerate(report.entries)}
    every = report.by_subsequences.items()
    tables = {name: rows for name, rows in every if any(row.examples for row in rows)}
    across = f"{report.part}s in the target ({MANY}: {MANY} or more)"

    def series(attribute: str) -> list[Series]:
        points = {
            name: [(row.subsequences, getattr(row, attribute)) for row in rows]
            for name, rows in tables.items()
        }
        return _known(Series(name, places[name], some) for name, some in points.items())

    baseline = Series(report.first.name, 0, [(0, 1.0)], ":")
    curve = report.paper.curve if report.paper else None
    paper = (
        [Series("the paper", 7, [(2, curve.at_2), (9, curve.at_9)], "--")]
        if curve
        else []
    )
    steps_note = (
        "Decoder steps of the baseline over those of each decoder, all targets."
    )
    for title, attribute, note, up, more in (
        (
            "Fewer steps",
            "fewer_steps",
            steps_note,
            "times fewer decoder steps",
            [baseline],
        ),
        (
            "Speedup",
            "speedup",
            "The timed targets, one at a time.",
            "times as fast",
            [baseline, *paper],
        ),
    ):
        if found := series(attribute):
            yield lines(
                f"{title} by number of {report.part}s",
                note,
                across,
                up,
                [*more, *found],
            )
    metric, rows = LABELS[report.metric], next(iter(tables.values()), ())
    usual = Series(
        report.first.name, 0, [(row.subsequences, row.baseline_quality) for row in rows]
    )
    found = [*_known([usual]), *series("quality")]
    if not _perfect(found):
        title = f"{metric} by number of {report.part}s"
        yield lines(
            title,
            "All targets.",
            across,
            f"{metric}, points of 100",
            found,
            from_zero=False,
        )


def _by_delay(report: Report) -> Iterator[Plot]:
    """The paper's Table 5: quality, speed and steps by Δt, a line for each rule of decoding."""
    size, metric = report.batch_sizes[0], LABELS[report.metric]

    def quality(entry: Entry) -> float | None:
        return (
            entry.quality.scored.scores.values.get(report.metric)
            if entry.quality.scored
            else None
        )

    def speed(entry: Entry) -> float | None:
        return (
            entry.timings[size].examples_per_second if size in entry.timings else None
        )

    def steps(entry: Entry) -> float | None:
        return entry.totals.steps_per_example if entry.totals else None

    rules: dict[str, list[Entry]] = {}
    for entry in report.pipelined:
        if entry.delay:
            rules.setdefault(entry.name.partition(", ")[2] or "pipelined", []).append(
                entry
            )
    plots: list[tuple[str, str, Callable[[Entry], float | None]]] = [
        (metric, f"{metric}, points of 100", quality),
        ("Speed", "examples per second", speed),
        ("Decoder steps", "decoder steps per example", steps),
    ]
    for name, label, value in plots:
        series = [Series(report.first.name, 0, [(0, value(report.first))], ":")]
        for place, (rule, entries) in enumerate(rules.items(), start=1):
            series.append(
                Series(
                    rule,
                    place,
                    [(float(entry.delay or 0), value(entry)) for entry in entries],
                )
            )
        found, is_score = _known(series), name == metric
        if found and not (is_score and _perfect(found)):
            note = (
                f"Dotted: the baseline. Batch size {size}."
                if name == "Speed"
                else "Dotted: the baseline."
            )
            across = "delay Δt between rows, in time-steps"
            yield lines(
                f"{name} by Δt", note, across, label, found, from_zero=not is_score
            )


def training_plots(curves: Curves) -> Iterator[Plot]:
    """Losses and dev scores of each model by its updates. The losses on train and on dev have a colour each."""

    def series(
        key: str, first: int, suffix: str = "", style: Literal["-", "--"] = "-"
    ) -> list[Series]:
        return _known(
            Series(
                f"{model}{suffix}",
                place,
                [(point["update"], point.get(key)) for point in curve],
                style,
            )
            for place, (model, curve) in enumerate(curves.items(), start=first)
        )

    own = int(len(curves) == 1)  # 0 is grey
    loss_note = "Per token, each model against its own targets: right answers, or the texts of its teacher."
    score_note = (
        "On some dev examples, against the same targets: ROUGE-L, or the F1 of fields."
    )
    if losses := [
        *series("loss", own, ", train"),
        *series("dev_loss", own + len(curves), ", dev", "--"),
    ]:
        yield lines(
            "Loss in training",
            loss_note,
            "updates of the weights",
            "loss per token",
            losses,
        )
    scores = series("dev_score", own)
    if not _perfect(scores):
        label = "dev score, points of 100"
        yield lines(
            "Dev score in training", score_note, "updates of the weights", label, scores
        )


def _known(series: Iterable[Series]) -> list[Series]:
    """The series that have any point."""
    return [one for one in series if one.known]


def _perfect(scores: Sequence[Series]) -> bool:
    """Whether there is no score below 100, so that a plot would say nothing."""
    return all(y >= 99.99 for one in scores for _, y in one.known)
