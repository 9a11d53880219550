"""Patterns as expressions of whole texts."""

import re

import pytest
import regex

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


@pytest.mark.parametrize(
    ("pattern", "fits", "not_fits"),
    [(r"^\d{2}$", "42", "٤٢"), (r"^[\w-]+$", "a-b", "ä-b"), (r"^\\d$", r"\d", "1")],
)
def test_digits_and_letters_of_a_pattern_are_those_of_ascii(pattern, fits, not_fits):
    expression = searched(pattern)
    assert regex.fullmatch(expression, fits, regex.V1)
    assert not regex.fullmatch(expression, not_fits, regex.V1)
