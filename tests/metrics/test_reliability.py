"""How well confidence tells right values from wrong ones: by hand, and as shares of pairs."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.records import generated_of
from pipedec_cli.metrics.answers import for_task
from pipedec_cli.metrics.fields import Fields
from pipedec_cli.metrics.reliability import Group, kept, reliability

JUDGED = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.35, 0.35001, 0.9, 1.0]), st.booleans()),
    min_size=1,
)


def item(fields, confidence, target):
    line = {
        "prediction": "",
        "fields": fields,
        "confidence": confidence,
        "target": target,
    }
    return for_task(generated_of(line, "f:1", 1), "fields")


def test_a_value_is_right_if_all_its_pairs_and_no_others_are_in_the_target():
    fields = {
        "a": "The  Mill",
        "b": 3,
        "c": ["x", "y"],
        "d": ["y", "x"],
        "e": None,
        "f": {"g": "no"},
    }
    sure = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5, "f": {"g": 0.4}}
    target = {"a": "the mill", "b": 4, "c": ["x"], "d": ["x", "y"], "f": {"g": "yes"}}
    found = Fields().judged(item(fields, sure, target))
    assert found == [(0.9, True), (0.8, False), (0.7, False), (0.6, True), (0.4, False)]
    assert Fields().judged(
        item(fields, {"a": 0.9, "b": True, "d": "x", "f": 0.5}, target)
    ) == [(0.9, True)]


def test_items_of_lists_are_judged_beside_the_items_that_they_are_compared_with():
    fields = {
        "menu": [{"name": None, "price": 9}, {"name": None}, {"name": "b", "price": 2}]
    }
    sure = {
        "menu": [
            {"name": 0.1, "price": 0.2},
            {"name": 0.3},
            {"name": 0.4, "price": 0.5},
        ]
    }
    target = {"menu": [{"name": "b", "price": 2}, {"name": "a", "price": 1}]}
    assert Fields().judged(item(fields, sure, target)) == [
        (0.2, False),
        (0.4, True),
        (0.5, True),
    ]


def test_figures_are_as_computed_by_hand():
    """Right over wrong: 0.95 over 3, 0.92 twice over 2 and level with 1, 0.3 over 1 of 3: 9 of 12 pairs and 1 of 12."""
    right, wrong = (0.95, 0.92, 0.92, 0.3), (0.92, 0.5, 0.2)
    values = [*((sure, True) for sure in right), *((sure, False) for sure in wrong)]
    found = reliability(values)
    assert found.auc == pytest.approx((3 + 2.5 + 2.5 + 1) / 12)
    assert found.threshold == 0.95  # from 0.92 on 3 of 4 are right
    bins = [(one.least, one.values, one.right) for one in found.bins]
    assert bins == [(0.2, 1, 0.0), (0.3, 1, 100.0), (0.5, 1, 0.0), (0.9, 4, 75.0)]
    assert found.bins[-1].confidence == pytest.approx(92.75)
    assert kept(values, 0.4) == Group(0.4, 5, pytest.approx(84.2), 60.0)
    alone = reliability([(1.0, True)])
    assert (alone.auc, alone.bins) == (None, [Group(0.9, 1, 100.0, 100.0)])
    assert reliability([(1.0, False)]).threshold is None and reliability([]) is None


@given(JUDGED)
def test_the_area_is_the_share_of_pairs_in_order_and_the_threshold_the_least_that_keeps_enough(
    values,
):
    found = reliability(values)
    right, wrong = (
        [sure for sure, of in values if of is kind] for kind in (True, False)
    )
    pairs = [(one > other) + (one == other) / 2 for one, other in product(right, wrong)]
    assert found.auc == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)
    good = [
        one
        for one in sorted({sure for sure, _ in values})
        if kept(values, one).right >= 95
    ]
    assert found.threshold == (good[0] if good else None)
    assert sum(one.values for one in found.bins) == len(values)
