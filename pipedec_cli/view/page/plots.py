"""Plots of a page: SVG whose text is text and whose colours are the page's, in its light and in its dark mode.

Each is as wide as a narrow screen; a page sets them side by side where there is room. What belongs together has the same
place in `MARKERS`, the colours and the hatches, so that colour is nowhere the only sign.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pipedec_cli.view.console import one_line

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

MARKERS: Final = "osD^vPX*"
_HATCHES: Final = ("", "///", "\\\\\\", "xxx", "--", "||", "++", "/")
#: Stand-ins that Matplotlib takes for colours, and the variables of page.css that they become.
_INK, _FAINT, _LINE, _GROUND, _MARK, _ACCENT = (f"#00f0e{place}" for place in range(6))
_SERIES: Final = tuple(f"#00f0f{place}" for place in range(8))
_VARIABLES: Final = {
    **dict(zip((_INK, _FAINT, _LINE, _GROUND, _MARK, _ACCENT), ("ink", "faint", "line", "ground", "mark", "accent"), strict=True)),
    **{colour: f"series-{place}" for place, colour in enumerate(_SERIES)},
}  # fmt: skip
_THEME: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pipedec",  # the same file each time
    "text.parse_math": False,  # a $ in a name is a $
    "font.size": 10,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.8,
    "text.color": _INK,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "legend.frameon": False,
    "lines.markersize": 6,
}
#: What a drawing has that a page has otherwise or not at all: a frame of its own, fonts, places beyond a hundredth.
_CLEANING: Final = (
    (r"^.*?<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", r"\1>"),
    (r"<metadata>.*?</metadata>|<style .*?</style>|<!--.*?-->|(?<=<g) id=\"[^\"]*\"", ""),
    (r"font: ([\d.]+px)[^;\"]*", r"font-size: \1"),
    (r"; font-family: [^;\"]*", ""),
    (r"(\.\d\d)\d+", r"\1"),
    (r"\s+", " "),
)
_WIDTH, _HEIGHT = 4.6, 3.3  # inches, of 72 units of the drawing
_LEAST_SPAN: Final = 2.0  # of an axis that does not begin at 0, so that a tenth of a point is no cliff
_ABREAST: Final = 3  # names in a line of a legend


class Plot(NamedTuple):
    """A drawing with its title, and what must be told of it."""

    title: str
    note: str
    svg: Markup


class Series(NamedTuple):
    """Points that belong together, in the look of a place; a y of None is left out. Of a ``:`` one there is the height alone."""

    name: str
    place: int
    points: Sequence[tuple[float, float | None]]
    style: Literal["-", "--", ":"] = "-"

    @property
    def look(self) -> dict[str, Any]:
        """Colour, marker and dashes."""
        return {
            "color": _SERIES[self.place % 8],
            "marker": MARKERS[self.place % 8],
            "label": _label(self.name),
        }


class Interval(NamedTuple):
    """A figure and between what it may lie, None where nothing is known of that."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def sides(self) -> list[list[float]]:
        """How far it reaches to both sides, as Matplotlib has it."""
        low, high = (self.value if end is None else end for end in (self.low, self.high))
        return [[max(0.0, self.value - low)], [max(0.0, high - self.value)]]


