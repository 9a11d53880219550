"""Which numbers and amounts stand in a text, and what each means."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.numbers import amounts_in, numbers_in, read_number
from tests.data.test_dates import HOSTILE

#: Arbitrary text with more of what numbers are made of.
ANY = st.lists(
    st.sampled_from(
        [
            "1",
            "12",
            "250",
            "1.250",
            "1,250.00",
            "3 May",
            "13:01",
            "RM",
            "EUR ",
            "$",
            "%",
            "two",
            "-",
            "CS-",
        ]
    )
    | st.sampled_from(" \n./-:,'\u00a0\u202f()٣é²")
    | st.text(max_size=2)
).map("".join)


def texts(found):
    return [number.text for number in found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1250", 1250),
        ("1,250,000", 1250000),
        ("1.250.000", 1250000),
        ("1'250'000", 1250000),
        ("1’250.50", 1250.5),
        ("1 250 000", 1250000),
        ("1\u00a0250,50", 1250.5),
        ("1\u202f250\u202f000,5", 1250000.5),
        ("1,00,000.50", 100000.5),
        ("1.250,00", 1250.0),
        ("12,50", 12.5),
        ("12.50", 12.5),
        ("0.250", 0.25),
        ("1250.000", 1250.0),
        (".5", 0.5),
        ("-1.73", -1.73),
        ("−5", -5),
        ("+3", 3),
        ("01", 1),
        ("١٢", 12),
        ("1.5 million", 1500000.0),
        ("3 Milliarden", 3000000000),
        ("three", 3),
        ("Zwölf", 12),
        ("SEIS", 6),
        ("neuf", 9),
        ("12 %", 12),
        ("5%", 5),
        ("$7.00", 7.0),
        ("RM40.00", 40.0),
        ("RM 8.60", 8.6),
        ("8€", 8),
        ("1.250,00 EUR", 1250.0),
        ("US$5", 5),
        ("Rs. 500", 500),
        ("120 kr", 120),
        ("7,50 zł", 7.5),
        ("-$5", -5),
        ("RM-5.00", -5.0),
        ("-RM1.73", -1.73),
    ],
)
def test_a_number_in_any_style_means_its_value(text, value):
    [read] = read_number(text)
    assert read == value
    assert type(read) is type(value)
    assert " ".join(text.split()) in texts(amounts_in(f"We saw {text} today."))


@pytest.mark.parametrize(
    ("text", "values"), [("1.250", (1.25, 1250)), ("1,250", (1250, 1.25))]
)
def test_a_sign_that_nothing_decides_has_both_readings(text, values):
    assert read_number(text) == values


@pytest.mark.parametrize(
    ("other", "point", "comma"),
    [
        ("7.250,00", 1250, 1.25),
        ("7.250.000", 1250, 1.25),
        ("3,5", 1250, 1.25),
        ("7,250.00", 1.25, 1250),
        ("3.5", 1.25, 1250),
        ("1.250,00", 1250, 1250),
    ],
)
def test_other_numbers_of_the_text_decide_what_a_sign_is(other, point, comma):
    assert numbers_in(f"{other} and 1.250")[1].values == (point,)
    assert numbers_in(f"{other} and 1,250")[1].values == (comma,)
    assert len(numbers_in(f"{other} and 1,240 and 1,230")[2].values) == 1


def test_numbers_that_show_both_signs_leave_it_open():
    assert numbers_in("3,5 and 3.5 and 1,250")[2].values == (1250, 1.25)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3-5 people, 10–20 boxes", ["3", "5", "10", "20"]),
        ("paid 210.50. In 2018. Of 5, 6; 7: 8", ["210.50", "2018", "5", "6", "7", "8"]),
        ("2 X 7.90 15.80", ["2", "7.90", "15.80"]),
        ("2x 5kg, a 5-star hotel, 50MM, a 17-year-old", ["2", "5", "5", "50", "17"]),
        ("12 345 67", ["12", "345", "67"]),
        ("1\n250", ["1", "250"]),
        ("3/5 stars, 16:9", ["3", "5", "16", "9"]),
        ("No.3 #4 Qty:5 =6 (7)", ["3", "4", "5", "6", "7"]),
        ("10.000,00-20.000,00", ["10.000,00", "20.000,00"]),
        ("on 3 May at 13:01 we paid 12.50", ["12.50"]),
        ("20/03/2018 13:01 7.5", ["7.5"]),
        ("20180325", ["20180325"]),
        ("a table for two, one dog", ["two", "one"]),
    ],
)
def test_numbers_stand_apart_from_what_is_beside_them(text, numbers):
    assert texts(numbers_in(text)) == numbers


@pytest.mark.parametrize(
    "text",
    [
        "A4471 CS-20817 499702-V OR1804 K074-001096 7B 1e5 B_5",
        "1.2.3 v1.2 10.0.0.1 31/02/2018 1-2-3",
        "07-364 3785, 012-345 6789, +60 3-1234 5678, 03- 55423228, 000752517120",
        "555 0100, 555-0100, (555) 123-4567",
        "Once upon a time an elf had twenty-three wishes, three hundred years from Sept",
        "un hombre, ein Hund, une table, uno",
        "9" * 31,
        "0." + "1" * 18,
        "10² 1½ ² 1990s 3rd",
        "1,2,3 1..2a",
    ],
)
def test_what_is_part_of_something_else_is_no_number(text):
    assert [number for number in texts(numbers_in(text)) if number not in {"1"}] == []


@pytest.mark.parametrize(
    "text",
    [
        "one hundred and five",
        "twenty five",
        "five billion",
        "five point two",
        "soixante dix",
        "quatre vingt",
        "treinta y cinco",
        "cinco mil",
        "1.5e-3 mol",
        "1E+05",
    ],
)
def test_a_part_of_a_larger_number_is_no_number(text):
    assert numbers_in(f"There are {text} left.") == []


@pytest.mark.parametrize("text", ["five miles", "five cents", "five and six"])
def test_a_word_of_a_number_that_stands_alone_is_a_number(text):
    assert numbers_in(text)[0].values == (5,)


def test_thirty_digits_and_seventeen_decimals_are_a_number():
    assert read_number("9" * 30) == (10**30 - 1,)
    assert read_number("0." + "1" * 17) == (float("0." + "1" * 17),)


def test_a_word_of_two_languages_counts_in_the_text_of_its_own():
    assert texts(numbers_in("Los niños comen once manzanas")) == ["once"]
    assert texts(numbers_in("Das sind elf Hunde und zwei Katzen")) == ["elf", "zwei"]


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("$7.00", ["$7.00", "7.00"]),
        ("RM 8.60", ["RM 8.60", "8.60"]),
        ("12 %", ["12", "12 %"]),
        ("5.00 RM 8.60", ["5.00", "RM 8.60", "8.60"]),
        ("7.00 EUR and USD  3", ["7.00", "7.00 EUR", "3"]),
        ("RM\n8.60", ["8.60"]),
        ("FARM 8.60 EURO", ["8.60"]),
        ("8 EUR/Tag", ["8", "8 EUR"]),
        ("5% 6%", ["5", "5%", "6", "6%"]),
        ("5€-8€", ["5", "5€", "8", "8€"]),
        ("$5-$8", ["$5", "5", "$8", "8"]),
    ],
)
def test_amounts_stand_with_and_without_their_sign(text, amounts):
    assert texts(amounts_in(text)) == amounts


def test_a_currency_beside_a_number_makes_its_sign_one_of_groups():
    assert (
        read_number("1.250 €")
        == read_number("Rp 1.250")
        == read_number("$1,250")
        == (1250, 1.25)
    )
    assert read_number("1.250 %") == (1.25, 1250)
    assert amounts_in("3.5 m for 1.250 €")[1].values == (1.25,)
    # So it is where the currency is no part of the value.
    assert numbers_in("Betrag 1.234 EUR")[0].values == (1234, 1.234)
    assert numbers_in("Betrag 1.234 kg")[0].values == (1.234, 1234)


@pytest.mark.parametrize(
    "text",
    ["sİx fıve", "12 MAYİS 2018", "３５ ٣٫٥", "²", "1\u0660,5", "\u2007 1\u20075"],
)
def test_letters_and_digits_of_other_scripts_are_read_or_left(text):
    assert [number for number in amounts_in(text) if not number.values] == []


def test_a_text_with_more_than_a_number_means_none():
    assert read_number("about 5") == read_number("5 6") == read_number("") == ()
    assert read_number(" 5\n") == (5,)


@given(ANY)
def test_numbers_are_parts_of_the_text_in_order(text):
    for found_in in (numbers_in, amounts_in):
        for number in found_in(text):
            assert number.text == " ".join(text[number.start : number.end].split())
            assert 1 <= len(number.values) <= 2
    numbers = numbers_in(text)
    assert all(first.end <= second.start for first, second in pairwise(numbers))
    spans = {(number.start, number.end) for number in numbers}
    amounts = amounts_in(text)
    assert amounts == sorted(amounts)
    for amount in amounts:
        inner = [
            span for span in spans if amount.start <= span[0] and span[1] <= amount.end
        ]
        assert len(inner) == 1


@given(st.integers(0, 10**12), st.integers(0, 99), st.sampled_from(["", "-", "−"]))
def test_any_number_reads_back_in_each_style(whole, cents, sign):
    value = float(f"{whole}.{cents:02}")
    expected = -value if sign else value
    for group, point in (
        (",", "."),
        (".", ","),
        ("'", "."),
        (" ", ","),
        ("\u202f", ","),
        ("", "."),
        ("", ","),
    ):
        text = f"{sign}{whole:,}".replace(",", group) + f"{point}{cents:02}"
        assert read_number(text) == (expected,)
        assert read_number(f"EUR {text}") == read_number(f"{text} %") == (expected,)
    assert read_number(f"{sign}{whole}") == (-whole if sign else whole,)


@pytest.mark.parametrize(
    "piece", [*HOSTILE, "+1", "RM1", "$", "two ", "1 111 ", "A-", "0-", "1..", "1x-"]
)
def test_long_texts_of_one_piece_are_read(piece):
    text = piece * (100_000 // len(piece))
    assert len(amounts_in(text)) <= len(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("$2.5M revenue", [2_500_000.0]),
        ("€ 3.2bn", [3_200_000_000.0]),
        ("raised $5m and £5k", [5_000_000, 5_000]),
        ("2.5M EUR", [2_500_000.0]),
        ("a 2.5M disk", []),  # of what it does not say
        ("5m long", [5]),
        ("minus five degrees", [-5]),
        ("Total: -$1,234.56", [-1234.56]),
        ("TOTAL -RM 12.30", [-12.3]),
        ("Total: 249,60- EUR", [-249.6]),
        ("Saldo 249,60-\nund 3", [-249.6, 3]),
        ("$5.00-$8.00", [5.0, 8.0]),
        ("12.50- 15.00", [12.5, 15.0]),
        ("10-$20", [10, 20]),
        ("Minus 5,5 °C", [-5.5]),
        ("10 minus 5", [10, 5]),
    ],
)
def test_letters_of_prices_and_the_word_minus_are_parts_of_a_number(text, values):
    assert [number.values[0] for number in numbers_in(text)] == values
