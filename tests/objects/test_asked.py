"""What the rows of a schema ask for: values, names of items of which one comes again, and alternatives."""

import pytest

from pipedec_cli.data.fields import Field
from pipedec_cli.objects.asked import (
    Asked,
    Name,
    asked_of,
    names_in,
    numbered,
    question_of,
    sample_of,
)
from pipedec_cli.objects.json_schema import tree_in

LINES = {
    "type": "array",
    "items": {"properties": {"item": {"type": "string"}, "qty": {"type": "integer"}}},
}
PRICES = {"type": "object", "additionalProperties": {"type": "number"}}
WAY = {
    "oneOf": [
        {
            "title": "car",
            "properties": {"seats": {"type": "integer"}},
            "required": ["seats"],
        },
        {
            "title": "boat",
            "properties": {"sails": {"type": "integer"}},
            "required": ["sails"],
        },
    ]
}


def rows_of(**properties):
    """The rows that start at once, by the names of their keys."""
    tree = tree_in({"properties": properties}, "here", [].append)
    return {asked.place[0]: asked for asked in asked_of(Asked(tree))}


def test_an_object_asks_for_all_its_values_at_once():
    rows = rows_of(
        name={"type": "string"}, at={"properties": {"city": {}, "zip": {}}}, lines=LINES
    )
    assert [*rows] == ["name", "at", "lines"]
    tree = tree_in(
        {"properties": {"at": {"properties": {"city": {}, "zip": {}}}}}, "here"
    )
    assert [asked.label for asked in asked_of(Asked(tree))] == ["at.city", "at.zip"]


def test_each_item_has_a_row_for_each_key_but_its_name_and_the_second_of_a_name_is_called_so():
    lines = rows_of(lines=LINES)["lines"]
    names = numbered(enumerate(["cable", "tea", "cable"], start=1))
    rows = [*lines.items(names)]
    assert [row.place for row in rows] == [
        ("lines", number, "qty") for number in (1, 2, 3)
    ]
    assert [row.question() for row in rows] == [
        "What is the qty of cable? Answer with a whole number.",
        "What is the qty of tea? Answer with a whole number.",
        "What is the qty of cable (2)? Answer with a whole number.",
    ]
    assert rows[2].opening() == "lines[3].item: cable (2)\nlines[3].qty:"


def test_an_entry_of_a_map_is_asked_for_by_its_key():
    prices = rows_of(prices=PRICES)["prices"]
    [row] = prices.items([Name("tea", "tea")])
    assert (row.place, row.opening()) == (("prices", "tea"), "prices.tea:")


def test_of_alternatives_the_rows_of_the_chosen_one_are_asked_for():
    way = rows_of(way=WAY)["way"]
    assert [row.label for row in way.chosen("boat")] == ["way.sails"]
    assert [*way.chosen("plane")] == []
    assert [row.label for row in sample_of(way)] == ["way.seats", "way.sails"]


def test_names_are_kept_as_often_as_an_answer_has_them():
    assert names_in("cup | cup | jar||lid | ") == ["cup", "cup", "jar|lid"]


def test_items_of_one_name_are_counted():
    names = numbered([(1, "cup"), (2, "jar"), (3, "cup"), (4, "cup")])
    assert [name.printed for name in names] == ["cup", "jar", "cup (2)", "cup (3)"]


@pytest.mark.parametrize(
    ("text", "names"), [("none", []), (" None. ", []), ("no", ["no"]), ("", [])]
)
def test_an_answer_may_say_that_there_is_no_value(text, names):
    assert names_in(text) == names


def test_a_question_has_the_meaning_of_its_key_and_names_some_of_its_choices():
    assert question_of(Field("stars", "integer", description="of five")) == (
        "What is the stars (of five)? Answer with a whole number."
    )
    assert (
        question_of(Field("food", enum=("Thai", "Greek")))
        == "What is the food? One of: Thai, Greek."
    )
    many = tuple(f"choice {number}" for number in range(500))
    asked = question_of(Field("it", enum=many))
    assert asked.endswith(", …")
    assert asked.count("choice") <= 40
