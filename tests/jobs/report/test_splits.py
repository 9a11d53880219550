"""Splits of a report of which only some have right answers: each is shown by its own scores."""

import pytest

from tests.checkpoints import TOLD
from tests.jobs.report.running import QUICK, report_of
from tests.running import run, write_lines

LACKING = "the data have no right answers"


def write_split(place, name, *, answers):
    rows = (
        {"source": source, **({"keyphrases": list(parts)} if answers else {})} for source, parts in TOLD * 2
    )
    write_lines(place / f"data/{name}.jsonl", *rows)


def reported(place):
    """The lines of report.md on keyphrases of both splits."""
    run("report", "--split", "dev,test", "--set", "protocol=chan2019", "--delays", "1,2", *QUICK)
    return (place / "report/report.md").read_text(encoding="utf-8").splitlines()


def quality(lines, split):
    """The last row of the quality on a split but for the difference: the F1 of absent phrases, which have some."""
    heading = f"| **quality, {split}, 12 examples** |  |  |  |"
    return lines[lines.index(heading) + 10]


def test_a_split_without_right_answers_has_no_figures_beside_the_last(workspace):
    write_split(workspace, "dev", answers=False)
    write_split(workspace, "test", answers=True)
    lines = reported(workspace)
    assert quality(lines, "dev") == "| absent F1@M | – | – | – |"
    assert quality(lines, "test").startswith("| absent F1@M | 0.0 | 2")
    content, decoders = report_of(workspace)
    assert content["metric"] == "present_f1@M"
    assert decoders["Δt = 1"]["other_splits"]["dev"]["quality"]["task"] == "keyphrases"
    assert content["notes"] == [content["notes"][0], f"{LACKING} on dev, so nothing is scored there"]
    assert (workspace / "report/report.html").exists()


def test_the_scores_of_an_earlier_split_are_shown_where_the_last_has_no_right_answers(workspace):
    write_split(workspace, "dev", answers=True)
    write_split(workspace, "test", answers=False)
    lines = reported(workspace)
    assert quality(lines, "dev").startswith("| absent F1@M | 0.0 | 2")
    assert quality(lines, "test") == "| absent F1@M | – | – | – |"
    assert any(line.startswith("- signature: chan2019") for line in lines)
    content, _ = report_of(workspace)
    assert content["metric"] == "present_f1@M"
    there = "so nothing is scored there, and there are no rows by number of subsequences"
    assert content["notes"][-1] == f"{LACKING} on test, {there}"


def test_nothing_is_written_before_all_of_a_report_is_made(workspace, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("pipedec_cli.page.report.report_page", fail)
    with pytest.raises(ZeroDivisionError):
        run("report", "--delays", "1", *QUICK)
    assert not (workspace / "report").exists()
