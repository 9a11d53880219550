"""The answers of a row that are known before anything is written: choices of a schema, numbers and dates of a source."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from pipedec_cli.data.dates import (
    Quantity,
    dates_in,
    datetimes_in,
    read_date,
    read_datetime,
    read_time,
    times_in,
)
from pipedec_cli.data.fields import Field, Keys, any_item, mapped, text_of
from pipedec_cli.data.numbers import amounts_in, numbers_in, read_number
from pipedec_cli.data.places import places_in, places_of
from pipedec_cli.data.records import Record
from pipedec_cli.objects.keywords import FREE

#: What a value is read as. An ``amount`` is a number as it stands, with the currency or
#: percent sign beside it, and a ``price`` such an amount with two decimals; the
#: ``bare`` ones are without these signs. A ``line`` is a whole line of a text that has
#: several.
Reading = Literal[
    "number",
    "date",
    "datetime",
    "time",
    "price",
    "bare price",
    "amount",
    "bare amount",
    "line",
]
#: A text with more lines has no candidates that are lines: it takes too long to try
#: them all.
_MOST_LINES: Final = 200


def _wide_amounts_in(text: str) -> list[Quantity]:
    """The amounts that are no part of another."""
    wide = list[Quantity]()
    for amount in sorted(
        amounts_in(text), key=lambda amount: (amount.start, -amount.end)
    ):
        if not wide or amount.start >= wide[-1].end:
            wide.append(amount)
    return wide


def _prices_in(text: str) -> list[Quantity]:
    return [amount for amount in _wide_amounts_in(text) if _CENTS.search(amount.text)]


def _bare_prices_in(text: str) -> list[Quantity]:
    return [number for number in numbers_in(text) if _CENTS.search(number.text)]


def _lines_in(text: str) -> list[Quantity]:
    """The lines of a text as they stand, without full stops and the like at their ends, where a value never ends."""
    lines = list[Quantity]()
    for match in re.finditer(r"\S[^\n]*", text):
        line = " ".join(match[0].split()).rstrip(" .,:;")
        if line:
            lines.append(Quantity(*match.span(), line, (line,)))
    return lines


def _read_price(text: str) -> tuple[int | float, ...]:
    return read_number(text) if _CENTS.search(text) else ()


_CENTS: Final = re.compile(r"\d[.,]\d\d(?!\d|[.,]\d)")
#: What finds the candidates of each kind in a source, and what reads a whole text.
_FINDERS: Final[dict[Reading, Callable[[str], list[Quantity]]]] = {
    "number": numbers_in,
    "date": dates_in,
    "datetime": datetimes_in,
    "time": times_in,
    "price": _prices_in,
    "bare price": _bare_prices_in,
    "amount": _wide_amounts_in,
    "bare amount": numbers_in,
    "line": _lines_in,
}
_READERS: Final[dict[Reading, Callable[[str], tuple[Any, ...]]]] = {
    "date": read_date,
    "datetime": read_datetime,
    "time": read_time,
    "price": _read_price,
    "bare price": _read_price,
    "amount": read_number,
    "bare amount": read_number,
}
_FORMATS: Final[dict[str, Reading]] = {
    "date": "date",
    "date-time": "datetime",
    "time": "time",
}
_NUMBERS: Final = frozenset(["number", "integer"])


class Known(NamedTuple):
    """An answer that is known: the text in its row, and the text of the value that this means."""

    text: str
    means: str


def is_worded(field: Field) -> bool:
    """Whether the schema lets the model word the value itself."""
    return (FREE, True) in field.keywords


def reading_of(field: Field) -> Reading | None:
    """What the values of a field, or the items of a list, are read as; None where they are no numbers, dates or times."""
    kinds = {*field.scalars} if field.kind in ("string", "list") else {field.kind}
    keywords = dict(field.keywords)
    if kinds & _NUMBERS:
        # A string beside the number is a number too, if a pattern or a format says how
        # it is written.
        is_number = (
            "string" not in kinds or "pattern" in keywords or "format" in keywords
        )
        return "number" if is_number else None
    if field.kind in ("string", "list") and not field.scalars:
        return _FORMATS.get(keywords.get("format", ""))
    return None


def learnt_reading(examples: Sequence[tuple[str, str]]) -> Reading | None:
    """What all right values of a string are read as; None if they are of several kinds, or if there is none.

    Each example is a value and the source that has it.
    """
    if not examples:
        return None
    for reading, read in _READERS.items():
        is_read = all(read(value) for value, _ in examples)
        if is_read and all(
            _stands(value, source, reading) for value, source in examples
        ):
            return reading
    return (
        "line" if all(_is_line(value, source) for value, source in examples) else None
    )


def _stands(value: str, source: str, reading: Reading) -> bool:
    """Whether a value is one of a source's numbers or dates, say, or stands nowhere in it."""
    texts = [quantity.text for quantity in _found_in(source, reading)]
    return value in texts or not places_in(value, source)


