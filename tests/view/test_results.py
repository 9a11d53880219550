"""What a report looks like, on a terminal and as Markdown; no model runs here."""

import io
import re
from dataclasses import replace

import pytest
from msgspec import structs
from rich.cells import cell_len
from rich.console import Console

from pipedec_cli.compare.comparison import SizeRow
from pipedec_cli.compare.entry import TextAgreement
from pipedec_cli.compare.peers import Absent
from pipedec_cli.view.results import report_markdown, show_report
from pipedec_cli.view.results import report_sheets as sheets
from tests.jobs.report.reports import (
    ALL,
    conditions,
    entry,
    make_report,
    scored_as_objects,
)
from tests.view.test_tables import left_out
from tests.words import same_words


def changed(report, *entries, **more):
    """The report with other entries in the place of its first ones."""
    return replace(report, entries=entries, **more)


def without_memory():
    """Nobody has asked for the memory, nor for rows that may be empty."""
    report = make_report(delays=("together",))
    entries = []
    for one in report.entries:
        entries.append(replace(one, memory=None, row_budget_exhausted=None))
    return changed(report, *entries)


def of_objects():
    """Each key is a row, and four keys are written in a step."""
    entries = []
    report = make_report(delays=("together",), metric="fields_f1")
    for one in report.entries:
        totals = replace(one.totals, keys_per_step=4.0)
        told = replace(one, row_budget_exhausted=None, totals=totals)
        entries.append(scored_as_objects(told))
    return changed(report, *entries)


def with_repeats():
    """A text was stopped since it repeated itself."""
    report = make_report()
    first, one, *others = report.entries
    scored = one.quality.scored
    stopped = structs.replace(scored.items[0], stopped_on_repeat=True)
    scores = replace(scored.scores, items=(stopped, *scored.items[1:]))
    scored = replace(scored, scores=scores)
    one = replace(one, quality=replace(one.quality, scored=scored))
    return changed(report, first, one, *others)


def with_agreement():
    base, ours = make_report(delays=(1,)).entries
    quality = replace(ours.quality, agreement=TextAgreement(93.14, 12, 25))
    return make_report(entries=(base, replace(ours, quality=quality)))


def partly_timed():
    """The baseline was timed at two batch sizes, the others at one."""
    first = entry("sequential", "baseline", seconds=2.0, sizes=(1, 4))
    others = make_report(peers=["transformers"], delays=(1,)).entries[1:]
    return make_report(entries=(first, *others))


def lacking_sizes(**more):
    """No target has two subsequences."""
    rows = (
        SizeRow(2, 0, None, 0, None, None, None),
        SizeRow(3, 5, 2.0, 3, 1.5, 40.0, 41.0),
    )
    return make_report(delays=(1,), by_subsequences={"Δt = 1": rows}, **more)


REPORTS = {
    "all": lambda: make_report(peers=["transformers"], delays=(1,)),
    "two delays": make_report,
    "no memory": without_memory,
    "objects": of_objects,
    "repeats": with_repeats,
    "agreement": with_agreement,
    "partly timed": partly_timed,
    "absent": lambda: make_report(
        delays=(1,),
        conditions=conditions(
            absent=(Absent("ctranslate2", "not installed"),),
            rows={"float32": 1.3, "int8": 4.0},
        ),
    ),
    "even rows": lambda: make_report(conditions=conditions(rows={"float32": 1.3})),
    "paper": lambda: make_report(recipe="wikihowqa"),
    "paper, dev": lambda: make_report(recipe="wikihowqa", split="dev"),
    "paper, memory": lambda: make_report(recipe="kp20k"),
    "sizes": lacking_sizes,
    "sizes, paper": lambda: lacking_sizes(recipe="pubmed"),
    "no segments": lambda: make_report(delays=(1,), by_subsequences={"Δt = 1": ()}),
    "hostile": lambda: make_report(delays=(1,), baseline="[bold]a\x1b[31m:smile:|*\n"),
}


@pytest.mark.parametrize("name", REPORTS)
def test_every_figure_note_and_advice_stands_in_the_tables(name):
    """All that a report may hold and lack: `words.txt` shows each whole."""
    same_words(report_markdown(REPORTS[name]()))


def test_agreement_and_each_entry_are_in_json_too():
    values = with_agreement().values()["entries"][1]
    assert values["text_agreement"] == {"rouge_l": 93.14, "equal": 12, "of": 25}


def printed(report, width, *, terminal=True):
    file = io.StringIO()
    file.isatty = lambda: terminal
    plain = {"markup": False, "emoji": False, "highlight": False, "color_system": None}
    show_report(Console(file=file, width=width, **plain), report)
    return file.getvalue()


def test_the_advice_is_first_and_last_on_a_terminal():
    lines = printed(make_report(), 200).strip().splitlines()
    assert lines[:2] == lines[-2:] == ["Take it.", "Mind the gap."]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 250])
def test_a_table_fits_the_terminal_in_one_part_with_the_columns_named_that_have_no_room(
    width,
):
    report = make_report(**ALL)
    lines = printed(report, width).splitlines()
    # One word is longer.
    breakable = [line for line in lines if not line.startswith("rouge|")]
    assert max(map(cell_len, breakable)) <= width
    assert sum("─" in line for line in lines) == len(sheets(report))
    text = " ".join(" ".join(lines).split())
    for sheet in sheets(report):
        if others := left_out(sheet, width):
            assert f"no room for {'; '.join(others)}: a wider terminal" in text
    assert ("no room" in text) == (width < 250)


def test_what_matters_most_is_left_out_last():
    main, by_delay, by_number, _ = sheets(make_report(**ALL))
    assert left_out(main, 80) == [*main.columns[4:]]
    assert left_out(main, 55) == [*main.columns[2:]]
    behind = by_delay.columns.index("decoder steps") + 1
    assert left_out(by_delay, 80) == [*by_delay.columns[behind:]]
    assert not [name for name in left_out(by_number, 80) if "speedup, Δt" in name]


def test_off_a_terminal_nothing_is_left_out_or_broken_whatever_the_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    report = make_report(**ALL, baseline=("a folder " * 40).strip())
    text = printed(report, None, terminal=False)
    assert f"baseline: {report.baseline}\n" in text
    assert "no room" not in text
    heads = re.findall(r"^ *sequential +Δt.*ctranslate2", text, re.MULTILINE)
    assert heads


def test_text_of_the_users_is_shown_as_it_is():
    text = printed(make_report(delays=(1,), baseline="[bold]a\x1b[31m:smile:"), 200)
    assert "[bold]a␛[31m:smile:" in text
