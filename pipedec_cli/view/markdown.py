"""Sheets as Markdown. Signs in a user's text stay text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipedec_cli.view.console import visible
from pipedec_cli.view.sheet import Sheet


def markdown_lines(sheet: Sheet) -> Iterator[str]:
    """The lines of a table with its title and notes."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    side = "--:" if len(sheet.columns) > 1 else ":--"
    yield from (f"## {escaped(sheet.title)}", "")
    yield line(map(escaped, (sheet.corner, *sheet.columns)))
    yield line([":--", *[side for _ in sheet.columns]])
    for section in sheet.sections:
        if section.heading:
            yield line([f"**{escaped(section.heading)}**", *["" for _ in sheet.columns]])
        yield from (line(map(escaped, row)) for row in section.rows)
    yield from ("", *(f"- {escaped(note)}" for note in sheet.notes))


def escaped(text: str) -> str:
    """The text on one line, as Markdown shows it unchanged."""
    shown = visible(" ".join(text.split()))
    for sign in "\\|*_<>[]#":
        shown = shown.replace(sign, "\\" + sign)
    return shown
