"""Where a text stands in another, in whole words."""

import re
from typing import Final

#: A letter of a script with spaces between words: not of Thai, Lao, Myanmar, Khmer, Chinese or Japanese.
_LETTER: Final = r"[^\W\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"


def places_in(text: str, source: str) -> list[tuple[int, int]]:
    """The places [start, end) in characters where a text stands in a source, with any white space between its words.

    Without regard to case if it stands nowhere as it is. Nowhere if the text is blank.
    """
    words = text.split()
    if not words:
        return []
    expression = r"\s+".join(re.escape(word) for word in words)
    if re.match(_LETTER, words[0]):
        expression = f"(?<!{_LETTER}){expression}"
    if re.match(_LETTER, words[-1][-1]):
        expression = f"{expression}(?!{_LETTER})"
    exact = [match.span() for match in re.finditer(expression, source)]
    return exact or [match.span() for match in re.finditer(expression, source, re.IGNORECASE)]
