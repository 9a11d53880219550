"""The page of a report: the advice and every cell of every table, as text."""

import re

import pytest
from markupsafe import Markup

from pipedec_cli.page.report import report_page
from pipedec_cli.view.console import visible
from pipedec_cli.view.results import report_sheets
from tests.jobs.report.reports import ALL, CURVES, make_report


def test_a_page_has_the_advice_and_every_cell_of_every_table_as_text():
    report = make_report(**ALL, baseline="<script>alert(1)</script>\u202e`x`")
    raw = report_page(report, CURVES)
    assert "<script>alert" not in raw and "\u202e" not in raw
    assert "<code>x</code>" in raw and "`x`" not in raw
    page = Markup(re.sub("</?code>", "`", raw)).unescape()
    for sheet in report_sheets(report):
        told = [sheet.title, sheet.corner, *sheet.columns, *sheet.notes]
        for section in sheet.sections:
            for row in section.rows:
                told += row
        for cell in told:
            assert f">{visible(cell)}<" in page
    order = ("Take it.", "Mind the gap.", "Decoders side by side")
    assert [*map(page.index, order)] == sorted(map(page.index, order))


@pytest.mark.slow
def test_a_page_is_the_same_each_time_it_is_made():
    first, second = (report_page(make_report(**ALL), CURVES) for _ in range(2))
    assert first == second
