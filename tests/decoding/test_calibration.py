"""What right answers say of blind rows: the least confidence of a value, and the values of a key that has few."""

import pytest

from pipedec_cli.data.fields import Field
from pipedec_cli.data.records import Record
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.calibration import (
    ALL,
    NO_VALUES,
    Tried,
    best_threshold,
    calibrate,
    learn_choices,
)
from pipedec_cli.decoding.decoder import load
from pipedec_cli.objects.rows import Rows
from pipedec_cli.objects.tree import tree_of
from tests.model.chats import foreign

FIELDS = (Field("food"), Field("name"), Field("stars", "integer"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return load(str(foreign(tmp_path_factory.mktemp("foreign"))), device="cpu")


def records_of(*targets):
    return [
        Record(str(number), f"text {number}", "", None, (), "here:1", {}, target)
        for number, target in enumerate(targets)
    ]


@pytest.mark.parametrize(
    ("values", "filled", "threshold"),
    [
        # 6 / 8 beats 4 / 6
        ([(0.9, True), (0.4, True), (0.1, False), (0.4, False), (0.001, True)], 3, ALL),
        # 4 / 6 beats 2 / 4 and 4 / 7
        ([(0.9, True), (0.4, True), (0.1, False), (0.4, False)], 3, 0.2),
        ([(0.9, False)], 0, NO_VALUES),
        ([], 3, NO_VALUES),
    ],
)
def test_the_threshold_with_the_best_f1_is_taken(values, filled, threshold):
    assert best_threshold([Tried(*value) for value in values], filled) == threshold


def test_a_key_with_few_values_that_come_again_has_these_as_choices(plain):
    plan = blind_decoder(plain, Rows(tree_of(FIELDS))).plan
    targets = [
        {"food": food, "name": f"pub {n}"}
        for n, food in enumerate(["Thai", "Thai", "Greek", "Greek"])
    ]
    learnt = learn_choices(plan, records_of(*targets))
    assert {part.field.name: values for part, values in learnt.items()} == {
        "food": ("Greek", "Thai")
    }
    assert learn_choices(plan, records_of(*targets[:3])) == {}, "one value comes once"


def test_thresholds_are_fitted_to_each_key_and_its_values_must_be_as_sure(plain):
    """The right answers to one key are those that are given, and there are none to the others."""
    decoder = blind_decoder(plain, Rows(tree_of(FIELDS)))
    sources = ["Aromi has 5 stars", "The Mill", "Thai food for 3"]
    before = [made.fields for made in decoder.texts(sources, decoder.method())]
    records = [
        Record(source, source, "", None, (), "here:1", {}, {"name": made.get("name")})
        for source, made in zip(sources, before, strict=True)
    ]
    done = []
    calibrate(decoder, records, 2, lambda: done.append(1))
    assert len(done) == 3
    thresholds = dict(
        zip(("food", "name", "stars"), decoder.plan.thresholds, strict=True)
    )
    assert thresholds["food"] == thresholds["stars"] == NO_VALUES
    after = [made.fields for made in decoder.texts(sources, decoder.method())]
    assert [made.get("name") for made in after] == [made.get("name") for made in before]
    assert not any(made.keys() & {"food", "stars"} for made in after)
