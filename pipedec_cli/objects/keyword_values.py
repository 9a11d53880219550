"""Which values of a keyword can be used, and which are wrong in every draft."""

import re
from typing import Any, Final

from pipedec_cli.objects.keywords import FREE, METRIC, OF_NUMBERS
from pipedec_cli.objects.patterns import is_balanced

#: How values may be scored; see `parse_metrics`.
METRICS: Final = re.compile(r"exact|words|\d+(\.\d+)?%?", re.ASCII)
_LEAST: Final = ("minLength", "minItems", "minProperties")
_MOST: Final = ("maxLength", "maxItems", "maxProperties")
_COUNTS: Final = _LEAST + _MOST
#: Of two of these that both hold, the greater holds, or the smaller.
GREATER_HOLDS: Final = frozenset(["minimum", "exclusiveMinimum", *_LEAST])
SMALLER_HOLDS: Final = frozenset(["maximum", "exclusiveMaximum", *_MOST])
#: The types of the values that can be used; older drafts have others too.
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(OF_NUMBERS + _COUNTS, (int, float)),
    "pattern": str,
    "format": str,
    "properties": dict,
    "patternProperties": dict,
    "enum": list,
    "required": list,
    METRIC: (str, int, float),
    FREE: bool,
}


def is_usable(word: str, value: Any) -> bool:
    """Whether the keyword `word` says something with this value: a value of the wrong type is passed over.

    Keywords of which nothing is known here are usable with any value.
    """
    if word in (FREE, "uniqueItems"):
        return value is True
    if word == "nullable":
        return isinstance(value, bool)
    if word not in _TYPES:
        return True
    if isinstance(value, bool):  # to Python it is a number as well
        return False
    if word in _COUNTS:
        return isinstance(value, int)
    return isinstance(value, _TYPES[word])


def is_wrong(word: str, value: Any) -> bool:
    """Whether the value of the keyword `word` is wrong in every draft of JSON Schema and for every engine."""
    if word == "type":
        return bool(value == [])
    if word not in _TYPES or word == "enum":
        return False
    # Other types than these may be right elsewhere: exclusive bounds are booleans in
    # draft 4, an empty object of PHP is a list, and null often stands for nothing.
    if word in (FREE, METRIC) or not isinstance(value, list | bool | None):
        is_fitting = isinstance(value, _TYPES[word])
        return not is_fitting or _is_out_of_range(word, value)
    if word == "required" and isinstance(value, list):
        return not all(isinstance(name, str) for name in value)
    return word == "required" and value is True


def _is_out_of_range(word: str, value: Any) -> bool:
    """Whether the value of a keyword has the right type, but is none that this keyword can have."""
    if word == METRIC:
        return not METRICS.fullmatch(str(value))
    if word == "pattern":
        return not is_balanced(value)
    if word == "multipleOf":
        return bool(value <= 0)
    if word not in _COUNTS:
        return False
    return bool(value < 0 or value % 1 != 0)
