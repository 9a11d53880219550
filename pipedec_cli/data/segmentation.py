r"""Cutting a target into its subsequences, and the joiner that puts them together again.

Segments are slices of the text without the white space around them, so that joining them gives the text back,
white space aside, at the levels ``sentence`` and ``clause``. At the level ``phrase`` the separators between them
are left out and restored by the joiner: the first separator stands for all of them, and an empty phrase, as in
``a;;b``, is no phrase: it is dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Level
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
    """Cuts after each sentence."""

    model: SentenceModel

    def spans(self, text: str) -> list[Span]:
        """The sentences; a text without one ends where it ends."""
        return spans_between(text, self.model.ends(text))


@dataclass(frozen=True, slots=True)
class ClauseSegmenter:
    """Cuts after each sentence and after any other punctuation that ends a clause.

    That is ``, ; : ! ? … —`` before white space, and the like of other scripts anywhere: so ``3.5``, ``1,000``,
    ``10:30`` and ``well-known`` stay whole. Whether a full stop ends anything is left to the sentence model.
    """

    model: SentenceModel

    def spans(self, text: str) -> list[Span]:
        """The clauses."""
        ends = sorted({*self.model.ends(text), *clause_ends(text)})
        return spans_between(text, ends_of_words(text, ends))


@dataclass(frozen=True, slots=True)
class PhraseSegmenter:
    """Cuts at separators, which are part of no segment."""

    separators: tuple[str, ...] = DEFAULT_SEPARATORS
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.separators or not all(self.separators):
            raise UserError("a separator must not be empty")
        longest_first = sorted(self.separators, key=len, reverse=True)
        object.__setattr__(self, "_pattern", re.compile("|".join(map(re.escape, longest_first))))

    def spans(self, text: str) -> list[Span]:
        """The phrases, empty ones left out."""
        return [span for span in self._all_spans(text) if span[0] < span[1]]

    def dropped(self, text: str) -> int:
        """How many empty phrases the text has, one after a closing separator not counted."""
        spans = self._all_spans(text)
        if len(spans) > 1 and spans[-1][0] == spans[-1][1]:
            spans.pop()
        return sum(start == end for start, end in spans) if len(spans) > 1 or text.strip() else 0

    def _all_spans(self, text: str) -> list[Span]:
        start, spans = 0, []
        for match in self._pattern.finditer(text):
            spans.append(_stripped(text, start, match.start()))
            start = match.end()
        return [*spans, _stripped(text, start, len(text))]


#: A way to cut a text: `spans` gives the segments' places, in order, none of them empty, none with white space around.
Segmenter = SentenceSegmenter | ClauseSegmenter | PhraseSegmenter


def make_segmenter(
    level: Level,
    *,
    separators: Sequence[str] = (),
    targets: Sequence[str] = (),
    sources: Sequence[str] = (),
    model: SentenceModel | None = None,
) -> Segmenter:
    """The segmenter of a level.

    Args:
        level: what a segment is.
        separators: what ends a phrase, ``;`` by default; other levels have none.
        targets: the texts that a sentence model is trained on, where none is given.
        sources: more text for it.
        model: a sentence model trained before.

    Raises:
        UserError: separators at a level that has none, or an empty one.
    """
    if level == "phrase":
        return PhraseSegmenter(tuple(separators) or DEFAULT_SEPARATORS)
    if separators:
        raise UserError(
            f"level {level} has no separators", todo="leave out --separator, or use --level phrase"
        )
    model = model or train_sentences(targets, sources)
    match level:
        case "sentence":
            return SentenceSegmenter(model)
        case "clause":
            return ClauseSegmenter(model)
        case _:
            assert_never(level)


def cut(text: str, segmenter: Segmenter) -> tuple[str, ...]:
    """The segments of a text."""
    return tuple(text[start:end] for start, end in segmenter.spans(text))


def choose_joiner(separators: Sequence[str], gaps: Iterable[str], texts: Iterable[str]) -> str:
    """What stands between two segments when a prediction is put together again.

    A space; nothing for scripts without spaces. The data decides: whether there mostly is white space between two
    segments and, where line breaks and lists leave that open, which script most of the letters belong to. For
    phrases it is the first separator and, unless that is white space or of full width, a space.

    Args:
        separators: the separators of the level ``phrase``; () at the others.
        gaps: what stands between two segments in the targets as they were given.
        texts: the targets.
    """
    if separators:
        first = separators[0]
        wide = re.search(r"[\u3000-\u303f\uff00-\uffef]", first) is not None
        return first if first.isspace() or wide else f"{first} "
    telling = [gap for gap in gaps if not gap or gap.strip("\n\r\u2028\u2029\u0085\v\f")]
    spaced = sum(map(bool, telling))
    if telling:
        return " " if 2 * spaced >= len(telling) else ""
    return "" if mostly_spaceless(texts) else " "


def clause_ends(text: str) -> list[int]:
    """The positions right after the punctuation that ends a clause, the single full stop left out."""
    return [match.end() for match in _CLAUSE_END.finditer(text)]


def spans_between(text: str, ends: Iterable[int]) -> list[Span]:
    """The pieces of a text that end at the given, ascending positions, without white space around them."""
    start, spans = 0, []
    for end in ends:
        span = _stripped(text, start, end)
        if span[0] < span[1]:
            spans.append(span)
        start = end
    return spans


def _stripped(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    return start + left, max(start + left, start + len(piece.rstrip()))
