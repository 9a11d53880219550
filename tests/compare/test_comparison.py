"""Comparisons: what reports and benches hold."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pipedec_cli.compare.comparison import (
    MANY,
    Bench,
    Sample,
    SizeRow,
    assemble,
    by_size,
    choose_sample,
)
from pipedec_cli.compare.entry import (
    Entry,
    Quality,
    TextAgreement,
    TokenAgreement,
    Totals,
)
from pipedec_cli.compare.machine import disturbance
from pipedec_cli.compare.runners import Lengths
from pipedec_cli.compare.timing import Output, Pass, Timing
from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.differences import Difference
from tests.compare.decoders import FakeDecoder, entry, scored, timing
from tests.jobs.report.reports import conditions


def test_totals_have_means_and_agreement_counts_equal_examples():
    assert Totals.of(2, 30, 60) == Totals(2, 30, 60, 15.0, 30.0, 2.0)
    assert Totals.of(0, 0, 0) == Totals(0, 0, 0, 0.0, 0.0, 0.0)
    one, other = (
        [Output((1, 2), 3), Output((1,), 2)],
        [Output((1, 2), 1), Output((2,), 2)],
    )
    assert TokenAgreement.between(one, other) == TokenAgreement(1, 2)


def test_gains_are_taken_where_both_were_timed_and_an_entry_is_saved_as_json():
    mine = entry("a", timings={1: timing([2.0], 10), 4: timing([1.0], 1)})
    assert list(mine.gains_over(entry(timings={1: timing([2.0], 1)}))) == [1]
    content = json.loads(json.dumps(mine.values(scored=True)))
    assert (content["name"], content["role"], content["settings"]) == (
        "a",
        "pipelined",
        {"dtype": "float32"},
    )
    assert content["speed"][0]["examples_per_second"] == 0.5
    assert content["speed"][0]["over_baseline"] is None
    assert content["memory"] is content["quality"] is content["agreement"] is None


@given(st.integers(0, 300), st.integers(1, 60))
def test_sample_has_one_example_of_each_equal_part_and_is_always_the_same(
    count, wanted
):
    places = choose_sample(count, wanted)
    taken = min(count, wanted)
    assert len(places) == taken
    for part, place in enumerate(places):
        assert part * count // taken <= place < (part + 1) * count // taken
    assert choose_sample(count, wanted) == places


def test_sample_meets_data_that_repeat_themselves_at_different_points_and_says_what_was_timed_and_how():
    assert len({place % 10 for place in choose_sample(320, 32)}) > 5
    some, everything = Sample(32, 500, 3).line, Sample(8, 8, 5).line
    assert some.startswith(
        "32 of 500 examples (one drawn from each of as many equal parts"
    )
    assert everything.startswith("all 8 examples timed in one process")
    assert "medians of 5 repeats" in everything


def sized(segments, steps, sizes, seconds):
    """An entry with these steps and numbers of target subsequences; `seconds` are of the last examples, which were timed."""
    made = scored(segments, steps=steps)
    items = []
    for item, size in zip(made.items, sizes, strict=True):
        right = structs.replace(item.record, target_segments=("x",) * size or None)
        items.append(structs.replace(item, record=right))
    made = replace(made, scores=replace(made.scores, items=tuple(items)))
    passes = [Pass((Output((5,), 1),) * len(seconds), 1, 0.0, None, tuple(seconds))]
    return entry(
        scored=made,
        timings={1: Timing.of(1, passes)} if seconds else {},
    )


def test_breakdown_has_steps_of_all_and_times_of_the_timed():
    sizes = (2, 2, 9)
    baseline = sized([["a b", "c d"]] * 3, [10, 10, 40], sizes, [3.0, 8.0])
    mine = sized(
        [["a b", "c d"], ["a b"], ["a b", "c d"]], [5, 5, 10], sizes, [1.0, 2.0]
    )
    rows = by_size(mine, baseline, ["1", "2"], "rougeL")
    # a row for each number of the paper's figures
    assert [row.subsequences for row in rows] == [*range(2, 10)]
    two, three, *_, nine = rows
    assert three == SizeRow(3, 0, None, 0, None, None, None)
    assert (two.subsequences, two.examples, two.fewer_steps) == (2, 2, 2.0)
    assert (two.timed, two.speedup) == (1, 3.0)
    assert two.baseline_quality == 100.0
    assert two.quality == pytest.approx((100 + 100 * 2 / 3) / 2)
    assert (nine.fewer_steps, nine.speedup) == (4.0, 4.0)
    # many subsequences stand together, other numbers have a row, and what was not timed
    # is left open
    sizes = (1, MANY, MANY + 1, 40)
    baseline, mine = (sized([["a b"]] * 4, [cost] * 4, sizes, []) for cost in (9, 3))
    one, *_, row = by_size(mine, baseline, [], "rougeL")
    assert (one.subsequences, one.examples) == (1, 1)
    assert (row.subsequences, row.examples, row.timed, row.speedup) == (
        MANY,
        3,
        0,
        None,
    )
    plain = sized([["a b"]], [9], [0], [])
    assert by_size(plain, plain, [], "rougeL") == ()


TEXTS = [["a b", "c d"]] * 2


def compared(sizes=(1, 2), peer_sizes=(1,), exact=(), delay=1, disturbed=None):
    """A baseline, one delay and a peer, with two examples, of which the second was timed; `exact` are names."""

    def timed(seconds, exhausted=False):
        passes = [Pass((Output((5, 6), 4, exhausted),), 4, 0.0, None, (seconds,))]
        return {size: Timing.of(size, passes) for size in sizes}

    agreed = TextAgreement(100.0, 2, 2)
    lost = {"rougeL": Difference(-0.1, None, None)}
    planned = {
        "sequential": (timed(6.0), Quality(scored(TEXTS, steps=(8, 8)))),
        "Δt = 1": (
            timed(2.0, exhausted=True),
            Quality(scored(TEXTS, steps=(2, 4)), lost),
        ),
        **{
            name: (timed(1.0), Quality(scored(TEXTS, steps=(2, 2)), {}, agreed))
            for name in exact
        },
        "theirs": ({size: timing([12.0], 4) for size in peer_sizes}, None),
    }
    roles = {"sequential": "baseline", "Δt = 1": "pipelined", "theirs": "peer"}
    more = {"Δt = 1": {"delay": delay, "command": "generate"}}
    entries = []
    for name, (timings, quality) in planned.items():
        role = roles.get(name, "exact")
        own = more.get(
            name, {"delay": 1, "command": "exact t5"} if name in exact else {}
        )
        plan = Entry(name=name, role=role, runner=FakeDecoder(), **own)
        qualities = {"test": quality} if quality else None
        baseline = entries[0] if entries else None
        entries.append(plan.filled(baseline, timings=timings, qualities=qualities))
    return assemble(
        entries,
        conditions(disturbed=disturbed),
        ["1"],
        metric="rougeL",
        called="the sequential model",
        baseline="the sequential model",
        sample=Sample(1, 2, 1),
        dtype="float32",
        significance="a test",
    )


def test_report_is_put_together_from_scores_and_timings():
    report = compared()
    first, mine, theirs = report.entries
    assert (first.totals.steps, mine.totals.steps) == (16, 6)
    assert {size: gain.speedup for size, gain in mine.gains.items()} == {1: 3.0, 2: 3.0}
    exhausted = [each.row_budget_exhausted for each in (first, mine, theirs)]
    assert exhausted == [None, 1.0, None]
    assert report.explored and not compared(delay="together").explored
    assert (first.gains, report.subsequences_per_target) == ({}, 2.0)
    row, *_ = report.by_subsequences["Δt = 1"]
    assert (row.examples, row.fewer_steps) == (2, 16 / 6)
    assert (row.timed, row.speedup) == (1, 3.0)
    advice = report.advice
    assert (advice.verdict, advice.command) == ("take", "generate")
    saved = json.loads(json.dumps(report.values()))["entries"][1]
    assert saved["speed"][0]["over_baseline"]["speedup"] == 3.0
    assert saved["quality"]["signature"].startswith("rouge|")


def test_a_peer_that_was_not_timed_at_a_batch_size_has_no_figures_there():
    report = compared(sizes=(2,), peer_sizes=())
    assert report.entries[2].gains == {}
    assert {row.timed for row in report.by_subsequences["Δt = 1"]} == {0}


def test_the_decision_comes_first_and_a_warning_about_other_work_behind_it():
    plain, report = compared(), compared(disturbed=disturbance(0.5))
    assert report.advice.text == plain.advice.text and plain.advice.text.startswith(
        "Take Δt = 1"
    )
    (warning, *cautions) = report.advice.cautions
    assert warning.startswith(
        "Other work took 50% of the machine's processors"
    ) and warning.endswith(".")
    assert (tuple(cautions), report.notes) == (plain.advice.cautions, plain.notes), (
        "said once"
    )


def test_exact_mode_has_a_sentence_of_its_own_and_is_no_delay_to_take():
    """Even if it is the fastest. It has no rows by number of subsequences: its texts are the baseline's."""
    report = compared(exact=["exact-pipelined"])
    assert (report.advice.verdict, report.advice.entry) == ("take", "Δt = 1")
    said = "If no word may change, exact-pipelined (`exact t5`) gives exactly the text of the sequential model, 6.0"
    assert said in report.advice.text
    assert set(report.by_subsequences) == {"Δt = 1"}
    assert [one.name for one in report.pipelined] == ["Δt = 1"]
    totals = report.entries[2].totals
    assert (totals.draft_steps, totals.tokens_per_check) == (0, 1.0)
    assert "If no word" not in compared().advice.text


