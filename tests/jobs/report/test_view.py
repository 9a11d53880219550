"""What a report looks like, on a terminal and as Markdown; no model runs here."""

import io
import re
from dataclasses import replace

import pytest
from markupsafe import Markup
from msgspec import structs
from rich.cells import cell_len
from rich.console import Console

from pipedec_cli.compare.comparison import SizeRow
from pipedec_cli.compare.entry import TextAgreement
from pipedec_cli.compare.peers import Absent
from pipedec_cli.page.report import report_page
from pipedec_cli.view.console import visible
from pipedec_cli.view.results import report_markdown, show_report
from pipedec_cli.view.results import report_sheets as sheets
from pipedec_cli.view.tables import (
    Section,
    Sheet,
    escaped,
    figure,
    fitting_table,
    show_sheet,
    times,
)
from tests.jobs.report.reports import (
    ALL,
    CURVES,
    conditions,
    entry,
    make_report,
    scored_as_objects,
)


def cells(report, title, name):
    """The cells of the rows of that name, in the sheet of that title."""
    (sheet,) = [sheet for sheet in sheets(report) if sheet.title.startswith(title)]
    return [
        row[1:] for section in sheet.sections for row in section.rows if row[0] == name
    ]


def printed(report, width, *, terminal=True):
    file = io.StringIO()
    file.isatty = lambda: terminal
    console = Console(
        file=file,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        color_system=None,
    )
    show_report(console, report)
    return file.getvalue()


def left_out(sheet, width):
    """The headings of the columns that a terminal of that width has no room for."""
    file = io.StringIO()
    file.isatty = lambda: True
    table, left_out = fitting_table(Console(file=file, width=width), sheet)
    assert len(table.columns) + len(left_out) == 1 + len(sheet.columns)
    return left_out


def side(report, name):
    return cells(report, "Decoders side by side", name)[0]


def test_baseline_delay_and_peer_stand_side_by_side():
    report = make_report(peers=["transformers"], delays=(1,))
    shown = {
        "speedup": ("1.0 ×", "3.7 ×", "0.51 ×"),
        "  its range": ("–", "3.7 to 3.7", "0.5 to 0.5"),
        "calls per example": ("10.0", "2.0", "10.0"),
        "ms per call": ("40.0", "50.0", "80.0"),
        "fewer calls (schedule)": ("–", "5.0 ×", "1.0 ×"),
        "cheaper calls (kernels)": ("–", "0.80 ×", "0.50 ×"),
        "decoding, both together": ("–", "4.0 ×", "0.50 ×"),
        "steps per example": ("100.0", "20.0", "–"),
        "tokens per step": ("0.4", "2.0", "–"),
        "ROUGE-L": ("100.0", "100.0", "–"),
        "peak, MB": ("250", "250", "250"),
        "  of it before decoding": ("100", "100", "100"),
        "duplicated subsequences": ("0.0%", "0.0%", "–"),
        "subsequences per text": ("1.0 of 2.0", "1.0 of 2.0", "–"),
        "dropped subsequences": ("50.0%", "50.0%", "–"),
        "alike predictions": ("0.0%", "0.0%", "–"),
        "empty rows hit sub_max": ("–", "25.0%", "–"),
        "same tokens": ("–", "–", "9 of 10"),
    }
    assert {row: side(report, row) for row in shown} == shown
    headings = {each.heading for each in sheets(report)[0].sections}
    assert "decoder calls of the 10 timed, batch size 1" in headings


def test_what_nobody_was_asked_for_or_can_have_has_no_row():
    report = make_report(delays=("together",))
    entries = [
        replace(one, memory=None, row_budget_exhausted=None) for one in report.entries
    ]
    report = replace(report, entries=tuple(entries))
    sheet = sheets(report)[0]
    shown = {label for section in sheet.sections for label, *_ in section.rows}
    assert "dropped subsequences" in shown
    assert not shown & {"empty rows hit sub_max", "stopped on repeat", "peak, MB"}
    assert not any("sub_max" in note for note in (*sheet.notes, *report.notes))


def test_texts_that_repeat_themselves_have_a_row():
    report = make_report()
    scored = report.pipelined[0].quality.scored
    first, *others = scored.items
    items = (structs.replace(first, stopped_on_repeat=True), *others)
    scored = replace(scored, scores=replace(scored.scores, items=items))
    first, one, *others = report.entries
    one = replace(one, quality=replace(one.quality, scored=scored))
    report = replace(report, entries=(first, one, *others))
    assert side(report, "stopped on repeat") == ("0.0%", "100.0%", "0.0%")
    assert any(
        note.startswith("stopped on repeat: texts that end")
        for note in sheets(report)[0].notes
    )


def test_where_objects_are_compared_their_parts_are_called_fields():
    report = make_report(delays=("together",), metric="fields_f1")
    entries = [
        replace(scored_as_objects(one), row_budget_exhausted=None)
        for one in report.entries
    ]
    entries = [
        replace(one, totals=replace(one.totals, keys_per_step=4.0)) for one in entries
    ]
    report = replace(report, entries=tuple(entries))
    shown = printed(report, 200)
    assert (
        "fields per text" in shown
        and "dropped fields" in shown
        and "target fields" in shown
    )
    assert set(side(report, "keys per step")) == {"4.0"}
    assert not any(word in shown for word in ("subsequence", "tokens per", "paper"))


