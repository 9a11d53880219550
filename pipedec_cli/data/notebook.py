"""What notebooks show of results: tables and lists, in which every text is text."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from pipedec_cli.data.writing import to_json

_STYLE: Final = "text-align: left; white-space: pre-wrap"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as HTML. A value that is no text is JSON, and None is an empty cell."""
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(map(_cell, row)) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value)
    shown = "" if value is None else escape(text)
    return f'<td dir="auto" style="{_STYLE}">{shown}</td>'


def framed(title: str, page: str) -> str:
    """A page in a frame of its own, in which nothing but its scripts may act."""
    shown = f'title="{escape(title)}" srcdoc="{escape(page)}"'
    return f'<iframe sandbox="allow-scripts" {shown} style="width: 100%; height: 45rem; border: 1px solid #8888"></iframe>'


def listed(texts: Iterable[str]) -> str:
    """A list as HTML; "" for none."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""
