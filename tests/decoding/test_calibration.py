"""What right answers say of blind rows: the least confidence of a value, and the values of a key that has few."""

import math

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
    find_priors,
    fit_temperature,
    learn_choices,
)
from pipedec_cli.decoding.decoder import load
from pipedec_cli.metrics.choices import Decided
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


def likelihood(decided, temperature):
    return sum(
        math.log(each.at(temperature).probabilities[each.right]) for each in decided
    )


def test_the_temperature_makes_the_right_answers_most_probable():
    """Too sure by far: three of five are right at 99 %."""
    sure = {"a": 0.99, "b": 0.01}
    decided = [Decided(sure, "a")] * 3 + [Decided(sure, "b")] * 2
    temperature = fit_temperature(decided)
    assert temperature > 5
    best = likelihood(decided, temperature)
    assert best >= max(likelihood(decided, temperature * by) for by in (0.9, 1.1))
    # At this temperature they are as sure as they are right.
    assert decided[0].at(temperature).confidence == pytest.approx(0.6, abs=1e-3)


def test_without_right_answers_the_temperature_stays():
    assert fit_temperature([]) == 1.0
    assert fit_temperature([Decided({"a": 1.0}, "b")]) == 1.0


def test_choices_are_calibrated_by_key_if_there_are_enough_records(plain):
    """The right answers to one key are the model's, to the other always another one."""
    fields = (Field("food", enum=("Thai", "Greek")), Field("open", "boolean"))
    decoder = blind_decoder(plain, Rows(tree_of(fields)))
    method = decoder.method()
    [made] = decoder.texts(["The Mill"], method)
    best = {
        key: max(shares, key=shares.get) for key, shares in made.probabilities.items()
    }
    others = {
        key: [one for one in shares if one not in ("", best[key])]
        for key, shares in made.probabilities.items()
    }
    target = {"open": others["open"][0] == "true"}
    if best["food"]:
        target["food"] = best["food"]
    records = [
        Record(str(n), "The Mill", "", None, (), "here:1", {}, target)
        for n in range(60)
    ]
    food, is_open = calibrate(decoder, records, 8, lambda: None)
    assert (food.key, is_open.key) == ("food", "open")
    assert food.temperature < 1 < is_open.temperature
    assert food.after <= food.before
    assert is_open.after <= is_open.before
    [again] = decoder.texts(["The Mill"], method)
    assert max(again.probabilities["food"].values()) > max(
        made.probabilities["food"].values()
    )


def test_a_prior_is_taken_from_choices_alone(plain):
    """A number of the source is no answer behind an empty text."""
    fields = (Field("food", enum=("Thai", "Greek")), Field("stars", "integer"))
    decoder = blind_decoder(plain, Rows(tree_of(fields)))
    usual, nothing = decoder.texts(["5 stars", ""], decoder.method())
    find_priors(decoder)
    tried, even = decoder.texts(["5 stars", ""], decoder.method())
    assert [*even.probabilities["food"].values()] == pytest.approx([1 / 3] * 3)
    ratios = [
        usual.probabilities["food"][label] / nothing.probabilities["food"][label]
        for label in ("Thai", "Greek", "")
    ]
    expected = [ratio / sum(ratios) for ratio in ratios]
    assert [*tried.probabilities["food"].values()] == pytest.approx(expected)
    assert tried.fields.get("stars") == usual.fields.get("stars")
