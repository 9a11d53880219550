"""Cuts a target into its subsequences, and chooses the joiner that puts them together again.

The joined segments give the text back, except for white space. At level ``phrase`` the first separator stands for all of
them, and empty phrases, as in ``a;;b``, are dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, FieldSegmenter
from pipedec_cli.data.records import Level, Record
from pipedec_cli.data.sentences import SentenceModel, mostly_spaceless, train_sentences


@dataclass(frozen=True, slots=True)
class SentenceSegmenter:
    """Cuts after each sentence; with `clauses`, also after any punctuation that ends a clause."""

    model: SentenceModel
    clauses: bool = False

    def cut(self, text: str) -> tuple[str, ...]:
        """The segments of a text."""
        return tuple(text[start:end] for start, end in self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each segment, without white space around it."""
        spans = []
        for start, end in pairwise([0, *self.model.ends(text, clauses=self.clauses)]):
            if segment := text[start:end].strip():
                first = text.index(segment, start)
                spans.append((first, first + len(segment)))
        return spans


@dataclass(frozen=True, slots=True)
class PhraseSegmenter:
    """Cuts at separators, which belong to no segment."""

    separators: tuple[str, ...] = (";",)

    def cut(self, text: str) -> tuple[str, ...]:
        """The phrases of a text, without empty ones."""
        return tuple(filter(None, self._pieces(text)))

    def dropped(self, text: str) -> int:
        """The number of empty phrases of a text; one after a closing separator does not count."""
        pieces = self._pieces(text)
        if len(pieces) > 1 and not pieces[-1]:
            pieces.pop()
        return pieces.count("") if len(pieces) > 1 or text.strip() else 0

    def _pieces(self, text: str) -> list[str]:
        longest_first = sorted(self.separators, key=len, reverse=True)
        return [piece.strip() for piece in re.split("|".join(map(re.escape, longest_first)), text)]


Segmenter = SentenceSegmenter | PhraseSegmenter | FieldSegmenter


def make_segmenter(
    level: Level,
    targets: Iterable[str] = (),
    sources: Iterable[str] = (),
    *,
    separators: Sequence[str] = (),
    fields: tuple[Field, ...] = (),
) -> Segmenter:
    """The segmenter of a level. That of sentences and clauses is trained on the targets and sources."""
    if level == "phrase":
        if not all(separators):
            raise UserError("a separator must not be empty")
        return PhraseSegmenter(tuple(separators)) if separators else PhraseSegmenter()
    if separators:
        todo = "leave out --separator, or use --level phrase"
        raise UserError(f"level {level} has no separators", todo=todo)
    if level == "field":
        return FieldSegmenter(fields)
    return SentenceSegmenter(train_sentences(targets, sources), clauses=level == "clause")


def joiner_of(records: Sequence[Record], segmenter: Segmenter) -> str:
    """The text between two segments of a prediction: a space or nothing, as between the segments of most targets.

    Sources serve where there are no targets. If line breaks and lists leave it open, the script of most letters
    decides. For phrases it is the first separator and, unless that is white space or of full width, a space.
    """
    if isinstance(segmenter, FieldSegmenter):
        return "; "
    if isinstance(segmenter, PhraseSegmenter):
        first = segmenter.separators[0]
        wide = re.search(r"[\u3000-\u303f\uff00-\uffef]", first) is not None
        return first if first.isspace() or wide else f"{first} "
    gaps, texts = [], []
    for record in records[:: max(1, len(records) // 1000)]:  # a thousand targets are enough
        texts.append(text := record.source if record.target is None else record.target)
        if record.target_segments is None:
            gaps += [text[end:start] for (_, end), (start, _) in pairwise(segmenter.spans(text))]
    telling = [gap for gap in gaps if not gap or gap.strip("\n\r\u2028\u2029\u0085\v\f")]
    if telling:
        return " " if 2 * sum(map(bool, telling)) >= len(telling) else ""
    return "" if mostly_spaceless(texts) else " "
