"""A report as Markdown, to be kept beside report.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipedec_cli.evaluate.comparison import Report
from pipedec_cli.terminal.console import visible
from pipedec_cli.terminal.views.report_sheet import Sheet
from pipedec_cli.terminal.views.report_tables import sheets


def markdown(report: Report) -> str:
    """The whole report: the advice first, then every table with its notes."""
    lines = ["# Decoders compared", "", f"**{plain(report.advice.text)}**", ""]
    lines += [f"- {plain(caution)}" for caution in report.advice.cautions]
    for sheet in sheets(report):
        lines += ["", f"## {plain(sheet.title)}", "", *_table(sheet), ""]
        lines += [f"- {plain(note)}" for note in sheet.notes]
    return "\n".join(lines).strip() + "\n"


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    shown = visible(" ".join(text.split()))
    for sign in "\\|*_<>[]#":
        shown = shown.replace(sign, "\\" + sign)
    return shown


def _table(sheet: Sheet) -> Iterator[str]:
    yield _row([plain(sheet.corner), *map(plain, sheet.columns)])
    yield _row([":--", *["--:" if len(sheet.columns) > 1 else ":--"] * len(sheet.columns)])
    for section in sheet.sections:
        if section.heading:
            yield _row([f"**{plain(section.heading)}**", *[""] * len(sheet.columns)])
        for row in section.rows:
            yield _row(list(map(plain, row)))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
