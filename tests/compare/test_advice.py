"""What a report ends in, branch by branch."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pipedec_cli.compare.advice import advise
from pipedec_cli.compare.entry import Quality, TextAgreement, Totals
from pipedec_cli.compare.timing import Gain
from pipedec_cli.metrics.scoring import Difference, Fault
from tests.compare.decoders import entry

RATES = {"duplicated", "dropped", "truncated", "alike"}


def failing(duplicated=0.0, dropped=None, truncated=0.0, alike=0.0):
    """What was scored, as far as advice looks at it."""
    rates = {
        "duplicated_rate": duplicated,
        "dropped_rate": dropped,
        "truncated_rate": truncated,
    }
    rates |= {"alike_rate": alike, "truncated": {"time_max": 1} if truncated else {}}
    return SimpleNamespace(
        failures=SimpleNamespace(**rates), is_unscored=False, items=range(1000)
    )


def tried(
    delay=1,
    speedup=3.0,
    quality=0.0,
    fewer=3.0,
    spread=0.4,
    tokens=1.0,
    slowest=None,
    fastest=None,
    **more,
):
    """A delay that is so many times as fast as the baseline, with so many times fewer steps and tokens."""

    def gain(usual, least, most):
        return Gain(usual, least, most, None, None, 1.0)

    found, batched = {}, more.pop("batched", 9.0)
    if quality is not None:
        low, high = (
            (None, None) if spread is None else (quality - spread, quality + spread)
        )
        found = {"rougeL": Difference(quality, low, high), **more.pop("others", {})}
    return entry(
        f"Δt = {delay}",
        command=f"pipedec generate --delay {delay}",
        differences=found,
        gains={
            1: gain(speedup, slowest or speedup, fastest or speedup),
            4: gain(batched, batched, batched),
        },
        totals=Totals.of(1000, round(100_000 / fewer), round(100_000 / tokens)),
        scored=failing(**{name: more.pop(name) for name in RATES & more.keys()}),
        **more,
    )


def ask(*decoders, subsequences=5.0, faults=(), beside=None, totals=None, **usual):
    totals = totals or Totals.of(1000, 100_000, 100_000)
    measured = {
        "totals": totals,
        "scored": failing(**usual),
        "faults": faults,
        "other_splits": beside or {},
    }
    return advise(
        decoders,
        entry("sequential", "baseline", **measured),
        called="the sequential model",
        subsequences=subsequences,
        metric="rougeL",
    )


MODEL, TWO = "the sequential model", "Δt = 2 (`pipedec generate --delay 2`"
FAST = f"Take {TWO}): 3.0 times as fast as {MODEL}"
TAKE = f"{FAST}, with 3.0 times fewer decoder steps"
NONE = "1,000 examples show no difference in ROUGE-L (95 % interval -0.6 to +0.2)."
LONG, ENDS = "one long subsequence decides the time", f"or stay with {MODEL}."
AGAIN = "and read some predictions, before you compare again."


def best(speedup, delay):
    return f"at best it is {speedup} times as fast as {MODEL} (Δt = {delay})"


def hardly(why, speed, end=f"Stay with {MODEL}."):
    return f"The method does not help here: {why}; {speed}. {end}"


def scattered(low, high):
    return (
        f"No advice: the times differ too much between repeats. Δt = 1 was {low} to {high} times as fast as {MODEL}. "
        "Time again while the machine does nothing else, with more repeats or timing_examples. In decoder steps, which "
        "are exact, Δt = 1 saves most: a factor of 3.0."
    )


SAVED = "it takes 2.5 times fewer decoder steps, but hardly less time: the encoder takes most of it, or a step with more rows costs more on this machine"
FEW = "the targets have 1.4 subsequences on average, and with one or two there is hardly anything to generate at once"
CHANCE = f"the repeats show no difference in speed (Δt = 1 was 0.9 to 1.1 times as fast as {MODEL})"
LONGER = f"it saves no decoder steps (it takes 1.4 times as many): its texts have 2.5 times as many tokens as those of {MODEL}"
COSTS = (
    f"Every delay that saves time costs quality. {TWO}) costs least: 2.5 times as fast as {MODEL}, ROUGE-L -1.2, 95 % interval "
    f"-1.6 to -0.8. Take it if the speed is worth that, try larger delays, which give some quality back, {ENDS}"
)
UNKNOWN = (
    f"{TWO}) is 2.5 times as fast as {MODEL}. 1,000 examples show no difference in ROUGE-L (95 % interval -9.4 to +0.6). Its "
    f"cost is not known: score more examples before you take it, {ENDS}"
)


@pytest.mark.parametrize(
    ("decoders", "verdict", "text"),
    [
        # The fastest of those that are as good; among those about as fast, quality
        # decides
        (
            [tried(1, 4.0, -1.5), tried(2, 3.0, -0.2), tried(3, 2.0, 0.3)],
            "take",
            f"{TAKE}. {NONE}",
        ),
        (
            [tried(1, 3.1, -0.4), tried(2, 3.0, 1.7, spread=1.0), tried(3, 2.0, 2.0)],
            *("take", f"{TAKE}, ROUGE-L +1.7, 95 % interval +0.7 to +2.7."),
        ),
        # A bound that rounds to nothing is not below nothing
        (
            [tried(2, 3.0, 0.2, spread=0.23)],
            "take",
            f"{TAKE}. {NONE.replace('-0.6 to +0.2', '+0.0 to +0.4')}",
        ),
        # Equal predictions; nothing scored
        ([tried(2, spread=0.0)], "take", f"{TAKE}. ROUGE-L is the same."),
        ([tried(2, quality=None)], "take", f"{TAKE}."),
        # Saved steps without saved time; hardly any, and a speed that may be chance;
        # none
        ([tried(1, 1.1, fewer=2.5)], "no-gain", hardly(SAVED, best(1.1, 1))),
        (
            [tried(1, 1.1, fewer=1.2, slowest=0.9)],
            *(
                "no-gain",
                hardly(
                    f"it saves hardly any decoder steps (1.2 times fewer): {LONG}",
                    CHANCE,
                ),
            ),
        ),
        (
            [tried(1, 0.8, fewer=0.9)],
            *(
                "no-gain",
                hardly(
                    f"it saves no decoder steps (it takes 1.1 times as many): {LONG}",
                    best(0.8, 1),
                ),
            ),
        ),
        (
            [tried(1, 0.5, fewer=0.7, tokens=0.4)],
            *(
                "no-gain",
                hardly(
                    LONGER, best(0.5, 1), f"Train the pipelined decoder further, {ENDS}"
                ),
            ),
        ),
        # Times that scatter
        ([tried(1, 2.0, slowest=0.8)], "unclear", scattered(0.8, 2.0)),
        (
            [tried(1, 0.6, slowest=0.5, fastest=2.0), tried(3, 0.5, fewer=2.0)],
            "unclear",
            scattered(0.5, 2.0),
        ),
        # When every delay costs quality, the one that costs least; a loss that may be
        # chance
        (
            [tried(1, 4.0, -3.0), tried(2, 2.5, -1.2), tried(3, 1.1, 0.0)],
            "trade",
            COSTS,
        ),
        ([tried(2, 2.5, -4.4, spread=5.0)], "trade", UNKNOWN),
    ],
)
def test_a_delay_is_taken_or_offered_or_told_why_not(decoders, verdict, text):
    advice = ask(*decoders)
    command = "pipedec generate --delay 2" if verdict in {"take", "trade"} else None
    assert (advice.verdict, advice.command, advice.text) == (verdict, command, text)


def test_few_subsequences_are_the_reason_where_they_give_no_speed():
    advice = ask(tried(1, 1.1, fewer=1.2), tried(2, 1.2, fewer=1.1), subsequences=1.4)
    assert (advice.verdict, advice.text) == (
        "few-subsequences",
        hardly(FEW, best(1.2, 2)),
    )
    advice = ask(tried(2, fewer=1.0, spread=0.0), subsequences=2)
    assert (advice.verdict, advice.text) == ("take", f"{FAST}. ROUGE-L is the same.")


AGREE = f"; its texts agree with those of {MODEL}:"
READ = f"Its cost is not known: read some of its texts before you take it, {ENDS}"


@pytest.mark.parametrize(
    ("rouge", "equal", "verdict", "text"),
    [
        (93.1, 480, "take", f"{TAKE}{AGREE} ROUGE-L 93.1, 48% equal."),
        (None, 480, "take", f"{TAKE}{AGREE} 48% equal."),
        (
            81.0,
            0,
            "trade",
            f"{TWO}) is 3.0 times as fast as {MODEL}{AGREE} ROUGE-L 81.0, 0% equal. {READ}",
        ),
    ],
)
def test_without_right_answers_advice_goes_by_speed_and_agreement(
    rouge, equal, verdict, text
):
    agreement = TextAgreement(rouge, equal, 1000)
    good = TextAgreement(95.0, 900, 1000) if verdict == "take" else agreement
    advice = ask(
        tried(2, quality=None, text_agreement=agreement),
        tried(3, 2.0, None, text_agreement=good),
    )
    assert (advice.verdict, advice.text) == (verdict, text)
    assert advice.cautions == ("Nothing could be scored: the quality is not known.",)


def on_dev(quality):
    return {
        "dev": Quality(failing(), {"rougeL": Difference(quality, quality, quality)})
    }


@pytest.mark.parametrize(("one", "two"), [(-0.2, -0.2), (5.0, -0.2), (0.0, -2.0)])
def test_one_of_several_is_chosen_on_the_split_before_and_taken_where_the_last_bears_it_out(
    one, two
):
    both = [
        tried(1, 9.0, one, other_splits=on_dev(-3.0)),
        tried(2, 3.0, two, other_splits=on_dev(0.0)),
    ]
    advice, chosen = ask(*both, beside=on_dev(0.0)), f"{TWO}, chosen on dev)"
    assert (advice.verdict, advice.entry) == (
        "trade" if two == -2 else "take",
        "Δt = 2",
    )
    if two == -2:
        assert advice.text == (
            f"{chosen} is 3.0 times as fast as {MODEL}, ROUGE-L -2.0, 95 % interval -2.4 to -1.6. It was as good on dev and "
            f"is not here: compare on more examples before you take it, {ENDS}"
        )
    else:
        assert advice.text.startswith(f"Take {chosen}: 3.0 times as fast")
    # one alone is no choice
    assert "chosen" not in ask(both[1], beside=on_dev(0.0)).text


@pytest.mark.parametrize(("quality", "verdict"), [(0.0, "take"), (-2.0, "trade")])
def test_where_the_last_split_has_no_right_answers_the_one_before_speaks_for_it(
    quality, verdict
):
    texts = {"quality": None, "text_agreement": TextAgreement(60.0, 0, 1000)}
    two = tried(2, 3.0, other_splits=on_dev(quality), **texts)
    chosen = ask(
        tried(1, 9.0, other_splits=on_dev(-3.0), **texts), two, beside=on_dev(0.0)
    )
    alone = ask(two, beside=on_dev(0.0))
    for advice in (chosen, alone):
        assert (advice.verdict, advice.entry) == (verdict, "Δt = 2")
        assert f"{TWO}, judged on dev)" in advice.text
        assert (
            "ROUGE-L is the same" if quality == 0 else "ROUGE-L -2.0, 95 %"
        ) in advice.text
        assert advice.cautions == (
            "The quality is that on dev: nothing else could be scored.",
        )


def test_a_split_without_right_answers_is_none_to_choose_on_where_the_last_has_some():
    dev = {"dev": Quality(failing(), {}, TextAgreement(60.0, 0, 1000))}
    ways = tried(1, 9.0, -3.0, other_splits=dev), tried(2, 3.0, -0.2, other_splits=dev)
    advice = ask(*ways, beside=dev)
    assert (advice.verdict, advice.text) == ("take", f"{TAKE}. {NONE}")


BAD, NO = (Fault("its texts say nothing"),), "No advice: the texts of"
PIPELINED, NOTHING = "the pipelined decoder", f"says nothing. Train further, {AGAIN}"
STAY = f"Stay with {MODEL}; train {PIPELINED} further, {AGAIN}"


@pytest.mark.parametrize(
    ("useless", "text"),
    [
        (
            "sequential, Δt = 1, Δt = 2",
            f"{NO} {MODEL} and of {PIPELINED} are useless, so their speed {NOTHING}",
        ),
        (
            "sequential, Δt = 1",
            f"{NO} {MODEL} are useless, so a comparison with it {NOTHING}",
        ),
        ("Δt = 1, Δt = 2", f"{NO} {PIPELINED} are useless, however fast it is. {STAY}"),
        ("Δt = 1", f"{TAKE}. {NONE}"),
    ],
)
def test_a_decoder_of_no_use_is_not_recommended_however_fast_it_is_nor_compared_with(
    useless, text
):
    verdict = "take" if useless == "Δt = 1" else "unfit"
    faults = {
        name: BAD if name in useless else ()
        for name in ("sequential", "Δt = 1", "Δt = 2")
    }
    one, two = (
        tried(1, 9.0, 3.0, faults=faults["Δt = 1"]),
        tried(2, 3.0, -0.2, faults=faults["Δt = 2"]),
    )
    advice = ask(one, two, faults=faults["sequential"])
    assert (advice.verdict, advice.text) == (verdict, text)
    assert (advice.entry is None) == (advice.command is None) == (verdict == "unfit")
    assert advice.cautions == tuple(
        f"{name}: its texts say nothing." for name in faults if faults[name]
    )


def test_where_few_examples_are_the_only_fault_more_are_advised():
    few = (Fault("5 examples are few", few_examples=True),)
    assert ask(tried(1, 9.0, 3.0), faults=few).text.startswith(
        "No advice: these are too few examples."
    )
    assert ask(tried(1, 9.0, 3.0, faults=BAD), faults=few).text.startswith(NO)


WORSE = Difference(-3.0, -5.1, -1.0)


@pytest.mark.parametrize(
    ("mine", "usual", "word"),
    [
        ({"dropped": 0.20}, {"dropped": 0.10}, "leaves out 20%"),
        ({"duplicated": 0.10}, {"duplicated": 0.01}, "10% of its subsequences repeat"),
        (
            {"truncated": 0.30},
            {},
            "cut short by time_max: `pipedec generate --set time_max=N` allows more.",
        ),
        ({"row_budget_exhausted": 0.25}, {}, "--set empty_rows=stop"),
        ({"truncated": 0.3}, {"truncated": 0.6}, "cut short in 60% of its texts"),
        ({"tokens": 2.8}, {}, "2.8 times as many tokens"),
        (
            {"batched": 0.8},
            {},
            "That is at batch size 1; at 4 it is 0.8 times as fast.",
        ),
        (
            {"alike": 0.4},
            {"alike": 0.1},
            "40% of its texts, and 10% of the baseline's, are the same",
        ),
        (
            {"others": {"rouge1": WORSE}},
            {},
            "ROUGE-1 is worse: -3.0, 95 % interval -5.1 to",
        ),
        (
            {},
            {"subsequences": 1.7},
            "Note that the targets have 1.7 subsequences on average",
        ),
        # quality: not known, of one example, or with too wide an interval for a decoder
        # that counts as good
        ({"quality": None}, {}, "the quality is not known"),
        ({"spread": None}, {}, "One example"),
        ({"spread": 3.0}, {}, "too few examples"),
    ],
)
def test_what_goes_wrong_more_often_than_in_the_baseline_or_is_not_known_is_a_caution(
    mine, usual, word
):
    advice = ask(tried(**mine), **usual)
    assert advice.verdict == "take"
    assert [word in caution for caution in advice.cautions] == [True]


def test_what_goes_wrong_is_told_where_the_advice_is_to_stay_too():
    advice = ask(tried(1, 0.8, fewer=0.9, truncated=0.3, quality=-9.0), truncated=0.0)
    assert advice.verdict == "no-gain" and advice.cautions[0].startswith(
        "30% of its texts are cut short"
    )
    # a baseline that writes nothing is no error
    assert (
        ask(tried(1, 0.8, fewer=0.9), totals=Totals.of(1000, 1000, 0)).verdict
        == "no-gain"
    )


def test_of_objects_advice_speaks_of_fields():
    one = replace(tried(dropped=0.20, duplicated=0.10), delay="together")
    said = ask(one, dropped=0.10, duplicated=0.01, subsequences=1.7).cautions
    assert len(said) == 3 and all(
        " fields " in caution and "subseq" not in caution for caution in said
    )


@pytest.mark.parametrize(
    ("mine", "usual"),
    [
        ({"dropped": 0.10}, {"dropped": 0.09}),
        ({"dropped": 0.50}, {}),
        ({}, {"dropped": 0.5}),
        ({"duplicated": 0.10}, {"duplicated": 0.10}),
        ({"truncated": 0.10}, {"truncated": 0.10}),
        ({"row_budget_exhausted": 0.0}, {}),
        ({"tokens": 1.1}, {}),
        ({"others": {"rouge1": Difference(-3.0, -5.1, 0.1)}}, {}),
        ({"quality": -2.0, "spread": 3.0}, {}),
    ],
)
def test_what_goes_wrong_as_often_in_the_baseline_is_none(mine, usual):
    assert ask(tried(**mine), **usual).cautions == ()


@pytest.mark.parametrize(
    ("noisy", "steady", "verdict"),
    [
        (
            {"speedup": 3.2},
            {"speedup": 2.1},
            "unclear",
        ),  # the steady one would be second best
        ({"speedup": 2.2}, {"speedup": 2.1}, "take"),  # about as fast
        (
            {"speedup": 3.2, "quality": -3.0},
            {"speedup": 2.1},
            "take",
        ),  # out of the question
        ({"speedup": 3.2}, {"speedup": 2.1, "quality": -3.0}, "unclear"),
    ],
)
def test_a_delay_is_not_taken_because_the_times_of_a_faster_one_scatter(
    noisy, steady, verdict
):
    advice = ask(tried(1, slowest=0.5, **noisy), tried(3, fewer=1.5, **steady))
    assert advice.verdict == verdict
    if verdict == "unclear":
        assert advice.text == scattered(0.5, 3.2)


@pytest.mark.parametrize(
    ("one", "three", "taken", "overlap"),
    [
        (
            {"speedup": 1.6, "slowest": 1.4},
            {"speedup": 1.7, "slowest": 1.5, "quality": 0.3},
            1,
            True,
        ),
        ({"speedup": 2.1, "fastest": 2.6}, {"speedup": 2.5}, 1, True),
        (
            {"speedup": 1.6},
            {"speedup": 1.7, "quality": -0.1},
            3,
            False,
        ),  # faster and no worse
        (
            {"speedup": 1.6},
            {"speedup": 1.7, "slowest": 1.5, "quality": 0.9, "fewer": 2.9},
            3,
            True,
        ),
    ],
)
def test_where_times_overlap_decoder_calls_decide_which_is_said(
    one, three, taken, overlap
):
    advice = ask(tried(1, **one), tried(3, **{"fewer": 2.0} | three))
    assert advice.entry == f"Δt = {taken}"
    end = " The times of Δt = 1 and Δt = 3 overlap and cannot tell which is faster: decoder calls decide."
    assert advice.text.endswith(end) == overlap
