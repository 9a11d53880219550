"""The right answers of rows, of which some open others: equal items, and alternatives."""

from pipedec_cli.data.records import Record
from pipedec_cli.objects.examples import example_lines, right_answers, target_texts
from pipedec_cli.objects.json_schema import tree_in
from tests.objects.test_asked import LINES, PRICES, WAY, rows_of

TWICE = {
    ("lines", 1, "item"): "tea",
    ("lines", 1, "qty"): "2",
    ("lines", 2, "item"): "tea",
    ("lines", 2, "qty"): "3",
}


def answers(asked, texts):
    """What is asked and what is right, by the places of the answers."""
    rows = right_answers(asked, texts)
    return {(*row.at.path, row.at.role): text for row, text in rows}


def test_an_example_shows_equal_items_as_they_are_asked_for():
    lines = rows_of(lines=LINES)["lines"]
    assert [*example_lines(lines, TWICE)] == [
        "lines: tea | tea",
        "lines[1].item: tea",
        "lines[1].qty: 2",
        "lines[2].item: tea (2)",
        "lines[2].qty: 3",
    ]


def test_an_example_shows_which_alternative_there_is():
    way = rows_of(way=WAY)["way"]
    assert [*example_lines(way, {("way", "sails"): "2"})] == [
        "kind of way: boat",
        "way.sails: 2",
    ]
    assert [*example_lines(way, {})] == ["kind of way: none"]


def test_all_names_are_right_and_then_the_other_keys_of_each_item():
    lines = rows_of(lines=LINES)["lines"]
    assert answers(lines, TWICE) == {
        ("lines", "names"): "tea | tea",
        ("lines", 1, "qty", "value"): "2",
        ("lines", 2, "qty", "value"): "3",
    }
    prices = rows_of(prices=PRICES)["prices"]
    assert answers(prices, {("prices", "tea"): "3"}) == {
        ("prices", "names"): "tea",
        ("prices", "tea", "value"): "3",
    }


def test_an_alternative_is_right_and_then_its_keys():
    way = rows_of(way=WAY)["way"]
    assert answers(way, {("way", "sails"): "2"}) == {
        ("way", "label"): "boat",
        ("way", "sails", "value"): "2",
    }
    assert answers(way, {}) == {("way", "label"): "none"}


def test_a_number_is_right_as_its_source_has_it():
    tree = tree_in({"properties": {"total": {"type": "number"}}}, "here")
    record = Record("1", "all: 1.250,00", "", None, (), "here", {}, {"total": 1250.0})
    assert target_texts(tree, record) == {("total",): "1.250,00"}
