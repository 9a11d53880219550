"""Writing systems: which have no spaces, how many words a text has, and which marks end a sentence or a clause."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from unicodedata import category

#: Scripts that put no space between words: Thai and Lao, Tibetan, Myanmar, Khmer, kana, Han. For a character class.
SPACELESS: Final = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)

#: Marks that end a sentence wherever they stand: unlike the full stop they do nothing else.
SENTENCE_ENDERS: Final = (
    "。｡！？‼⁇⁈⁉"  # Chinese and Japanese, and the doubled marks
    "؟۔।॥։\u037e"  # Arabic and Urdu, Devanagari and its neighbours, Armenian, the Greek question mark
    "།༎၊။។៕።፧፨᠃᠉"  # Tibetan, Myanmar, Khmer, Ethiopic, Mongolian
)

#: Marks of the same kind that end a clause wherever they stand, but not between two digits.
CLAUSE_ENDERS: Final = SENTENCE_ENDERS + "，、；：．､،؛፣፤፥፦᠂᠄…‥"

#: What may follow such a mark and still belongs to what it ends. The straight quotation marks are not among them:
#: without a space, nothing tells whether they close or open.
SURE_CLOSERS: Final = "’”»›)\\]}」』）】》〉〕］｝"

_WORD = re.compile(rf"[{SPACELESS}][^\w\s]*|[^\s{SPACELESS}]+")
_SPACELESS_CHARACTER = re.compile(f"[{SPACELESS}]")
_LETTER = re.compile(r"[^\W\d_]")


def count_words(text: str) -> int:
    """Words by white space; where a script has no spaces, its characters."""
    return len(text.split()) if text.isascii() else len(_WORD.findall(text))


def mostly_spaceless(texts: Iterable[str]) -> bool:
    """Whether more than half of the letters belong to scripts that put no space between words."""
    letters = spaceless = 0
    for text in texts:
        if text.isascii():
            letters += len(text)
            continue
        letters += len(_LETTER.findall(text))
        spaceless += len(_SPACELESS_CHARACTER.findall(text))
    return 2 * spaceless > letters


def has_words(text: str) -> bool:
    """Whether anything but punctuation and white space is in the text; a symbol, such as an emoji, counts as a word."""
    return any(map(str.isalnum, text)) or any(not c.isspace() and category(c)[0] != "P" for c in text)