def test_the_advice_is_first_and_last_on_a_terminal():
    lines = printed(make_report(), 200).strip().splitlines()
    assert lines[:2] == lines[-2:] == ["Take it.", "Mind the gap."]


def test_what_eight_rows_cost_is_said_and_where_they_cost_much():
    notes = "\n".join(conditions(rows={"float32": 1.3, "int8": 4.0}).remarks)
    said = "times as long as 1 row take 8 rows: 1.3 in float32, 4.0 in int8"
    assert notes == f"{said}: on this machine a pipelined decoder gains less in int8"
    assert conditions(rows={"float32": 1.3}).remarks == [
        "times as long as 1 row take 8 rows: 1.3 in float32"
    ]


def test_differences_have_their_interval_the_absent_their_reason_and_the_untimed_no_figures():
    report = make_report(
        delays=(1,),
        conditions=conditions(absent=(Absent("ctranslate2", "not installed"),)),
    )
    assert ("–", "-1.2") in cells(report, "Decoders", "  over the baseline")
    assert ("–", "-2.0 to +0.3") in cells(report, "Decoders", "  95 % interval")
    notes = sheets(report)[0].notes
    assert "baseline: the sequential model (models/sequential)" in notes
    assert "ctranslate2 is absent: not installed" in notes
    first = entry("sequential", "baseline", seconds=2.0, sizes=(1, 4))
    report = make_report(
        entries=(first, *make_report(peers=["transformers"], delays=(1,)).entries[1:])
    )
    assert cells(report, "Decoders", "examples/s")[1] == ("5.00", "–", "–")


def test_agreement_with_the_baseline_is_a_section_of_its_own_where_there_is_one():
    base, *ours = make_report(delays=(1,)).entries
    assert not cells(make_report(), "Decoders", "equal texts")
    quality = replace(ours[0].quality, agreement=TextAgreement(93.14, 12, 25))
    report = make_report(entries=(base, replace(ours[0], quality=quality)))
    (section,) = [
        each
        for each in sheets(report)[0].sections
        if each.heading.startswith("agreement")
    ]
    assert section.heading == "agreement with the baseline, 1 examples"
    assert section.rows == (("ROUGE-L", "–", "93.1"), ("equal texts", "–", "12 of 25"))
    assert report.values()["entries"][1]["text_agreement"] == {
        "rouge_l": 93.14,
        "equal": 12,
        "of": 25,
    }


def test_papers_figures_stand_beside_what_was_measured():
    report = make_report(recipe="wikihowqa")
    assert sheets(report)[0].columns[-2:] == ("paper: sequential", "paper: Δt = 1")
    assert side(report, "ROUGE-L")[-2:] == ("34.9", "34.6")
    assert side(report, "speedup")[-2:] == ("1.0 ×", "5.8 ×")
    assert side(report, "peak, MB")[-2:] == ("not available", "not available")
    assert side(make_report(recipe="kp20k"), "peak, MB")[-2:] == ("1,714", "1,634")
    assert cells(report, "By delay", "Δt = 2")[0][-4:] == (
        "35.9",
        "13.9",
        "34.8",
        "4.4",
    )
    assert cells(report, "By number", "2")[0][-1] == "1.8 ×"
    notes = "\n".join(sheets(report)[2].notes)
    assert "paper, Figure 4: 1.8 times at 2 subsequences, 5.1 times at 9" in notes
    assert "paper, Figure 5: Rouge-L 0.1 to 0.3" in notes
    assert "timing_examples=all" in notes
    # on the dev set the paper's scores on its own; Table 5 is of test sets
    report = make_report(recipe="wikihowqa", split="dev")
    assert side(report, "ROUGE-L")[-2:] == ("38.3", "38.0")
    assert cells(report, "By delay", "Δt = 2")[0][-1] == "20.0"


def test_breakdown_leaves_open_what_is_not_known():
    report = make_report()
    (two,), (ten,) = (cells(report, "By number", name) for name in ("2", "10 or more"))
    assert two[:3] == ("12", "3", "41.0")
    assert ten == ("5", "0", "–", "4.0 ×", "–", "–", "4.0 ×", "–", "–")
    # a number that no target has stands beside the paper's figures alone
    rows = {
        "Δt = 1": (
            SizeRow(2, 0, None, 0, None, None, None),
            SizeRow(3, 5, 2.0, 3, 1.5, 40.0, 41.0),
        )
    }
    assert cells(make_report(delays=(1,), by_subsequences=rows), "By number", "2") == []
    (two,) = cells(
        make_report(delays=(1,), by_subsequences=rows, recipe="pubmed"),
        "By number",
        "2",
    )
    assert two == ("0", "0", "–", "–", "–", "–", "4.3 ×")
    # neither a breakdown without segmented targets, nor Table 5 for one delay
    report = make_report(delays=(1,), by_subsequences={"Δt = 1": ()})
    assert [sheet.title for sheet in sheets(report)] == [
        "Decoders side by side",
        "What was compared",
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 250])
def test_a_table_fits_the_terminal_in_one_part_with_the_columns_named_that_have_no_room(
    width,
):
    report = make_report(**ALL)
    lines = printed(report, width).splitlines()
    assert (
        max(cell_len(line) for line in lines if not line.startswith("rouge|")) <= width
    )  # one long word
    assert sum("─" in line for line in lines) == len(sheets(report)), (
        "no table is cut into parts"
    )
    text = " ".join(" ".join(lines).split())
    for sheet in sheets(report):
        if others := left_out(sheet, width):
            assert f"no room for {'; '.join(others)}: a wider terminal" in text
    assert ("no room" in text) == (width < 250)


