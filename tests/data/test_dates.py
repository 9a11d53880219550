"""Which dates and times stand in a text, and what each means."""

import subprocess
import sys
from datetime import date, datetime, time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.dates import dates_in, datetimes_in, times_in, whole

#: Arbitrary text with more of what dates and times are made of.
ANY = st.lists(
    st.sampled_from(
        [
            "12",
            "3",
            "2018",
            "18",
            "May",
            "März",
            "13:01",
            "pm",
            "T",
            "Z",
            "+02:00",
            "20/03/2018",
        ]
    )
    | st.sampled_from(" \n./-:,年月日٣é")
    | st.text(max_size=2)
).map("".join)
HOSTILE = ["1", ",", "1/", "1,", "1-", "1.", "12 May ", "may", "1 1 ", "12:01", "12-"]


def read_date(text):
    return whole(dates_in(text.strip()), text)


def read_time(text):
    return whole(times_in(text.strip()), text)


def read_datetime(text):
    return whole(datetimes_in(text.strip()), text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-12",
        "2026/3/12",
        "2026.03.12",
        "20260312",
        "12032026",
        "12 March 2026",
        "12th March, 2026",
        "12th of March 2026",
        "March 12, 2026",
        "March 12th 2026",
        "March the 12th, 2026",
        "Mar. 12 2026",
        "12-MAR-2026",
        "12/Mar/2026",
        "12MAR2026",
        "12 Mar 26",
        "2026-Mar-12",
        "12. März 2026",
        "12. MÄRZ 2026",
        "12. Marz 2026",
        "12 de marzo de 2026",
        "12 mars 2026",
        "12 MARÇO 2026",
        "12 de març de 2026",
        "12 maart 2026",
        "12 marca 2026",
        "12 марта 2026",
        "12 Μαρτίου 2026",
        "12 Mart 2026",
        "12 maret 2026",
        "12 مارس 2026",
        "١٢ مارس ٢٠٢٦",
        "2026年3月12日",
        "2026년 3월 12일",
    ],
)
def test_a_date_in_any_style_means_its_iso_date(text):
    assert read_date(text) == ("2026-03-12",)
    assert [found.text for found in dates_in(f"Paid on {text}, late.")] == [text]


@pytest.mark.parametrize("sign", ["/", "-", ".", " / ", ". "])
def test_a_numeric_date_is_read_both_ways_the_day_first(sign):
    assert read_date(f"03{sign}04{sign}2018") == ("2018-04-03", "2018-03-04")


@pytest.mark.parametrize(
    ("other", "value"),
    [
        ("25/12/2018", "2018-04-03"),
        ("12/25/2018", "2018-03-04"),
        ("25 December 2018", "2018-04-03"),
        ("December 25, 2018", "2018-03-04"),
    ],
)
def test_other_dates_of_the_text_decide_between_day_and_month(other, value):
    assert dates_in(f"03/04/2018 and {other}")[0].values == (value,)


@pytest.mark.parametrize(
    "other", ["05/05/2018", "2018-12-25", "2018 Dec 25", "31/12/2018 and 12/31/2018"]
)
def test_dates_that_show_no_order_or_both_leave_it_open(other):
    assert dates_in(f"03/04/2018 and {other}")[0].values == ("2018-04-03", "2018-03-04")


@pytest.mark.parametrize(
    ("year", "whole"), [("00", "2000"), ("68", "2068"), ("69", "1969"), ("99", "1999")]
)
def test_years_of_two_digits_are_those_of_posix(year, whole):
    assert read_date(f"25.12.{year}") == (f"{whole}-12-25",)
    assert read_date(f"25 DEC {year}") == (f"{whole}-12-25",)


def test_a_date_whose_year_of_two_digits_is_first_is_read_if_it_is_none_else():
    assert read_date("99/12/31") == ("1999-12-31",)


@pytest.mark.parametrize(
    "text",
    [
        "01/02/2018-28/02/2018",
        "2018.02.01-2018.02.28",
        "1 Feb 2018-28 Feb 2018",
        "20180201 - 20180228",
    ],
)
def test_a_range_of_dates_is_two_dates(text):
    found = dates_in(text)
    assert [value for this in found for value in this.values] == [
        "2018-02-01",
        "2018-02-28",
    ]


