"""What of a report's examples fits its page: which of them, and how much of their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipedec_cli.data.wording import many
from pipedec_cli.evaluate.comparison import choose_sample
from pipedec_cli.view.page.page import block

if TYPE_CHECKING:
    from pipedec_cli.evaluate.comparison import Comparison

#: The most examples on a page; of more, one drawn from each of as many equal parts.
MOST: Final = 300


def shown_places(report: Comparison) -> list[int]:
    """The places of the examples on the page, in the order of the file."""
    scored = report.first.quality.scored
    return choose_sample(len(scored.items), MOST) if scored else []


def size(data: object) -> int:
    """Bytes of data on a page."""
    return len(block(data).encode())


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text, and how much was left out."""
    if len(text) <= most:
        return text
    start = text[: most + 1].rsplit(None, 1)[0] if " " in text[most // 2 : most] else text[:most]
    rest = text[len(start) :]
    words = len(rest.split())
    return f"{start} … {many(words, 'more word') if words > 1 else many(len(rest), 'more character')}"
