"""The answers of a row that are known before anything is written: choices of a schema, numbers and dates of a source."""

import json
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from pipedec_cli.data.dates import Quantity, dates_in, datetimes_in, times_in, whole
from pipedec_cli.data.fields import Field, Keys, any_item, mapped, text_of
from pipedec_cli.data.numbers import amounts_in, numbers_in, read_number
from pipedec_cli.data.places import found_in, places_in, places_of
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
_CENTS: Final = re.compile(r"\d[.,]\d\d(?!\d|[.,]\d)")


def _amounts_in(text: str) -> list[Quantity]:
    """The amounts that are no part of another."""
    wide: list[Quantity] = []
    for amount in sorted(amounts_in(text), key=lambda found: (found.start, -found.end)):
        if not wide or amount.start >= wide[-1].end:
            wide.append(amount)
    return wide


def _prices_in(text: str) -> list[Quantity]:
    return [amount for amount in _amounts_in(text) if _CENTS.search(amount.text)]


def _bare_prices_in(text: str) -> list[Quantity]:
    return [number for number in numbers_in(text) if _CENTS.search(number.text)]


def _lines_in(text: str) -> list[Quantity]:
    """The lines of a text as they stand, without full stops and the like at their ends, where a value never ends."""
    lines = []
    for match in re.finditer(r"\S[^\n]*", text):
        line = " ".join(match[0].split()).rstrip(" .,:;")
        if line:
            lines.append(Quantity(*match.span(), line, (line,)))
    return lines


#: What finds the candidates of each kind in a source.
_FINDERS: Final[dict[Reading, Callable[[str], list[Quantity]]]] = {
    "number": numbers_in,
    "date": dates_in,
    "datetime": datetimes_in,
    "time": times_in,
    "price": _prices_in,
    "bare price": _bare_prices_in,
    "amount": _amounts_in,
    "bare amount": numbers_in,
    "line": _lines_in,
}
#: What examples may be, in the order in which it is tried, and as what each whole text
#: is read.
_LEARNT: Final[dict[Reading, Reading]] = {
    "date": "date",
    "datetime": "datetime",
    "time": "time",
    "price": "price",
    "bare price": "price",
    "amount": "amount",
    "bare amount": "amount",
}
_FORMATS: Final[dict[str, Reading]] = {
    "date": "date",
    "date-time": "datetime",
    "time": "time",
}
_NUMBERS: Final = frozenset(["number", "integer"])
_BOUNDS: Final = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}


class Known(NamedTuple):
    """An answer that is known: the text in its row, and the text of the value that this means."""

    text: str
    means: str


def is_worded(field: Field) -> bool:
    """Whether the schema lets the model word the value itself."""
    return (FREE, True) in field.keywords


def reading_of(field: Field) -> Reading | None:
    """What the values of a field, or the items of a list, are read as; None where they are no numbers, dates or times."""
    keywords = dict(field.keywords)
    if _NUMBERS.intersection(field.kinds):
        # A string beside the number is a number too, if a pattern or a format says how
        # it is written.
        is_written = "pattern" in keywords or "format" in keywords
        return "number" if is_written or "string" not in field.kinds else None
    if field.kinds == ("string",):
        return _FORMATS.get(keywords.get("format", ""))
    return None


def learnt_reading(examples: Sequence[tuple[str, str]]) -> Reading | None:
    """What all right values of a string are read as; None if they are of several kinds, or if there is none.

    Each example is a value and the source that has it.
    """
    if not examples:
        return None
    for reading, read_as in _LEARNT.items():
        find = _FINDERS[read_as]
        are_read = all(whole(find(value.strip()), value) for value, _ in examples)
        if are_read and all(_stands(*example, reading) for example in examples):
            return reading
    return "line" if all(_is_line(*example) for example in examples) else None


def _stands(value: str, source: str, reading: Reading) -> bool:
    """Whether a value is one of a source's numbers or dates, say, or stands nowhere in it."""
    texts = [quantity.text for quantity in found_in(source, _FINDERS[reading])]
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
        numbers = _fitting(replace(field, keywords=()), read_number(value))
        return json.loads(numbers[0]) if numbers else value

    return replace(record, target_fields=mapped(record.target_fields or {}, read))


def as_it_stands(field: Field, value: Any, source: str) -> str:
    """The text of an example's value: of a number, a date or a time, as its source has it."""
    text = text_of(value)
    if isinstance(value, list) or reading_of(field) is None:
        return text
    for start, end in places_of(value, source):
        return " ".join(source[start:end].split())
    return text


def is_choice(field: Field) -> bool:
    """Whether the answer is one of few that a schema names."""
    return field.kind != "list" and bool(field.enum or field.kinds == ("boolean",))


def choices(field: Field) -> list[Known]:
    """The values that a schema names for a single value: those of an enum, or true and false."""
    texts = field.enum
    if not texts and is_choice(field):
        texts = ("true", "false")
    if field.kind == "list":
        texts = ()
    return [Known(text, text) for text in texts]


def candidates(field: Field, source: str, learnt: Reading | None) -> list[Known] | None:
    """The values that stand in a source, each text once; None if a field has no such values.

    A string whose right values are all `learnt` to be dates or prices, say, has its
    values as they stand.
    """
    reading = reading_of(field)
    sought = reading or learnt
    if sought is None:
        return None
    if learnt == "line" and not 1 < source.strip().count("\n") < _MOST_LINES:
        return None
    texts = ("true", "false") if "boolean" in field.scalars else ()
    known = {text: Known(text, text) for text in texts}
    for quantity in found_in(source, _FINDERS[sought]):
        meanings = [quantity.text]
        if reading == "number":
            meanings = _fitting(field, quantity.values)
        elif reading:
            meanings = [*quantity.values]
        if meanings:
            known.setdefault(quantity.text, Known(quantity.text, meanings[0]))
    return [*known.values()]


def _fitting(field: Field, numbers: Sequence[int | float]) -> list[str]:
    """The JSON of those numbers that a field may have: of integers and within its bounds, if it says so."""
    is_whole = "number" not in field.kinds
    keywords = dict(field.keywords)
    texts = []
    for number in numbers:
        if is_whole and float(number).is_integer():
            number = int(number)  # noqa: PLW2901
        fits = isinstance(number, int) or not is_whole
        if fits and _is_within(number, keywords):
            texts.append(json.dumps(number))
    return texts


def _is_within(number: int | float, keywords: dict[str, Any]) -> bool:
    """Whether a number holds to the bounds of a schema."""
    for word, holds in _BOUNDS.items():
        if word in keywords and not holds(number, keywords[word]):
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
    if field.kind != "string" or not _NUMBERS.intersection(field.scalars):
        return text
    numbers = _fitting(field, read_number(text))
    return numbers[0] if numbers else text
