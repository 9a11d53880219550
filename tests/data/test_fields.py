"""Objects as the texts of their values, and back; and the plain text of a whole object, which reads back whatever it holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.fields import (
    Field,
    FieldSegmenter,
    by_path,
    mapped,
    plain_text,
    read_plain,
    rows_of,
    texts_of,
    value_texts,
)
from pipedec_cli.objects.tree import read_values
from tests.words import refusing

#: Text with more of what separates than chance would give.
TEXT = (
    st.text(st.characters(codec="utf-8") | st.sampled_from("|;: ab"))
    .map(str.strip)
    .filter(bool)
)
SCHEMA = (
    Field("name"),
    Field("a:b;", "list"),
    Field("price", "number"),
    Field("seats", "integer"),
    Field("open", "boolean"),
    Field("food", enum=("Thai", "fish; chips")),
)
WIDE = (
    *SCHEMA,
    Field("marks", "list", scalars=("number", "boolean")),
    Field("any", "list", scalars=("integer", "string")),
    Field("size", scalars=("number", "string")),
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXT,
        "a:b;": st.lists(TEXT, min_size=1),
        "price": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "seats": st.integers(),
        "open": st.booleans(),
        "food": st.sampled_from(["Thai", "fish; chips"]),
        "marks": st.lists(
            st.floats(allow_nan=False, allow_infinity=False) | st.booleans(), min_size=1
        ),
        "any": st.lists(st.integers() | TEXT.filter(str.isalpha), min_size=1),
        "size": st.integers() | TEXT.filter(str.isalpha),
    },
)


@given(OBJECTS)
def test_an_object_reads_back_from_its_rows_and_from_its_plain_text(value):
    texts = value_texts(value, WIDE, "x:1")
    assert len(texts) == len(WIDE)
    assert read_values(texts, WIDE) == (value, 0)
    plain = plain_text(texts, WIDE)
    assert read_plain(plain, WIDE) == FieldSegmenter(WIDE).cut(plain) == texts


NESTED = (
    Field("name"),
    Field("at.city", path=("at", "city")),
    Field("menu[].a:b;", "list", path=("menu", 0, "a:b;")),
    Field("menu[].of.price", "number", path=("menu", 0, "of", "price")),
    Field("at.open[].day", enum=("Mon", "Tue"), path=("at", "open", 0, "day")),
)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "a:b;": st.lists(TEXT, min_size=1),
            "of": st.fixed_dictionaries({"price": st.integers()}),
        },
    ).filter(bool),
    min_size=1,
    max_size=4,
)
DAYS = st.lists(
    st.sampled_from(["Mon", "Tue"]).map(lambda day: {"day": day}),
    min_size=1,
    max_size=12,
)
AT = st.fixed_dictionaries({}, optional={"city": TEXT, "open": DAYS}).filter(bool)


@given(st.fixed_dictionaries({}, optional={"name": TEXT, "at": AT, "menu": ITEMS}))
def test_nested_objects_and_lists_read_back_from_their_rows_and_from_their_plain_text(
    value,
):
    texts = value_texts(value, NESTED, "x:1")
    assert len(texts) == len(rows_of(NESTED, len(texts)))
    assert read_values(texts, NESTED) == (value, 0)
    assert (
        texts_of(value, NESTED)
        == read_plain(plain_text(texts, NESTED), NESTED)
        == texts
    )


def test_items_without_values_are_none_and_items_of_a_plain_text_are_numbered_anew():
    menu = [{}, {"of": {"price": 3}}, {"a:b;": [""]}, {"of": {"price": 4}}, None]
    texts = value_texts({"menu": menu}, NESTED, "x:1")
    assert texts == ("", "", "", "3", "", "", "4", "")
    wild = "menu[7].of.price: 4; menu[2].of.price: 3; menu[0].of.price: 9; menu.of.price: 8; menu[x].a: 7"
    assert read_plain(wild, NESTED) == texts
    with pytest.raises(ValueError, match="9 texts for 5 keys"):
        rows_of(NESTED, 9)


def test_an_item_that_another_list_alone_has_is_not_written_twice():
    texts = read_plain(
        "menu[2].of.price: 3; at.open[1].day: Mon; at.open[2].day: Tue", NESTED
    )
    menu = [{"of": {"price": 3}}]
    days = [{"day": "Mon"}, {"day": "Tue"}]
    assert read_values(texts, NESTED) == ({"menu": menu, "at": {"open": days}}, 0)


def test_null_among_objects_of_a_list_is_an_empty_one():
    values = {"menu": [{"price": 3}, None]}
    assert by_path(values) == {("menu", 1, "price"): 3}
    assert mapped(values, lambda keys, value: value + 1) == {"menu": [{"price": 4}, {}]}


def test_a_plain_text_has_the_filled_keys_in_the_order_of_the_schema():
    value = {
        "open": True,
        "price": 3.5,
        "name": "A; B|C: D",
        "a:b;": ["x|y", "", " z "],
        "seats": None,
    }
    texts = value_texts(value, SCHEMA, "x:1")
    assert texts == ("A; B|C: D", "x||y | z", "3.5", "", "true", "")
    assert (
        plain_text(texts, SCHEMA)
        == "name: A;; B|C: D; a::b;;: x||y | z; price: 3.5; open: true"
    )
    assert [field.opening() for field in SCHEMA[:2]] == ["name:", "a:b;:"]
    assert (
        value_texts({"name": " ", "a:b;": [None, ""], "price": None}, SCHEMA, "x:1")
        == ("",) * 6
    )


def test_what_is_not_a_value_of_its_kind_is_null_and_counted():
    texts = ("", "|", "3,5", "2.0", "yes", "Greek")
    lost = dict.fromkeys(("a:b;", "price", "seats", "open", "food"))
    assert read_values(texts, SCHEMA) == (lost, 5)
    cut = read_plain("name: A; price: 3; seats: 12", SCHEMA, cut=True)
    assert cut == ("A", "", "3", None, "", "")
    assert read_values(cut, SCHEMA) == ({"name": "A", "price": 3, "seats": None}, 1)
    for text in ("1e999", "-", "NaN", "01", "9" * 5000):
        assert read_values([text], [Field("x", "number")]) == ({"x": None}, 1)


def test_text_that_no_object_would_be_written_as_is_read_as_far_as_it_goes():
    wild = "no key; NAME: x;name:A ;  name: B; price : 3; unknown: 1;;"
    assert read_plain(wild, (Field("name"), Field("price", "number"))) == ("A", "3")
    assert read_plain("full width: y", (Field("ｆull  width"),)) == ("y",)
    assert read_plain("", SCHEMA) == ("",) * len(SCHEMA)


@pytest.mark.parametrize(
    "value",
    [
        {"menu": {"of": 1}},
        {"at": "x"},
        {"menu": [{"of": {"price": "x"}}]},
        {"name": {"first": "A"}},
        {"a:b;": ["a", {"b": 1}]},
        {"a:b;": ["a", 3]},
        {"name": 3},
        {"seats": 1.5},
        {"price": float("inf")},
        {"food": "Greek"},
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(value):
    with refusing("data.jsonl:7"):
        value_texts(value, (*SCHEMA, *NESTED[1:]), "data.jsonl:7")