@pytest.mark.parametrize(
    ("told", "values"),
    [
        ("(MM/DD/YYYY)", ["2026-03-04"]),
        ("mm-dd-yy", ["2026-03-04"]),
        ("DD/MM/YYYY", ["2026-04-03"]),
        ("TT.MM.JJJJ", ["2026-04-03"]),
        ("JJ/MM/AAAA", ["2026-04-03"]),
        ("MM/DD or DD/MM", ["2026-04-03", "2026-03-04"]),
        ("25 mm, comMMDD", ["2026-04-03", "2026-03-04"]),
    ],
)
def test_a_form_of_dates_that_the_text_names_decides_between_day_and_month(
    told, values
):
    [date] = dates_in(f"Date {told}: 03/04/2026")
    assert [*date.values] == values


def test_a_range_of_days_has_its_last_day_as_a_date():
    assert [found.text for found in dates_in("on 12-13 March 2026")] == [
        "13 March 2026"
    ]


def test_a_day_and_month_are_a_candidate_without_a_value():
    [found] = dates_in("The bill of 3 May says 12.50.")
    assert (found.text, found.values) == ("3 May", ())


def test_a_day_and_month_take_the_one_year_of_the_other_dates():
    assert dates_in("On May 3 and on 12/06/2017")[0].values == ("2017-05-03",)
    assert dates_in("On 29 February and on 12/06/2017")[0].values == ()
    assert dates_in("On May 3, on 12/06/2017 and on 12/06/2018")[0].values == ()


@pytest.mark.parametrize(
    "text",
    [
        "31/02/2018",
        "31 February 2018",
        "00/01/2018",
        "2018-13-01",
        "10.12.20.18",
        "A12/03/2018",
        "12/03/20185",
        "4-12-03-2018",
        "20180325-0012",
        "1/12/03/2018",
        "3 may be",
        "2 out of 5",
        "1 SET",
        "7 march for",
        "3 Maybe",
        "May 2018",
        "Mayor 3 2018",
        "12345678",
        "120318",
        "May 12.50",
    ],
)
def test_what_is_no_date_is_none(text):
    assert dates_in(text) == []


def test_a_name_that_two_languages_give_to_two_months_means_both():
    assert read_date("12 listopada 2018") == ("2018-11-12", "2018-10-12")


def test_a_date_that_a_line_breaks_is_one_with_a_space():
    [found] = dates_in("Written on 12\nMarch 2026.")
    assert found.text == "12 March 2026"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("13:01", "13:01:00"),
        ("13:01:59", "13:01:59"),
        ("13:01:59.25", "13:01:59.25"),
        ("13:01:59Z", "13:01:59Z"),
        ("13:01 UTC", "13:01:00Z"),
        ("13:01:59+02:00", "13:01:59+02:00"),
        ("13:01:59-0530", "13:01:59-05:30"),
        ("1:01 PM", "13:01:00"),
        ("1:01pm", "13:01:00"),
        ("1.01 p.m.", "13:01:00"),
        ("12:30 AM", "00:30:00"),
        ("12 pm", "12:00:00"),
        ("13.01 Uhr", "13:01:00"),
        ("3 o'clock", "03:00:00"),
        ("13h01", "13:01:00"),
        ("13:01h", "13:01:00"),
        ("13:01 Uhr", "13:01:00"),
        ("٠٩:٣٠", "09:30:00"),
    ],
)
def test_a_time_in_any_style_means_its_iso_time(text, value):
    assert read_time(text) == (value,)
    assert time.fromisoformat(value)


@pytest.mark.parametrize(
    "text",
    [
        "24:00",
        "13:60",
        "16:9",
        "1:2:3",
        "13 pm",
        "0 am",
        "A13:01",
        "13:015",
        "13:01:77",
    ],
)
def test_what_is_no_time_is_none(text):
    assert times_in(text) == []


