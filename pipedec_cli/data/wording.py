"""Numbers and nouns in messages."""

from __future__ import annotations


def many(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