def _is_line(value: str, source: str) -> bool:
    """Whether a value is a whole line of a source that has several."""
    lines = [line.text for line in _lines_in(source)]
    return len(lines) > 1 and " ".join(value.split()) in lines


def with_values(record: Record, fields: Sequence[Field]) -> Record:
    """An example whose strings are numbers where its key has numbers, if they read as such."""
    numeric = {field.keys: field for field in fields if field.kind in _NUMBERS}

    def read(keys: Keys, value: Any) -> Any:
        field = numeric.get(any_item(keys))
        if field is None or not isinstance(value, str):
            return value
        meanings = meanings_of(
            replace(field, keywords=()), "number", read_number(value)
        )
        return json.loads(meanings[0]) if meanings else value

    return replace(record, target_fields=mapped(record.target_fields or {}, read))


def as_it_stands(field: Field, value: Any, source: str) -> str:
    """The text of an example's value: of a number, a date or a time, as its source has it."""
    text = text_of(value)
    if isinstance(value, list) or reading_of(field) is None:
        return text
    places = places_of(value, source)
    return " ".join(source[slice(*places[0])].split()) if places else text


def choices(field: Field) -> list[Known]:
    """The values that a schema names for a single value: those of an enum, or true and false."""
    if field.kind == "list":
        return []
    if field.enum:
        return [Known(text, text) for text in field.enum]
    if field.kind == "boolean" or field.scalars == ("boolean",):
        return [Known("true", "true"), Known("false", "false")]
    return []


@lru_cache(maxsize=16)  # the keys of a schema share what stands in a source
def _found_in(source: str, reading: Reading) -> tuple[Quantity, ...]:
    """What stands in a source that may be read so."""
    return tuple(_FINDERS[reading](source))


def candidates(field: Field, source: str, learnt: Reading | None) -> list[Known] | None:
    """The values that stand in a source, each text once; None if a field has no such values.

    A string whose right values are all `learnt` to be dates or prices, say, has its
    values as they stand.
    """
    reading = reading_of(field)
    if reading is None and learnt is None:
        return None
    if learnt == "line" and not 1 < source.strip().count("\n") < _MOST_LINES:
        return None
    known = dict[str, Known]()
    if "boolean" in field.scalars:
        known = {text: Known(text, text) for text in ("true", "false")}
    for quantity in _found_in(source, reading or learnt or "number"):
        if reading is None:
            known.setdefault(quantity.text, Known(quantity.text, quantity.text))
            continue
        meanings = meanings_of(field, reading, quantity.values)
        if meanings:
            known.setdefault(quantity.text, Known(quantity.text, meanings[0]))
    return [*known.values()]


def meanings_of(field: Field, reading: Reading, values: Sequence[Any]) -> list[str]:
    """The texts of those values that a field may have."""
    if reading != "number":
        return [str(value) for value in values]
    kinds = {*field.scalars} or {field.kind}
    return [*_numbers(values, dict(field.keywords), whole="number" not in kinds)]


def _numbers(
    values: Sequence[int | float], keywords: dict[str, Any], *, whole: bool
) -> Iterator[str]:
    """The JSON of the numbers within the bounds of a schema; of integers if they are to be `whole`."""
    for value in values:
        number = int(value) if whole and float(value).is_integer() else value
        if whole and not isinstance(number, int):
            continue
        if within(number, keywords):
            yield json.dumps(number)


def within(number: int | float, keywords: dict[str, Any]) -> bool:
    """Whether a number holds to the bounds of a schema."""
    if number < keywords.get("minimum", -math.inf) or number > keywords.get(
        "maximum", math.inf
    ):
        return False
    if number <= keywords.get("exclusiveMinimum", -math.inf):
        return False
    if number >= keywords.get("exclusiveMaximum", math.inf):
        return False
    step = keywords.get("multipleOf")
    if not step:
        return True
    try:
        quotient = number / step
        return math.isclose(quotient, round(quotient), rel_tol=1e-9)
    except OverflowError:  # the object is checked in the end
        return True


def as_number(field: Field, text: str) -> str:
    """The text of a value that may be a number or a string: of a number if it reads as one."""
    if not {*field.scalars} & _NUMBERS or field.kind != "string":
        return text
    meanings = meanings_of(field, "number", read_number(text))
    return meanings[0] if meanings else text
