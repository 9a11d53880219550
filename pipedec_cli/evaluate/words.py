"""How keyphrase protocols cut text into stemmed words: source, targets and predictions all by the same rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final, Literal

#: ``edges``: white space, then punctuation off the ends of words. ``meng2017``: punctuation split off everywhere.
#: ``whitespace``: white space alone, for text that is tokenised already.
Tokenizer = Literal["edges", "meng2017", "whitespace"]

# A full stop or comma is not taken off a word's front: `.net` and `.5` are words.
_OPENING = frozenset("([{\"'“‘„«¿¡")
_CLOSING = frozenset(".,;:!?)]}\"'”’»…")
_ABBREVIATION = re.compile(r"(?:[^\W\d_]\.){2,}")  # u.s., e.g.
_POSSESSIVE = re.compile(r"(.+)(['’]s)")

# Meng et al. pad the marks _ < > , ( ) . ' with spaces and cut at all that is no letter, digit, #, & or one of + *.
# Their letters are ASCII; here they are Unicode's, since a word cut at its accents could match a wrong one.
_MENG = re.compile(r"<\w+>|[_<>,().']|(?:[^\W_]|[#&+*])+")


def stems(text: str, tokenizer: Tokenizer) -> list[str]:
    """The text's words, lower-cased and cut to their stems by nltk's Porter stemmer in its default mode."""
    return [stem for word in text.lower().split() for stem in _word_stems(word, tokenizer)]


@lru_cache(maxsize=1 << 18)
def _word_stems(word: str, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The stems of one run of non-space characters: texts repeat their words, and stemming is slow."""
    return tuple(map(_porter(), _CUT[tokenizer](word)))


@cache
def _porter() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer

    stem: Callable[[str], str] = PorterStemmer().stem
    return stem


def _detach(word: str) -> list[str]:
    """Punctuation off both ends of a word: ``"data,"`` → ``"``, ``data``, ``,``, ``"``. Hyphens and slashes stay inside."""
    start, end = 0, len(word)
    while start < end and word[start] in _OPENING:
        start += 1
    while end > start and word[end - 1] in _CLOSING and not _ABBREVIATION.fullmatch(word, start, end):
        end -= 1
    core = word[start:end]
    possessive = _POSSESSIVE.fullmatch(core)
    inner = list(possessive.groups()) if possessive else [core] if core else []
    return [*word[:start], *inner, *word[end:]]


_CUT: Final[dict[Tokenizer, Callable[[str], list[str]]]] = {
    "edges": _detach,
    "meng2017": _MENG.findall,
    "whitespace": lambda word: [word],
}
