"""A report that is read back from its folder, and its page in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from pipedec_cli.data.reading import as_text, contents, read_json
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.view.page.page import template


class _Told(Struct):
    text: str


class _Reported(Struct):
    """What is looked at of a report.json."""

    advice: _Told


@dataclass(frozen=True, slots=True)
class SavedReport:
    """What `pipedec report` wrote: `advice` in words, all figures as report.json has them, and the page as HTML.

    A notebook shows the page, in a frame that keeps its scripts to itself.
    """

    folder: Path
    advice: str
    content: dict[str, Any] = field(repr=False)
    page: str = field(repr=False)

    def _repr_html_(self) -> str:
        return template("framed.html", title=self.folder, page=self.page)


def read_report(folder: Path | str | None = None) -> SavedReport:
    """The report of a folder that `pipedec report` wrote, of the workspace's by default; a `UserError` if there is none."""
    place = Workspace.find().report if folder is None else Path(folder)
    content = read_json(place / "report.json", _Reported, "pipedec report")
    page = place / "report.html"
    return SavedReport(place, content["advice"]["text"], content, as_text(contents(page), str(page)))
