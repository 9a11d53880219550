"""Finds the dates and times that stand in a text, and says in ISO 8601 what each may mean.

Patterns find them; the names of months are CLDR's, by babel. A parser that guesses,
such as dateparser, makes a date of almost anything ("12 Mart 2026" becomes the 28th of
December), and takes up to 80 ms for what is none.
"""

import datetime
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import regex


class Quantity(NamedTuple):
    """A number, date or time of a text: its characters, and what it may mean, the likeliest first.

    `text` is what stands there, with a space for each run of white space.
    """

    start: int
    end: int
    text: str
    values: tuple[Any, ...]


class _Reading(NamedTuple):
    """A way to read a date: what comes first ("day", "month", "year" or "either"), and its numbers."""

    first: str
    year: int | None
    month: int
    day: int


class _Possible(NamedTuple):
    """What looks like a date and is one in a reading or more.

    A month by its name without a year of four digits must be clear: "may 5" and "march
    2" may be other words.
    """

    start: int
    end: int
    readings: list[_Reading]


#: Languages whose names of months are known, by CLDR's names. A name of two months is
#: first the first one's.
_LANGUAGES: Final = (
    "en de fr es pt it nl sv da nb fi is et lv lt pl cs sk sl hr bs hu ro bg mk sr uk ru be el tr az sq ca gl eu"
    " cy af sw id ms fil ar he"
)
#: Names of months that need no year of four digits: they are not other words too, as
#: SET, "out" and "may" are.
_CLEAR: Final = regex.compile(
    r"(?!may\b|march\b|mars\b|(?i:mac)\b)"
    r"(?i:.{4,}|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mai|mei|maj)"
)

_JOIN: Final = r"(?:\s?[-/.,]\s?|\s{1,2})?"
_OF: Final = r"(?:(?:of|de|del|den)\s|d['’])?"
_YEAR: Final = r"(?P<y>[12]\d{3})"
_YEARS: Final = r"(?P<y>[12]\d{3}|['’]?\d{2}(?![.,:]?\d))"
_DAY: Final = r"(?P<d>\d{1,2})(?:st|nd|rd|th|er|[ºª°.])?"
_NAME: Final = r"(?=[^\W\d_]{2})(?P<name>\L<months>)(?![\p{L}\p{M}])\.?"
_DATE: Final = rf"""
(?<![\p{{L}}\p{{M}}\d_]|\d[/.,:])
(?: {_YEAR}\s?(?P<sign>(?<!\d-\d{{4}})-|[/.])\s?(?P<m>\d{{1,2}})\s?(?P=sign)\s?(?P<d>\d{{1,2}})
  | {_YEAR}\s?[年년]\s?(?P<m>\d{{1,2}})\s?[月월]\s?(?P<d>\d{{1,2}})\s?[日일]
  | {_YEAR}{_JOIN}{_NAME}{_JOIN}{_DAY}
  | (?P<a>\d{{1,2}})(?P<sign>(?<!\d-\d{{1,2}})-|[/.])(?P<b>\d{{1,2}})(?P=sign){_YEARS}
  | (?P<a>\d{{1,2}})\s?(?P<sign>(?<!\d-\d{{1,2}}\s?)-|[/.])\s?(?P<b>\d{{1,2}})\s?(?P=sign)\s?{_YEAR}
  | {_DAY}{_JOIN}{_OF}{_NAME}(?:{_JOIN}{_OF}{_YEARS})?
  | (?=[^\s\d]{{3,16}}{_JOIN}(?:the\s)?\d){_NAME}{_JOIN}(?:the\s)?{_DAY}(?![.,:]?\d)(?:{_JOIN}{_OF}{_YEAR})?
  | (?<!\d-)(?P<y>19\d\d|20\d\d)(?P<m>0[1-9]|1[0-2])(?P<d>0[1-9]|[12]\d|3[01])(?!-\d)
  | (?<!\d-)(?P<d>0[1-9]|[12]\d|3[01])(?P<m>0[1-9]|1[0-2])(?P<y>19\d\d|20\d\d)(?!-\d)
)
(?: (?![\p{{L}}\p{{M}}\d_]|(?P=sign)\d|[/.]\d) | (?=T\d) )
"""