def test_a_range_of_times_is_two_times():
    assert [found.text for found in times_in("Open:09:00-17:00")] == ["09:00", "17:00"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20/03/2018 13:01", "2018-03-20T13:01:00"),
        ("20/03/2018\n13:01", "2018-03-20T13:01:00"),
        ("2018-03-20T13:01:00", "2018-03-20T13:01:00"),
        ("2018-03-20T13:01:00.5Z", "2018-03-20T13:01:00.5Z"),
        ("20 March 2018 at 1:01 pm", "2018-03-20T13:01:00"),
        ("20. März 2018 um 13.01 Uhr", "2018-03-20T13:01:00"),
        ("20-03-18, 13:01", "2018-03-20T13:01:00"),
        ("13:01 20/03/2018", "2018-03-20T13:01:00"),
        ("20/03/2018 (Tue) 13:01", "2018-03-20T13:01:00"),
        ("20/03/2018 TIME : 13:01", "2018-03-20T13:01:00"),
        ("20/03/2018 a las 13:01", "2018-03-20T13:01:00"),
        ("20/Mar/2018:13:01:00", "2018-03-20T13:01:00"),
    ],
)
def test_a_date_beside_a_time_is_a_date_time(text, value):
    assert read_datetime(text) == (value,)
    assert datetime.fromisoformat(value)


def test_a_date_time_has_the_values_of_its_date():
    assert read_datetime("03/04/2018 13:01") == (
        "2018-04-03T13:01:00",
        "2018-03-04T13:01:00",
    )


@pytest.mark.parametrize(
    "text",
    [
        "20/03/2018",
        "13:01",
        "20/03/2018, and we are open from 13:01",
        "3 May 13:01",
        "",
    ],
)
def test_a_date_or_time_alone_is_no_date_time(text):
    assert datetimes_in(text) == []
    assert read_datetime(text) == ()


def test_a_text_with_more_than_a_date_means_none():
    assert read_date("on 12 March 2026") == read_time("at 13:01") == ()
    assert read_date(" 2026-03-12\n") == ("2026-03-12",)


@given(ANY)
def test_dates_and_times_are_parts_of_the_text_in_order(text):
    for found_in, parsed in (
        (dates_in, date.fromisoformat),
        (times_in, time.fromisoformat),
        (datetimes_in, datetime.fromisoformat),
    ):
        found = found_in(text)
        for this in found:
            assert this.text == " ".join(text[this.start : this.end].split())
            assert all(map(parsed, map(str, this.values)))
        assert all(first.end <= second.start for first, second in pairwise(found))


@given(st.dates(date(1969, 1, 1), date(2068, 12, 31)), st.sampled_from("/-."))
def test_any_date_reads_back(day, sign):
    iso = day.isoformat()
    styles = [
        iso,
        f"{day:%d %B %Y}",
        f"{day:%B %d, %Y}",
        f"{day:%d-%b-%Y}",
        f"{day:%d %b %y}",
        f"{day:%Y%m%d}",
    ]
    assert [read_date(style) for style in styles] == [(iso,)] * len(styles)
    for style in (
        f"{day:%d}{sign}{day:%m}{sign}{day:%Y}",
        f"{day.day}{sign}{day.month}{sign}{day:%y}",
    ):
        assert read_date(style)[0] == iso
    assert iso in read_date(f"{day:%m}{sign}{day:%d}{sign}{day:%Y}")


@given(
    st.datetimes(
        datetime(1969, 1, 1),
        datetime(2068, 12, 31),
        timezones=st.timezones() | st.none(),
    )
)
def test_any_date_time_reads_back(moment):
    iso = moment.isoformat(timespec="seconds")
    if len(iso) in (19, 25):  # offsets of whole minutes
        assert read_datetime(iso) == (iso,)
    assert read_datetime(f"{moment:%d %B %Y, %I:%M:%S %p}") == (
        moment.replace(tzinfo=None, microsecond=0).isoformat(),
    )


@pytest.mark.parametrize("piece", HOSTILE)
def test_long_texts_of_one_piece_are_read(piece):
    text = piece * (100_000 // len(piece))
    for found_in in (dates_in, times_in, datetimes_in):
        assert len(found_in(text)) < len(text)


def test_the_names_of_months_are_not_loaded_before_a_text_is_read():
    code = "import sys, pipedec_cli.data.numbers; sys.exit('babel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
