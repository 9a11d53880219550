"""Comparisons: what reports and benches hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.evaluate.comparison import (
    MANY,
    Bench,
    Conditions,
    Run,
    Sample,
    SizeRow,
    assemble,
    by_size,
    choose_sample,
    with_quality,
)
from pipedec_cli.evaluate.entry import Entry, Quality, TextAgreement, TokenAgreement, Totals
from pipedec_cli.evaluate.machine import Machine, disturbance
from pipedec_cli.evaluate.runners import Lengths
from pipedec_cli.evaluate.scoring import Difference
from pipedec_cli.evaluate.timing import Output, Pass, Timing
from tests.evaluate.decoders import FakeDecoder, entry, scored, timing

MACHINE = Machine("a processor", 2, 2, 2, 1 << 30, None, "Linux x86_64", "3.11")


def conditions(**more):
    return Conditions(device="cpu", machine=MACHINE, versions={"torch": "2", "ctranslate2": None}, **more)


def test_totals_have_means_and_agreement_counts_equal_examples():
    assert Totals.of(2, 30, 60) == Totals(2, 30, 60, 15.0, 30.0, 2.0)
    assert Totals.of(0, 0, 0) == Totals(0, 0, 0, 0.0, 0.0, 0.0)
    one, other = [Output((1, 2), 3), Output((1,), 2)], [Output((1, 2), 1), Output((2,), 2)]
    assert TokenAgreement.between(one, other) == TokenAgreement(1, 2)


def test_gains_are_taken_where_both_were_timed_and_an_entry_is_saved_as_json():
    mine = entry("a", timings={1: timing([2.0], 10), 4: timing([1.0], 1)})
    assert list(mine.gains_over(entry(timings={1: timing([2.0], 1)}))) == [1]
    content = json.loads(json.dumps(mine.values(scored=True)))
    assert (content["name"], content["role"], content["settings"]) == ("a", "pipelined", {"dtype": "float32"})
    assert content["speed"][0]["examples_per_second"] == 0.5
    assert content["speed"][0]["over_baseline"] is None
    assert content["memory"] is content["quality"] is content["agreement"] is None


@given(st.integers(0, 300), st.integers(1, 60))
def test_sample_has_one_example_of_each_equal_part_and_is_always_the_same(count, wanted):
    places = choose_sample(count, wanted)
    taken = min(count, wanted)
    assert len(places) == taken
    for part, place in enumerate(places):
        assert part * count // taken <= place < (part + 1) * count // taken
    assert choose_sample(count, wanted) == places


def test_sample_meets_data_that_repeat_themselves_at_different_points_and_says_what_was_timed_and_how():
    assert len({place % 10 for place in choose_sample(320, 32)}) > 5
    some, everything = Sample(32, 500, 3).line, Sample(8, 8, 5).line
    assert some.startswith("32 of 500 examples (one drawn from each of as many equal parts")
    assert everything.startswith("all 8 examples timed in one process")
    assert "medians of 5 repeats" in everything


def run(segments, steps, seconds):
    return Run(scored(segments).scores, dict(zip("012", steps, strict=True)), seconds)


def test_breakdown_has_steps_of_all_and_times_of_the_timed():
    baseline = run([["a b", "c d"]] * 3, [10, 10, 40], {"0": 3.0, "2": 8.0})
    mine = run([["a b", "c d"], ["a b"], ["a b", "c d"]], [5, 5, 10], {"0": 1.0, "2": 2.0})
    rows = by_size(mine, baseline, {1: [], 2: ["0", "1"], 9: ["2"]}, "rougeL")
    # a row for each number of the paper's figures, and for others that there are
    assert [row.subsequences for row in rows] == [1, *range(2, 10)]
    _, two, three, *_, nine = rows
    assert three == SizeRow(3, 0, None, 0, None, None, None)
    assert (two.subsequences, two.examples, two.fewer_steps) == (2, 2, 2.0)
    assert (two.timed, two.speedup) == (1, 3.0)
    assert two.baseline_quality == 100.0
    assert two.quality == pytest.approx((100 + 100 * 2 / 3) / 2)
    assert (nine.fewer_steps, nine.speedup) == (4.0, 4.0)
    # many subsequences stand together, and what was not timed is left open
    baseline, mine = run([["a b"]] * 3, [9, 9, 9], {}), run([["a b"]] * 3, [3, 3, 3], {"0": 1.0})
    *_, row = by_size(mine, baseline, {MANY: ["0"], MANY + 1: ["1"], 40: ["2"]}, "rougeL")
    assert by_size(mine, baseline, {}, "rougeL") == ()
    assert (row.subsequences, row.examples, row.timed, row.speedup) == (MANY, 3, 0, None)


def compared(sizes=(1, 2), peer_sizes=(1,), exact=(), delay=1, disturbed=None, baseline="sequential"):
    """A baseline, one delay and a peer, with two examples, of which the second was timed; `exact` are names."""

    def timed(seconds, exhausted=False):
        passes = [Pass((Output((5, 6), 4, exhausted),), 4, 0.0, None, (seconds,))]
        return {size: Timing.of(size, passes) for size in sizes}

    def measured(name, role, timings, **more):
        one = Entry(name=name, role=role, runner=FakeDecoder(), timings=timings, **more)
        return one if role == "baseline" else one.beside(entries[0])

    texts, agreed = [["a b", "c d"]] * 2, TextAgreement(100.0, 2, 2)
    entries = [measured(baseline, "baseline", timed(6.0))]
    entries += [
        measured("Δt = 1", "pipelined", timed(2.0, exhausted=True), delay=delay, command="generate"),
        *(measured(name, "exact", timed(1.0), delay=1, command="exact t5") for name in exact),
        measured("theirs", "peer", {size: timing([12.0], 4) for size in peer_sizes}),
    ]
    qualities = [
        Quality(scored(texts, steps=(8, 8))),
        Quality(scored(texts, steps=(2, 4)), {"rougeL": Difference(-0.1, None, None)}),
        *(Quality(scored(texts, steps=(2, 2)), {}, agreed) for _ in exact),
    ]
    entries = [
        with_quality(one, {"test": quality}) for one, quality in zip(entries, qualities, strict=False)
    ] + entries[len(qualities) :]
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
    sums = [(one.totals.examples, one.totals.steps, one.totals.tokens) for one in (first, mine)]
    assert sums == [(2, 16, 4), (2, 6, 4)]
    assert {size: gain.speedup for size, gain in mine.gains.items()} == {1: 3.0, 2: 3.0}
    exhausted = [one.row_budget_exhausted for one in (first, mine, theirs)]
    assert exhausted == [None, 1.0, None]
    assert report.explored and not compared(delay="together").explored
    assert (first.gains, report.subsequences_per_target) == ({}, 2.0)
    row, *_ = report.by_subsequences["Δt = 1"]
    assert (row.examples, row.fewer_steps, row.timed, row.speedup) == (2, 16 / 6, 1, 3.0)
    assert (report.advice.verdict, report.advice.entry, report.advice.command) == (
        "take",
        "Δt = 1",
        "generate",
    )
    content = json.loads(json.dumps(report.values()))
    assert content["entries"][1]["speed"][0]["over_baseline"]["speedup"] == 3.0
    assert content["entries"][1]["quality"]["signature"].startswith("rouge|")
    assert (content["conditions"]["machine"]["processor"], content["sample"]["timed"]) == ("a processor", 1)
    # a peer that was not timed at a batch size has no figures there
    report = compared(sizes=(2,), peer_sizes=())
    assert report.entries[2].gains == {}
    assert {row.timed for row in report.by_subsequences["Δt = 1"]} == {0}


def test_the_decision_comes_first_and_a_warning_about_other_work_behind_it():
    plain, report = compared(), compared(disturbed=disturbance(0.5))
    assert report.advice.text == plain.advice.text and plain.advice.text.startswith("Take Δt = 1")
    (warning, *cautions) = report.advice.cautions
    assert warning.startswith("Other work took 50% of the machine's processors") and warning.endswith(".")
    assert (tuple(cautions), report.notes) == (plain.advice.cautions, plain.notes), "said once"


def test_without_a_sequential_model_the_first_line_says_so_and_names_the_command():
    report = compared(baseline="waiting schedule")
    lacking = "There is no sequential model to compare with: `pipedec train --decoder sequential` makes one."
    assert report.advice.text == f"{lacking} {compared().advice.text}"


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
    return Bench(
        entries=entries,
        conditions=conditions(),
        sample=Sample(1, 1, 1),
        model="m",
        lengths=Lengths.even(5, 2, 10),
    )


def forced(name, role, sizes, dtype="float32"):
    """An entry with the given seconds of decoding and calls at each batch size, and a second in the encoder."""
    timings = {
        size: timing([seconds + 1.0], calls, 1.0, examples=size, tokens=10, steps=calls, size=size)
        for size, (seconds, calls) in sizes.items()
    }
    return entry(name, role, timings=timings, dtype=dtype)


def test_ours_are_set_against_the_sequential_decoder_of_the_same_dtype_and_against_every_peer_in_json_too():
    made = bench(
        forced("sequential", "baseline", {1: (10.0, 11)}),
        forced("Δt = 1", "pipelined", {1: (3.0, 5)}),
        forced("sequential, bfloat16", "baseline", {1: (5.0, 11)}, "bfloat16"),
        forced("Δt = 1, bfloat16", "pipelined", {1: (1.0, 5)}, "bfloat16"),
        forced("theirs", "peer", {1: (21.0, 11)}),
    )
    found = {(one.name, other.name): gain for one, other, _, gain in made.ratios}
    assert {names: gain.speedup for names, gain in found.items()} == {
        ("sequential", "theirs"): 22 / 11,
        ("Δt = 1", "sequential"): 11 / 4,
        ("Δt = 1", "theirs"): 22 / 4,
        ("sequential, bfloat16", "theirs"): pytest.approx(22 / 6),
        ("Δt = 1, bfloat16", "sequential, bfloat16"): 6 / 2,
        ("Δt = 1, bfloat16", "theirs"): 22 / 2,
    }
    assert found["Δt = 1", "sequential"].decoding == 10 / 3
    assert found["Δt = 1", "sequential"].fewer_calls == 11 / 5
    content = json.loads(json.dumps(made.values()))
    assert content["lengths"]["forced"] is True
    first = content["entries"][0]
    assert (first["role"], first["speed"][0]["decoder_calls"]) == ("baseline", 11)
    ratios = [(ratio["entry"], ratio["over"], ratio["fewer_calls"]) for ratio in content["ratios"]]
    assert ratios == [(one.name, other.name, gain.fewer_calls) for one, other, _, gain in made.ratios]
    assert ("Δt = 1", "sequential", 2.2) in ratios
    # batch sizes stand by themselves, and a peer may lack one
    made = bench(
        forced("sequential", "baseline", {1: (10.0, 11), 4: (20.0, 11)}),
        forced("Δt = 1", "pipelined", {1: (3.0, 5), 4: (6.0, 5)}),
        forced("theirs", "peer", {1: (21.0, 11)}),
    )
    pairs = [(one.name, other.name, size) for one, other, size, _ in made.ratios]
    theirs = [("sequential", "theirs", 1), ("Δt = 1", "sequential", 1), ("Δt = 1", "theirs", 1)]
    assert pairs == [*theirs, ("Δt = 1", "sequential", 4)]
