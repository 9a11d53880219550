"""Answers that are known before anything is written: choices of a schema, numbers, dates and lines of a source."""

import pytest

from pipedec_cli.data.fields import Field
from pipedec_cli.data.records import Record
from pipedec_cli.objects.candidates import (
    as_it_stands,
    as_number,
    candidates,
    choices,
    is_worded,
    learnt_reading,
    reading_of,
    with_values,
)

MAIL = "On 12 March 2026 I paid 210.50 EUR for order A4471, that is 3 of 12."
RECEIPT = "SHOP  No. 1\nDATE: 03/02/2018 10:12\nTOTAL 19.00\nCASH RM 20.00."


def field(kind="string", **keywords):
    parts = {
        name: keywords.pop(name) for name in ("enum", "scalars") if name in keywords
    }
    return Field("x", kind, keywords=tuple(keywords.items()), **parts)


def answers(of, source, learnt=None):
    """The text and the meaning of each candidate."""
    return [tuple(known) for known in candidates(of, source, learnt)]


def texts(of, source, learnt=None):
    return [text for text, _ in answers(of, source, learnt)]


@pytest.mark.parametrize(
    ("of", "known"),
    [
        (field("number"), [("210.50", "210.5"), ("3", "3"), ("12", "12")]),
        (field("integer"), [("3", "3"), ("12", "12")]),
        (field("integer", minimum=4, maximum=12), [("12", "12")]),
        (field("number", exclusiveMinimum=3, exclusiveMaximum=12), []),
        (field("number", multipleOf=0.5, minimum=100), [("210.50", "210.5")]),
        (field("integer", multipleOf=2), [("12", "12")]),
        (field(format="date"), [("12 March 2026", "2026-03-12")]),
        (field("list", scalars=("integer",)), [("3", "3"), ("12", "12")]),
        (field(scalars=("number",)), [("210.50", "210.5"), ("3", "3"), ("12", "12")]),
    ],
    ids=repr,
)
def test_numbers_and_dates_of_a_source_are_answers_as_they_stand_within_the_bounds(
    of, known
):
    assert answers(of, MAIL) == known


def test_a_text_without_a_number_has_no_candidate():
    assert answers(field("number"), "My laptop is broken, please help.") == []
    assert answers(field("integer", minimum=0), "It costs 0.5 pounds.") == []


def test_a_value_that_is_a_number_or_a_boolean_may_be_either():
    assert texts(field(scalars=("integer", "boolean")), "5 cups") == [
        "true",
        "false",
        "5",
    ]


def test_a_text_comes_once_however_often_it_stands_there():
    assert texts(field("number"), "4 cups, 4 jars, 5 lids") == ["4", "5"]


def test_of_an_open_number_the_reading_counts_that_the_bounds_allow():
    assert answers(field("number", minimum=100), "It is 1.250 EUR") == [
        ("1.250", "1250")
    ]
    assert answers(field("number", maximum=100), "It is 1.250 EUR") == [
        ("1.250", "1.25")
    ]


@pytest.mark.parametrize("step", [1e-320, 10**400], ids=["tiny", "huge"])
def test_a_step_beyond_all_measure_is_no_fault(step):
    assert len(candidates(field("number", multipleOf=step), "0.5 or 7", None)) <= 2


@pytest.mark.parametrize(
    "of",
    [
        field(),
        field("any"),
        field("boolean"),
        field(scalars=("string", "number")),
        field(format="email"),
    ],
)
def test_other_values_have_no_candidates(of):
    assert candidates(of, MAIL, None) is None


@pytest.mark.parametrize(
    ("of", "reading"),
    [
        (field("integer"), "number"),
        (field(scalars=("number", "string"), pattern="^[0-9.]+$"), "number"),
        (field(scalars=("number", "string")), None),
        (field(format="date"), "date"),
        (field(format="date-time"), "datetime"),
        (field("list", format="time"), "time"),
        (field(format="phone"), None),
    ],
    ids=repr,
)
def test_the_schema_says_what_a_value_is_read_as(of, reading):
    assert reading_of(of) == reading


