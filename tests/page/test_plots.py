"""Plots: their colours are the page's, their text is text, and no figure is too odd to be drawn."""

import math
import re
from dataclasses import replace

import pytest

from pipedec_cli.evaluate.advice import Advice
from pipedec_cli.evaluate.entry import Quality, TextAgreement
from pipedec_cli.page.plots import Interval, Series, bars, cloud, lines, report_plots, training_plots
from pipedec_cli.page.report import report_page
from tests.evaluate.decoders import timing
from tests.jobs.report.reports import ALL, CURVES, make_report

ODD = [math.nan, math.inf, 1e308, -1e308, 0.0]


def test_colours_are_variables_of_the_page_and_names_are_text():
    name = "<b> & $x_1$ 漢字 " + "long " * 40
    plot = lines(
        "A <title>", "", "x", "y", [Series(name, place, [(1, 2.0), (2, None)]) for place in range(9)]
    )
    assert plot.svg.startswith('<svg class="plot" role="img" aria-label="A &lt;title&gt;" viewBox=')
    assert all(f"var(--series-{place})" in plot.svg for place in range(8))
    for foreign in ("#00f0", "DejaVu", "<metadata", "<style", 'pt"', "<b>", "<!"):
        assert foreign not in plot.svg
    assert plot.svg.count("&lt;b&gt; &amp; $x_1$ 漢字 long") == 9
    assert "…</text>" in plot.svg, "what is longer is cut, and says so"


def drawn_names(plot):
    """The names of a legend with their places, (down, across)."""
    found = re.findall(r'x="([\d.]+)" y="([\d.]+)"[^>]*>(n\d)<', plot.svg)
    return [name for _, _, name in sorted((float(y), float(x), name) for x, y, name in found)]


@pytest.mark.parametrize("count", [2, 4, 5, 7])
def test_a_legend_is_read_line_by_line_in_the_order_of_what_is_drawn(count):
    names = [f"n{place}" for place in range(count)]
    plot = lines("", "", "x", "y", [Series(name, place, [(1, place)]) for place, name in enumerate(names)])
    assert drawn_names(plot) == names


def test_a_tenth_of_a_point_is_no_cliff():
    flat = lines("", "", "x", "y", [Series("a", 0, [(1, 99.9), (2, 100.0)])], from_zero=False)
    assert ">99.00<" in flat.svg and ">100.75<" in flat.svg


@pytest.mark.parametrize("odd", ODD)
def test_no_figure_is_too_odd_to_be_drawn(odd):
    across, up = Interval(1.0, odd, 2.0), Interval(odd, None, odd)
    made = [
        lines("", "", "x", "y", [Series("a", 0, [(1, odd), (2, 1.0)]), Series("b", 1, [(0, odd)], ":")]),
        bars("", "", "x", ["a", "b"], {"p": [abs(odd), 1.0]}),
        cloud("", "", "x", "y", {"a": (across, up)}, good=(1.3, -0.5), chosen="a"),
    ]
    assert all(plot.svg.endswith("</svg> ") for plot in made)


def test_a_report_is_drawn_for_each_batch_size_and_by_what_there_is():
    titles = [plot.title for plot in report_plots(make_report(**ALL))]
    by = ["Fewer steps", "Speedup", "ROUGE-L"]
    assert titles == [
        *("Speed against quality, batch size 1", "Time by part, batch size 1"),
        *(f"{what} by number of subsequences" for what in by),
        *(f"{what} by Δt" for what in ("ROUGE-L", "Speed", "Decoder steps")),
    ]
    titles = [plot.title for plot in report_plots(make_report(delays=(1,), by_subsequences={}))]
    assert titles == ["Speed against quality, batch size 1", "Time by part, batch size 1"]


@pytest.mark.parametrize("verdict", ["take", "trade"])
def test_a_decoder_is_ringed_as_advised_where_it_is(verdict):
    trade, *_ = report_plots(make_report(advice=Advice(verdict, "", entry="Δt = 2")))
    assert ("advised" in trade.svg) == (verdict == "take")


def test_without_right_answers_agreement_stands_for_quality_and_untold_parts_are_one():
    report = make_report(delays=(1,), by_subsequences={})
    first, one = report.entries
    timings = {1: timing([4.0], 100, None, examples=10)}
    first = replace(first, quality=Quality(), timings=timings)
    one = replace(one, quality=Quality(agreement=TextAgreement(93.14, 12, 25)))
    trade, time = report_plots(replace(report, entries=(first, one)))
    assert "ROUGE-L with the baseline" in trade.svg and "down to 90" in trade.note
    assert "not measured apart" in time.svg and ">400<" in time.svg


def test_the_curve_of_one_model_has_a_colour_and_beside_others_the_first_is_grey_as_everywhere():
    grey = [
        ["--series-0" in plot.svg for plot in training_plots(dict.fromkeys(names, CURVES["pipelined"]))]
        for names in ("a", "ab")
    ]
    assert grey == [[False, False], [True, True]]


def test_the_most_important_figures_stand_large_below_the_advice():
    page = report_page(make_report(**ALL, advice=Advice("take", "Take it.", entry="Δt = 2")), {})
    assert re.findall(r'<dd class="large">(.*?)</dd>', page) == ["3.7 ×", "20.0", "−1.2"]
    assert "<dt>ROUGE-L over the baseline</dt>" in page, "a difference, no score"
