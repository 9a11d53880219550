"""Patterns of JSON Schema as expressions of whole texts."""

import re
from typing import Final

#: What llguidance cannot read in a pattern.
_LOOKING: Final = re.compile(r"\(\?[=!<]|\\[1-9bB]")
#: What a pattern has that is no sign of its own: an escaped character, or a class.
_ATOM: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)


#: Digits and letters of words are those of ASCII in JSON Schema, as in ECMA-262.
_ASCII: Final = {r"\d": "[0-9]", r"\w": "[0-9A-Za-z_]"}
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)


def is_balanced(pattern: str) -> bool:
    """Whether as many parentheses end as begin, and each class ends. Engines differ in all else."""
    signs = _ATOM.sub("x", pattern)
    return signs.count("(") == signs.count(")") and "[" not in signs


def searched(pattern: str) -> str | None:
    """Make a regular expression that matches the whole of each text in which a pattern is found.

    ^ and $ at its ends go, as llguidance knows none. None if they stand elsewhere in
    the pattern, or belong to one of its alternatives only.
    """
    signs = _ATOM.sub("x", pattern)  # classes and escaped characters are one x each
    begins = signs.startswith("^")
    ends = signs.endswith("$")
    inner = signs[begins : len(signs) - ends]
    if "^" in inner or "$" in inner:
        return None
    if (begins or ends) and _has_open_alternatives(inner):
        return None
    before = "" if begins else ".*"
    after = "" if ends else ".*"
    whole = pattern[begins : len(pattern) - ends]
    whole = _ESCAPED.sub(lambda sign: _ASCII.get(sign[0], sign[0]), whole)
    return f"{before}(?:{whole}){after}"


def _has_open_alternatives(signs: str) -> bool:
    """Whether a bar stands outside all parentheses; `signs` is a pattern without classes and escaped characters."""
    shorter = re.sub(r"\([^()]*\)", "x", signs)
    while shorter != signs:
        signs = shorter
        shorter = re.sub(r"\([^()]*\)", "x", signs)
    return "|" in signs


def holds(pattern: str) -> bool:
    """Whether a row can be held to a pattern."""
    return searched(pattern) is not None and not _LOOKING.search(pattern)
