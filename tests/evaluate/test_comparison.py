"""What a report holds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.records import Generated, Record
from pipedec_cli.evaluate.breakdown import MANY, Run, by_size
from pipedec_cli.evaluate.comparison import (
    Entry,
    Sample,
    choose_sample,
    outcome,
    primary_metric,
    totals,
)
from pipedec_cli.evaluate.failures import count_failures
from pipedec_cli.evaluate.gain import gains_over
from pipedec_cli.evaluate.metrics.measure import ScoringItem, score
from pipedec_cli.evaluate.metrics.rouge import Rouge
from pipedec_cli.evaluate.scoring import LoadedRun, ScoredRun
from pipedec_cli.evaluate.significance import Difference
from pipedec_cli.evaluate.timing import Lap, Output, Timing


def prediction(steps, tokens):
    record = Record("1", "s", None, None, (), "f:1")
    return Generated(text="", segments=(), steps=steps, tokens=tokens, record=record)


def items(segments, gold=("a b", "c d"), truncated=None):
    return [
        ScoringItem(
            f"{n}", " ".join(s), tuple(s), gold=gold, references=(" ".join(gold),), truncated=truncated
        )
        for n, s in enumerate(segments)
    ]


def scored(segments, **more):
    rows = items(segments, **more)
    run = LoadedRun(Path("x.jsonl"), "x", [], "records", {})
    return ScoredRun(run, rows, score(rows, Rouge()), count_failures(rows))


def test_totals_are_sums_and_their_means():
    found = totals([prediction(10, 30), prediction(20, 30)])
    assert (found.steps_per_example, found.tokens_per_example, found.tokens_per_step) == (15.0, 30.0, 2.0)
    assert found.as_json()["tokens_per_step"] == 2.0
    assert totals([]).steps_per_example == totals([]).tokens_per_step == totals([]).tokens_per_example == 0.0


@given(st.integers(0, 300), st.integers(1, 60))
def test_sample_has_one_example_of_each_equal_part_and_is_always_the_same(count, wanted):
    places = choose_sample(count, wanted)
    taken = min(count, wanted)
    assert len(places) == taken
    for part, place in enumerate(places):
        assert part * count // taken <= place < (part + 1) * count // taken
    assert choose_sample(count, wanted) == places


def test_sample_of_data_that_repeat_themselves_meets_them_at_different_points():
    assert len({place % 10 for place in choose_sample(320, 32)}) > 5


def test_sample_says_what_was_timed_and_how():
    assert Sample(32, 500, 3).line.startswith(
        "32 of 500 examples (one drawn from each of as many equal parts"
    )
    assert Sample(8, 8, 5).line.startswith("all 8 examples timed in one process")
    assert "medians of 5 repeats" in Sample(8, 8, 5).line


def test_primary_metric_is_the_one_of_the_papers_figures():
    assert primary_metric(scored([["a b"]]).scores) == "rougeL"


def timing(seconds, calls, size=1):
    return Timing("x", size, (Lap(seconds, 0.0, None),), calls, (Output((1, 2), 2),))


def entry(name, seconds, steps, role="pipelined", segments=(("a b", "c d"),), **more):
    return Entry(
        name=name,
        role=role,
        settings={"dtype": "float32"},
        options=f"--delay {name}",
        scored=scored([list(s) for s in segments]),
        totals=totals([prediction(steps, 40)]),
        timings={1: timing(seconds, steps)},
        **more,
    )


def test_outcome_is_speed_at_the_smallest_batch_and_steps_over_all_examples():
    baseline = entry("0", 10.0, 40, role="baseline")
    mine = entry("1", 2.0, 10, differences={"rougeL": Difference(-0.1, None, None)}, used_up=0.5)
    mine = replace(mine, gains=gains_over(mine.timings, baseline.timings))
    found = outcome(mine, baseline, "rougeL")
    assert (found.speedup, found.fewer_steps, found.options) == (5.0, 4.0, "--delay 1")
    assert found.difference == Difference(-0.1, None, None)
    assert found.rates.used_up == 0.5


def test_rates_are_those_of_the_predictions():
    rows = scored([["a b", "a b"]], truncated="time_max")
    rates = Entry("x", "pipelined", {}, scored=rows).rates
    assert (rates.duplicated, rates.dropped, rates.truncated) == (0.5, 0.0, 1.0)
    assert Entry("x", "peer", {}).rates.dropped is None


def test_entry_is_saved_as_json():
    content = json.loads(json.dumps(entry("1", 2.0, 10).as_json()))
    assert content["speed"][0]["examples_per_second"] == 0.5
    assert content["speed"][0]["over_baseline"] is None
    assert content["quality"]["signature"].startswith("rouge|")
    assert content["memory"] is None


def run(segments, steps, seconds):
    scores = score(items(segments), Rouge())
    return Run(scores, {str(n): s for n, s in enumerate(steps)}, {str(n): s for n, s in seconds.items()})


def test_breakdown_has_steps_of_all_and_times_of_the_timed():
    baseline = run([["a b", "c d"]] * 3, [10, 10, 40], {0: 3.0, 2: 8.0})
    mine = run([["a b", "c d"], ["a b"], ["a b", "c d"]], [5, 5, 10], {0: 1.0, 2: 2.0})
    two, nine = by_size(mine, baseline, {2: ["0", "1"], 9: ["2"]}, "rougeL")
    assert (two.subsequences, two.examples, two.fewer_steps) == (2, 2, 2.0)
    assert (two.timed, two.speedup) == (1, 3.0)
    assert two.baseline_quality == 100.0
    assert two.quality == pytest.approx((100 + 100 * 2 / 3) / 2)
    assert (nine.fewer_steps, nine.speedup) == (4.0, 4.0)


def test_breakdown_puts_many_subsequences_together_and_leaves_open_what_was_not_timed():
    baseline = run([["a b"]] * 3, [9, 9, 9], {})
    mine = run([["a b"]] * 3, [3, 3, 3], {0: 1.0})
    (row,) = by_size(mine, baseline, {MANY: ["0"], MANY + 1: ["1"], 40: ["2"]}, "rougeL")
    assert (row.subsequences, row.examples, row.timed, row.speedup) == (MANY, 3, 0, None)
