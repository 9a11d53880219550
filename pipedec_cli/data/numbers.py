"""Finds the numbers and amounts that stand in a text, and says what each may mean.

A number is written in digits, or is a word from zero to twelve in English, German,
French or Spanish. "One" and "eins" are numbers; "ein", "un", "una", "uno" and their
like, which are articles as well, are none. A number is no part of a word (A4471), a
date, a time, a version, an identifier (CS-20817) or a telephone number; a unit may
stand beside it ("5kg", "5-star").
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import regex

from pipedec_cli.data.dates import (
    Quantity,
    dates_in,
    quantity,
    times_in,
    western,
    whole,
)

Number = int | float

#: The most digits before a decimal sign, and behind it.
MOST_DIGITS: Final = 30
MOST_DECIMALS: Final = 17
_UP_TO_TWELVE: Final = [
    "zero one two three four five six seven eight nine ten eleven twelve",
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze",
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce",
]
#: Words of these that are no numbers: articles, or words of other things.
_ARTICLES: Final = {"un", "uno", "null"}
#: Words that are numbers in one language and something else in another: what its texts
#: have beside them.
_SHARED: Final = {
    "once": re.compile(r"\b(?:el|los|las|del|por|con|para)\b", re.IGNORECASE),
    "sept": re.compile(r"\b(?:le|la|les|des|du|et|sont)\b", re.IGNORECASE),
    "elf": re.compile(r"\b(?:der|das|und|mit|ist|für|sind)\b", re.IGNORECASE),
}
#: Words behind a number that multiply it.
_SCALE: Final = r"""(?i:(?P<thousands>thousand|tausend|mil(?:le)?)
    |(?P<millions>millione[ns]|millions?|mio|millón)|(?P<billions>billions?|milliarden?|milliards?|mrd))"""
#: Letters behind a price, and the powers of ten that they stand for.
_LETTERS: Final = {"k": 3, "m": 6, "b": 9}
#: What makes the number behind it negative; "10 minus 5" is no such place.
_MINUS: Final = re.compile(r"(?<![\w-])(?<!\d\s)minus\s\Z", re.IGNORECASE)
_CODES: Final = (
    "EUR|USD|GBP|CHF|JPY|CNY|RMB|HKD|TWD|KRW|SGD|MYR|IDR|THB|PHP|VND|INR|PKR|LKR|AUD|NZD|CAD|MXN|BRL|ARS"
    "|CLP|COP|ZAR|NGN|KES|EGP|AED|SAR|ILS|TRY|RUB|UAH|PLN|CZK|HUF|RON|BGN|SEK|NOK|DKK|ISK|RM|Rp|Rs|kr|zł|Kč|Ft|lei"
)
_CURRENCY: Final = rf"(?:[A-Z]{{0,3}}\p{{Sc}}|(?:{_CODES})\.?)"
_UNITS: Final = "(?i:kg|mg|g|lbs?|oz|l|ml|cl|mm|cm|m|km|mi|ft|min|hrs?|h|ms|kwh?|w|v|hz|mhz|ghz|kb|mb|gb|tb|pcs?|x)"
_SPACE: Final = r"[ \u00a0\u2009\u202f]"

_BEFORE: Final = regex.compile(rf"(?<!\w)(?P<sign>[-+−]?){_CURRENCY}{_SPACE}?\Z")
#: A minus behind two decimals, as account statements have it; it is none in
#: "12.50- 15.00" and "$5.00-$8.00".
_MINUS_BEHIND: Final = regex.compile(
    rf"(?<=[.,]\d\d)[-−](?!\w|{_SPACE}?(?:{_CURRENCY}{_SPACE}?)?\d)"
)
_AFTER: Final = regex.compile(
    rf"{_SPACE}?(?:[%‰]|(?P<currency>{_CURRENCY})(?!\w|{_SPACE}?\d))"
)
#: The sign of a number. It is a hyphen behind a word, a number ("3-5") or a price
#: ("3€-5€").
_SIGN: Final = rf"""(?:
    (?=[-+−]) (?: (?<![\w\p{{P}}]) | (?<=[(\[{{:="“„«]) | (?<={_CURRENCY}) ) (?<!\d{_SPACE}?{_CURRENCY}) [-+−]
)?"""
_NUMBER: Final = regex.compile(
    rf"""
(?=[-+−.,\d]) (?: (?<=(?<!\w){_CURRENCY}{_SPACE}?)(?P<price>) | (?<!\w) ) (?<![\d_][.,'’])
(?P<number> {_SIGN}
  (?P<digits>
    (?<!\d{_SPACE}) [1-9]\d{{0,2}} (?P<space>{_SPACE})\d{{3}} (?:(?P=space)\d{{3}})*+
    (?:[.,]\d+)?+ (?!{_SPACE}?\d)
  | \d++(?:[.,'’]\d+)*+
  | (?<!\p{{P}})\.\d++(?!\.\p{{L}})
  ) (?: {_SPACE}{_SCALE}(?!\w)
    # $2.5M, 2.5M EUR
    | (?P<letter>[kKmM]|[mbM]n|[bB]) (?: (?(price)(?!\w)|(?!)) | (?={_SPACE}?{_CURRENCY}(?!\w)) )
  )? )
(?= (?![\w\p{{No}}]) | (?!M(?!\w))(?:{_CURRENCY}|{_UNITS})(?!\w) ) (?![-/]\p{{L}}(?!\p{{Ll}}{{2}}))
""",
    regex.VERBOSE,
)
#: What has digits and is no number. Bounds keep the time linear.
_OTHER: Final = regex.compile(
    rf"""
(?<!\w) (?:
    # A word with digits: A4471, CS-20817, but not RM40
    (?=\p{{L}}) (?!{_CURRENCY}[-+−]?\d) [^\W\d]*+ (?:[-–/][^\W\d]++){{0,3}}+
    [-–/]?\d\w*+ (?:[-–/]\w+|[.,]\d+)*+
    # More than two joined: 1-2-3, 31/02/2018, but not 17-year-old
  | \d[\w.,]{{0,40}}+ (?: [-–/:] (?!\p{{Ll}}{{3}})\w [\w.,]{{0,40}}+ ){{2,}}
    # Powers of ten: 1.5e-3
  | \d[\d.,]{{0,40}}+[eE][-+−]?\d++(?!\w)
    # Telephone numbers: +60 3-1234 5678, 07-364 3785, 555 0100, (555) 123-4567
  | \+ (?=(?:[ ()/-]{{0,2}}\d){{8,15}}(?!\d)) \d{{1,3}} (?:[ ()/-]{{1,2}}\d{{1,8}})++
  | (?<!\d[ /-]) (?=(?:[ /-]{{0,2}}\d){{7,15}}(?!\d)) 0\d{{1,5}} (?:[ /-]{{1,2}}\d{{2,8}})++
  | \d{{2,5}}[ -]0\d{{3}}(?!\d)
  | \(?\d{{3}}\)?[ -]\d{{3}}[ -]\d{{4}}(?!\d)
    # What begins with a zero: 000752517120, 5-02
  | 0\d{{6,}}+(?![.,]\d)
  | (?<![.,]) (?: 0\d++[-–/:]\d | \d++[-–/:]0\d ) [\d.,]*+
)
""",
    regex.VERBOSE,
)


def _word_values() -> dict[str, int]:
    """The words that are numbers, and their values."""
    values: dict[str, int] = {}
    for words in _UP_TO_TWELVE:
        values.update(
            (word, value)
            for value, word in enumerate(words.split())
            if word not in _ARTICLES
        )
    return values


_WORDS: Final = _word_values()
#: Digits in groups of three, or in India's groups.
_GROUPS: Final = re.compile(
    rf"[1-9]\d{{0,2}}([.,'’]|{_SPACE})\d{{3}}(?:\1\d{{3}})*|[1-9]\d?(?:,\d\d)+,\d{{3}}"
)
#: Words of larger numbers: what stands behind them, or before the second of these
#: groups, is a part of the number, as in "twenty five" and "five billion".
_TENS: Final = (
    "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|vingt|trente|quarante"
    "|cinquante|soixante|treinta|cuarenta|cincuenta|sesenta|setenta|ochenta|noventa"
)
_LARGE: Final = (
    "hundred|thousand|dozen|[mb]illion(?:e?[ns])?|hundert|tausend|milliarden?"
    "|milliards?|mil(?:le)?|millón|millones|vingts?"
)
_WORD: Final = regex.compile(
    rf"""(?<![\w'’-]) (?<!\b(?:{_TENS}|{_LARGE}|point)(?:\s(?:and|und|et|y))?[\s-])
    \L<words> (?![\w'’]|[\s-](?:{_LARGE}|point)\b)""",
    regex.IGNORECASE | regex.VERBOSE,
    words=list(_WORDS),
)


class _Written(NamedTuple):
    """A number of a text, from `start` to `end`: its value for each decimal sign that may be meant.

    The key is "." or ",", or "" if the value does not depend on it.
    """

    start: int
    end: int
    readings: dict[str, Number]


def numbers_in(text: str) -> list[Quantity]:
    """The numbers of a text, in digits or words. Digits without a decimal sign are an int, others a float.

    Where a sign may be a decimal sign or one of groups (1.250), the text's other
    numbers decide. If they do not, there are two values, the first with a decimal
    point; beside a currency the first is that in groups, because prices have no three
    decimals.
    """
    masked = _masked(text)
    written = [
        _signed(masked, number) for number in (*_digits(masked), *_words(masked))
    ]
    sure = [number.readings for number in written if len(number.readings) == 1]
    signs: set[str] = set().union(*sure) - {""}
    elsewhere: set[Number] = set().union(*(readings.values() for readings in sure))
    numbers = []
    for number in written:
        values = _decided(number.readings, signs, elsewhere)
        if _is_price(text, number.start, number.end):
            values = tuple(sorted(values, key=lambda value: isinstance(value, float)))
        numbers.append(quantity(text, number.start, number.end, *values))
    return sorted(numbers)


def amounts_in(text: str) -> list[Quantity]:
    """The numbers of a text, and those with a currency or percent sign beside them once more, with this sign.

    "$7.00" is followed by "7.00". The values are the same: 12 % is 12.
    """
    amounts = []
    for number in numbers_in(text):
        start, end, _, values = number
        amounts.append(number)
        before = _currency_before(text, start)
        after = _AFTER.match(text, end)
        if before:
            amounts.append(quantity(text, start - len(before[0]), end, *values))
        elif after:
            amounts.append(quantity(text, start, after.end(), *values))
    return sorted(amounts)


def _currency_before(text: str, start: int) -> Any:
    """The match of a currency, with its sign, that stands right before the place `start` of a text; None if there is none."""
    return _BEFORE.search(text[max(0, start - 10) : start])


def _is_price(text: str, start: int, end: int) -> bool:
    """Whether a currency stands beside a number."""
    after = _AFTER.match(text, end)
    return bool(_currency_before(text, start) or (after and after["currency"]))


def read_number(text: str) -> tuple[Number, ...]:
    """What a whole text means as a number or an amount; () if it is none."""
    return whole(amounts_in(text.strip()), text)


def _masked(text: str) -> str:
    """A text whose dates, times, identifiers and telephone numbers are underscores."""
    letters = list(western(text))
    for other in [*dates_in(text), *times_in(text)]:
        if not other.text.isdigit():  # 20180325 may be a number as well
            letters[other.start : other.end] = "_" * (other.end - other.start)
    return str(_OTHER.sub(lambda match: "_" * len(match[0]), "".join(letters)))


def _digits(masked: str) -> Iterator[_Written]:
    """The numbers that are written in digits."""
    for match in _NUMBER.finditer(masked):
        start, end = match.span("number")
        readings = _readings(match["digits"], _power(match))
        if match["number"][0] in "-−":
            readings = {sign: -value for sign, value in readings.items()}
        if readings:
            yield _Written(start, end, readings)


def _words(masked: str) -> Iterator[_Written]:
    """The numbers that are written as words."""
    for match in _WORD.finditer(masked):
        word = match[0].casefold()
        beside = _SHARED.get(word)
        if word in _WORDS and (not beside or beside.search(masked)):
            yield _Written(match.start(), match.end(), {"": _WORDS[word]})


def _signed(masked: str, number: _Written) -> _Written:
    """The number with what makes it negative: the word "minus" before it, a minus behind it, or one before its currency."""
    start, end, _ = number
    word = _MINUS.search(masked[max(0, start - 8) : start])
    if word:
        start -= len(word[0])
    behind = _MINUS_BEHIND.match(masked, end)
    if behind:
        end = behind.end()
    currency = _currency_before(masked, number.start)
    is_debit = currency is not None and currency["sign"] in ("-", "−")
    if not (word or behind or is_debit):
        return number
    readings = {sign: -value for sign, value in number.readings.items()}
    return _Written(start, end, readings)


def _power(match: Any) -> int:
    """The power of ten that the word, or the letter of a price, behind a number multiplies it by."""
    if match["letter"]:
        return _LETTERS[match["letter"][0].lower()]
    if match["thousands"]:
        return 3
    if match["millions"]:
        return 6
    return 9 if match["billions"] else 0


def _readings(digits: str, power: int) -> dict[str, Number]:
    """The values of `digits`, times ten to the `power`, by the decimal signs that may be meant; {} if it is no number."""
    point = _value(digits, ".", power)
    comma = _value(digits, ",", power)
    if point == comma and point is not None:
        return {"": point}
    readings = {}
    if point is not None:
        readings["."] = point
    if comma is not None:
        readings[","] = comma
    return readings


def _value(digits: str, sign: str, power: int) -> Number | None:
    """The value of `digits`, times ten to the `power`, if `sign` is the decimal sign; None if no number is written so."""
    before, point, decimals = digits.partition(sign)
    if before and not before.isdecimal() and not _GROUPS.fullmatch(before):
        return None
    before = re.sub(r"\D", "", before) or "0"
    if len(before) > MOST_DIGITS:
        return None
    if not point:
        whole_number: int = int(before) * 10**power
        return whole_number
    if not decimals.isdecimal() or len(decimals) > MOST_DECIMALS:
        return None
    return float(f"{before}.{decimals}e{power}")


def _decided(
    readings: dict[str, Number], signs: set[str], elsewhere: set[Number]
) -> tuple[Number, ...]:
    """The values that a number may mean, by its `readings` and by the numbers of the text that have but one.

    `signs` are the decimal signs of those, `elsewhere` are their values. A value in groups that stands elsewhere in the text is meant here too: "1.250,00
    EUR, in words 1,250".
    """
    values = tuple(readings.values())
    if len(values) == 1:
        return values
    repeated = [
        value for value in values if isinstance(value, int) and value in elsewhere
    ]
    if repeated:
        return tuple(repeated)
    if len(signs) == 1:
        return (readings[min(signs)],)
    return values
