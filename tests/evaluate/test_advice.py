"""What a report ends in, branch by branch; and what is counted before anything is trained."""

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.evaluate.advice import Estimate, advise, doubt, estimate
from pipedec_cli.evaluate.competitor import Totals
from pipedec_cli.evaluate.significance import Difference
from pipedec_cli.evaluate.timing import Gain
from pipedec_cli.pipeline.grid import Limits
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


LOSS = "3.0 times as fast as the plain T5, with 3.0 times fewer decoder steps, ROUGE-L -0.2, 95 % interval -0.6 to"
FEW = r"1.4 subsequences on average.* 1.2 times as fast as the plain T5 \(Δt = 2\)"


@pytest.mark.parametrize(
    ("decoders", "subsequences", "verdict", "options", "words"),
    [
        # the fastest of those that are as good; among those about as fast, quality decides
        ([(1, 4.0, -1.5), (2, 3.0, -0.2), (3, 2.0, 0.3)], 5.0, "take", "--delay 2", LOSS),
        ([(1, 3.1, -0.4), (2, 3.0, 0.2), (3, 2.0, 1.0)], 5.0, "take", "--delay 2", ""),
        # few subsequences that give no speed are named as the reason; those that are faster all the same are taken
        ([(1, 1.1, 0, 1.2), (2, 1.2, 0, 1.1)], 1.4, "few-subsequences", None, FEW),
        ([(1, 1.7)], 2.0, "take", "--delay 1", ""),
        # saved steps without saved time, and hardly any saved steps
        ([(1, 1.1, 0, 2.5)], 5.0, "no-gain", None, "2.5 times, but not time"),
        ([(1, 1.1, 0, 1.2)], 5.0, "no-gain", None, "hardly any decoder steps"),
        # when every delay costs quality, the one that costs least; a loss that may be chance is called so
        ([(1, 4.0, -3.0), (2, 2.5, -1.2), (3, 1.1, 0.0)], 5.0, "trade", "--delay 2", "-1.2"),
        ([(2, 2.5, -4.4, 3, 4.0)], 5.0, "trade", "--delay 2", "worthwhile costs quality."),
        (
            [(2, 2.5, -4.4, 3, 5.0)],
            5.0,
            "trade",
            "--delay 2",
            "seems to cost quality, but that may be chance",
        ),
    ],
)
def test_a_delay_is_taken_or_offered_or_told_why_not(decoders, subsequences, verdict, options, words):
    advice = ask(*(tried(*decoder) for decoder in decoders), subsequences=subsequences)
    assert (advice.verdict, advice.options, advice.cautions) == (verdict, options, ())
    assert re.search(words, advice.text)


@pytest.mark.parametrize(
    ("mine", "usual", "word"),
    [
        ({"dropped": 0.20}, {"dropped": 0.10}, "leaves out 20%"),
        ({"duplicated": 0.10}, {"duplicated": 0.01}, "10% of its subsequences repeat"),
        ({"truncated": 0.30}, {}, "30% of its texts are cut short"),
        ({"used_up": 0.25}, {}, "--explore once"),
        ({"truncated": 0.3}, {"truncated": 0.6}, "cut short in 60% of its texts"),
        ({"tokens": 2.8}, {}, "2.8 times as many tokens"),
        # quality: not known, of one example, or with too wide an interval for a decoder that counts as good
        ({"quality": None}, {}, "whether the quality holds is not known"),
        ({"spread": None}, {}, "One example"),
        ({"spread": 3.0}, {}, "too few examples"),
    ],
)
def test_what_goes_wrong_more_often_than_in_the_baseline_or_is_not_known_is_a_caution(mine, usual, word):
    advice = ask(tried(**mine), **usual)
    assert advice.verdict == "take"
    assert [word in caution for caution in advice.cautions] == [True]


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
        ({"quality": -2.0, "spread": 3.0}, {}),
    ],
)
def test_what_goes_wrong_as_often_in_the_baseline_is_none(mine, usual):
    assert ask(tried(**mine), **usual).cautions == ()


def test_nothing_tried_is_no_question():
    with pytest.raises(ValueError, match="no decoder"):
        ask()


@pytest.mark.parametrize(
    ("wholes", "parts", "limits", "found"),
    [
        ([5], [[3, 2]], Limits(), (1, 1, 6, 4, 0)),  # the paper's second figure
        ([3, 9], [[3], [9]], Limits(time_max=5), (1, 2, 7, 7, 0.5)),  # averaged; the cut ones are counted
        ([60], [[60]], Limits(time_max=5), (1, 1, 61, 61, 1)),  # one that would be cut has all its steps
    ],
)
def test_steps_are_estimated_by_replaying_targets(wholes, parts, limits, found):
    entry, other = estimate(wholes, parts, limits, delays=[1, 2])
    assert entry == found
    assert entry.ratio == entry.sequential_steps / entry.pipelined_steps
    assert other.targets == entry.targets


@given(st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_single_delay_costs_at_least_the_longest_subsequence(parts):
    for entry in estimate([sum(lengths) for lengths in parts], parts, Limits()):
        assert entry.pipelined_steps >= sum(max(lengths) + 1 for lengths in parts) / len(parts)


@pytest.mark.parametrize(
    ("subsequences", "ratio", "doubtful"),
    [(1.4, 1.2, True), (2.0, 1.9, True), (6.0, 1.1, True), (6.0, 3.0, False)],
)
def test_a_method_that_will_not_help_is_doubted_with_the_number(subsequences, ratio, doubtful):
    why = doubt(subsequences, [Estimate(1, 10, 10 * ratio, 10, 0), Estimate(2, 10, 10, 10, 0)])
    assert (why is not None) == doubtful
    if why:
        assert f"{subsequences:.1f} subsequences" in why
        assert f"{ratio:.1f}" in why


def test_no_targets_save_nothing():
    assert doubt(0, estimate([], [], Limits())) is not None
