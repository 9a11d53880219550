"""Plots: their colours are the page's, their text is text, and no figure is too odd to be drawn."""

import math
import re
from dataclasses import replace

import pytest

from pipedec_cli.compare.advice import Advice
from pipedec_cli.compare.comparison import SizeRow
from pipedec_cli.compare.entry import Quality, TextAgreement
from pipedec_cli.metrics.scoring import Difference, Scored
from pipedec_cli.page.plots import (
    Series,
    bars,
    cloud,
    lines,
    report_plots,
    training_plots,
)
from pipedec_cli.page.report import report_page
from tests.compare.decoders import scored, timing
from tests.jobs.report.reports import ALL, make_report


def test_colours_are_variables_of_the_page_and_names_are_text():
    name = "<b> & $x_1$ 漢字 " + "long " * 40
    series = [Series(name, place, [(1, 2.0), (2, None)]) for place in range(9)]
    (plot,) = lines("A <title>", "", "x", "y", series)
    assert plot.svg.startswith(
        '<svg class="plot" role="img" aria-label="A &lt;title&gt;" viewBox='
    )
    assert all(f"var(--series-{place})" in plot.svg for place in range(8))
    for foreign in ("#00f0", "DejaVu", "<metadata", "<style", 'pt"', "<b>", "<!"):
        assert foreign not in plot.svg
    assert plot.svg.count("&lt;b&gt; &amp; $x_1$ 漢字 long") == 9
    assert "…</text>" in plot.svg, "what is longer is cut, and says so"


@pytest.mark.parametrize("count", [2, 4, 5, 7])
def test_a_legend_is_read_line_by_line_in_the_order_of_what_is_drawn(count):
    names = [f"n{place}" for place in range(count)]
    series = [Series(name, place, [(1, place)]) for place, name in enumerate(names)]
    (plot,) = lines("", "", "x", "y", series)
    places = re.findall(r'x="([\d.]+)" y="([\d.]+)"[^>]*>(n\d)<', plot.svg)
    read = sorted((float(y), float(x), name) for x, y, name in places)
    assert [name for *_, name in read] == names


def test_a_tenth_of_a_point_is_no_cliff():
    series = [Series("a", 0, [(1, 99.9), (2, 100.0)])]
    (flat,) = lines("", "", "x", "y", series, scores=True)
    assert ">99.0<" in flat.svg and ">100.5<" in flat.svg


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e308, -1e308, 0.0])
def test_no_figure_is_too_odd_to_be_drawn(odd):
    points = {"a": (Difference(1.0, odd, 2.0), Difference(odd, None, odd))}
    series = [Series("a", 0, [(1, odd), (2, 1.0)]), Series("b", 1, [(0, odd)], ":")]
    plots = [
        *lines("", "", "x", "y", series),
        bars("", "", "x", ["a", "b"], {"p": [abs(odd), 1.0]}),
        cloud("", "", "x", "y", points, good=(1.3, -0.5), chosen="a"),
    ]
    assert all(plot.svg.endswith("</svg> ") for plot in plots)


def test_a_report_is_drawn_for_each_batch_size_and_by_what_there_is():
    report = make_report(**ALL)
    wrong = Quality(scored([["a b"]]), report.entries[1].quality.differences)
    entries = tuple(
        replace(one, quality=wrong) if one.delay == 3 else one for one in report.entries
    )
    titles = [plot.title for plot in report_plots(replace(report, entries=entries))]
    by = ["Fewer steps", "Speedup", "ROUGE-L"]
    assert titles == [
        *("Speed against quality, batch size 1", "Time by part, batch size 1"),
        *(f"{what} by number of subsequences" for what in by),
        *(f"{what} by Δt" for what in ("ROUGE-L", "Speed", "Decoder steps")),
    ]
    titles = [
        plot.title
        for plot in report_plots(make_report(delays=(1,), by_subsequences={}))
    ]
    assert titles == [
        "Speed against quality, batch size 1",
        "Time by part, batch size 1",
    ]


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


