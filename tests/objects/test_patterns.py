"""Patterns as expressions of whole texts."""

import re

import pytest

from pipedec_cli.objects.patterns import searched


@pytest.mark.parametrize(
    "pattern",
    [
        "^a$",
        "a",
        "a$",
        "^a",
        r"^[$^]\$$",
        "^(a|b)$",
        "a|b",
        "^(?:a|(b|c))d",
        "x^",
        "^a|b$",
    ],
)
def test_a_pattern_is_searched_as_python_does(pattern):
    texts = ["", "a", "b", "ab", "ba", "xa", "ax", "$$", "^$", "ad", "cd", "c", "xad"]
    if (expression := searched(pattern)) is None:
        assert pattern in ("x^", "^a|b$")
    else:
        found = [
            text
            for text in texts
            if re.search(
                pattern.replace("$", r"\Z") if pattern.endswith("a$") else pattern, text
            )
        ]
        assert [text for text in texts if re.fullmatch(expression, text)] == found
