"""A report read from its folder, and its page in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from pipedec_cli.data.reading import as_text, contents, read_json
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.view.page.page import template


class _Advice(Struct):
    text: str


class _Reported(Struct):
    """The part of a report.json that is checked."""

    advice: _Advice


@dataclass(frozen=True, slots=True)
class SavedReport:
    """The advice in words, the content of report.json, and the page, which a notebook shows in a frame."""

    folder: Path
    advice: str
    content: dict[str, Any] = field(repr=False)
    page: str = field(repr=False)

    def _repr_html_(self) -> str:
        return template("framed.html", title=self.folder, page=self.page)


def read_report(folder: Path | str | None = None) -> SavedReport:
    """The report in a folder, by default the workspace's. Raises `UserError` if there is none."""
    place = Workspace.find().report if folder is None else Path(folder)
    content = read_json(place / "report.json", _Reported, "pipedec report")
    page = place / "report.html"
    return SavedReport(place, content["advice"]["text"], content, as_text(contents(page), str(page)))
