"""What a report ends in: the decoder that is chosen, the verdict, and the cautions."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pipedec_cli.compare.advice import advise, advise_taught, exact_advice
from pipedec_cli.compare.entry import Quality, TextAgreement, Totals
from pipedec_cli.compare.timing import Gain
from pipedec_cli.metrics.differences import Difference
from pipedec_cli.metrics.useless import Fault
from tests.compare.decoders import entry
from tests.words import same_words

MODEL = "the sequential model"
RATES = ("duplicated", "dropped", "truncated", "alike")


def failing(**rates):
    """What was scored, as far as advice looks at it."""
    failures = {f"{name}_rate": rates.get(name, 0.0) for name in RATES}
    failures["dropped_rate"] = rates.get("dropped")
    failures["truncated"] = {"time_max": 1} if rates.get("truncated") else {}
    return SimpleNamespace(failures=SimpleNamespace(**failures))


def difference(quality, spread):
    if spread is None:
        return Difference(quality, None, None)
    return Difference(quality, quality - spread, quality + spread)


def tried(
    delay=1,
    speedup=3.0,
    quality=0.0,
    fewer=3.0,
    spread=0.4,
    tokens=1.0,
    slowest=None,
    fastest=None,
    batched=9.0,
    others=None,
    **more,
):
    """A delay that is so many times as fast as the baseline, with so many times fewer steps and tokens."""
    differences = {}
    if quality is not None:
        differences = {"rougeL": difference(quality, spread), **(others or {})}
    gain = Gain(speedup, slowest or speedup, fastest or speedup, None, None, 1.0)
    rates = {name: more.pop(name) for name in RATES if name in more}
    return entry(
        f"Δt = {delay}",
        command=f"pipedec generate --delay {delay}",
        differences=differences,
        gains={1: gain, 4: Gain(batched, batched, batched, None, None, 1.0)},
        totals=Totals.of(1000, round(100_000 / fewer), round(100_000 / tokens)),
        scored=failing(**rates),
        **more,
    )


def ask(*decoders, subsequences=5.0, faults=(), beside=None, totals=None, **usual):
    """The advice, whose text and cautions are those of the golden file."""
    baseline = entry(
        "sequential",
        "baseline",
        totals=totals or Totals.of(1000, 100_000, 100_000),
        scored=failing(**usual),
        faults=faults,
        other_splits=beside or {},
    )
    advice = advise(
        decoders, baseline, called=MODEL, subsequences=subsequences, metric="rougeL"
    )
    same_words("\n".join([advice.text, *advice.cautions]))
    return advice


@pytest.mark.parametrize(
    ("decoders", "verdict", "chosen"),
    [
        # The fastest of those that are as good; among those about as fast, quality
        # decides.
        (
            [tried(1, 4.0, -1.5), tried(2, 3.0, -0.2), tried(3, 2.0, 0.3)],
            *("take", "Δt = 2"),
        ),
        (
            [tried(1, 3.1, -0.4), tried(2, 3.0, 1.7, spread=1.0), tried(3, 2.0, 2.0)],
            *("take", "Δt = 2"),
        ),
        # Equal predictions; nothing scored.
        ([tried(2, spread=0.0)], "take", "Δt = 2"),
        ([tried(2, quality=None)], "take", "Δt = 2"),
        # Saved steps without saved time; hardly any, and a speed that may be chance;
        # none.
        ([tried(1, 1.1, fewer=2.5)], "no-gain", None),
        ([tried(1, 1.1, fewer=1.2, slowest=0.9)], "no-gain", None),
        ([tried(1, 0.8, fewer=0.9)], "no-gain", None),
        # Times that scatter.
        ([tried(1, 2.0, slowest=0.8)], "unclear", None),
        (
            [tried(1, 0.6, slowest=0.5, fastest=2.0), tried(3, 0.5, fewer=2.0)],
            *("unclear", None),
        ),
        # When every delay costs quality, the one that costs least; a loss that may be
        # chance.
        (
            [tried(1, 4.0, -3.0), tried(2, 2.5, -1.2), tried(3, 1.1, 0.0)],
            *("trade", "Δt = 2"),
        ),
        ([tried(2, 2.5, -4.4, spread=5.0)], "trade", "Δt = 2"),
    ],
)
def test_a_delay_is_taken_or_offered_or_told_why_not(decoders, verdict, chosen):
    advice = ask(*decoders)
    assert (advice.verdict, advice.entry) == (verdict, chosen)
    assert advice.is_missing == (verdict == "unclear")
    if chosen:
        assert advice.command == "pipedec generate --delay 2"


def test_few_subsequences_are_the_reason_where_they_give_no_speed():
    slow = ask(tried(1, 1.1, fewer=1.2), tried(2, 1.2, fewer=1.1), subsequences=1.4)
    assert slow.verdict == "few-subsequences"
    fast = ask(tried(2, fewer=1.0, spread=0.0), subsequences=2)
    assert fast.verdict == "take"


@pytest.mark.parametrize(
    ("rouge", "verdict"), [(93.1, "take"), (None, "take"), (81.0, "trade")]
)
def test_without_right_answers_advice_goes_by_speed_and_agreement(rouge, verdict):
    agreement = TextAgreement(rouge, 480, 1000)
    good = TextAgreement(95.0, 900, 1000) if verdict == "take" else agreement
    advice = ask(
        tried(2, quality=None, text_agreement=agreement),
        tried(3, 2.0, None, text_agreement=good),
    )
    assert (advice.verdict, advice.entry) == (verdict, "Δt = 2")


def on_dev(quality):
    return {"dev": Quality(failing(), {"rougeL": difference(quality, 0.0)})}


@pytest.mark.parametrize(
    ("one", "two", "verdict"),
    [(-0.2, -0.2, "take"), (5.0, -0.2, "take"), (0.0, -2.0, "trade")],
)
def test_one_of_several_is_chosen_on_the_split_before_and_taken_where_the_last_bears_it_out(
    one, two, verdict
):
    both = [
        tried(1, 9.0, one, other_splits=on_dev(-3.0)),
        tried(2, 3.0, two, other_splits=on_dev(0.0)),
    ]
    advice = ask(*both, beside=on_dev(0.0))
    assert (advice.verdict, advice.entry) == (verdict, "Δt = 2")
    # One alone is no choice.
    ask(both[1], beside=on_dev(0.0))


@pytest.mark.parametrize(("quality", "verdict"), [(0.0, "take"), (-2.0, "trade")])
def test_where_the_last_split_has_no_right_answers_the_one_before_speaks_for_it(
    quality, verdict
):
    texts = {"quality": None, "text_agreement": TextAgreement(60.0, 0, 1000)}
    one = tried(1, 9.0, other_splits=on_dev(-3.0), **texts)
    two = tried(2, 3.0, other_splits=on_dev(quality), **texts)
    for advice in (ask(one, two, beside=on_dev(0.0)), ask(two, beside=on_dev(0.0))):
        assert (advice.verdict, advice.entry) == (verdict, "Δt = 2")


def test_a_split_without_right_answers_is_none_to_choose_on_where_the_last_has_some():
    dev = {"dev": Quality(failing(), {}, TextAgreement(60.0, 0, 1000))}
    ways = tried(1, 9.0, -3.0, other_splits=dev), tried(2, 3.0, -0.2, other_splits=dev)
    advice = ask(*ways, beside=dev)
    assert (advice.verdict, advice.entry) == ("take", "Δt = 2")


BAD, FEW = Fault("its texts say nothing"), Fault("5 examples are few", True)


@pytest.mark.parametrize(
    ("useless", "verdict"),
    [
        ("sequential, Δt = 1, Δt = 2", "unfit"),
        ("sequential, Δt = 1", "unfit"),
        ("Δt = 1, Δt = 2", "unfit"),
        ("Δt = 1", "take"),
    ],
)
def test_a_decoder_of_no_use_is_not_recommended_however_fast_it_is_nor_compared_with(
    useless, verdict
):
    names = ("sequential", "Δt = 1", "Δt = 2")
    faults = {name: (BAD,) if name in useless else () for name in names}
    one = tried(1, 9.0, 3.0, faults=faults["Δt = 1"])
    two = tried(2, 3.0, -0.2, faults=faults["Δt = 2"])
    advice = ask(one, two, faults=faults["sequential"])
    assert (advice.verdict, advice.entry is None) == (verdict, verdict == "unfit")
    assert len(advice.cautions) == sum(map(bool, faults.values()))


@pytest.mark.parametrize("more", [(), (BAD,)])
def test_where_few_examples_are_the_only_fault_more_are_advised(more):
    assert ask(tried(1, 9.0, 3.0, faults=more), faults=(FEW,)).verdict == "unfit"


WORSE = Difference(-3.0, -5.1, -1.0)


@pytest.mark.parametrize(
    ("mine", "usual"),
    [
        ({"dropped": 0.20}, {"dropped": 0.10}),
        ({"duplicated": 0.10}, {"duplicated": 0.01}),
        ({"alike": 0.4}, {"alike": 0.1}),
        ({"row_budget_exhausted": 0.25}, {}),
        ({"truncated": 0.3}, {"truncated": 0.6}),
        ({"tokens": 2.8}, {}),
        ({"batched": 0.8}, {}),
        ({"others": {"rouge1": WORSE}}, {}),
        ({}, {"subsequences": 1.7}),
        # Quality: not known, of one example, or with too wide an interval for a decoder
        # that counts as good.
        ({"quality": None}, {}),
        ({"spread": None}, {}),
        ({"spread": 3.0}, {}),
    ],
)
def test_what_goes_wrong_more_often_than_in_the_baseline_or_is_not_known_is_a_caution(
    mine, usual
):
    advice = ask(tried(**mine), **usual)
    assert (advice.verdict, len(advice.cautions)) == ("take", 1)


def test_what_goes_wrong_is_told_where_the_advice_is_to_stay_too():
    slow = tried(1, 0.8, fewer=0.9, truncated=0.3, quality=-9.0, tokens=0.4)
    advice = ask(slow)
    assert advice.verdict == "no-gain"
    assert len(advice.cautions) == 3
    # A baseline that writes nothing is no error.
    silent = Totals.of(1000, 1000, 0)
    assert ask(tried(1, 0.8, fewer=0.9), totals=silent).verdict == "no-gain"


def test_of_objects_advice_speaks_of_fields_and_no_delay_is_advised():
    together = replace(tried(dropped=0.20), delay="together")
    assert len(ask(together, dropped=0.10, subsequences=1.7).cautions) == 2


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
    ],
)
def test_what_goes_wrong_as_often_in_the_baseline_is_none(mine, usual):
    assert ask(tried(**mine), **usual).cautions == ()


@pytest.mark.parametrize(
    ("noisy", "steady", "verdict"),
    [
        # The steady one would be second best.
        ({"speedup": 3.2}, {"speedup": 2.1}, "unclear"),
        # About as fast.
        ({"speedup": 2.2}, {"speedup": 2.1}, "take"),
        # Out of the question.
        ({"speedup": 3.2, "quality": -3.0}, {"speedup": 2.1}, "take"),
        ({"speedup": 3.2}, {"speedup": 2.1, "quality": -3.0}, "unclear"),
    ],
)
def test_a_delay_is_not_taken_because_the_times_of_a_faster_one_scatter(
    noisy, steady, verdict
):
    advice = ask(tried(1, slowest=0.5, **noisy), tried(3, fewer=1.5, **steady))
    assert advice.verdict == verdict


@pytest.mark.parametrize(
    ("one", "three", "taken"),
    [
        (
            {"speedup": 1.6, "slowest": 1.4},
            {"speedup": 1.7, "slowest": 1.5, "quality": 0.3},
            1,
        ),
        ({"speedup": 2.1, "fastest": 2.6}, {"speedup": 2.5}, 1),
        # Faster and no worse.
        ({"speedup": 1.6}, {"speedup": 1.7, "quality": -0.1}, 3),
        (
            {"speedup": 1.6},
            {"speedup": 1.7, "slowest": 1.5, "quality": 0.9, "fewer": 2.9},
            3,
        ),
    ],
)
def test_where_times_overlap_decoder_calls_decide_which_is_said(one, three, taken):
    advice = ask(tried(1, **one), tried(3, **{"fewer": 2.0} | three))
    assert advice.entry == f"Δt = {taken}"


def in_exact_mode(name, speedup, low, equal=5):
    return entry(
        name,
        "exact",
        gains={1: Gain(speedup, low, speedup, None, None, 1.0)},
        command=f"pipedec generate --draft {name}",
        text_agreement=TextAgreement(99.0, equal, 5),
    )


def test_the_fastest_exact_mode_with_the_same_texts_is_named_if_it_is_faster():
    slow, unsure = in_exact_mode("a", 0.9, 0.8), in_exact_mode("b", 1.2, 0.9)
    other = in_exact_mode("c", 3.0, 3.0, equal=4)
    assert exact_advice([slow, unsure, other], MODEL) == ""
    good = [in_exact_mode("source", 1.4, 1.3), in_exact_mode("jacobi", 1.6, 1.5)]
    same_words(exact_advice([slow, *good, other], MODEL))


@pytest.mark.parametrize(
    ("quality", "spread", "verdict"),
    [
        (9.0, 2.0, "take"),
        (-9.0, 2.0, "no-gain"),
        (1.0, 2.0, "unclear"),
        (9.0, None, "unclear"),
        (None, None, "unclear"),
    ],
)
def test_a_taught_model_is_judged_by_its_answers_however_fast_it_is(
    quality, spread, verdict
):
    taught = tried(quality=quality, spread=spread, speedup=0.9)
    change = taught.quality.differences.get("rougeL")
    advice = advise_taught(taught, entry("untrained"), change, "rougeL")
    assert advice.verdict == verdict
    assert (advice.command is not None) == (verdict == "take")
    same_words(advice.text)