_HALF: Final = r"(?P<half>[ap])\.?\s?m\b\.?"
_OFFSET: Final = (
    r"(?P<offset>Z|UTC|GMT|(?(s)[-+]|\+)(?:[01]\d|2[0-3]):?[0-5]\d)(?![\w:+-])"
)
_TIME: Final = regex.compile(
    rf"""
(?: (?<!\w|\d[.,/]|(?<!\d)\d{{1,2}}:) | (?<=\dT) )
(?: (?P<h>\d{{1,2}}):(?P<min>[0-5]\d)(?::(?P<s>[0-5]\d)(?P<part>\.\d{{1,6}})?)?
    (?:\s?(?:{_HALF}|Uhr|h(?:rs?)?\b))?(?:\s?{_OFFSET})?
  | (?P<h>\d{{1,2}})(?:[.h](?P<min>[0-5]\d))?\s?{_HALF}
  | (?P<h>\d{{1,2}})(?:[.:](?P<min>[0-5]\d))?\s?(?:Uhr|o['’]clock)
  | (?P<h>\d{{1,2}})h(?P<min>[0-5]\d)
)
(?!\w|[:.]\d)
""",
    regex.VERBOSE | regex.IGNORECASE,
)
#: What may stand between a date and its time: signs, and short words such as "at", "a
#: las", "Tue" or "TIME".
_BETWEEN: Final = regex.compile(r"T|[\s,:;|–(-]{1,4}(?:\p{L}{1,5}\.?[\s,:)]{1,3}){0,2}")


#: How a text says in words what its dates put first: DD/MM/YYYY, TT.MM.JJJJ,
#: JJ/MM/AAAA, MM/DD/YYYY.
_TOLD_FIRST: Final = regex.compile(
    r"\b(?:(?P<day>(?:DD|TT|JJ)[-/. ]?MM)|(?P<month>MM[-/. ]?DD))(?=[YJA\W]|\Z)",
    regex.IGNORECASE,
)


def dates_in(text: str) -> list[Quantity]:
    """The dates of a text; values are like "2026-03-12".

    Where day and month could change places, the other dates of the text decide, or a
    form such as MM/DD/YYYY in it. If they do not, there are two values, the first with
    the day first. A day and month without a year has no value, unless all other dates
    of the text are of one year, which is then its year. Years of two digits are 1969 to
    2068, as in POSIX.
    """
    dates = list(_possible_dates(text))
    first = _first_shown(dates) or _first_told(text)
    year = _only_year(dates)
    quantities = []
    for date in dates:
        agreeing = [reading for reading in date.readings if reading.first == first]
        values = [_iso(reading, year) for reading in agreeing or date.readings]
        quantities.append(quantity(text, date.start, date.end, *filter(None, values)))
    return quantities


def times_in(text: str) -> list[Quantity]:
    """The times of day of a text; values are like "13:01:00", with "+02:00" or "Z" if the text has an offset.

    Python's and pydantic's `time` take both; JSON Schema's format "time" (RFC 3339)
    needs the offset. None is made up: who must have one adds it.
    """
    quantities = []
    for match in _TIME.finditer(western(text)):
        value = _time_value(match)
        if value:
            quantities.append(quantity(text, *match.span(), value))
    return quantities


def datetimes_in(text: str) -> list[Quantity]:
    """The dates of a text with a time behind or before them; values are like "2018-03-20T13:01:00".

    They end in an offset if the text has one. Python's and pydantic's `datetime` take
    both; JSON Schema's format "date-time" needs the offset.
    """
    dates = {date.start: date for date in dates_in(text) if date.values}
    times = {time.start: time for time in times_in(text)}
    quantities = []
    for start, date in list(dates.items()):
        time = _taken_behind(text, date, times)
        if time:
            del dates[start]
            quantities.append(_joined(text, date, time))
    for time in times.values():
        later = _taken_behind(text, time, dates)
        if later:
            quantities.append(_joined(text, later, time))
    return sorted(quantities)


def _taken_behind(
    text: str, first: Quantity, others: dict[int, Quantity]
) -> Quantity | None:
    """Take the quantity that stands right behind `first`, by signs and short words, out of `others`, and return it.

    The others are given by their starts. None if none of them is there.
    """
    between = _BETWEEN.match(text, first.end)
    if not between:
        return None
    return others.pop(between.end(), None)


def _joined(text: str, date: Quantity, time: Quantity) -> Quantity:
    """A date and a time beside it, in either order, as one."""
    start = min(date.start, time.start)
    end = max(date.end, time.end)
    values = [f"{value}T{time.values[0]}" for value in date.values]
    return quantity(text, start, end, *values)


def whole(quantities: list[Quantity], text: str) -> tuple[Any, ...]:
    """What a text as a whole may mean, given the quantities in it; () if none of them is all of the text but white space."""
    length = len(text.strip())
    for candidate in quantities:
        if (candidate.start, candidate.end) == (0, length):
            return candidate.values
    return ()


@cache
def month_names() -> dict[str, list[int]]:
    """The names of months, whole and short, in small letters, with and without accents, and their numbers."""
    names = {"sept": [9]}
    for language in _LANGUAGES.split():
        for name, month in _names(language):
            months = names.setdefault(name, [])
            if month not in months:
                months.append(month)
    return names


def _names(language: str) -> Iterator[tuple[str, int]]:
    """The names of months in a language, with and without accents, and their numbers."""
    from babel import Locale

    # CLDR has them as they stand alone, and as they stand in a date.
    for widths in Locale(language).months.values():
        for width in ("wide", "abbreviated"):
            for month, name in widths[width].items():
                # Catalan's have "de" before them.
                word = name.replace("’", " ").split()[-1].rstrip(".׳")
                if len(word) > 2:
                    yield word.casefold(), month
                    yield _bare(word), month