def bench(*entries):
    lengths = Lengths.even(5, 2, 10)
    return Bench(
        entries=entries,
        conditions=conditions(),
        sample=Sample(1, 1, 1),
        model="m",
        lengths=lengths,
    )


def forced(name, role, sizes, dtype="float32"):
    """An entry with the given seconds of decoding and calls at each batch size, and a second in the encoder."""
    timings = {
        size: timing(
            [seconds + 1.0],
            calls,
            1.0,
            examples=size,
            tokens=10,
            steps=calls,
            size=size,
        )
        for size, (seconds, calls) in sizes.items()
    }
    return entry(name, role, timings=timings, dtype=dtype)


def test_ours_are_set_against_the_sequential_decoder_of_the_same_dtype_and_against_every_peer_in_json_too():
    made = bench(
        forced("sequential", "baseline", {1: (10.0, 11), 4: (20.0, 11)}),
        forced("Δt = 1", "pipelined", {1: (3.0, 5), 4: (6.0, 5)}),
        forced("other", "baseline", {1: (5.0, 11)}, "bfloat16"),
        forced("Δt = 2", "pipelined", {1: (1.0, 5)}, "bfloat16"),
        forced("theirs", "peer", {1: (21.0, 11)}),
    )
    gains = {}
    for ours, over, size, gain in made.ratios:
        gains[ours.name, over.name, size] = gain
    assert {names: gain.speedup for names, gain in gains.items()} == {
        ("sequential", "theirs", 1): 22 / 11,
        ("Δt = 1", "sequential", 1): 11 / 4,
        ("Δt = 1", "theirs", 1): 22 / 4,
        ("other", "theirs", 1): pytest.approx(22 / 6),
        ("Δt = 2", "other", 1): 6 / 2,
        ("Δt = 2", "theirs", 1): 22 / 2,
        ("Δt = 1", "sequential", 4): 21 / 7,
    }
    gain = gains["Δt = 1", "sequential", 1]
    assert (gain.decoding, gain.fewer_calls) == (10 / 3, 11 / 5)
    content = json.loads(json.dumps(made.values()))
    assert content["lengths"]["forced"] is True
    ratio = content["ratios"][1]
    assert (ratio["entry"], ratio["over"]) == ("Δt = 1", "sequential")
    assert (ratio["batch_size"], ratio["fewer_calls"]) == (1, 2.2)


def agreement(*decoders):
    made = ([Generated(text=text, segments=()) for text in texts] for texts in decoders)
    return TextAgreement.between(*made)


def test_equal_texts_are_counted_and_others_held_against_the_baselines_as_rouge_does():
    usual = ["a red cat runs home", "two dogs sleep", "", "so it is"]
    found = agreement(
        ["a red cat ran home", "two  dogs sleep ", "", "other words"], usual
    )
    assert (found.equal, found.of) == (2, 4)
    # four of five words in their order, two equal texts of which one is empty, and
    # nothing in common
    assert found.rouge_l == pytest.approx(100 * (0.8 + 1 + 1 + 0) / 4)
    assert found.line == "ROUGE-L 70.0, 50% equal"


def test_texts_that_rouge_cannot_read_are_counted_alone():
    found = agreement(["红色的猫", "一只狗"], ["红色的猫", "两只狗"])
    assert found == TextAgreement(None, 1, 2)
    assert found.line == "50% equal"
