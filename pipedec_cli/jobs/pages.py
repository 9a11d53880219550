"""Pages for a browser that jobs leave beside their results, and a report as it was left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

from msgspec import Struct

from pipedec_cli.data import notebook
from pipedec_cli.data.reading import as_text, contents, read_json
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.view.console import visible

#: The functions that make pages, by the names of the files. Without them there are none.
MAKERS: Final[Mapping[str, str]] = {
    "report.html": "pipedec_cli.page.report:report_page",
    "training.html": "pipedec_cli.page.report:training_page",
}


def page_at(path: Path, *shown: object) -> dict[Path, list[str]]:
    """The page of this name, by its path, as parts of a text, made of what it shows; {} if there is no such page."""
    maker = MAKERS.get(path.name)
    return {path: [resolve_name(maker)(*shown)]} if maker else {}


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
        return notebook.framed(visible(str(self.folder)), self.page)


def read_report(folder: Path | str | None = None) -> SavedReport:
    """The report that `pipedec report` wrote into a folder; None: the workspace's. A UserError if there is none."""
    saved = Workspace.find().report if folder is None else Path(folder)
    content = read_json(saved / "report.json", _Reported, "pipedec report")
    page = saved / "report.html"
    return SavedReport(
        saved, content["advice"]["text"], content, as_text(contents(page), str(page))
    )