@pytest.mark.parametrize(
    ("examples", "reading"),
    [
        ([("03/02/2018", RECEIPT), ("12 March 2026", MAIL)], "date"),
        ([("10:12", RECEIPT)], "time"),
        ([("RM 20.00", RECEIPT), ("210.50 EUR", MAIL)], "price"),
        ([("20.00", RECEIPT), ("210.50", MAIL)], "bare price"),
        ([("210.50 EUR", MAIL), ("3", MAIL)], "amount"),
        ([("19.00", RECEIPT), ("3", MAIL)], "amount"),
        ([("20.00", RECEIPT), ("3", MAIL)], "bare amount"),
        ([("SHOP No. 1", RECEIPT), ("CASH RM 20.00", RECEIPT)], "line"),
        ([("SHOP", RECEIPT)], None),
        ([("03/02/2018", RECEIPT), ("19.00", RECEIPT)], None),
        ([("2018", RECEIPT)], None),
        ([], None),
    ],
)
def test_examples_teach_what_a_string_is_read_as(examples, reading):
    """Where a value is a part of a number or a date of its text, it is none itself."""
    found = learnt_reading(examples)
    if reading == "amount":
        assert found in ("amount", "price"), "no currency stands beside it"
    else:
        assert found == reading


@pytest.mark.parametrize(
    ("learnt", "known"),
    [
        ("date", ["03/02/2018"]),
        ("time", ["10:12"]),
        ("price", ["19.00", "RM 20.00"]),
        ("bare price", ["19.00", "20.00"]),
        (
            "line",
            ["SHOP No. 1", "DATE: 03/02/2018 10:12", "TOTAL 19.00", "CASH RM 20.00"],
        ),
    ],
)
def test_strings_of_a_learnt_kind_are_taken_as_they_stand(learnt, known):
    assert answers(field(), RECEIPT, learnt) == [(text, text) for text in known]


def test_amounts_that_are_learnt_keep_their_currency_and_a_bare_one_does_not():
    assert "210.50 EUR" in texts(field(), MAIL, "amount")
    assert "210.50" in texts(field(), MAIL, "bare amount")


def test_lines_are_answers_in_texts_of_several_lines_that_are_not_too_many():
    assert candidates(field(), "one line\n", "line") is None
    assert candidates(field(), "a line\n" * 500, "line") is None


def test_a_schema_names_the_choices_of_single_values():
    assert [known.text for known in choices(field(enum=("a", "b")))] == ["a", "b"]
    assert [known.means for known in choices(field("boolean"))] == ["true", "false"]
    assert choices(field("list", enum=("a", "b"))) == choices(field("number")) == []


def test_a_value_that_may_be_a_number_or_a_string_is_a_number_if_it_reads_as_one():
    either = field(scalars=("number", "string"))
    assert [
        as_number(either, text) for text in ("210.50", "EUR 9.80", "1.250,00", "free")
    ] == [
        "210.5",
        "9.8",
        "1250.0",
        "free",
    ]
    assert as_number(field(), "210.50") == "210.50"


def test_a_schema_may_let_the_model_word_a_value():
    assert is_worded(Field("x", keywords=(("x-free", True),)))
    assert not is_worded(Field("x"))


def test_a_string_of_an_example_is_a_number_where_its_key_has_numbers():
    fields = [Field("amount", "number"), Field("n", "integer"), Field("name")]
    target = {"amount": "210.50", "n": "none of it", "name": "12"}
    record = Record("1", MAIL, "", None, (), "", {}, target)
    assert with_values(record, fields).target_fields == {
        "amount": 210.5,
        "n": "none of it",
        "name": "12",
    }


def test_an_example_shows_a_number_or_a_date_as_its_text_has_it():
    assert as_it_stands(field("number"), 210.5, MAIL) == "210.50"
    assert as_it_stands(field(format="date"), "2026-03-12", MAIL) == "12 March 2026"
    assert as_it_stands(field("number"), 99, MAIL) == "99"
    assert as_it_stands(field(), "210.5", MAIL) == "210.5"
