"""F1 of objects: values computed by hand, the computation beside them, and again by sets of pairs over a whole corpus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.fields import pairs_of
from pipedec_cli.data.records import generated_of
from pipedec_cli.metrics.answers import for_task
from pipedec_cli.metrics.fields import Fields, normalise_value
from pipedec_cli.metrics.measure import score_examples
from tests.metrics.documents import example, scored, told

NOTHING_RIGHT = {
    "fields_p": 0.0,
    "fields_r": 0.0,
    "fields_f1": 0.0,
    "fields_exact": 0.0,
}
VALUES = st.sampled_from(
    ["a", "A ", "b", 3, 3.0, 2.5, True, None, "", [], ["a", "b"], ["b", "a", "a"]]
)
OBJECTS = st.dictionaries(st.sampled_from(["k", "l", "m: n"]), VALUES)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        # Micro: 2 of 3 predicted and of 3 right pairs, and 0 of 1 and of 1. P = R = F1
        # = 2/4 (the examples' mean: 1/3)
        (
            ["k: a; l: b; m: c | k: a; l: b; m: d", "k: a | k: b"],
            {
                "fields_p": 50.0,
                "fields_r": 50.0,
                "fields_f1": 50.0,
                "fields_exact": 0.0,
            },
        ),
        # A value under another key is wrong. P = 0/1, R = 0/1
        (["k: a | l: a"], NOTHING_RIGHT),
        # Nothing predicted of 2, then 1 of 1: P = 1/1, R = 1/3, F1 = 2 · 1/3 / (4/3) =
        # 1/2; 1 of 2 objects is exact
        (
            ["| k: a; l: b", "k: a | k: a"],
            {
                "fields_p": 100.0,
                "fields_r": 100 / 3,
                "fields_f1": 50.0,
                "fields_exact": 50.0,
            },
        ),
        (["| k: a"], NOTHING_RIGHT),
        (["k: a |"], NOTHING_RIGHT),
        # Nothing to find and nothing found is right
        (["|"], dict.fromkeys(NOTHING_RIGHT, 100.0)),
        # Items are sets: a twice is a once. 1 hit of 2 and of 2
        (["k: a; k: a; k: b | k: a; k: c"], {"fields_p": 50.0, "fields_r": 50.0}),
        # Case, white space and forms of letters do not count; anything else does
        (
            ["k: THE  Mill; l: ½ | k: the mill; l: 1⁄2"],
            dict.fromkeys(NOTHING_RIGHT, 100.0),
        ),
        (["k: the mill. | k: the mill"], NOTHING_RIGHT),
    ],
)
def test_values_are_as_computed_by_hand(objects, expected):
    assert told(scored(Fields(), *objects), expected) == pytest.approx(expected)


BY_KEY = Fields(
    (
        ("name", "words"),
        ("age", "1"),
        ("menu[].price", "10%"),
        ("tags", "words"),
        ("exact", "exact"),
    )
)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        # Two of three words, and three of three: F1 of the words is 4/5. One value
        # weighs as another does
        (
            ["name: The Blue Mill; age: 31 | name: blue mill; age: 30"],
            {"fields_p": 90.0, "fields_r": 90.0},
        ),
        (
            ["name: mill, blue | name: Blue Mill"],
            {"fields_f1": 100.0, "fields_exact": 100.0},
        ),
        (["age: 32 | age: 30"], NOTHING_RIGHT),
        (["age: thirty | age: 30"], NOTHING_RIGHT),
        (["name: 30 | age: 30"], NOTHING_RIGHT),
        # Each right value counts once: of two that are within the tolerance one is
        # right
        (["age: 30; age: 31 | age: 30.5"], {"fields_p": 50.0, "fields_r": 100.0}),
        # The second pair of values agrees more than any other pairing: 1 + 2/3 over 2
        (
            ["tags: a b; tags: c | tags: c d; tags: a b"],
            {"fields_p": 250 / 3, "fields_r": 250 / 3},
        ),
        # Items are compared with those that they agree with most: 11 with 10, not 20
        # with 10
        (
            [
                "menu[1].price: 20; menu[2].price: 11 | menu[1].price: 10; menu[2].price: 20"
            ],
            {"fields_f1": 100.0, "fields_exact": 100.0},
        ),
        (["other: 30 | other: 30.5"], NOTHING_RIGHT),
        (["exact: 30 | exact: 31"], NOTHING_RIGHT),
    ],
)
def test_a_key_may_be_compared_by_its_words_or_with_a_tolerance(objects, expected):
    assert told(scored(BY_KEY, *objects), expected) == pytest.approx(expected)


def as_set(value):
    """The pairs of an object, plainly."""
    pairs = set()
    for key, values in value.items():
        for item in values if isinstance(values, list) else [values]:
            if item is not None and item != "":
                number = isinstance(item, float) and item == int(item)
                text = str(int(item) if number else item)
                pairs.add((key, text.lower().strip()))
    return pairs


def check_sets(values, sets):
    """Compare the values of some objects with those of their sets of pairs."""
    hits = sum(len(made & right) for made, right in sets)
    predicted = sum(len(made) for made, _ in sets)
    expected = sum(len(right) for _, right in sets)
    if predicted and expected:
        assert values["fields_p"] == pytest.approx(100 * hits / predicted)
        assert values["fields_r"] == pytest.approx(100 * hits / expected)
        assert values["fields_f1"] == pytest.approx(200 * hits / (predicted + expected))
    exact = sum(made == right for made, right in sets)
    assert values["fields_exact"] == pytest.approx(100 * exact / len(sets))
    return {"predicted_pairs": predicted, "right_pairs": expected}


@given(st.lists(st.tuples(OBJECTS, OBJECTS), min_size=1, max_size=6))
def test_a_corpus_scores_as_its_sets_of_pairs_do(objects):
    examples = []
    for number, (made, right) in enumerate(objects):
        line = {"id": number, "prediction": made, "target": right}
        examples.append(for_task(generated_of(line, "x:1", 1), "fields"))
    sets = [(as_set(made), as_set(right)) for made, right in objects]
    check_sets(score_examples(examples, Fields()).values, sets)
    parts = Fields().parts(examples)
    every = set().union(*(made | right for made, right in sets))
    assert parts.keys() == {key for key, _ in every}
    for key, part in parts.items():
        alone = [tuple(of_key(side, key) for side in pair) for pair in sets]
        counts = check_sets(part, alone)
        assert part | counts == part


def of_key(pairs, key):
    return {pair for pair in pairs if pair[0] == key}


def test_keys_with_the_most_right_values_come_first_and_a_key_without_any_is_right():
    right = [{"k": "a", "l": "b"}, {"k": "c"}]
    made = [{"k": "a", "m": "x"}, {"k": "c"}]
    parts = Fields().parts(map(paired, made, right))
    assert list(parts) == ["k", "l", "m"]
    assert [part["fields_exact"] for part in parts.values()] == [100.0, 50.0, 50.0]
    assert [part["fields_f1"] for part in parts.values()] == [100.0, 0.0, 0.0]
    assert normalise_value("  ＡB\u00a0 c") == "ab c"


def paired(made, right):
    return example(pairs_of(made), pairs_of(right))


def test_items_of_a_list_are_matched_so_that_most_pairs_agree():
    """By hand: Aromi is the second right item, the Mill the first with a wrong price, Zizzi none. 4 of 6, of 5 right."""
    right = {
        "menu": [{"dish": "Mill", "price": 1}, {"dish": "Aromi", "price": 2}],
        "name": "x",
    }
    dishes = [
        {"dish": "aromi", "price": 2.0},
        {"dish": "Mill", "price": 3},
        {"dish": "Zizzi"},
    ]
    made = {"menu": dishes, "name": "x"}
    given = paired(made, right)
    parts = Fields().parts([given])
    assert Fields().statistics(given) == (4, 0.0, 6, 5)
    assert Fields().renumbered(given.segments, pairs_of(right)) == [
        *(
            "menu[2].dish: aromi",
            "menu[2].price: 2",
            "menu[1].dish: Mill",
            "menu[1].price: 3",
        ),
        *("menu[3].dish: Zizzi", "name: x"),
    ]
    assert Fields().wrong(given) == [3, 4]
    assert list(parts) == ["menu[].dish", "menu[].price", "name"]
    assert (parts["menu[].dish"]["fields_r"], parts["menu[].price"]["fields_f1"]) == (
        100.0,
        50.0,
    )


ONE, OTHER = {"a": 1, "b": 2}, {"a": 3, "b": 4}


@pytest.mark.parametrize(
    ("made", "right", "row"),
    [
        # The order of items does not count; that of their values within an item does
        # not mix.
        ({"m": [ONE, OTHER]}, {"m": [OTHER, ONE]}, (4, 1.0, 4, 4)),
        (
            {"m": [{"a": 1, "b": 4}, {"a": 3, "b": 2}]},
            {"m": [ONE, OTHER]},
            (2, 0.0, 4, 4),
        ),
        # In their order the items have 2 + 1 pairs in common; the best assignment has 2
        # + 3.
        (
            {"m": [{"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 2}]},
            {"m": [{"a": 1, "b": 1, "c": 2}, {"a": 1, "d": 1, "c": 1}]},
            (5, 0.0, 6, 6),
        ),
        # An item too many and one too few; empty items are none; a nested object within
        # an item.
        ({"m": [{"a": 1}, {}, {"a": 1}]}, {"m": [{"a": 1}]}, (1, 0.0, 2, 1)),
        ({"m": []}, {"m": [{"a": {"b": 1}}, {"a": {"b": 2}}]}, (0, 0.0, 0, 2)),
        (
            {"m": [{"a": {"b": 2}}]},
            {"m": [{"a": {"b": 1}}, {"a": {"b": 2}}]},
            (1, 0.0, 1, 2),
        ),
        # Two lists are matched apart from each other; an object is no list.
        (
            {"m": [{"a": 1}], "n": [{"a": 1}]},
            {"n": [{"a": 2}, {"a": 1}], "m": [{"a": 1}]},
            (2, 0.0, 2, 3),
        ),
        ({"m": {"a": 1}}, {"m": [{"a": 1}]}, (0, 0.0, 1, 1)),
        ({"at": {"city": "X"}}, {"at": {"city": "x"}, "zip": None}, (1, 1.0, 1, 1)),
    ],
)
def test_lists_and_nested_objects_are_scored_as_by_hand(made, right, row):
    assert Fields().statistics(paired(made, right)) == row