def test_perfect_scores_need_no_plot():
    rows = (SizeRow(2, 12, 2.0, 3, 1.5, 100.0, 100.0),)
    plots = report_plots(make_report(by_subsequences={"Δt = 1": rows}))
    assert not [plot for plot in plots if plot.title.startswith("ROUGE-L by")]
    for score, more in ((99.0, ["Dev score in training"]), (100.0, [])):
        curve = [{"update": 1, "loss": 1.0, "dev_score": score}]
        titles = [plot.title for plot in training_plots({"a": curve})]
        assert titles == ["Loss in training", *more]


@pytest.mark.parametrize("right", [True, False])
def test_confidence_is_drawn_where_a_value_is_wrong(monkeypatch, right):
    monkeypatch.setattr(Scored, "judged", [(0.9, True), (0.4, right)])
    titles = [plot.title for plot in report_plots(make_report())]
    assert ("Confidence and truth" in titles) == (not right)


def test_the_losses_on_train_and_on_dev_have_two_colours_and_two_names():
    curve = [{"update": n, "loss": 2.0 / n, "dev_loss": 3.0 / n} for n in (1, 2)]
    for models, colours in (("a", {1, 2}), ("ab", {0, 1, 2, 3})):
        (loss,) = training_plots(dict.fromkeys(models, curve))
        assert {
            place for place in range(8) if f"--series-{place}" in loss.svg
        } == colours
        names = re.findall(r">([ab], \w+)<", loss.svg)
        assert sorted(names) == sorted(
            f"{model}, {part}" for model in models for part in ("train", "dev")
        )


@pytest.mark.parametrize(
    ("name", "lines_of_names"),
    [("n{}", 2), ("a longer name {}", 2), ("a name that takes the line, {}", 4)],
)
def test_text_is_large_enough_and_long_names_have_a_line_of_a_legend_each(
    name, lines_of_names
):
    series = [Series(name.format(place), place, [(1, place)]) for place in range(4)]
    (plot,) = lines("", "", "x", "y", series)
    assert set(re.findall(r"font-size: ([\d.]+)px", plot.svg)) == {"12"}
    begin = name[:4].format("")
    heights = re.findall(rf'y="([\d.]+)"[^>]*>{begin}[^<]*<', plot.svg)
    assert len(set(heights)) == lines_of_names


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_the_times_of_few_decoders_leave_no_empty_half_beside_other_plots(count):
    series = [Series("a", 0, [(1, 1.0)]), Series("b", 1, [(1, 2.0)])]
    (beside,) = lines("", "", "x", "y", series)
    parts = {"p": [1.0] * count, "q": [1.0] * count}
    times = bars("", "", "x", [f"n{place}" for place in range(count)], parts)

    def height(plot):
        return float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', plot.svg)[1])

    assert height(times) >= height(beside)


def test_the_most_important_figures_stand_large_below_the_advice():
    page = report_page(
        make_report(**ALL, advice=Advice("take", "Take it.", entry="Δt = 2")), {}
    )
    assert re.findall(r'<dd class="large">(.*?)</dd>', page) == [
        "3.7 ×",
        "20.0",
        "−1.2",
    ]
    assert "<dt>ROUGE-L over the baseline</dt>" in page, "a difference, no score"


@pytest.mark.parametrize(
    ("verdict", "missing"),
    [("take", False), ("no-gain", False), ("unfit", True), ("unclear", True)],
)
def test_a_report_without_advice_is_amber_and_folds_its_plots(verdict, missing):
    page = report_page(make_report(advice=Advice(verdict, "A text.")), {})
    assert ('class="card advice missing"' in page) == missing
    plots = page[page.index('<section id="plots"') :]
    assert (
        "<details>" in plots and "while there is no advice</summary>" in plots
    ) == missing
    assert 'class="plot"' in plots, "they are there"
