"""What a report ends in, branch by branch."""

from types import SimpleNamespace

import pytest

from pipedec_cli.evaluate.advice import advise
from pipedec_cli.evaluate.competitor import Totals
from pipedec_cli.evaluate.significance import Difference
from pipedec_cli.evaluate.timing import Gain
from tests.evaluate.decoders import competitor


def failing(duplicated=0.0, dropped=None, truncated=0.0):
    """What was scored, as far as advice looks at it."""
    rates = {"duplicated_rate": duplicated, "dropped_rate": dropped, "truncated_rate": truncated}
    return SimpleNamespace(failures=SimpleNamespace(**rates))


def tried(delay=1, speedup=3.0, quality=0.0, fewer=3.0, spread=0.4, tokens=1.0, used_up=None, **rates):
    """A delay that is so many times as fast as the baseline, with so many times fewer steps and tokens."""
    found = {}
    if quality is not None:
        low, high = (None, None) if spread is None else (quality - spread, quality + spread)
        found = {"rougeL": Difference(quality, low, high)}
    return competitor(
        f"Δt = {delay}",
        options=f"--delay {delay}",
        differences=found,
        gains={1: Gain(speedup, speedup, speedup, None, None, 1.0), 4: Gain(9.0, 9.0, 9.0, None, None, 1.0)},
        totals=Totals(1000, round(100_000 / fewer), round(100_000 / tokens)),
        used_up=used_up,
        scored=failing(**rates),
    )


def ask(*decoders, subsequences=5.0, **usual):
    return advise(
        decoders,
        competitor("sequential", "baseline", totals=Totals(1000, 100_000, 100_000), scored=failing(**usual)),
        called="the plain T5",
        subsequences=subsequences,
        metric="rougeL",
        label="ROUGE-L",
    )


def test_fastest_of_those_that_are_as_good_is_taken():
    advice = ask(tried(1, 4.0, -1.5), tried(2, 3.0, -0.2), tried(3, 2.0, 0.3))
    assert (advice.verdict, advice.options) == ("take", "--delay 2")
    assert "3.0 times as fast as the plain T5, with 3.0 times fewer decoder steps" in advice.text
    assert "ROUGE-L -0.2, 95 % interval -0.6 to +0.2" in advice.text
    assert advice.cautions == ()


def test_quality_decides_among_those_about_as_fast():
    advice = ask(tried(1, 3.1, -0.4), tried(2, 3.0, 0.2), tried(3, 2.0, 1.0))
    assert advice.options == "--delay 2"


def test_few_subsequences_that_give_no_speed_are_named_as_the_reason():
    advice = ask(tried(1, 1.1, fewer=1.2), tried(2, 1.2, fewer=1.1), subsequences=1.4)
    assert (advice.verdict, advice.options) == ("few-subsequences", None)
    assert "1.4 subsequences on average" in advice.text
    assert "1.2 times as fast as the plain T5 (Δt = 2)" in advice.text


def test_few_subsequences_that_are_faster_all_the_same_are_taken():
    assert ask(tried(1, 1.7), subsequences=2.0).verdict == "take"


def test_saved_steps_without_saved_time_are_told_apart():
    advice = ask(tried(1, 1.1, fewer=2.5))
    assert (advice.verdict, advice.options) == ("no-gain", None)
    assert "2.5 times, but not time" in advice.text


def test_hardly_any_saved_steps_are_told_apart():
    advice = ask(tried(1, 1.1, fewer=1.2))
    assert advice.verdict == "no-gain"
    assert "hardly any decoder steps" in advice.text


def test_when_every_delay_costs_quality_the_one_that_costs_least_is_offered():
    advice = ask(tried(1, 4.0, -3.0), tried(2, 2.5, -1.2), tried(3, 1.1, 0.0))
    assert (advice.verdict, advice.options) == ("trade", "--delay 2")
    assert "-1.2" in advice.text


def test_a_loss_of_quality_that_may_be_chance_is_called_so():
    sure, chance = ask(tried(2, 2.5, -4.4, spread=4.0)), ask(tried(2, 2.5, -4.4, spread=5.0))
    assert (sure.verdict, chance.verdict) == ("trade", "trade")
    assert "costs quality." in sure.text
    assert "seems to cost quality, but that may be chance" in chance.text


def test_quality_that_is_not_known_is_a_caution():
    advice = ask(tried(1, 3.0, None))
    assert advice.verdict == "take"
    assert "not known" in advice.cautions[0]


def test_single_example_is_a_caution():
    assert "One example" in ask(tried(spread=None)).cautions[0]


def test_wide_interval_is_a_caution_only_where_the_decoder_counts_as_good():
    assert "too few examples" in ask(tried(1, 3.0, 0.0, spread=3.0)).cautions[0]
    assert ask(tried(1, 3.0, -2.0, spread=3.0)).cautions == ()


@pytest.mark.parametrize(
    ("mine", "usual", "word"),
    [
        ({"dropped": 0.20}, {"dropped": 0.10}, "leaves out 20%"),
        ({"duplicated": 0.10}, {"duplicated": 0.01}, "10% of its subsequences repeat"),
        ({"truncated": 0.30}, {}, "30% of its texts are cut short"),
        ({"used_up": 0.25}, {}, "--explore once"),
        ({"truncated": 0.3}, {"truncated": 0.6}, "cut short in 60% of its texts"),
        ({"tokens": 2.8}, {}, "2.8 times as many tokens"),
    ],
)
def test_what_goes_wrong_more_often_than_in_the_baseline_is_a_caution(mine, usual, word):
    (caution,) = ask(tried(**mine), **usual).cautions
    assert word in caution


@pytest.mark.parametrize(
    ("mine", "usual"),
    [
        ({"dropped": 0.10}, {"dropped": 0.09}),
        ({"dropped": 0.50}, {}),
        ({}, {"dropped": 0.5}),
        ({"duplicated": 0.10}, {"duplicated": 0.10}),
        ({"truncated": 0.10}, {"truncated": 0.10}),
        ({"used_up": 0.0}, {}),
        ({"tokens": 1.1}, {}),
    ],
)
def test_what_goes_wrong_as_often_in_the_baseline_is_none(mine, usual):
    assert ask(tried(**mine), **usual).cautions == ()


def test_nothing_tried_is_no_question():
    with pytest.raises(ValueError, match="no decoder"):
        ask()
