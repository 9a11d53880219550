"""Texts and objects side by side."""

import pytest

from pipedec_cli.metrics.alignment import aligned, aligned_by_key


@pytest.mark.parametrize(
    ("segments", "beside", "places"),
    [
        ("a b, c d, e f", "A b., c D, e f!", [0, 1, 2]),
        ("a b, e f", "a b, c d, e f", [0, 2]),
        (
            "a b, a b, e f",
            "a b, c d, e f",
            [0, 1, 2],
        ),  # what repeats stands where something is missing
        ("a b, x, y, e f", "a b, c d, e f", [0, 1, 1, 2]),
        ("a b, a b, c d", "a b, c d", [0, 0, 1]),
        ("x, a b", "a b, c d", [0, 0]),
        ("a b, x, y", "a b", [0, 0, 0]),
        ("x, y", "a, b, c", [0, 1]),
        ("x, y", "", [0, 0]),
        ("", "a, b", []),
    ],
)
def test_what_says_the_same_stands_side_by_side_in_order_and_the_rest_as_it_comes(
    segments, beside, places
):
    one, other = (tuple(filter(None, text.split(", "))) for text in (segments, beside))
    assert aligned(one, other) == places


def test_pairs_of_objects_stand_beside_their_keys_in_whatever_order():
    right = ("name: Fitzbillies", "rating: 3", "area: riverside", "tag: a", "tag: b")
    plain = (
        "name: Fitzbillies",
        "area: city",
        "tag: b",
        "tag: c",
        "near: Crowne",
        "rating: 3",
    )
    other = ("rating: 5", "near: Bakers", "kind: pub")
    assert aligned_by_key([plain, other], right) == [[0, 2, 4, 3, 5, 1], [1, 5, 6]]
