"""What notebooks show of results: tables and lists, in which every text is text."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_STYLE: Final = "text-align: left; white-space: pre-wrap"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as HTML."""
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(map(_cell, row)) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(text: str) -> str:
    return f'<td dir="auto" style="{_STYLE}">{escape(text)}</td>'


def listed(texts: Iterable[str]) -> str:
    """A list as HTML; "" for none."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""
