"""Where values stand in a text, in whole words."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from pipedec_cli.data.dates import Quantity, dates_in, datetimes_in, times_in
from pipedec_cli.data.fields import text_of
from pipedec_cli.data.numbers import numbers_in

#: A letter of a script with spaces between words: not of Thai, Lao, Myanmar, Khmer,
#: Chinese or Japanese.
_LETTER: Final = r"[^\W\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
#: A date or a time as values have it.
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d.*)?|\d\d:\d\d.*")

#: A place [start, end) in characters.
Place = tuple[int, int]
#: Finds the numbers, dates or times of a text, with what each may mean.
Finder = Callable[[str], list[Quantity]]


@lru_cache(maxsize=16)
def found_in(source: str, find: Finder) -> tuple[Quantity, ...]:
    """What `find` finds in a source, found once for all keys of a schema."""
    return tuple(find(source))


def places_in(text: str, source: str) -> list[Place]:
    """The places where a text stands in a source, with any white space between its words.

    Without regard to case if it stands nowhere as it is. Nowhere if the text is blank.
    """
    words = text.split()
    if not words:
        return []
    escaped = [re.escape(word) for word in words]
    expression = r"\s+".join(escaped)
    if re.match(_LETTER, words[0]):
        expression = f"(?<!{_LETTER}){expression}"
    if re.match(_LETTER, words[-1][-1]):
        expression = f"{expression}(?!{_LETTER})"
    exact = [match.span() for match in re.finditer(expression, source)]
    if exact:
        return exact
    matches = re.finditer(expression, source, re.IGNORECASE)
    return [match.span() for match in matches]


def places_of(value: Any, source: str) -> list[Place]:
    """The places of a value: of a number where it is written in any way, of a date or time where that is meant."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _places_meant(value, source, numbers_in)
    text = text_of(value)
    places = places_in(text, source)
    if places or not _ISO.fullmatch(text):
        return places
    for find in (datetimes_in, dates_in, times_in):
        places += _places_meant(text, source, find)
    return places


def _places_meant(value: Any, source: str, find: Finder) -> list[Place]:
    """The places of what `find` finds in a source and what may mean the value."""
    places = []
    for quantity in found_in(source, find):
        if value in quantity.values:
            places.append((quantity.start, quantity.end))
    return places
