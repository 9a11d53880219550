r"""Cutting a target into its subsequences, and the joiner that puts them together again.

Segments are slices of the text without the white space around them, so that joining them gives the text back,
white space aside, at the levels ``sentence`` and ``clause``. At the level ``phrase`` the separators between them
are left out and restored by the joiner: the first separator stands for all of them, and an empty phrase, as in
``a;;b``, is no phrase: it is dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Level, Record
from pipedec_cli.data.scripts import CLAUSE_ENDERS, SURE_CLOSERS, mostly_spaceless
from pipedec_cli.data.sentences import SentenceModel, ends_of_words, train_sentences

DEFAULT_SEPARATORS: Final = (";",)

#: A piece of a text: where it starts and where it ends.
Span = tuple[int, int]

_CLAUSE_END = re.compile(
    rf"""
    (?: [,;:!?…‥] [,;:!?….‥]* | \.{{2,}} | [—–] | -- )  # what ends a clause where white space follows;
    ["'{SURE_CLOSERS}]* (?=\s)                          # the single full stop is for Punkt to judge
    | [{CLAUSE_ENDERS}] [{CLAUSE_ENDERS}!?]* [{SURE_CLOSERS}]*  # what ends one anywhere,
    (?! (?<=\d[{CLAUSE_ENDERS}]) \d )                           # but inside of a number
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class SentenceSegmenter:
    """Cuts after each sentence or, if `clauses`, after any punctuation that ends a clause, too.

    That is ``, ; : ! ? … —`` before white space, and the like of other scripts anywhere: so ``3.5``, ``1,000``,
    ``10:30`` and ``well-known`` stay whole. Whether a full stop ends anything is left to the sentence model.
    """

    model: SentenceModel
    clauses: bool = False

    def spans(self, text: str) -> list[Span]:
        """The segments' places, in order; a text without an end ends where it ends."""
        ends = self.model.ends(text)
        if self.clauses:
            ends = ends_of_words(text, sorted({*ends, *clause_ends(text)}))
        pieces = (_stripped(text, start, end) for start, end in pairwise([0, *ends]))
        return [span for span in pieces if span[0] < span[1]]


@dataclass(frozen=True, slots=True)
class PhraseSegmenter:
    """Cuts at separators, which are part of no segment."""

    separators: tuple[str, ...] = DEFAULT_SEPARATORS

    def spans(self, text: str) -> list[Span]:
        """The phrases' places, empty ones left out."""
        return [span for span in self._all_spans(text) if span[0] < span[1]]

    def dropped(self, text: str) -> int:
        """How many empty phrases the text has, one after a closing separator not counted."""
        spans = self._all_spans(text)
        if len(spans) > 1 and spans[-1][0] == spans[-1][1]:
            spans.pop()
        return sum(start == end for start, end in spans) if len(spans) > 1 or text.strip() else 0

    def _all_spans(self, text: str) -> list[Span]:
        longest_first = sorted(self.separators, key=len, reverse=True)
        start, spans = 0, []
        for match in re.finditer("|".join(map(re.escape, longest_first)), text):
            spans.append(_stripped(text, start, match.start()))
            start = match.end()
        return [*spans, _stripped(text, start, len(text))]


Segmenter = SentenceSegmenter | PhraseSegmenter


def make_segmenter(
    level: Level,
    *,
    separators: Sequence[str] = (),
    targets: Sequence[str] = (),
    sources: Sequence[str] = (),
    model: SentenceModel | None = None,
) -> Segmenter:
    """The segmenter of a level; where no sentence model is given, one is trained on the targets and sources.

    Raises:
        UserError: separators at a level that has none, or an empty one.
    """
    if level == "phrase":
        if not all(separators):
            raise UserError("a separator must not be empty")
        return PhraseSegmenter(tuple(separators) or DEFAULT_SEPARATORS)
    if separators:
        raise UserError(
            f"level {level} has no separators", todo="leave out --separator, or use --level phrase"
        )
    return SentenceSegmenter(model or train_sentences(targets, sources), clauses=level == "clause")


def cut(text: str, segmenter: Segmenter) -> tuple[str, ...]:
    """The segments of a text."""
    return tuple(text[start:end] for start, end in segmenter.spans(text))


def joiner_of(records: Sequence[Record], segmenter: Segmenter) -> str:
    """What stands between two segments when a prediction is put together again.

    A space; nothing for scripts without spaces. The targets decide: whether there mostly is white space between two
    segments and, where line breaks and lists leave that open, which script most of the letters belong to. For
    phrases it is the first separator and, unless that is white space or of full width, a space.
    """
    if isinstance(segmenter, PhraseSegmenter):
        first = segmenter.separators[0]
        wide = re.search(r"[\u3000-\u303f\uff00-\uffef]", first) is not None
        return first if first.isspace() or wide else f"{first} "
    gaps = []
    sample = records[:: max(1, len(records) // 1000)]  # a thousand targets tell
    for record in sample:
        if record.target_segments is None and record.target:
            spans = segmenter.spans(record.target)
            gaps += [record.target[end:start] for (_, end), (start, _) in pairwise(spans)]
    telling = [gap for gap in gaps if not gap or gap.strip("\n\r\u2028\u2029\u0085\v\f")]
    if telling:
        return " " if 2 * sum(map(bool, telling)) >= len(telling) else ""
    return "" if mostly_spaceless(record.target or "" for record in sample) else " "


def clause_ends(text: str) -> list[int]:
    """The positions right after the punctuation that ends a clause, the single full stop left out."""
    return [match.end() for match in _CLAUSE_END.finditer(text)]


def _stripped(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    return start + left, max(start + left, start + len(piece.rstrip()))
