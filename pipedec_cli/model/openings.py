"""Openings first: row 0 writes what each sentence is about, then all sentences start at once, each behind its opening.

Row 0 stands at time 0 behind <bos> and a separator. Let T be the time of its <eos>. Then all sentences start at T, each with
<bos> and its opening as known tokens, and are written from their start. Nothing is explored: the number of rows is known.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pipedec_cli.model.text import TextCodec
from pipedec_cli.pipeline.grid import Opening, before_repeats, mask_of
from pipedec_cli.pipeline.schedule import Subsequence

#: Stands before row 0 and between openings, which are words: none of them holds it.
_SEPARATOR: Final = "|"
#: The words of an opening. In trials two words were a plan, and one word or the first tokens of a sentence were none.
_WORDS: Final = 2
_WORD: Final = re.compile(r"\w+")


class Laid(NamedTuple):
    """A row of a training target: its start, the known tokens, which stand up to there, and the tokens that are learnt."""

    start: int
    known: Sequence[int]
    text: Sequence[int]


def openings_of(source: str, sentences: Sequence[str]) -> Iterator[str]:
    """Of each sentence the first two words that also stand in the source and in no opening before, else its first word."""
    new = {word.casefold() for word in _WORD.findall(source)}
    for sentence in sentences:
        words = _WORD.findall(sentence)
        found = {word.casefold(): word for word in reversed(words) if word.casefold() in new}
        chosen = [word for word in words if word in found.values()][:_WORDS]
        new -= {word.casefold() for word in chosen}
        yield " ".join(chosen or words[:1]) or sentence


class Openings:
    """The rows of a text in token ids."""

    def __init__(self, text: TextCodec, eos: int) -> None:
        self.text, self.eos = text, eos
        self.separator = text.ids([_SEPARATOR])[0][-1]

    def laid(self, source: str, sentences: Sequence[str], texts: Sequence[list[int]]) -> tuple[Laid, ...]:
        """The rows of a target: row 0, and a row for each sentence, whose ids are the `texts`."""
        openings = self.text.ids([*openings_of(source, sentences)])
        plan = [token for opening in openings for token in (self.separator, *opening)][1:]
        rows = (Laid(len(plan) + 1, opening, ids) for opening, ids in zip(openings, texts, strict=True))
        return Laid(0, [self.separator], plan), *rows

    @property
    def row0(self) -> Opening:
        """How row 0 begins. It ends where it repeats itself; see `before_repeats`."""
        return Opening((self.separator,), self._allowed, 0, opens=self._opened)

    def _parts(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        parts: list[list[int]] = [[]]
        for token in tokens:
            if token == self.separator:
                parts.append([])
            else:
                parts[-1].append(token)
        return [tuple(part) for part in parts if part]

    def _allowed(self, tokens: Sequence[int]) -> bytes:
        parts = self._parts(tokens) if tokens and tokens[-1] == self.separator else ()
        return mask_of([self.eos]) if before_repeats(parts) < len(parts) else b""

    def _opened(self, row: Subsequence) -> list[Opening]:
        parts = self._parts(row.text_tokens)
        return [Opening(part, place=number) for number, part in enumerate(parts[: before_repeats(parts)], 1)]
