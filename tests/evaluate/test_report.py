"""What a report and a bench hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.evaluate.agreement import TextAgreement
from pipedec_cli.evaluate.bench import Bench
from pipedec_cli.evaluate.competitor import Agreement
from pipedec_cli.evaluate.forced import Lengths
from pipedec_cli.evaluate.machine import Machine, disturbance
from pipedec_cli.evaluate.report import MANY, Run, Sample, assemble, by_size, choose_sample
from pipedec_cli.evaluate.significance import Difference
from pipedec_cli.evaluate.timing import Output, Pass, Timing
from tests.evaluate.decoders import competitor, scored, timing

WHERE = {
    "device": "cpu",
    "machine": Machine("a processor", 2, 2, 2, 1 << 30, None, "Linux x86_64", "3.11"),
    "versions": {"torch": "2", "ctranslate2": None},
}


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
    assert three == (3, 0, None, 0, None, None, None)
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


def compared(sizes=(1, 2), peer_sizes=(1,), exact=(), delay=1, disturbed=None):
    """A baseline, one delay and a peer, with two examples, of which the second was timed."""

    def timed(seconds, row_budget_exhausted=False):
        passes = [Pass([Output((5, 6), 4, row_budget_exhausted)], 4, 0.0, None, (seconds,))]
        return {size: Timing.of(size, passes) for size in sizes}

    told = [["a b", "c d"]] * 2
    first = competitor("sequential", "baseline", scored=scored(told, steps=(8, 8)), timings=timed(6.0))
    mine = competitor(
        "Δt = 1",
        options="--delay 1",
        delay=delay,
        scored=scored(told, steps=(2, 4)),
        timings=timed(2.0, row_budget_exhausted=True),
        differences={"rougeL": Difference(-0.1, None, None)},
    )
    theirs = competitor("theirs", "peer", timings={size: timing([12.0], 4) for size in peer_sizes})
    for one in exact:
        one.timings, one.scored = timed(1.0), scored(told, steps=(2, 2))
    entries = {"entries": (first, mine, theirs, *exact), "absent": (), "disturbed": disturbed, **WHERE}
    names = {"metric": "rougeL", "called": "the plain model", "baseline": "the plain model"}
    return assemble(entries, ["1"], sample=Sample(1, 2, 1), dtype="float32", significance="", **names)


def test_report_is_put_together_from_scores_and_timings():
    report = compared()
    first, mine, theirs = report.entries
    assert [one.totals[:3] for one in (first, mine)] == [(2, 16, 4), (2, 6, 4)]
    assert {size: gain.speedup for size, gain in mine.gains.items()} == {1: 3.0, 2: 3.0}
    assert (first.row_budget_exhausted, mine.row_budget_exhausted, theirs.row_budget_exhausted) == (
        None,
        1.0,
        None,
    )
    assert report.explored and not compared(delay="together").explored
    assert theirs.agreement == Agreement(0, 1)
    assert (first.gains, report.subsequences) == ({}, 2.0)
    row, *_ = report.sizes["Δt = 1"]
    assert (row.examples, row.fewer_steps, row.timed, row.speedup) == (2, 16 / 6, 1, 3.0)
    assert (report.advice.verdict, report.advice.options) == ("take", "--delay 1")
    content = json.loads(json.dumps(report.as_json()))
    assert content["decoders"][1]["speed"][0]["over_baseline"]["speedup"] == 3.0
    assert content["decoders"][1]["quality"]["signature"].startswith("rouge|")
    # a peer that was not timed at a batch size has no figures there
    report = compared(sizes=(2,), peer_sizes=())
    assert (report.entries[2].agreement, report.entries[2].gains) == (None, {})
    assert {row.timed for row in report.sizes["Δt = 1"]} == {0}


def test_that_other_work_got_in_the_way_is_said_with_the_advice_that_it_weakens():
    plain, report = compared(), compared(disturbed=disturbance(0.5))
    first, *others = report.advice.cautions
    assert first.startswith("Other work took 50% of the machine's processors") and first.endswith("machine.")
    assert (tuple(others), report.notes) == (plain.advice.cautions, plain.notes), "said once"


def test_exact_mode_has_a_sentence_of_its_own_and_is_no_delay_to_take():
    """Not even where it is the fastest; it stands in no breakdown, since its texts are the baseline's."""
    told = {"delay": 1, "options": "--exact t5", "text_agreement": TextAgreement(100.0, 2, 2)}
    report = compared(exact=[competitor("exact-pipelined", "exact", **told)])
    assert (report.advice.verdict, report.advice.options) == ("take", "--delay 1")
    said = "If no word may change, exact-pipelined (`pipedec generate --exact t5`) gives the very text of the plain model, 6.0"
    assert said in report.advice.text
    assert set(report.sizes) == {"Δt = 1"}
    assert [one.name for one in report.pipelined] == ["Δt = 1"]
    totals, agreement = report.entries[3].totals, report.entries[3].agreement
    assert (totals.draft_steps, totals.as_json()["tokens_per_check"]) == (0, 1.0)
    assert agreement == Agreement(1, 1)
    assert "If no word" not in compared().advice.text


def bench(*entries):
    told = {"lengths": Lengths.even(5, 2, 10), "bandwidth": (1e9,), "reader": "a test", "repeats": 1}
    return Bench(entries=entries, model="m", steps=(), **told, **WHERE)


def forced(name, role, sizes, dtype="float32"):
    """A decoder whose decoding took so many seconds and calls at each batch size, and its encoder a second."""
    timings = {
        size: timing([seconds + 1.0], calls, 1.0, examples=size, tokens=10, steps=calls, size=size)
        for size, (seconds, calls) in sizes.items()
    }
    made = competitor(name, role, timings=timings)
    made.runner.settings = {"dtype": dtype}
    return made


def test_ours_are_set_against_the_sequential_decoder_of_the_same_dtype_and_against_every_peer():
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
    # batch sizes stand by themselves, and a peer may lack one
    made = bench(
        forced("sequential", "baseline", {1: (10.0, 11), 4: (20.0, 11)}),
        forced("Δt = 1", "pipelined", {1: (3.0, 5), 4: (6.0, 5)}),
        forced("theirs", "peer", {1: (21.0, 11)}),
    )
    pairs = [(one.name, other.name, size) for one, other, size, _ in made.ratios]
    theirs = [("sequential", "theirs", 1), ("Δt = 1", "sequential", 1), ("Δt = 1", "theirs", 1)]
    assert pairs == [*theirs, ("Δt = 1", "sequential", 4)]


def test_json_of_a_bench_holds_everything_and_says_that_lengths_are_forced():
    content = json.loads(json.dumps(bench(forced("sequential", "baseline", {1: (1.0, 2)})).as_json()))
    assert content["lengths"]["forced"] is True
    assert content["decoders"][0]["kind"] == "sequential"
    assert content["decoders"][0]["speed"][0]["decoder_calls"] == 2
    assert content["bandwidth"] == {"reader": "a test", "bytes_per_second": [1e9], "median": 1e9}
    assert content["machine"]["processor"] == "a processor"