def lines(title: str, note: str, x: str, y: str, series: Sequence[Series], *, from_zero: bool = True) -> Plot:
    """Lines through points."""

    def paint(axes: Axes) -> None:
        for one in series:
            xs, ys = zip(*((at, value) for at, value in one.points if value is not None), strict=True)
            if one.style == ":":
                axes.axhline(ys[0], **one.look | {"marker": ""}, linestyle=":")
            else:
                axes.plot(xs, ys, **one.look, linestyle=one.style, markevery=max(1, len(xs) // 10))
        axes.set(xlabel=x, ylabel=y)
        if from_zero:
            axes.set_ylim(bottom=0)
        else:
            bottom, top = axes.get_ylim()
            more = max(0.0, _LEAST_SPAN - (top - bottom)) / 2
            axes.set_ylim(bottom - more, top + more)
        axes.locator_params(axis="x", integer=True)

    return Plot(title, note, _drawn(title, paint, len(series)))


def bars(title: str, note: str, x: str, names: Sequence[str], parts: Mapping[str, Sequence[float]]) -> Plot:
    """A bar to the right for each name, from the top, of parts that stand in a row."""

    def paint(axes: Axes) -> None:
        left, places = [0.0] * len(names), range(len(names))
        for place, (label, values) in enumerate(parts.items()):
            look: dict[str, Any] = {
                "color": _SERIES[1 + place % 7],
                "hatch": _HATCHES[place % 8],
                "edgecolor": _GROUND,
            }
            axes.barh(places, values, left=left, height=0.7, label=_label(label), linewidth=0, **look)
            left = [so_far + value for so_far, value in zip(left, values, strict=True)]
        for place, total in enumerate(left):
            told = f"{total:,.0f}" if total >= 100 else f"{total:.3g}"
            axes.annotate(told, (total, place), (3, 0), textcoords="offset points", va="center")
        axes.set_yticks(places, [*map(_label, names)])
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(x)

    return Plot(
        title, note, _drawn(title, paint, len(parts) if len(parts) > 1 else 0, 1.2 + 0.3 * len(names))
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
    """A point with its intervals for each name, one of them `chosen`; up and to the right of `good` is shaded."""

    def paint(axes: Axes) -> None:
        for place, (name, (across, up)) in enumerate(points.items()):
            look = Series(name, place, ()).look
            axes.errorbar(across.value, up.value, up.sides, across.sides, **look, capsize=3, linestyle="none")
            if name == chosen:
                ring: dict[str, Any] = {
                    "marker": "o",
                    "markersize": 15,
                    "fillstyle": "none",
                    "color": _ACCENT,
                }
                axes.plot(across.value, up.value, linestyle="none", label="advised", **ring)
        axes.set_xlim(left=0)
        axes.margins(0.12)
        right, top = max(axes.get_xlim()[1], good[0] + 0.2), max(axes.get_ylim()[1], good[1] + 1)
        axes.fill_between([good[0], right], good[1], top, color=_MARK, linewidth=0, zorder=0)
        axes.set(xlim=(0, right), ylim=(None, top))
        axes.set(xlabel=x, ylabel=y)

    return Plot(title, note, _drawn(title, paint, len(points) + (chosen is not None)))


def _label(text: str, most: int = 40) -> str:
    """A name in a drawing, on a line and not too long."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _drawn(title: str, paint: Callable[[Axes], None], legend: int, height: float = _HEIGHT) -> Markup:
    """What is painted on axes as an element of a page, with a legend of so many lines if there are several."""
    from markupsafe import Markup
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    written = StringIO()
    with rc_context(_THEME), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of signs that Matplotlib's own font lacks; the browser has others
        rows = -(-legend // _ABREAST)
        figure = Figure(figsize=(_WIDTH, height + 0.2 * rows), layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        if rows:
            named = [*zip(*axes.get_legend_handles_labels(), strict=True)]
            # Matplotlib fills its columns from the top; people read lines.
            across = zip(*(one for column in range(_ABREAST) for one in named[column::_ABREAST]), strict=True)
            look: dict[str, Any] = {"fontsize": 9, "handlelength": 1.8, "columnspacing": 1.2}
            figure.legend(*across, loc="outside upper left", ncols=_ABREAST, **look)
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", metadata=metadata)
    drawing = written.getvalue()
    for what, instead in _CLEANING:
        drawing = re.sub(what, instead, drawing, flags=re.DOTALL)
    for colour, variable in _VARIABLES.items():
        drawing = drawing.replace(colour, f"var(--{variable})")
    opening = Markup('<svg class="plot" role="img" aria-label="{}" ').format(one_line(title))
    return opening + Markup(drawing)  # noqa: S704  # Matplotlib escapes the texts that it draws
