"""What fits on the page of a report: which examples, how much of their texts, and which decoder is shown first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pipedec_cli.data.wording import many
from pipedec_cli.evaluate.comparison import choose_sample
from pipedec_cli.view.page.page import block

if TYPE_CHECKING:
    from pipedec_cli.evaluate.comparison import Report

#: The most examples on a page. Of more, one is drawn from each of as many equal parts.
MOST: Final = 300


def shown_places(report: Report) -> list[int]:
    """The places of the examples on the page, in the order of the file."""
    scored = report.first.quality.scored
    return choose_sample(len(scored.items), MOST) if scored else []


def shown_first(names: Sequence[str], report: Report) -> int:
    """The place of the decoder that is shown first: the advised one, else the first after the baseline."""
    advised = report.advice.entry
    return names.index(advised) if advised in names else min(1, len(names) - 1)


def size(data: object) -> int:
    """Bytes of data on a page."""
    return len(block(data).encode())


def shortened(text: str, most: int) -> str:
    """The start of a text, of at most `most` characters, and how much was left out."""
    if len(text) <= most:
        return text
    start = text[: most + 1].rsplit(None, 1)[0] if " " in text[most // 2 : most] else text[:most]
    rest = text[len(start) :]
    words = len(rest.split())
    return f"{start} … {many(words, 'more word') if words > 1 else many(len(rest), 'more character')}"