@cache
def _date_pattern() -> Any:
    return regex.compile(
        _DATE, regex.VERBOSE | regex.IGNORECASE, months=list(month_names())
    )


def _possible_dates(text: str) -> Iterator[_Possible]:
    """What looks like a date and is one in a reading or more."""
    for match in _date_pattern().finditer(western(text)):
        name = match["name"]
        year = match["y"] or ""
        if name and len(year) < 4 and not _CLEAR.match(name):
            continue
        # A leap year, so that 29 February is a date where no year stands.
        readings = [reading for reading in _readings(match) if _iso(reading, 2000)]
        if readings:
            yield _Possible(match.start(), match.end(), readings)


def _first_shown(dates: list[_Possible]) -> str | None:
    """What a text's dates put first, shown by those that can be read but in one way: "day" or "month".

    None if none shows it, or if they differ.
    """
    shown = {date.readings[0].first for date in dates if len(date.readings) == 1}
    if "day" in shown and "month" in shown:
        return None
    if "day" in shown:
        return "day"
    return "month" if "month" in shown else None


def _first_told(text: str) -> str | None:
    """What a text says that its dates put first, as in "(MM/DD/YYYY)"; None if it says nothing, or both."""
    told = {match.lastgroup for match in _TOLD_FIRST.finditer(text)}
    return told.pop() if len(told) == 1 else None


def _only_year(dates: list[_Possible]) -> int | None:
    """The year of all dates that have one; None if they have several."""
    years = {date.readings[0].year for date in dates}
    years.discard(None)
    return years.pop() if len(years) == 1 else None


def _readings(match: Any) -> list[_Reading]:
    """The ways to read a match of the pattern; some may be impossible."""
    year = _whole_year(match["y"]) if match["y"] else None
    if match["m"]:
        return [_Reading("year", year, int(match["m"]), int(match["d"]))]
    if match["name"]:
        order = _named_first(match)
        day = int(match["d"])
        months = month_names().get(_bare(match["name"]), [])
        return [_Reading(order, year, month, day) for month in months]
    # Two numbers without a name, groups a and b: 3/4/2020.
    first = int(match["a"])
    second = int(match["b"])
    if first == second:
        return [_Reading("either", year, first, second)]
    readings = [
        _Reading("day", year, month=second, day=first),
        _Reading("month", year, month=first, day=second),
    ]
    if len(match["y"]) == 2 and not any(_iso(reading) for reading in readings):
        return [_Reading("year", _whole_year(match["a"]), second, int(match["y"]))]
    return readings


def _named_first(match: Any) -> str:
    """What stands first in a date with the name of a month."""
    if match["y"] and match.start("y") < match.start("name"):
        return "year"
    return "day" if match.start("d") < match.start("name") else "month"


def _whole_year(year: str) -> int:
    """A year of two or four digits as a number."""
    number = int(year.lstrip("'’"))
    if number >= 100:
        return number
    return number + (1900 if number >= 69 else 2000)


def _iso(reading: _Reading, year: int | None = None) -> str:
    """A reading in ISO 8601, in a year that stands elsewhere if it has none; "" if there is no such date."""
    try:
        return datetime.date(
            reading.year or year or 0, reading.month, reading.day
        ).isoformat()
    except ValueError:
        return ""


def _time_value(match: Any) -> str:
    """A match of the pattern of times in ISO 8601; "" if there is no such time."""
    hour = int(match["h"])
    half = match["half"]
    if half and not 1 <= hour <= 12:
        return ""
    if half:
        hour = hour % 12
    if half in ("p", "P"):
        hour += 12
    if hour > 23:
        return ""
    minute = match["min"] or "00"
    second = match["s"] or "00"
    fraction = match["part"] or ""
    return f"{hour:02}:{minute}:{second}{fraction}{_offset(match['offset'])}"


def _offset(written: str | None) -> str:
    """An offset from UTC in ISO 8601; "" if none is written."""
    if not written:
        return ""
    if written.isalpha():  # Z, UTC, GMT
        return "Z"
    return f"{written[:3]}:{written[-2:]}"


def _bare(text: str) -> str:
    """A text in small letters and without accents: capital letters are often written so."""
    decomposed = unicodedata.normalize("NFKD", text.casefold().replace("ı", "i"))
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def quantity(text: str, start: int, end: int, *values: Any) -> Quantity:
    """The `Quantity` from `start` to `end` in a text, which may mean these values."""
    return Quantity(start, end, " ".join(text[start:end].split()), values)


def western(text: str) -> str:
    """A text with the digits of all scripts as 0 to 9; it stays as long as it is."""
    if text.isascii():
        return text
    return str(regex.sub(r"(?![0-9])\d", lambda match: str(int(match[0])), text))
