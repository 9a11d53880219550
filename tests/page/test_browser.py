"""Pages in a real browser: they load whole, fit the screen, follow its mode, and run nothing that the data hold."""

import pytest

from pipedec_cli.compare.advice import Advice
from pipedec_cli.page.report import report_page
from tests.jobs.report.reports import ALL, CURVES, make_report

pytestmark = pytest.mark.browser
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e$\\frac$"


@pytest.fixture(scope="module")
def html():
    peers = ["transformers", "ctranslate2"]  # and all columns fit a wide screen
    report = make_report(
        **ALL | {"peers": peers}, baseline=f"{HOSTILE} {'word ' * 300}{'long' * 300}"
    )
    return report_page(report, {HOSTILE: CURVES["pipelined"]})


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_no_width_needs_scrolling_sideways_and_wide_tables_scroll_in_their_box(
    visit, html, width
):
    page = visit(html, width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    boxes = page.locator(".sheet .scroll")
    assert boxes.count() == 4
    wide = boxes.first.evaluate("box => box.scrollWidth > box.clientWidth")
    assert wide == (width < 1600)
    assert (
        page.locator("svg.plot").count() == page.locator("figcaption").count() - 4 > 5
    )
    for plot in page.locator("svg.plot").all():
        assert 250 < plot.bounding_box()["width"] <= width


def test_at_1000_pixels_no_wide_table_is_cut_and_at_400_no_navigation(visit):
    html = report_page(
        make_report(**ALL | {"peers": ["transformers", "ctranslate2"]}), CURVES
    )
    boxes = visit(html, 1000).locator(".sheet.wide .scroll")
    assert boxes.count() == 4
    for box in boxes.all():
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth"), (
            box.get_attribute("aria-label")
        )
    page = visit(html, 400)
    for link in page.locator("nav a").all():
        place = link.bounding_box()
        assert place["x"] >= 0 and place["x"] + place["width"] <= 400, link.inner_text()
    page.locator("nav a").last.click()
    bar = page.locator("nav").bounding_box()
    heading = page.locator("section h2").last.bounding_box()
    assert heading["y"] >= bar["y"] + bar["height"], "not below the links"


@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_text_in_a_plot_is_as_large_as_the_notes_and_no_card_has_an_empty_half(
    visit, width
):
    page = visit(report_page(make_report(**ALL), CURVES), width)
    for plot in page.locator("svg.plot").all():
        scale = plot.evaluate(
            "plot => plot.getBoundingClientRect().width / plot.viewBox.baseVal.width"
        )
        assert 12 * scale >= 11.9
    for card in page.locator(".plots .card").all():
        assert (
            card.locator("svg").bounding_box()["height"]
            > card.bounding_box()["height"] / 2
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_text_without_advice_is_amber_and_its_plots_open_with_a_click(visit, scheme):
    page = visit(
        report_page(make_report(advice=Advice("unfit", "No advice.")), CURVES),
        color_scheme=scheme,
    )
    ground, edge = (
        page.evaluate(f"getComputedStyle(document.querySelector('.advice')).{what}")
        for what in ("backgroundColor", "borderColor")
    )
    for colour in (ground, edge):
        red, _, last = map(
            int, colour.removeprefix("rgb(").removesuffix(")").split(",")
        )
        assert red > last, "amber, not blue"
    plot = page.locator("svg.plot").first
    assert plot.is_hidden()
    page.locator("summary").click()
    assert plot.is_visible()


def test_a_sheet_of_paper_has_room_for_all_of_it(visit, html):
    page = visit(html, 718)  # A4, between Chromium's margins
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == 718


def test_text_of_the_data_is_shown_and_nothing_in_it_runs(visit, html):
    page = visit(html)
    assert HOSTILE.replace("\u202e", "�") in page.locator("#advice").inner_text()
    assert page.locator("svg.plot text", has_text="alert(1)").count() == 3, (
        "a legend's entries"
    )
    assert page.locator("img").count() == 0


def test_plots_and_text_take_the_colours_of_light_and_of_dark(visit, html):
    seen = []
    for scheme in ("light", "dark"):
        page = visit(html, color_scheme=scheme)
        ground, ink = (
            page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
            for where, what in (("body", "backgroundColor"), ("svg.plot text", "fill"))
        )
        assert ink == page.evaluate("getComputedStyle(document.body).color")
        seen.append((ground, ink))
    (light, dark_ink), (dark, light_ink) = seen
    assert light == "rgb(255, 255, 255)"
    assert len({light, dark_ink, dark, light_ink}) == 4


def test_the_contents_are_reached_by_keyboard_alone(visit, html):
    page = visit(html)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Which to take"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**#plots")
