"""Where values stand in a text: words as wholes, numbers and dates in whatever way they are written."""

import pytest

from pipedec_cli.data.places import places_in, places_of

ORDER = "On 12 March 2026 I paid 1,250 EUR at 09:30, not 1.250,00; 7.5 kg for 7 people."


def at(source, *parts):
    """The places of these parts of a source, each the first behind the one before."""
    places = []
    end = 0
    for part in parts:
        start = source.index(part, end)
        end = start + len(part)
        places.append((start, end))
    return places


@pytest.mark.parametrize(
    ("text", "source", "parts"),
    [
        ("the mill", "The Mill, the mill; mills", ["the mill"]),
        ("THE MILL", "The Mill, the mill", ["The Mill", "the mill"]),
        ("The Mill", "The\n  Mill", ["The\n  Mill"]),
        ("mill", "the mills", []),
        ("(a)", "b(a)b", ["(a)"]),
        ("東京", "彼は東京の", ["東京"]),
        (" ", "a  b", []),
    ],
)
def test_a_text_stands_where_it_is_whole_words_and_without_regard_to_case_if_nowhere_else(
    text, source, parts
):
    assert places_in(text, source) == at(source, *parts)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (1250, ["1,250", "1.250,00"]),
        (1250.0, ["1,250", "1.250,00"]),
        (7.5, ["7.5"]),
        (2026, []),
        ("2026-03-12", ["12 March 2026"]),
        ("09:30", ["09:30"]),
        ("12 March 2026", ["12 March 2026"]),
        (True, []),
    ],
)
def test_a_number_or_date_stands_where_it_is_meant(value, parts):
    assert places_of(value, ORDER) == at(ORDER, *parts)


def test_a_number_is_no_part_of_another():
    [place] = places_of(7, ORDER)
    assert ORDER[place[0] :].startswith("7 people")
    assert places_of(5, ORDER) == []


def test_a_number_that_is_written_as_a_word_has_its_place():
    assert places_of(3, "a table for three") == [(12, 17)]


def test_of_an_open_number_each_reading_has_its_place():
    assert places_of(1250, "1.250") == places_of(1.25, "1.250") == [(0, 5)]