def test_what_matters_most_is_left_out_last():
    main, by_delay, by_number, _ = sheets(make_report(**ALL))
    assert left_out(main, 80) == [*main.columns[4:]]
    assert left_out(main, 55) == [*main.columns[2:]]
    assert left_out(by_delay, 80) == [
        *by_delay.columns[by_delay.columns.index("decoder steps") + 1 :]
    ]
    assert not [name for name in left_out(by_number, 80) if "speedup, Δt" in name]


def test_off_a_terminal_nothing_is_left_out_or_broken_whatever_the_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    report = make_report(**ALL, baseline=("a folder " * 40).strip())
    text = printed(report, None, terminal=False)
    assert f"baseline: {report.baseline}\n" in text
    assert "no room" not in text
    (heads, *_) = [
        line for line in text.splitlines() if line.split()[:2] == ["sequential", "Δt"]
    ]
    assert "ctranslate2" in heads


def test_headings_are_broken_between_words_and_figures_stand_to_the_right():
    rows = (("one", "1.0", "word"), ("two", "10.0", "longer"))
    sheet = Sheet(
        "", ("a heading", "text"), (Section("a section whose heading is long", rows),)
    )
    file = io.StringIO()
    show_sheet(Console(file=file, width=10), sheet)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        " " * 34 + "a",
        " " * 28 + "heading  text",
        "─" * 43,
        "a section whose heading is",
        "long",
        "  one" + " " * 27 + "1.0  word",
        "  two" + " " * 26 + "10.0  longer",
        "",
    ]


def test_only_a_last_column_of_text_is_broken_to_fit():
    sheet = Sheet(
        "",
        ("settings",),
        (Section("", (("a name", "a word " * 20), ("b", "\x1b[0m[bold]"))),),
    )
    file = io.StringIO()
    file.isatty = lambda: True
    show_sheet(Console(file=file, width=50, color_system=None), sheet)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert max(map(cell_len, lines)) <= 50 and len(lines) > 5
    assert lines[2].startswith("a name  a word a word") and lines[3].startswith(
        "        "
    )
    assert "b       ␛[0m[bold]" in lines


def test_text_of_the_users_is_shown_as_it_is():
    text = printed(make_report(delays=(1,), baseline="[bold]a\x1b[31m:smile:"), 200)
    assert "[bold]a␛[31m:smile:" in text


def test_markdown_holds_the_advice_first_and_every_table_and_signs_in_text_stay_text():
    text = report_markdown(make_report())
    assert text.startswith("# Decoders compared\n\n**Take it.**\n\n- Mind the gap.\n")
    for title in (
        "## Decoders side by side",
        "## By delay",
        "## By number",
        "## What was compared",
    ):
        assert title in text
    main = text.split("## By delay")[0].splitlines()
    assert len({line.count(" | ") for line in main if line.startswith("| ")}) == 1
    assert escaped("a|b*c\n<d>") == r"a\|b\*c \<d\>"


def test_numbers_have_three_figures():
    assert (figure(1234.5), figure(12.34), figure(0.1234)) == ("1234", "12.3", "0.12")
    assert (times(0.1234), times(0.999), times(12.34), times(None)) == (
        "0.12 ×",
        "1.0 ×",
        "12.3 ×",
        "–",
    )


def test_a_page_has_the_advice_and_every_cell_of_every_table_as_text():
    report = make_report(**ALL, baseline="<script>alert(1)</script>\u202e`x`")
    raw = report_page(report, CURVES)
    assert "<script>alert" not in raw and "\u202e" not in raw
    assert "<code>x</code>" in raw and "`x`" not in raw
    page = Markup(re.sub("</?code>", "`", raw)).unescape()
    for sheet in sheets(report):
        told = [sheet.title, sheet.corner, *sheet.columns, *sheet.notes]
        told += [
            cell for section in sheet.sections for row in section.rows for cell in row
        ]
        for cell in told:
            assert f">{visible(cell)}<" in page
    assert (
        page.index("Take it.")
        < page.index("Mind the gap.")
        < page.index("Decoders side by side")
    )


@pytest.mark.slow
def test_a_page_is_the_same_each_time_it_is_made():
    assert report_page(make_report(**ALL), CURVES) == report_page(
        make_report(**ALL), CURVES
    )
