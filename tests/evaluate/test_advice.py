"""What a report ends in, branch by branch."""

import pytest

from pipedec_cli.evaluate.advice import Outcome, Rates, advise
from pipedec_cli.evaluate.significance import Difference


def difference(value, spread=0.4):
    return Difference(value, value - spread, value + spread)


def outcome(delay=1, speedup=3.0, quality=0.0, fewer=3.0, rates=None, spread=0.4, tokens=1.0):
    measured = None if quality is None else difference(quality, spread)
    return Outcome(f"Δt = {delay}", f"--delay {delay}", speedup, fewer, measured, rates or Rates(), tokens)


def ask(*outcomes, subsequences=5.0, usual=None):
    return advise(
        outcomes,
        baseline="the plain T5",
        baseline_rates=usual or Rates(),
        subsequences=subsequences,
        metric="ROUGE-L",
    )


def test_fastest_of_those_that_are_as_good_is_taken():
    advice = ask(outcome(1, 4.0, -1.5), outcome(2, 3.0, -0.2), outcome(3, 2.0, 0.3))
    assert (advice.verdict, advice.options) == ("take", "--delay 2")
    assert "3.0 times as fast as the plain T5" in advice.text
    assert "ROUGE-L -0.2, 95 % interval -0.6 to +0.2" in advice.text
    assert advice.cautions == ()


def test_quality_decides_among_those_about_as_fast():
    advice = ask(outcome(1, 3.1, -0.4), outcome(2, 3.0, 0.2), outcome(3, 2.0, 1.0))
    assert advice.options == "--delay 2"


def test_few_subsequences_that_give_no_speed_are_named_as_the_reason():
    advice = ask(outcome(1, 1.1, 0.0, fewer=1.2), outcome(2, 1.2, 0.0, fewer=1.1), subsequences=1.4)
    assert (advice.verdict, advice.options) == ("few-subsequences", None)
    assert "1.4 subsequences on average" in advice.text
    assert "1.2 times as fast as the plain T5 (Δt = 2)" in advice.text


def test_few_subsequences_that_are_faster_all_the_same_are_taken():
    assert ask(outcome(1, 1.7), subsequences=2.0).verdict == "take"


def test_saved_steps_without_saved_time_are_told_apart():
    advice = ask(outcome(1, 1.1, fewer=2.5))
    assert (advice.verdict, advice.options) == ("no-gain", None)
    assert "2.5 times, but not time" in advice.text


def test_hardly_any_saved_steps_are_told_apart():
    advice = ask(outcome(1, 1.1, fewer=1.2))
    assert advice.verdict == "no-gain"
    assert "hardly any decoder steps" in advice.text


def test_when_every_delay_costs_quality_the_one_that_costs_least_is_offered():
    advice = ask(outcome(1, 4.0, -3.0), outcome(2, 2.5, -1.2), outcome(3, 1.1, 0.0))
    assert (advice.verdict, advice.options) == ("trade", "--delay 2")
    assert "-1.2" in advice.text


def test_a_loss_of_quality_that_may_be_chance_is_called_so():
    sure, chance = ask(outcome(2, 2.5, -4.4, spread=4.0)), ask(outcome(2, 2.5, -4.4, spread=5.0))
    assert (sure.verdict, chance.verdict) == ("trade", "trade")
    assert "costs quality." in sure.text
    assert "seems to cost quality, but that may be chance" in chance.text


def test_quality_that_is_not_known_is_a_caution():
    advice = ask(outcome(1, 3.0, None))
    assert advice.verdict == "take"
    assert "not known" in advice.cautions[0]


def test_single_example_is_a_caution():
    single = Outcome("Δt = 1", "--delay 1", 3.0, 3.0, Difference(0.0, None, None))
    assert "One example" in ask(single).cautions[0]


def test_wide_interval_is_a_caution_only_where_the_decoder_counts_as_good():
    assert "too few examples" in ask(outcome(1, 3.0, 0.0, spread=3.0)).cautions[0]
    assert ask(outcome(1, 3.0, -2.0, spread=3.0)).cautions == ()


@pytest.mark.parametrize(
    ("mine", "usual", "word"),
    [
        (Rates(dropped=0.20), Rates(dropped=0.10), "leaves out 20%"),
        (Rates(duplicated=0.10), Rates(duplicated=0.01), "10% of its subsequences repeat"),
        (Rates(truncated=0.30), Rates(truncated=0.0), "30% of its texts are cut short"),
        (Rates(used_up=0.25), Rates(), "--explore once"),
    ],
)
def test_what_goes_wrong_more_often_than_in_the_baseline_is_a_caution(mine, usual, word):
    (caution,) = ask(outcome(rates=mine), usual=usual).cautions
    assert word in caution


@pytest.mark.parametrize(
    ("mine", "usual"),
    [
        (Rates(dropped=0.10), Rates(dropped=0.09)),
        (Rates(dropped=0.50), Rates(dropped=None)),
        (Rates(dropped=None), Rates(dropped=0.5)),
        (Rates(duplicated=0.10), Rates(duplicated=0.10)),
        (Rates(truncated=0.10), Rates(truncated=0.10)),
        (Rates(used_up=0.0), Rates()),
    ],
)
def test_what_goes_wrong_as_often_in_the_baseline_is_none(mine, usual):
    assert ask(outcome(rates=mine), usual=usual).cautions == ()


def test_baseline_that_is_cut_short_is_a_caution():
    cautions = ask(outcome(rates=Rates(truncated=0.3)), usual=Rates(truncated=0.6)).cautions
    assert "cut short in 60% of its texts" in cautions[0]


def test_shorter_text_is_told_from_speed():
    (caution,) = ask(outcome(tokens=2.8)).cautions
    assert "2.8 times as many tokens" in caution
    assert ask(outcome(tokens=1.1)).cautions == ()


def test_nothing_tried_is_no_question():
    with pytest.raises(ValueError, match="no outcome"):
        ask()


def test_advice_is_saved_as_plain_values():
    assert ask(outcome()).as_json()["verdict"] == "take"
