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
    **dict.fromkeys(("pattern", "format"), str),
    **dict.fromkeys(("properties", "patternProperties"), dict),
    **dict.fromkeys(("enum", "required"), list),
    METRIC: (str, int, float),
    FREE: bool,
}


def is_usable(word: str, value: Any) -> bool:
    """Whether a keyword has a value of its kind; any has that is not looked at here."""
    if word in (FREE, "uniqueItems"):
        return value is True
    if isinstance(value, bool):
        return word not in _TYPES
    if word in _COUNTS:
        return isinstance(value, int)
    if word == "nullable":
        return False
    return isinstance(value, _TYPES.get(word, object))


def is_wrong(word: str, value: Any) -> bool:
    """Whether the value of a keyword is wrong in every draft and for every engine."""
    if word == "type":
        return bool(value == [])
    if word not in _TYPES or word == "enum":
        return False
    # Exclusive bounds are booleans in draft 4, and an empty object of PHP is a list.
    if word in (FREE, METRIC) or not isinstance(value, list | bool | None):
        is_fitting = isinstance(value, _TYPES[word])
        return not is_fitting or _is_out_of_range(word, value)
    if word == "required" and isinstance(value, list):
        return not all(isinstance(name, str) for name in value)
    return word == "required" and value is True


def _is_out_of_range(word: str, value: Any) -> bool:
    if word == METRIC:
        return not METRICS.fullmatch(str(value))
    if word == "pattern":
        return not is_balanced(value)
    if word == "multipleOf":
        return bool(value <= 0)
    if word not in _COUNTS:
        return False
    return bool(value < 0 or value % 1 != 0)
