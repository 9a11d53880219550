"""Pages that a real browser opens, for the tests that are marked `browser`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def visit(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """What opens HTML at a width, with options of a playwright context; no page may complain or ask for anything."""
    complaints: list[str] = []
    contexts = []

    def open_page(html: str, width: int = 800, **options: Any) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, **options
        )
        contexts.append(context)
        page, file = context.new_page(), tmp_path / f"{len(contexts)}.html"
        file.write_text(html, encoding="utf-8")
        page.on(
            "console",
            lambda message: complaints.append(f"{message.type}: {message.text}"),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "dialog",
            lambda dialog: (
                complaints.append(f"a dialog: {dialog.message}"),
                dialog.dismiss(),
            ),
        )
        page.on(
            "request",
            lambda asked: (
                None if asked.url == file.as_uri() else complaints.append(asked.url)
            ),
        )
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
